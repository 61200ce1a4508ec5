"""The decisions of each schedule. test_speculative.py tests that they are lossless."""

import numpy as np
import pytest

from lab.schedules import draft_confidence, make_schedule
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
    schedule, _ = make_schedule("target-confidence", 4)
    assert schedule(None) == 0
    assert schedule(last) == k


def test_draft_confidence_stops_after_an_unsure_token():
    _, stop = make_schedule("draft-confidence", 4)
    assert stop(np.array([0.39, 0.61]), 0)
    assert not stop(np.array([0.4, 0.6]), 0)
    assert draft_confidence(confidence=[0.3, 0.4].__getitem__)([0, 1], 0)


# Numbers of tokens that adapt


def test_heuristic_goes_two_up_and_one_down():
    schedule, _ = make_schedule("heuristic", 5)
    assert [schedule(round_of(k, k - 1)) for k in (5, 2, 1)] == [4, 1, 1]
    rounds = None, round_of(1, 1), round_of(3, 3), round_of(4, 4)
    assert [schedule(last) for last in rounds] == [5, 3, 5, 5]
