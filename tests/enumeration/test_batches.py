"""enumeration/batches.py: whole batches, against values.py one run at a time, and refusals."""

import itertools
from collections import Counter

import numpy as np
import pytest
from support.exact import GRID

import gallery
from enumeration import total_variation
from enumeration.batches import UNIT, distributions
from enumeration.refusals import NotByThresholds, TooManyRuns
from enumeration.resolution import bound

P, Q = gallery.P[0].astype(np.float32), gallery.Q[0].astype(np.float32)


# ---- What is computed ----


def after_a_guess(guess, numbers):
    """Chen's rule. Each guess is a case."""
    is_accepted = numbers[:, 0] * P[guess] < Q[guess]
    missing = np.maximum(Q - P, 0).cumsum()
    resampled = missing.searchsorted(numbers[:, 1] * missing[-1], side="right")
    return np.where(is_accepted, guess, resampled)


def test_chens_rule_is_exact():
    emitted = Counter()
    for p, outcomes in zip(P, distributions(after_a_guess, len(P), 2)):
        for (token,), mass in outcomes.items():
            emitted[token] += p * mass
    assert total_variation(emitted, dict(enumerate(Q))) < GRID


def token(function):
    """A launch whose outcomes are function(numbers), for one case."""
    return lambda case, numbers: function(numbers).astype(int)


def test_what_is_narrow_is_found_by_random_inputs():
    def narrow(u):
        return (0.5 < u[:, 0]) & (u[:, 0] < 0.501) & (u[:, 1] < 0.25)

    (distribution,) = distributions(token(narrow), 1, 2, n_checks=50_000)
    assert abs(distribution[1,] - 0.001 / 4) < GRID
    assert bound(50_000) < distribution.resolution < 1e-3  # several tests, of which one is passed


def test_thresholds_are_found_to_the_last_bit():
    limits = np.random.default_rng(0).integers(1, UNIT, size=200)
    by_case = distributions(
        lambda case, u: (u[:, :1] * UNIT < limits[case, None]).astype(int), len(limits), 1
    )
    assert [outcomes[1,] * UNIT for outcomes in by_case] == limits.tolist()


# ---- What is refused ----


def refused(problem, launch):
    with pytest.raises(NotByThresholds, match=problem):
        distributions(launch, 1, 2)


@pytest.mark.parametrize(
    "is_one",
    [
        lambda u: u[:, 0] < u[:, 1],
        lambda u: u[:, 0] * u[:, 1] < 0.3,
        lambda u: u[:, 0] < 0.3 + u[:, 1] / 100,
    ],
)
def test_edges_that_are_no_thresholds(is_one):
    refused("several numbers at once.*case 0, near the numbers", token(is_one))


N_LAUNCHES = itertools.count()


@pytest.mark.parametrize(
    "is_turned",
    [
        lambda u: next(N_LAUNCHES) % 2 == 0,
        lambda u: np.roll(u, 1) < 0.01,  # the row before, in one of a hundred
        lambda u: np.arange(len(u)) % 100 == 99,  # the place
    ],
)
def test_what_else_decides(is_turned):
    refused(
        "gave another outcome when run again", token(lambda u: (u[:, 0] < 0.5) ^ is_turned(u[:, 0]))
    )


def test_a_buffer_may_be_used_again_and_arguments_written_to():
    buffer = np.empty(10**6, int)

    def launch(case, numbers):
        case += 1
        buffer[: len(numbers)] = numbers[:, 0] < 0.25
        return buffer[: len(numbers)]

    (distribution,) = distributions(launch, 1, 1)
    assert distribution == {(0,): 0.75, (1,): 0.25}


def test_an_end_without_thresholds():
    with pytest.raises(TooManyRuns, match="max_runs = 1,000"):
        distributions(after_a_guess, len(P), 2, max_runs=1_000)
