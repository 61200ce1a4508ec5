"""enumeration/races.py: a second race on the numbers of a first one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enumeration.races import Exponential, Noise, race_of

WEIGHTS = st.lists(st.integers(0, 5), min_size=4, max_size=4).filter(any).map(np.array)


def e():
    return Noise(Exponential())


def raced(numbers, weights):
    return race_of([weight / e for weight, e in zip(weights.tolist(), numbers)])


def joint(first, second, n_fresh):
    """P(i wins the first race, j the second), where the last n_fresh numbers of it are new ones."""
    n = len(first)
    found = np.zeros((n, n))
    for i in np.flatnonzero(first):
        numbers = [e() for _ in range(n)]
        race = raced(numbers, first)
        p = race.chances(n)[i]
        race.won_by(i)
        numbers[n - n_fresh :] = [e() for _ in range(n_fresh)]
        found[i] = p * raced(numbers, second).chances(n)
    return found


@given(WEIGHTS, WEIGHTS, st.integers(0, 4))
def test_each_race_is_a_draw_and_both_together_are_right(first, second, n_fresh):
    found = joint(first, second, n_fresh)
    p = first / first.sum()
    q = second / second.sum()
    assert found.sum(axis=1) == pytest.approx(p, abs=1e-12)
    assert found.sum(axis=0) == pytest.approx(q, abs=1e-12)
    if n_fresh == 0 and (first == second).all():
        assert found == pytest.approx(np.diag(p), abs=1e-12)
    if n_fresh == 4:
        assert found == pytest.approx(np.outer(p, q), abs=1e-12)


def test_two_tokens_by_hand():
    """If B wins with e_B = M / 2, it wins again unless A rings between .56 M and 5 M."""
    found = joint(np.array([0.5, 0.5]), np.array([0.9, 0.1]), n_fresh=0)
    assert found == pytest.approx(np.array([[0.5, 0], [0.4, 0.1]]), abs=1e-12)


@pytest.mark.parametrize(
    ("row", "winner"),
    [([-1.0, 0.0, 0.0], 1), ([1.0, np.nan, 2.0], 1), ([np.inf, e(), 1.0], 0), ([-1 / e(), 0.0], 1)],
)
def test_who_wins_for_certain(row, winner):
    assert race_of(row) == winner


SHARED = e()


@pytest.mark.parametrize(
    "row",
    [
        [1 / e(), 1.0],
        [e(), e()],
        [-1 / e(), -1 / e()],
        [1 / SHARED, 2 / SHARED],
        [e().log(), -e().log()],
        [-e().log(), 1 / e()],
    ],
)
def test_what_is_no_race_is_refused(row):
    with pytest.raises(NotImplementedError):
        race_of(row)
