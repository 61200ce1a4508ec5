"""What a run records, how it measures time, and what `Pair` makes of it."""

import math

import numpy as np
import pytest
from support import bundled, random_gpt2

import runs
from lab.block import verify_block
from lab.pair import LabPair, load_pair
from lab.schedules import costs_of
from speculative import verify

PROMPT = [5, 6, 7]


def pair(**settings):
    return LabPair(bundled("draft"), bundled("target"), **settings)


def test_a_run_records_what_happened():
    rounds = []
    run = pair(temperature=1).decode(PROMPT, 30, K=3, rng=0, on_round=rounds.append)
    assert run.ids.tolist() == [*PROMPT, *np.concatenate([r.emitted for r in rounds])]
    assert run.n_new == 30
    assert run.n_drafted == [len(r.drafted) for r in rounds]
    assert run.n_accepted == [r.n_accepted for r in rounds]
    kept = [runs.overlap(p, q) for r in rounds for p, q in zip(r.p, r.q[: len(r.emitted)])]
    assert run.p_accepted == kept
    assert np.concatenate([found.p_accepted for found in run.chances]).tolist() == kept
    assert run.alpha == pytest.approx(np.mean(kept))
    assert run.acceptance_rate == sum(run.n_accepted) / sum(run.n_drafted)
    assert run.tokens_per_round == 30 / len(rounds)


def test_what_a_round_costs():
    """A round costs K c + v + r plain steps, and this is what the speedup is made of."""
    both = pair()
    run = both.decode(PROMPT, 30, K=3)
    plain = both.decode(PROMPT, 30)
    assert len(run.target_seconds) == len(run.round_seconds)
    assert len(run.draft_seconds) == sum(run.n_drafted)
    costs = run.cost(plain)
    assert min(costs) > 0
    speedup = plain.seconds / run.seconds
    assert run.tokens_per_round / sum(costs) == pytest.approx(speedup)


def test_what_there_is_to_say_of_nothing():
    both = pair()
    for nothing in both.decode([5], 5, 0), both.decode([5], 0, 4), both.decode([5], 0):
        assert nothing.alpha is None
        assert nothing.acceptance_rate is None
    assert nothing.tokens_per_round is None
    assert nothing.tokens_per_second is None


def test_block_verification_looks_at_all_guesses():
    both = pair(temperature=1)
    run = both.decode(PROMPT, 60, 4, 0, verify=verify)
    assert len(run.p_accepted) < sum(run.n_drafted)
    run = both.decode(PROMPT, 60, 4, 0, verify=verify_block)
    assert len(run.p_accepted) == sum(run.n_drafted)


def test_a_rule_that_does_not_say_what_it_looks_at():
    options = {"K": 2, "verify": lambda *args: verify(*args)}
    assert pair().decode([5], 5, **options).alpha is None
    message = "adaptive needs a rule that says which guesses it looks at"
    with pytest.raises(ValueError, match=message):
        pair().decode([5], 5, schedule="adaptive", **options)


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


@pytest.mark.parametrize(("cost", "k"), [(0.01, 8), (1, 0)])
def test_with_given_costs_the_seed_fixes_the_text(cost, k):
    def text():
        options = {"schedule": "adaptive", "costs": lambda K: 1 + cost * np.arange(K + 1)}
        run = pair(temperature=1).decode(PROMPT, 60, K=8, rng=0, **options)
        assert run.n_drafted[0] == k
        return run.ids.tolist()

    assert text() == text()


def test_each_run_reads_the_prompt_again(n_computed):
    both = pair()
    for _ in range(2):
        n_computed.clear()
        both.decode(np.arange(20), 20, K=2)
        assert n_computed[:5] == [20, 20, 1, 1, 3]  # the prompt; two guesses, a pass of the target


def test_the_smaller_context_is_that_of_the_pair():
    sizes = dict(n_vocab=3, n_embd=8, n_head=2, n_layer=1)
    large, small = (random_gpt2(0, n_ctx=n_ctx, **sizes) for n_ctx in (8, 4))
    assert LabPair(large, small).n_ctx == LabPair(small, large).n_ctx == 4


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
    assert len(rounds[0].drafted) == 1
    assert max(len(r.drafted) for r in rounds) == 4
    with pytest.raises(ValueError, match="a stop of its own"):
        both.decode(PROMPT, 4, K=4, schedule="draft-confidence")


# The clocks


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({0: [1], None: [1, 1]}, [1, math.inf, math.inf]),  # 0 was timed once, which does not count
        ({0: [2, 9], 3: [6, 7, 8, 9, 99]}, [1, 1, math.inf, 4, math.inf]),  # now 1 is next
        ({0: [2, 9], 3: [6, 7, 8, 9, 99], 1: [2, 3, 5], 4: [1]}, [1, 1.5, 2, 4, 4.5, 5]),
        ({0: [2, 2], 1: [1, 1]}, [1, 0.5, 0.5]),  # by chance, drafting made the rounds faster
        ({0: [2, 2]}, [1]),
    ],
)
def test_costs_are_medians(times, expected):
    """times[None] are the steps of the plain loop."""
    assert costs_of(times, len(expected) - 1).tolist() == expected


def test_costs_are_kept_from_run_to_run(monkeypatch):
    """So `adaptive` need not try every K in each run."""
    both = pair()
    monkeypatch.setattr(runs.time, "perf_counter", Clock())  # a round takes 3 + 2 k seconds
    first = both.decode(PROMPT, 30, K=4, schedule="adaptive")
    both.decode(PROMPT, 30)
    second = both.decode(PROMPT, 30, K=4, schedule="adaptive")
    assert first.n_drafted[:5] == [0, 0, 1, 1, 1]
    assert second.n_drafted[0] == 1
