"""Random numbers that are used as values: found by random runs, which may miss something."""

import functools
import json
import math
import random
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from enumeration import (
    NotByRng,
    assert_same_distribution,
    output_distribution,
    sum_over_paths,
    total_variation,
)

P = np.array([0.125, 0.5, 0, 0.375])
ONE_DRAW = {(0,): 0.125, (1,): 0.5, (3,): 0.375}
COIN = {(0,): 0.5, (1,): 0.5}
QUARTER = {(1,): 0.25, (0,): 0.75}
THIRD = Fraction(1, 3)


def with_fractions(rng):
    row = np.array([1, 2]) * THIRD  # NumPy's own generator can't draw from it
    return [int(float(rng.random()) < THIRD), rng.choice(2, p=row)]


def by_gumbel_noise(rng):
    with np.errstate(divide="ignore"):
        return (np.log(P) - np.log(-np.log(rng.random(4)))).argmax()


def by_powers(rng):
    return (rng.random(4) ** (1 / (P + 1e-300))).argmax()


def by_two_rows(rng):
    return (-np.log(1 - rng.random((2, 2))) / [0.25, 0.75]).argmin(axis=1)


def by_exponential_noise(rng):
    with np.errstate(divide="ignore"):
        return (rng.exponential(size=4) / P).argmin()


def nested_logarithms(rng):
    with np.errstate(all="ignore"):
        return int(np.log(np.log(rng.random()) + 2) < 0)


ROUNDED = {(1,): 0.25 - 2**-14, (0,): 0.75 + 2**-14}
BETWEEN = math.exp(-1) - math.exp(-2)  # below, there is no logarithm


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (lambda rng: int(float(rng.random()) < 0.25), QUARTER),
        (lambda rng: int(4 * rng.random()) // 3, QUARTER),
        (lambda rng: int(f"{rng.random():.3f}" < "0.250"), {(1,): 0.2495, (0,): 0.7505}),
        (lambda rng: int(str(rng.random())[2] in "01"), {(1,): 0.2, (0,): 0.8}),
        (lambda rng: int(rng.random() == 0.5), {(0,): 1}),
        (lambda rng: len({rng.random(): 1}), {(1,): 1}),
        (lambda rng: int(rng.random() % 0.5 < 0.125), QUARTER),
        (lambda rng: int(math.log(rng.random()) < math.log(0.25)), QUARTER),
        (lambda rng: int(rng.random().is_integer()), {(0,): 1}),
        (lambda rng: int(rng.random() < Decimal("0.25")), QUARTER),
        (lambda rng: int(rng.random() < np.float16(0.25)), ROUNDED),
        (lambda rng: int((rng.random() + 2.0**52) - 2.0**52 < 0.3), COIN),
        (lambda rng: int(rng.random() + 2000 < np.float32(2000.25)), ROUNDED),
        (nested_logarithms, {(1,): BETWEEN, (0,): 1 - BETWEEN}),
        (lambda rng: int(np.add(rng.random(), 1, dtype=float) < 1.25), QUARTER),
        (lambda rng: int(np.sqrt(rng.random(1))[0] < 0.5), QUARTER),
        (lambda rng: (np.sort(rng.random(2)) < 0.5).sum(), {(0,): 0.25, (1,): 0.5, (2,): 0.25}),
        (lambda rng: int(rng.random(1, dtype=np.float32).astype(float)[0] < 0.25), QUARTER),
        (by_exponential_noise, ONE_DRAW),
        (lambda rng: (np.log(P[:2]) + rng.gumbel(size=2)).argmax(), {(0,): 0.2, (1,): 0.8}),
        (lambda rng: int(rng.gumbel(1) < 1), {(1,): math.exp(-1), (0,): 1 - math.exp(-1)}),
        (lambda rng: int(float(json.dumps(rng.random())) < 0.25), QUARTER),
        (lambda rng: int(Decimal(rng.random()) < 0.25), QUARTER),
        (lambda rng: int(np.isnan(np.array([rng.random()]))[0]), {(0,): 1}),
        (with_fractions, {(0, 0): 2 / 9, (0, 1): 4 / 9, (1, 0): 1 / 9, (1, 1): 2 / 9}),
        (by_gumbel_noise, ONE_DRAW),
        (by_powers, ONE_DRAW),
        (by_two_rows, {(0, 0): 0.0625, (0, 1): 0.1875, (1, 0): 0.1875, (1, 1): 0.5625}),
    ],
)
def test_a_number_that_is_used_as_a_value_gets_one(draw, expected):
    distribution = output_distribution(draw, resolution=0.1)
    assert total_variation(distribution, expected) < 1e-12
    assert 0.05 < distribution.resolution < 0.1
    for exact in sum_over_paths, functools.partial(output_distribution, resolution=0):
        with pytest.raises(TypeError, match=r"^a random number .*; to be exact, compare it"):
            exact(draw)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda rng: rng.random(), "slightest change of a number"),
        (
            lambda rng: int(rng.random() < rng.random()),
            "several numbers .*combined with another one",
        ),
        (lambda rng: np.argsort(rng.random(3)), "several numbers at once"),
        (lambda rng: int(rng.random() ** 2 < random.random()), "draws from Python's random"),
        (lambda rng: [int(3 * rng.random()), rng.poisson()], r"rng\.poisson cannot be enumerated"),
        (lambda rng: int(float(rng.random()) < 1 / 0), "division by zero"),
    ],
)
def test_what_has_no_distribution_is_refused_with_values_too(draw, message):
    with pytest.raises(Exception, match=message):
        output_distribution(draw, resolution=0.02)


def test_what_c_code_sees_of_a_number_is_found_even_if_the_program_catches_its_error():
    def draw(rng):
        u = rng.random()
        try:
            return 0 if u >= 0.25 or type(u) is not float else len({json.dumps(u)})
        except TypeError:
            return 2

    assert output_distribution(draw, resolution=0.1) == {(0,): 0.75, (1,): 0.25}
    with pytest.raises(TypeError, match=r"led to \(0,\), and to \(1,\) when it had a value; to be"):
        output_distribution(draw, resolution=0)


def test_exact_means_that_no_random_run_was_needed():
    def by_value(rng):
        return int(float(rng.random()) < 0.25)

    def by_fork(rng):
        return int(rng.random() < 0.25)

    for pair in (by_value, by_fork), (by_fork, by_value), (by_value, QUARTER):
        with pytest.raises(AssertionError, match=r"no difference was found, but .* missed"):
            assert_same_distribution(*pair)
        assert_same_distribution(*pair, resolution=0.05)
        with pytest.raises(TypeError, match="used as a value"):
            assert_same_distribution(*pair, resolution=0)


def test_rounding_in_a_narrow_interval_is_no_reason_to_need_values():
    def draw(rng):
        u = rng.random(1, dtype=np.float32)[0]
        return [int(u < 0.3), int(u + 4 < np.float32(4.3))]

    assert type(output_distribution(draw)) is dict


KEPT = []


def draws_once(rng, use):
    if not KEPT:
        KEPT.append(rng.random())
    return [rng.choice(2), use(KEPT[0])]


@pytest.mark.parametrize("use", [lambda u: int(u < 0.5), lambda u: int(2 * u), float])
def test_a_number_of_an_earlier_run_is_refused_by_name(use):
    KEPT.clear()
    with pytest.raises(NotByRng, match=r"^a random number of an earlier run was used; keep none"):
        output_distribution(lambda rng: draws_once(rng, use))
