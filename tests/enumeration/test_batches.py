"""enumeration/batches.py: whole batches, against values.py one run at a time, and refusals."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from support import GRID, chain

import gallery
from enumeration import total_variation
from enumeration.batches import UNIT, distributions
from enumeration.refusals import NotByThresholds, TooManyRuns
from enumeration.resolution import bound

P, Q = gallery.P.astype(np.float32), gallery.Q.astype(np.float32)
V = len(P)
K = 2
DRAFTED = np.array([*itertools.product(range(V), repeat=K)])  # [n_cases, K]
ROWS = np.cumsum(np.c_[np.zeros(len(DRAFTED), int), DRAFTED], axis=1) % V  # [n_cases, K+1]


def launch_of(**options):
    def launch(case, numbers):
        p, q = P[ROWS[case, :-1]], Q[ROWS[case]]
        return chain(DRAFTED[case], p, q, numbers, **options)

    return launch


# ---- What is computed ----


def first_tokens(found):
    """{token: probability}, for drafts that are drawn from p."""
    masses = Counter()
    for drafted, rows, outcomes in zip(DRAFTED, ROWS, found):
        for (token, *_), mass in outcomes.items():
            masses[token] += mass * np.prod(P[rows[:-1], drafted])
    return masses


def test_chens_rule_is_exact_and_a_wrong_replacement_is_as_wrong_as_it_is():
    target = dict(enumerate(Q[0]))
    exact = first_tokens(distributions(launch_of(), len(DRAFTED), K + 1))
    assert total_variation(exact, target) < GRID
    wrong = first_tokens(distributions(launch_of(residual=False), len(DRAFTED), K + 1))
    kept = np.minimum(P[0], Q[0])
    by_hand = kept + (1 - kept.sum()) * Q[0]
    assert total_variation(wrong, dict(enumerate(by_hand))) < GRID
    assert total_variation(wrong, target) > 0.1


def token(function):
    """A launch whose outcomes are function(numbers), for one case."""
    return lambda case, numbers: function(numbers).astype(int)


def test_what_is_narrow_is_found_by_random_inputs():
    def narrow(u):
        return (0.5 < u[:, 0]) & (u[:, 0] < 0.501) & (u[:, 1] < 0.25)

    (found,) = distributions(token(narrow), 1, 2, n_checks=50_000)
    assert abs(found[1,] - 0.001 / 4) < GRID
    assert bound(50_000) < found.resolution < 1e-3  # several tests, of which one is passed


def test_thresholds_are_found_to_the_last_bit():
    limits = np.random.default_rng(0).integers(1, UNIT, size=200)
    found = distributions(
        lambda case, u: (u[:, :1] * UNIT < limits[case, None]).astype(int), len(limits), 1
    )
    assert [outcomes[1,] * UNIT for outcomes in found] == limits.tolist()


def test_corners_of_a_unit_are_no_curves():
    """Here each threshold is one of a single row of the grid, and moves with any other number."""

    def corner(u):
        return (u[:, :2] > 1 - 1.5 / UNIT).sum(axis=1) * (u[:, 2:] > 1 - 1.5 / UNIT).sum(axis=1)

    (found,) = distributions(token(corner), 1, 4)
    assert math.isclose(found[4,], UNIT**-4.0)


# ---- What is refused ----


def refused(problem, launch, n_numbers=2):
    with pytest.raises(NotByThresholds, match=problem):
        distributions(launch, 1, n_numbers)


def test_edges_that_are_no_thresholds():
    several = "several numbers at once.*case 0, near the numbers"
    refused(several, token(lambda u: u[:, 0] < u[:, 1]))
    refused(several, token(lambda u: u[:, 0] * u[:, 1] < 0.3))
    refused(several, token(lambda u: u[:, 0] < 0.3 + u[:, 1] / 100))
    refused(several, token(lambda u: np.argmax([0.2, 0.5, 0.3] / (1e-9 + u), axis=1)), 3)


def test_what_else_decides():
    n_launches = itertools.count()

    def memory(u):
        return (u[:, 0] < 0.5) & (next(n_launches) % 2 == 0)

    def neighbour(u):  # in one of a hundred rows
        return (u[:, 0] < 0.5) ^ (np.roll(u[:, 0], 1) < 0.01)

    def place(u):
        return (u[:, 0] < 0.5) ^ (np.arange(len(u)) % 100 == 99)

    for launch in map(token, (memory, neighbour, place)):
        refused("gave another outcome when run again", launch)


def test_a_buffer_may_be_used_again_and_arguments_written_to():
    buffer = np.empty(10**6, int)

    def launch(case, numbers):
        case += 1
        buffer[: len(numbers)] = numbers[:, 0] < 0.25
        return buffer[: len(numbers)]

    (found,) = distributions(launch, 1, 1)
    assert found == {(0,): 0.75, (1,): 0.25}


def test_outcomes_of_the_wrong_kind():
    with pytest.raises(ValueError, match="found 1"):
        distributions(lambda case, numbers: np.zeros((1, 2), int), 3, 2)


def test_an_end_without_thresholds():
    with pytest.raises(TooManyRuns, match="max_runs = 1,000"):
        distributions(launch_of(), len(DRAFTED), K + 1, max_runs=1_000)
