"""Each schedule by the exact proof, then what it decides, round by round."""

import itertools

import numpy as np
import pytest
from enumeration import output_distribution, total_variation
from hypothesis import given
from hypothesis import strategies as st
from test_speculative import Table, assert_lossless, models

import schedules
import theory
from schedules import Overheard, Timed, adaptive, draft_confidence, heuristic, measured, target_confidence
from speculative import Round, autoregressive_sampling, sampler, speculative_sampling, verify, verify_block

pytestmark = pytest.mark.filterwarnings("error")
both_verifiers = pytest.mark.parametrize("verifier", [verify, verify_block])


def round_of(n_drafted, n_accepted, p=(0.5, 0.5), q=(0.5, 0.5), token=0):
    """A round over two tokens whose rows are all alike."""
    drafted = np.full(n_drafted, token)
    emitted = np.append(drafted[:n_accepted], token)
    return Round(drafted, np.tile(p, (n_drafted, 1)), np.tile(q, (n_drafted + 1, 1)), emitted)


# Exact, whatever they decide


@both_verifiers
@pytest.mark.parametrize(
    "options",
    [
        lambda K, threshold: {"schedule": target_confidence(K, threshold)},
        lambda K, threshold: {"stop": draft_confidence(threshold)},
        lambda K, threshold: {"schedule": target_confidence(K, threshold), "stop": draft_confidence(threshold)},
        lambda K, threshold: {"schedule": heuristic(K)},
        lambda K, threshold: {"schedule": adaptive(K, lambda K: (threshold, 1.0))},
        lambda K, threshold: {"schedule": adaptive(K, lambda K: (0.1, 1.0)), "stop": draft_confidence(threshold)},
    ],
    ids=["target-confidence", "draft-confidence", "both", "heuristic", "adaptive", "adaptive, draft-confidence"],
)
@given(
    drawn=models(), N=st.sampled_from([4, 3]), K=st.integers(0, 3), threshold=st.sampled_from([0, 0.3, 0.5, 0.7, 1.1])
)
def test_lossless(verifier, options, drawn, N, K, threshold):
    """One schedule serves all the ways that the enumeration goes: so None takes it back to where it began."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedules, "OPENING", 2)  # let it decide within a few tokens
        patch.setattr(schedules, "EVERY", 3)
        assert_lossless(drawn, N, K, verify=verifier, **options(K, threshold))


@given(
    logits=st.lists(st.tuples(*[st.tuples(*[st.integers(-2, 2)] * 2)] * 2), min_size=1, max_size=3), K=st.integers(0, 3)
)
def test_lossless_with_gates_that_overhear_the_logits(logits, K):
    draft, target = (Overheard(Table(table)) for table in zip(*logits, strict=True))
    options = {"schedule": target_confidence(K, 0.6, target.rows), "stop": draft_confidence(0.6, draft.rows)}
    assert_lossless_as_sampled(draft, target, K, 0.5, options)
    assert_lossless_as_sampled(draft, target, K, 0, options)


def assert_lossless_as_sampled(draft, target, K, temperature, options):
    """With the temperature applied to what is overheard, draft and target: Overheard(Table)."""
    draft_model, target_model = sampler(draft, temperature), sampler(target, temperature)
    decoded = output_distribution(
        lambda rng: speculative_sampling([0], draft_model, target_model, 4, K, rng, **options)
    )
    plain = output_distribution(lambda rng: autoregressive_sampling([0], sampler(target.network, temperature), 4, rng))
    assert total_variation(decoded, plain) < 1e-12


@given(drawn=models(), K=st.integers(1, 3), ticks=st.lists(st.integers(1, 20), min_size=1, max_size=4))
def test_lossless_with_costs_by_the_clock(drawn, K, ticks):
    """Whatever the clock says, though what it says decides k."""
    draft, target, x = drawn

    def decode(rng):
        times = itertools.accumulate(itertools.cycle(ticks))
        timed = [Timed(model, lambda: next(times)) for model in (draft, target)]
        return speculative_sampling(x, *timed, 4, K, rng, schedule=adaptive(K, measured(*timed)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedules, "OPENING", 2)
        outputs = output_distribution(decode)
    plain = output_distribution(lambda rng: autoregressive_sampling(x, target, 4, rng))
    assert total_variation(outputs, plain) < 1e-12


# The gates


def test_target_confidence_drafts_while_the_target_is_sure():
    schedule = target_confidence(4, threshold=0.5)
    assert schedule(None) == 0
    assert schedule(round_of(0, 0, q=(0.6, 0.4))) == 4
    assert schedule(round_of(0, 0, q=(0.5, 0.5))) == 4
    assert schedule(round_of(0, 0, q=(0.4, 0.6))) == 0
    q = np.array([[0.9, 0.1], [0.2, 0.8], [0.9, 0.1]])
    p = np.full((2, 2), 0.5)
    assert schedule(Round(np.array([0, 0]), p, q, np.array([0, 1]))) == 4  # 0.8: its own row, and its own token
    assert schedule(Round(np.array([0, 0]), p, q, np.array([0, 0]))) == 0
    assert schedule(Round(np.array([0, 0]), p, q, np.array([0, 0, 1]))) == 0
    assert target_confidence(0, threshold=0)(round_of(0, 0)) == 0  # K = 0 never drafts


def test_draft_confidence_stops_after_an_unsure_token():
    stop = draft_confidence(0.4)
    assert not stop(np.array([0.6, 0.4]), 1)
    assert stop(np.array([0.7, 0.3]), 1)
    assert not stop(np.array([0.7, 0.3]), 0)


def test_gates_hear_the_logits_where_rows_are_one_hot():
    network = Overheard(Table(np.log([[0.7, 0.3]])))
    q = sampler(network, temperature=0)([0, 0], 2)
    assert q.tolist() == [[1, 0], [1, 0]]
    np.testing.assert_allclose(network.rows(), [[0.7, 0.3]] * 2)
    last = Round(np.array([0]), q[:1], q, np.array([0, 0]))
    assert target_confidence(3, 0.8)(last) == 3
    assert target_confidence(3, 0.8, network.rows)(last) == 0
    assert target_confidence(3, 0.7 - 1e-9, network.rows)(last) == 3
    assert draft_confidence(0.8, network.rows)(q[-1], 0)
    assert not draft_confidence(0.6, network.rows)(q[-1], 0)
    assert not draft_confidence(0.8)(q[-1], 0)


# The number that moves


def test_heuristic_goes_two_up_and_one_down():
    schedule = heuristic(5)
    assert schedule(None) == 5
    assert [schedule(round_of(5, 4)) for _ in range(6)] == [4, 3, 2, 1, 1, 1]
    assert [schedule(round_of(1, 1)) for _ in range(3)] == [3, 5, 5]
    schedule(round_of(5, 0))
    assert schedule(None) == 5
    zero = heuristic(0)
    assert [zero(None), zero(round_of(0, 0)), zero(round_of(1, 0))] == [0, 0, 0]


def after_opening(schedule, *rounds):
    """What the schedule says after its opening of plain rounds, and then after each of these rounds."""
    assert [schedule(None), schedule(round_of(0, 0)), schedule(round_of(0, 0))] == [0, 6, 0]
    return [schedule(last) for last in rounds]


def test_adaptive_takes_the_best_K_for_the_mean_of_beta():
    half = round_of(4, 4, q=(0.0, 1.0), token=1)  # beta = 0.5 at four positions
    sure = round_of(4, 4)  # beta = 1
    for c in (0.01, 0.1, 0.3, 0.6):
        schedule = adaptive(6, lambda K, c=c: (c, 1.0))
        found = after_opening(schedule, half, sure)
        assert found == [theory.optimal_K(alpha, c, K_max=6) for alpha in (0.5, 0.75)]
        assert after_opening(schedule, sure) == [6]  # None has made it forget


def test_adaptive_counts_verified_positions_only():
    p, q = np.array([[1, 0]] * 4), np.array([[1.0, 0]] * 2 + [[0, 1.0]] * 3)  # beta = 1, 1, 0, 0
    last = Round(np.array([0, 0, 0, 0]), p, q, np.array([0, 0, 1]))  # the third was rejected, the fourth not looked at
    found = after_opening(adaptive(6, lambda K: (0.3, 1.0)), last)
    assert found == [theory.optimal_K(2 / 3, 0.3, K_max=6)] != [theory.optimal_K(2 / 4, 0.3, K_max=6)]


def test_adaptive_fades():
    schedule = adaptive(6, lambda K: (0.1, 1.0), memory=4)
    off = round_of(1, 0, p=(1, 0), q=(0, 1))
    found = after_opening(schedule, round_of(4, 4), *[off] * 12)
    alphas = [0.75**i for i in range(13)]  # a quarter of the way each time
    best = [theory.optimal_K(alpha, 0.1, K_max=6) for alpha in alphas]
    assert best[-1] == 0
    best[12] += 1  # the 16th round with the opening's three: one more than the best
    assert found == best


def test_adaptive_obeys_the_costs():
    def costs(K):
        return 0.01, np.array([9.0, 5, 5, 1.5, 5, 5, 5])[: K + 1]

    assert after_opening(adaptive(6, costs), round_of(4, 4)) == [3]
    assert after_opening(adaptive(6, lambda K: (0.01, 8.0)), round_of(4, 4)) == [0]
    zero = adaptive(0, lambda K: (0.01, 1.0))
    assert [zero(None), *(zero(round_of(0, 0)) for _ in range(40))] == [0] * 41


def test_timed_and_measured():
    now = 0.0

    def model_that_takes(seconds):
        def model(ids, n_rows=1):
            nonlocal now
            now += seconds(len(ids), n_rows)
            return np.full((n_rows, 2), 0.5)

        return model

    draft = Timed(model_that_takes(lambda n, n_rows: 1.0), lambda: now)
    target = Timed(model_that_takes(lambda n, n_rows: 100.0 if n == 10 else 3.0 + n_rows), lambda: now)
    costs = measured(draft, target)
    for n, n_rows in [(10, 1), (11, 1), (14, 3), (16, 5), (14, 3)]:
        assert target(np.zeros(n, dtype=int), n_rows).shape == (n_rows, 2)
    for n in (1, 2):
        draft(np.zeros(n, dtype=int))
    c, v = costs(5)
    assert c == 1 / 4
    assert v.tolist() == [1, 5 / 4, 6 / 4, 7 / 4, 8 / 4, 8 / 4]  # between two that were timed, a straight line
    assert (target.seconds, draft.seconds) == (100 + 4 + 6 + 8 + 6, 2)
    slow = Timed(model_that_takes(lambda n, n_rows: n), lambda: now)
    for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11):
        slow(np.zeros(n, dtype=int))
    slow.restart()
    slow(np.zeros(5, dtype=int))  # a prompt again, though shorter than what was there before
    assert slow.seconds == 5 and list(slow.recent[1]) == list(range(3, 12))
    assert slow.typical(1) == 7  # of 3 ... 11, the last nine
    assert slow.typical(2) == 0
