"""What a run records, how it measures time, and what `Pair` makes of it."""

import numpy as np
import pytest
from support.models import bundled

import runs
from lab.pair import LabPair, load_pair
from speculative import verify

PROMPT = [5, 6, 7]


def pair(**settings):
    return LabPair(bundled("draft"), bundled("target"), **settings)


def test_a_run_records_what_happened():
    rounds = []
    run = pair(temperature=1).decode(PROMPT, 30, K=3, rng=0, on_round=rounds.append)
    assert run.ids.tolist() == [*PROMPT, *np.concatenate([r.emitted for r in rounds])]
    assert run.n_drafted == [len(r.drafted) for r in rounds]
    assert run.n_accepted == [r.n_accepted for r in rounds]
    kept = [runs.overlap(p, q) for r in rounds for p, q in zip(r.p, r.q[: len(r.emitted)])]
    assert run.alpha == pytest.approx(np.mean(kept))
    assert run.acceptance_rate == sum(run.n_accepted) / sum(run.n_drafted)
    assert run.tokens_per_round == 30 / len(rounds)


def test_a_rule_that_does_not_say_what_it_looks_at_has_no_alpha():
    run = pair().decode([5], 5, K=2, verify=lambda *args: verify(*args))
    assert run.alpha is None


class Clock:
    """Each look at it takes a second."""

    now = 0

    def __call__(self):
        self.now += 1
        return self.now


def test_the_clock_stops_during_on_round(monkeypatch):
    """A round looks twice at each call, and at its end."""
    both = pair()
    target = both.target_model
    clock = Clock()
    monkeypatch.setattr(runs.time, "perf_counter", clock)

    def slow_target(ids, n_rows=1):
        clock.now += 9
        return target(ids, n_rows)

    def slow_reader(r):
        clock.now += 1000

    both.target_model = slow_target
    run = both.decode([5], 9, K=2, on_round=slow_reader)
    assert {*run.draft_seconds} == {1}
    assert {*run.target_seconds} == {10}
    assert run.round_seconds == [12 + 2 * k for k in run.n_drafted]


def test_each_run_reads_the_prompt_again(n_computed):
    both = pair()
    for _ in range(2):
        n_computed.clear()
        both.decode(np.arange(20), 20, K=2)
        assert n_computed[:5] == [20, 20, 1, 1, 3]  # the prompt; two guesses, a pass of the target


@pytest.mark.parametrize("settings", [{"temperature": 0}, {"temperature": 1, "top_k": 1}], ids=str)
def test_a_lookup_that_finds_nothing_ends_the_round(settings):
    """A sampled row has a token with probability 1 here, even if the lookup found nothing."""
    both = load_pair("(not needed)", "target", "lookup", **settings)
    lookup = both.networks[0]
    rounds = []
    both.decode(PROMPT, 40, K=4, rng=0, on_round=rounds.append)
    text = PROMPT
    for r in rounds:
        for i in range(len(r.drafted) - 1):  # the last one may be no copy
            assert lookup.row(np.append(text, r.drafted[:i])).max() == 1
        text = np.append(text, r.emitted)
    assert {1, 4} <= {len(r.drafted) for r in rounds}


# The clocks
