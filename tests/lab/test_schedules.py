"""The decisions of each schedule. test_speculative.py tests that they are lossless."""

import numpy as np
import pytest

from lab.schedules import adaptive, draft_confidence, make_schedule
from runs import Chances, expected_tokens
from speculative import Round


def round_of(n_drafted, n_accepted, p=(0.5, 0.5), q=(0.5, 0.5), token=0):
    """A round in which all tokens are equal, and so are all rows of p, and all rows of q."""
    drafted = np.full(n_drafted, token)
    emitted = np.append(drafted[:n_accepted], token)
    p_rows = np.tile(p, (n_drafted, 1))
    q_rows = np.tile(q, (n_drafted + 1, 1))
    return Round(drafted, p_rows, q_rows, emitted, n_accepted)


# Confidence


@pytest.mark.parametrize(("emitted", "k"), [([1], 0), ([0, 1], 4), ([0, 0, 0], 4)])
def test_target_confidence_drafts_while_the_target_is_sure(emitted, k):
    """The last token has the probability .1, .5 or .9."""
    q = np.array([[0.9, 0.1], [0.5, 0.5], [0.9, 0.1]])
    last = Round(np.array([0, 0]), q[:2], q, np.array(emitted), len(emitted) - 1)
    schedule, _ = make_schedule("target-confidence", 4, None)
    assert schedule(None) == 0
    assert schedule(last) == k


def test_draft_confidence_stops_after_an_unsure_token():
    _, stop = make_schedule("draft-confidence", 4, None)
    assert stop(np.array([0.39, 0.61]), 0)
    assert not stop(np.array([0.4, 0.6]), 0)
    assert draft_confidence(confidence=[0.3, 0.4].__getitem__)([0, 1], 0)


# Numbers of tokens that adapt


def test_heuristic_goes_two_up_and_one_down():
    schedule, _ = make_schedule("heuristic", 5, None)
    assert [schedule(round_of(k, k - 1)) for k in (5, 2, 1)] == [4, 1, 1]
    rounds = None, round_of(1, 1), round_of(3, 3), round_of(4, 4)
    assert [schedule(last) for last in rounds] == [5, 3, 5, 5]


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


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ([1, 8, 9], ([0] * 15 + [2]) * 3),
        ([1, 3, 2], [2] * 15 + [0]),
        ([1, 3], [0] * 15 + [1]),
        ([1], [0] * 16),  # nothing else can be tried
    ],
)
def test_adaptive_tries_the_second_best_number_of_tokens_in_each_16th_round(costs, expected):
    """With alpha = 0.7, the tokens per round are 1, 1.7 and 2.19."""
    schedule = adaptive(len(costs) - 1, lambda K: np.array(costs))
    assert decisions(schedule, *[round_of(0, 0)] * (len(expected) - 1)) == expected


def test_adaptive_may_have_an_alpha_for_each_position():
    schedule = adaptive(2, linear(0.1), by_position=True)
    for _ in range(99):
        schedule.see(Chances(np.ones(2), np.array([0.0, 1.0])))
    first, second = schedule.alphas
    assert first.mean < 0.1 and second.mean > 0.9
