"""The decisions of each schedule. test_speculative.py tests that they are lossless."""

import numpy as np
import pytest

from lab.schedules import adaptive, draft_confidence, heuristic, make_schedule, target_confidence
from runs import expected_tokens
from speculative import Round


def round_of(n_drafted, n_accepted, p=(0.5, 0.5), q=(0.5, 0.5), token=0):
    """A round in which all tokens are equal, and so are all rows of p, and all rows of q."""
    drafted = np.full(n_drafted, token)
    emitted = np.append(drafted[:n_accepted], token)
    p, q = np.tile(p, (n_drafted, 1)), np.tile(q, (n_drafted + 1, 1))
    return Round(drafted, p, q, emitted, n_accepted)


# Confidence


def test_target_confidence_drafts_while_the_target_is_sure():
    schedule, _ = make_schedule("target-confidence", 4, None)
    assert schedule(None) == 0
    assert [schedule(round_of(0, 0, q=(q, 1 - q))) for q in (0.6, 0.5, 0.4)] == [4, 4, 0]
    p, q = np.full((2, 2), 0.5), np.array([[0.9, 0.1], [0.2, 0.8], [0.9, 0.1]])
    for emitted, k in ([0, 1], 4), ([0, 0], 0), ([0, 0, 1], 0):  # the last one has .8, .2 and .1
        assert schedule(Round(np.array([0, 0]), p, q, np.array(emitted), len(emitted) - 1)) == k
    assert target_confidence(0, threshold=0)(round_of(0, 0)) == 0  # K = 0 never drafts


def test_draft_confidence_stops_after_an_unsure_token():
    """tests/test_pair.py tests both kinds of confidence with the rows of networks."""
    _, default = make_schedule("draft-confidence", 4, None)
    for stop, least in (default, 0.4), (draft_confidence(0.8), 0.8):
        for p in 0.1, 0.39, 0.4, 0.79, 0.8:
            assert stop(np.array([p, 1 - p]), 0) == (p < least)


# Numbers of tokens that adapt


def test_heuristic_goes_two_up_and_one_down():
    schedule, _ = make_schedule("heuristic", 5, None)
    assert [schedule(round_of(k, k - 1)) for k in (5, 4, 3, 2, 1)] == [4, 3, 2, 1, 1]
    rounds = None, round_of(1, 1), round_of(3, 3), round_of(4, 4)
    assert [schedule(last) for last in rounds] == [5, 3, 5, 5]
    assert heuristic(0)(None) == heuristic(0)(round_of(0, 0)) == 0


def decisions(schedule, *rounds):
    """How many tokens an adaptive schedule drafts first, and after each of these rounds."""
    return [schedule(last) for last in (None, *rounds)]


def linear(c):
    """Costs as in theory.py, with v = 1."""
    return lambda K: 1 + c * np.arange(K + 1)


def best(c, *alphas):
    return [int(np.argmax(expected_tokens(alpha, 6) / linear(c)(6))) for alpha in alphas]


@pytest.mark.parametrize("c", [0.01, 0.1, 0.35, 0.6])
def test_adaptive_takes_the_best_K_for_the_mean_of_beta(c):
    """It begins as if 16 positions with a mean of 0.7 had been verified."""
    half = round_of(16, 5, q=(0.0, 1.0), token=1)  # beta = 0.5, at the 6 positions looked at
    sure = round_of(16, 16)  # beta = 1, at 16 positions
    schedule = adaptive(6, linear(c), memory=38)
    assert decisions(schedule, half, sure) == best(c, 0.7, (11.2 + 3) / 22, (11.2 + 3 + 16) / 38)
    assert decisions(schedule, sure) == best(c, 0.7, 27.2 / 32)  # None makes it forget


def test_adaptive_forgets_old_rounds():
    schedule = adaptive(6, linear(0.1), memory=4)
    off = round_of(1, 0, p=(1, 0), q=(0, 1))
    found = decisions(schedule, round_of(4, 4), *[off] * 30)
    alpha = 1 - 0.3 * 0.75**4  # each beta counts 1/4, so alpha gets a quarter nearer to it
    expected = best(0.1, 0.7, *(alpha * 0.75**i for i in range(31)))
    assert expected[-1] == 0 and max(expected) > 2
    expected[15] = expected[31] = 1  # rounds 16 and 32 try the second best
    assert found == expected
    with_default = decisions(adaptive(6, linear(0.1)), *[round_of(4, 4)] * 40, *[off] * 40)
    assert with_default[-1] < 2


def test_adaptive_tries_the_second_best_number_of_tokens_in_each_16th_round():
    """With alpha = 0.7, the tokens per round are 1, 1.7 and 2.19."""
    none = round_of(0, 0)
    schedule = adaptive(2, lambda K: np.array([1, 8, 9]))
    assert decisions(schedule, *[none] * 47) == ([0] * 15 + [2]) * 3
    schedule = adaptive(2, lambda K: np.array([1, 3, 2]))
    assert decisions(schedule, *[none] * 15) == [2] * 15 + [0]
    schedule = adaptive(0, linear(0.01))
    assert decisions(schedule, *[none] * 15) == [0] * 16  # nothing else can be tried


def test_an_unknown_schedule_is_refused():
    message = "unknown schedule 'target_confidence'; there are fixed, target-confidence"
    with pytest.raises(ValueError, match=message):
        make_schedule("target_confidence", 4, None)
