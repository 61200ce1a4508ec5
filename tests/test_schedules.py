"""Every schedule is lossless, and its decisions are right round by round."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import Table, assert_lossless, models

import schedules
import theory
from sampling import sampler
from schedules import SCHEDULES, Overheard, adaptive, draft_confidence, heuristic, make_schedule, target_confidence
from speculative import Round, verify, verify_block

pytestmark = pytest.mark.filterwarnings("error")


def round_of(n_drafted, n_accepted, p=(0.5, 0.5), q=(0.5, 0.5), token=0):
    """A round in which all tokens are the same, and all rows of p and of q."""
    drafted = np.full(n_drafted, token)
    emitted = np.append(drafted[:n_accepted], token)
    return Round(drafted, np.tile(p, (n_drafted, 1)), np.tile(q, (n_drafted + 1, 1)), emitted, n_accepted)


@pytest.mark.parametrize("verifier", [verify, verify_block])
@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("sure", [0.0, 0.6])
@given(
    drawn=models(), N=st.sampled_from([4, 3]), K=st.integers(0, 3), threshold=st.sampled_from([0, 0.3, 0.5, 0.7, 1.1])
)
def test_lossless(verifier, name, sure, drawn, N, K, threshold):
    """One schedule object serves many runs of the loop, so `schedule(None)` must reset it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedules, "OPENING", 2)  # so that `adaptive` decides within a few tokens
        patch.setattr(schedules, "EVERY", 3)
        schedule, stop = make_schedule(name, K, lambda K: (threshold, 1.0), threshold, sure=sure)
        assert_lossless(drawn, N, K, verify=verifier, schedule=schedule, stop=stop)


row = st.tuples(st.integers(-2, 2), st.integers(-2, 2))


@given(logits=st.lists(st.tuples(row, row), min_size=1, max_size=3), K=st.integers(0, 3))
def test_lossless_with_confidence_in_the_logits(logits, K):
    draft, target = (Overheard(Table(table)) for table in zip(*logits, strict=True))
    options = {"schedule": target_confidence(K, 0.6, target.rows), "stop": draft_confidence(0.6, draft.rows)}
    for temperature in (0.5, 0):
        drawn = sampler(draft, temperature), sampler(target, temperature), [0]
        assert_lossless(drawn, 4, K, **options)


# Confidence


def test_target_confidence_drafts_while_the_target_is_sure():
    schedule = target_confidence(4, threshold=0.5)
    assert schedule(None) == 0
    assert [schedule(round_of(0, 0, q=(q, 1 - q))) for q in (0.6, 0.5, 0.4)] == [4, 4, 0]
    p, q = np.full((2, 2), 0.5), np.array([[0.9, 0.1], [0.2, 0.8], [0.9, 0.1]])
    for emitted, k in ([0, 1], 4), ([0, 0], 0), ([0, 0, 1], 0):  # the last token has probability 0.8, 0.2 and 0.1
        assert schedule(Round(np.array([0, 0]), p, q, np.array(emitted), len(emitted) - 1)) == k
    assert target_confidence(0, threshold=0)(round_of(0, 0)) == 0  # K = 0 never drafts


def test_draft_confidence_stops_after_an_unsure_token():
    stop = draft_confidence(0.4)
    assert [bool(stop(np.array([p, 1 - p]), 0)) for p in (0.3, 0.4, 0.7)] == [True, False, False]


def test_confidence_in_the_logits_is_their_probability_at_temperature_1():
    network = Overheard(Table(np.log([[0.7, 0.3]])))
    q = sampler(network, temperature=0)([0, 0], 2)
    assert q.tolist() == [[1, 0], [1, 0]]
    np.testing.assert_allclose(network.rows(), [[0.7, 0.3]] * 2)
    last = Round(np.array([0]), q[:1], q, np.array([0, 0]), 1)
    assert target_confidence(3, 0.8)(last) == 3
    assert target_confidence(3, 0.8, network.rows)(last) == 0
    assert target_confidence(3, 0.7 - 1e-9, network.rows)(last) == 3
    assert draft_confidence(0.8, network.rows)(q[-1], 0)
    assert not draft_confidence(0.6, network.rows)(q[-1], 0)
    assert not draft_confidence(0.8)(q[-1], 0)


# Numbers of tokens that adapt


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
    """Check the three opening rounds of an adaptive schedule, and return what it decides after each of these rounds."""
    assert [schedule(None), schedule(round_of(0, 0)), schedule(round_of(0, 0))] == [0, 6, 0]
    return [schedule(last) for last in rounds]


def test_adaptive_takes_the_best_K_for_the_mean_of_beta():
    half, sure = round_of(4, 4, q=(0.0, 1.0), token=1), round_of(4, 4)  # beta = 0.5 and beta = 1, at four positions
    for c in (0.01, 0.1, 0.3, 0.6):
        schedule = adaptive(6, lambda K, c=c: (c, 1.0))
        found = after_opening(schedule, half, sure)
        assert found == [theory.optimal_K(alpha, c, K_max=6) for alpha in (0.5, 0.75)]
        assert after_opening(schedule, sure) == [6]  # a reset: without it, half would still count


def test_adaptive_counts_verified_positions_only():
    p, q = np.array([[1, 0]] * 4), np.array([[1.0, 0]] * 2 + [[0, 1.0]] * 3)  # beta = 1, 1, 0, 0
    last = Round(np.array([0, 0, 0, 0]), p, q, np.array([0, 0, 1]), 2)  # the third token was rejected
    found = after_opening(adaptive(6, lambda K: (0.3, 1.0)), last)
    assert found == [theory.optimal_K(2 / 3, 0.3, K_max=6)] != [theory.optimal_K(2 / 4, 0.3, K_max=6)]


def test_adaptive_forgets_old_rounds():
    schedule = adaptive(6, lambda K: (0.1, 1.0), memory=4)
    off = round_of(1, 0, p=(1, 0), q=(0, 1))
    found = after_opening(schedule, round_of(4, 4), *[off] * 12)
    alphas = [0.75**i for i in range(13)]  # each beta = 0 counts 1/4
    best = [theory.optimal_K(alpha, 0.1, K_max=6) for alpha in alphas]
    assert best[-1] == 0
    best[12] += 1  # every 16th round (opening included) tries one more than the best
    assert found == best


def test_adaptive_obeys_the_costs():
    def costs(K):
        return 0.01, np.array([9.0, 5, 5, 1.5, 5, 5, 5])[: K + 1]

    assert after_opening(adaptive(6, costs), round_of(4, 4)) == [3]
    assert after_opening(adaptive(6, lambda K: (0.01, 8.0)), round_of(4, 4)) == [0]
    zero = adaptive(0, lambda K: (0.01, 1.0))
    assert [zero(None), *(zero(round_of(0, 0)) for _ in range(40))] == [0] * 41
