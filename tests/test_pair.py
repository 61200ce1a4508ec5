"""What `Pair` records about a run, how it measures time, and the speedup that it predicts."""

import doctest
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import EXACT, bundled, models, product_of_conditionals

import pair
import schedules
import theory
from enumeration import output_distribution, total_variation
from pair import Pair, Run, Timed, load_pair, measured, predicted
from schedules import adaptive
from speculative import speculative_sampling


def test_the_example_of_the_docstring():
    assert doctest.testmod(pair) == (0, 5)


def test_a_run_records_what_happened():
    both, rounds, x = Pair(bundled("draft"), bundled("target"), temperature=1), [], np.array([5, 6, 7])
    run = both.decode(x, 30, K=3, rng=np.random.default_rng(0), on_round=rounds.append)
    assert run.n_new == 30 and run.ids[:3].tolist() == x.tolist()
    assert run.drafted.tolist() == [len(r.drafted) for r in rounds]
    assert run.accepted.tolist() == [r.n_accepted for r in rounds]
    assert run.betas.tolist() == theory.betas(rounds).tolist()
    assert run.acceptance_rate == run.accepted.sum() / run.drafted.sum()
    assert run.tokens_per_round == 30 / len(rounds)
    assert (
        sum(map(len, run.target.steps.values())) == len(rounds) - 1
    )  # all calls but the first, which reads the prompt
    assert 0 < run.draft.seconds + run.target.seconds < run.seconds
    plain = both.decode(x, 30, rng=np.random.default_rng(0))
    assert plain.n_new == 30 and plain.drafted.tolist() == [0] * 30 and plain.draft.seconds == 0


def test_the_clock_stops_during_on_round(monkeypatch):
    both, now = Pair(bundled("draft"), bundled("target")), itertools.count()
    monkeypatch.setattr(pair.time, "perf_counter", lambda: next(now))
    usual = both.decode([5], 9, K=2).seconds
    assert both.decode([5], 9, K=2, on_round=lambda r: [next(now) for _ in range(1000)]).seconds == usual


def test_each_run_reads_the_prompt_again():
    both, x = Pair(bundled("draft"), bundled("target")), np.arange(200)
    for run in (both.decode(x, 20, K=2, schedule="adaptive") for _ in range(2)):
        assert run.target.calls[0] > 3 * run.target.typical(1)
        assert run.draft.calls[0] > 2 * run.draft.typical(1)


def test_at_temperature_0_confidence_is_the_probability_at_temperature_1():
    both = Pair(bundled("draft"), bundled("target"))
    run = both.decode([5, 6, 7], 40, K=4, schedule="target-confidence")
    assert 1 < (run.drafted == 0).sum() < len(run.drafted)
    run = both.decode([5, 6, 7], 40, K=4, schedule="draft-confidence")
    assert (run.drafted[:-1] == 1).any() and run.drafted.max() > 1


def test_a_lookup_that_finds_nothing_ends_the_round():
    """At temperature 0 the sampled row cannot show this, because it always has a probability of 1."""
    both, rounds, text = load_pair("draft", "target", "lookup"), [], np.array([5, 6, 7])
    both.decode(text, 40, K=4, on_round=rounds.append)
    for r in rounds:
        prefixes = [np.append(text, r.drafted[:i]) for i in range(len(r.drafted))]
        found = [both.draft.network.model(prefix).max() == 1 for prefix in prefixes]
        assert all(found[:-1])  # only the last token may come from a uniform row
        text = np.append(text, r.emitted)
    assert len(rounds[0].drafted) == 1 and max(len(r.drafted) for r in rounds) == 4


# The clocks


def clocked(seconds, clock):
    """A `Timed` model of which each call advances the time clock[0] by seconds(n, n_rows)."""

    def model(ids, n_rows=1):
        clock[0] += seconds(len(ids), n_rows)
        return np.full((n_rows, 2), 0.5)

    return Timed(model, lambda: clock[0])


def test_timed_and_measured():
    clock = [0.0]
    draft, target = clocked(lambda n, n_rows: 1.0, clock), clocked(lambda n, n_rows: 3.0 + n_rows, clock)
    for n, n_rows in [(10, 1), (11, 1), (14, 3), (16, 5), (14, 3)]:
        assert target(np.zeros(n, dtype=int), n_rows).shape == (n_rows, 2)
    for n in (1, 2):
        draft(np.zeros(n, dtype=int))
    assert target.calls[0] == 4 and target.steps == {1: [4], 3: [6, 6], 5: [8]}
    assert (target.seconds, draft.seconds) == (4 + 4 + 6 + 8 + 6, 2)
    c, v = measured(draft, target)(5)
    assert c == 1 / 4
    assert v.tolist() == [1, 5 / 4, 6 / 4, 7 / 4, 8 / 4, 8 / 4]  # linear between two timed numbers of rows
    slow = clocked(lambda n, n_rows: n, clock)
    for n in range(1, 13):
        slow(np.zeros(n, dtype=int))
    assert slow.typical(1) == 8  # the median of the last nine, 4 ... 12
    assert slow.typical(2) == 0


@given(drawn=models(), K=st.integers(1, 3), ticks=st.lists(st.integers(1, 20), min_size=1, max_size=4))
def test_lossless_with_any_measured_costs(drawn, K, ticks):
    draft, target, x = drawn

    def decode(rng):
        times = itertools.accumulate(itertools.cycle(ticks))
        timed = [Timed(model, lambda: next(times)) for model in (draft, target)]
        return speculative_sampling(x, *timed, 4, K, rng, schedule=adaptive(K, measured(*timed)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedules, "OPENING", 2)
        assert total_variation(output_distribution(decode), product_of_conditionals(x, target, 4)) < EXACT


# The predicted speedup


def run_with(draft_steps, target_steps, drafted=(), betas=()):
    draft, target = Timed(None), Timed(None)
    draft.steps.update(draft_steps)
    target.steps.update(target_steps)
    return Run(np.zeros(9), 9, np.array(drafted, int), None, np.array(betas), None, draft, target)


def test_the_prediction_follows_the_formula():
    plain = run_with({}, {1: [2.0] * 6})
    fast = run_with({1: [0.5] * 8}, {5: [3.0] * 6}, drafted=[4] * 6, betas=[0.8, 0.6])
    assert predicted(plain, fast) == pytest.approx((theory.improvement(0.7, 4, 0.25, 1.5), 0.7, 0.25, 1.5))
    last = run_with(
        {1: [0.5] * 8}, {5: [3.0] * 6}, drafted=[4] * 6 + [2], betas=[0.7]
    )  # a pass over 3 rows was not timed
    tokens, costs = theory.expected_tokens(0.7, [4] * 6 + [2]).sum(), 6 * (4 * 0.25 + 1.5) + 2 * 0.25 + 1.25
    assert predicted(plain, last)[0] == pytest.approx(tokens / costs)


@pytest.mark.parametrize(
    ("n_plain", "n_draft", "n_fast", "betas"),
    [(4, 8, 6, [0.8]), (9, 4, 6, [0.8]), (9, 9, 4, [0.8]), (9, 9, 9, []), (0, 0, 0, [])],
)
def test_no_prediction_from_too_few_timings(n_plain, n_draft, n_fast, betas):
    fast = run_with({1: [0.5] * n_draft}, {5: [3.0] * n_fast}, [4], betas)
    assert predicted(run_with({}, {1: [2.0] * n_plain}), fast) is None
