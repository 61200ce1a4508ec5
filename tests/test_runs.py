"""What a run records, how it measures time, which turn is shown, and what its figures say."""

import numpy as np
import pytest

import runs
from lab.pair import load_pair
from runs import Run, in_turns, origins
from speculative import Round, verify
from terminal.figures import figures

PROMPT = [5, 6, 7]


def test_a_run_records_what_happened():
    rounds = []
    pair = load_pair("draft", "target", temperature=1)
    run = pair.decode(PROMPT, 30, K=3, rng=0, on_round=rounds.append)
    assert run.ids.tolist() == [*PROMPT, *np.concatenate([r.emitted for r in rounds])]
    assert run.n_drafted == [len(r.drafted) for r in rounds]
    assert run.n_accepted == [r.n_accepted for r in rounds]
    kept = [runs.overlap(p, q) for r in rounds for p, q in zip(r.p, r.q[: len(r.emitted)])]
    assert run.alpha == pytest.approx(np.mean(kept))
    assert run.acceptance_rate == sum(run.n_accepted) / sum(run.n_drafted)
    assert run.tokens_per_round == 30 / len(rounds)


def test_a_rule_that_does_not_say_what_it_looks_at_has_no_alpha():
    run = load_pair("draft", "target").decode([5], 5, K=2, verify=lambda *args: verify(*args))
    assert run.alpha is None


class Clock:
    """A clock that moves on by a second each time that it's read."""

    now = 0

    def __call__(self):
        self.now += 1
        return self.now


def test_the_clock_stops_during_on_round(monkeypatch):
    """A round reads the clock twice for each call, and at its end."""
    pair = load_pair("draft", "target")
    target = pair.target_model
    clock = Clock()
    monkeypatch.setattr(runs.time, "perf_counter", clock)

    def slow_target(ids, n_rows=1):
        clock.now += 9
        return target(ids, n_rows)

    def slow_reader(r):
        clock.now += 1000

    pair.target_model = slow_target
    run = pair.decode([5], 9, K=2, on_round=slow_reader)
    assert {*run.draft_seconds} == {1}
    assert {*run.target_seconds} == {10}
    assert run.round_seconds == [12 + 2 * k for k in run.n_drafted]


def test_each_run_reads_the_prompt_again(n_computed):
    pair = load_pair("draft", "target")
    for _ in range(2):
        n_computed.clear()
        pair.decode(np.arange(20), 20, K=2)
        assert n_computed[:5] == [20, 20, 1, 1, 3]  # the prompt; two guesses, a pass of the target


def test_each_token_behind_a_rejected_guess_is_shown():
    assert origins(Round([1], None, None, [2, 3], n_accepted=0)) == ["resampled"] * 2


def test_the_turn_with_the_median_speedup_is_shown(monkeypatch):
    monkeypatch.setattr(runs, "SECONDS", 99)
    times = 9, 3, 8, 4, 4, 4, 9, 2, 9, 1  # of both loops, turn by turn
    several = [Run(n_emitted=[1], round_seconds=[seconds]) for seconds in times]
    run = iter(several)
    loops = dict.fromkeys(["plain", "fast"], lambda: next(run))
    assert [*in_turns(loops, lambda title, decode: decode())] == several[:2]
    assert several[1].n_turns == 5


def test_what_v_below_1_and_several_passes_mean_is_said():
    plain = Run(n_emitted=[1, 1], round_seconds=[2, 2], target_seconds=[2, 2])
    odd = "v below 1", "tokens per pass"
    for target_seconds, shown, speedup in [
        ([1], [], "none: other programs"),
        ([1.8], ["v below 1"], "2.00"),
        ([1, 1], ["tokens per pass"], "2.00"),
    ]:
        guessed = Run(n_emitted=[2], n_drafted=[1], round_seconds=[2])
        guessed.target_seconds = target_seconds
        rows = figures(plain, guessed, "K = 1")
        assert [label for label in odd if label in rows] == shown
        assert rows["speedup"].text.startswith(speedup)
    assert rows["tokens per pass"].text == "1.00: it asks the target 2 times in 1 rounds"
