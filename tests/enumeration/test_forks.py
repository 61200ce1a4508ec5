"""Distributions by every branch: those computed by hand, and what is refused by name."""

import contextlib
import copy
from fractions import Fraction

import numpy as np
import pytest

from enumeration import (
    TooManyPaths,
    check_real_runs,
    forks,
    output_distribution,
    sum_over_paths,
)
from enumeration.forks import as_output

P = np.array([0.125, 0.5, 0, 0.375])
ONE_DRAW = {(0,): 0.125, (1,): 0.5, (3,): 0.375}
TWO_DRAWS = {(i, j): P[i] * P[j] for i in (0, 1, 3) for j in (0, 1, 3)}
COIN = {(0,): 0.5, (1,): 0.5}
QUARTER = {(1,): 0.25, (0,): 0.75}
SYSTEMATIC = {(0, 1): 0.25, (1, 3): 0.75}
HALF_TWICE = {(1, 1): 0.5, (0, 0): 0.5}
QUARTER_AND_HALF = {(1, 1): 0.125, (1, 0): 0.125, (0, 1): 0.375, (0, 0): 0.375}
THIRD = Fraction(1, 3)
ROW = np.float32([0.3, 0.3000001, 0.4])  # NumPy takes it as an array, but not as a list
HALVES_OR_SO = {(0,): 0.5 / 1.000000005, (1,): 0.500000005 / 1.000000005}


def enumerated(draw):
    """The distribution of a function, which 2,000 real runs do not contradict."""
    outputs = sum_over_paths(draw)
    generator = np.random.default_rng(0)
    check_real_runs(outputs, lambda: as_output(draw(generator)), 2000)
    return outputs


# ---- Right distributions ----


def halves(u, v):
    """How many of two numbers are below 1/2. Only the sum of Python's bools is 0, 1 or 2."""
    return int((u < 0.5) + (v < 0.5))


TABLE = np.array([[1, 2], [3, 4]])


def written_to(row):
    """The row with a 9. If it weren't a copy, the next path would see the 9 in the table."""
    row[0] = 9
    return row


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (lambda rng: np.array([3, 1]), {(3, 1): 1}),
        (lambda rng: int(hasattr(rng, "choices")), {(0,): 1}),
        (lambda rng: rng.choice(2), COIN),
        (lambda rng: int(copy.deepcopy(rng.random(2))[0] < 0.25), QUARTER),
        (lambda rng: rng.choice([5, 6, 7, 8], p=P) - 5, ONE_DRAW),
        (
            lambda rng: [*written_to(rng.choice(TABLE)), TABLE[0, 0]],
            {(9, 2, 1): 0.5, (9, 4, 1): 0.5},
        ),
        (lambda rng: rng.choice(2, p=[0.5, 0.500000005]), HALVES_OR_SO),
        (lambda rng: int(rng.random() < -0.5), {(0,): 1}),
        (lambda rng: int(rng.random() < 1), {(1,): 1}),
        (lambda rng: int(rng.random() < np.inf), {(1,): 1}),
        (lambda rng: int(~(np.float64(0.25) <= rng.random())), QUARTER),
        (lambda rng: halves(rng.random(), rng.random()), {(0,): 0.25, (1,): 0.5, (2,): 0.25}),
        (lambda rng: halves(*rng.random(2)), {(0,): 0.25, (1,): 0.75}),
        (lambda rng: halves(*rng.random(2).tolist()), {(0,): 0.25, (1,): 0.5, (2,): 0.25}),
        (lambda rng: halves(rng.random(1).item(), 0), {(1,): 0.5, (2,): 0.5}),
        (lambda rng: [int((u := rng.random()) < u), int(u > u)], {(0, 0): 1}),
        (lambda rng: np.searchsorted(np.cumsum(P), rng.random(), side="right"), ONE_DRAW),
        (lambda rng: [np.cumsum(P).searchsorted(u) for u in rng.random(2)], TWO_DRAWS),
        (lambda rng: np.searchsorted(np.cumsum(P), rng.random(2)), TWO_DRAWS),
        (lambda rng: np.searchsorted(np.cumsum(P), 1 - rng.random(2), "right"), TWO_DRAWS),
        (lambda rng: (np.cumsum(P) < rng.random()).sum(), ONE_DRAW),
        (lambda rng: np.searchsorted(np.cumsum(P), (rng.random() + np.arange(2)) / 2), SYSTEMATIC),
        (lambda rng: (rng.random(2) * [0, 2] < [0, 0.5]).astype(int), {(0, 1): 0.25, (0, 0): 0.75}),
        (lambda rng: (rng.random(2, dtype=np.float32) < [0.25, 0.5]).astype(int), QUARTER_AND_HALF),
        (lambda rng: (~(-(rng.random() * np.array([])) < 1)).astype(int), {(): 1}),
        (lambda rng: int(rng.uniform(2, 4) < 2.5), QUARTER),
        (lambda rng: (rng.uniform([0, 2], [1, 4]) < [0.25, 3]).astype(int), QUARTER_AND_HALF),
        (lambda rng: int(rng.exponential(2) < -2 * np.log(0.75)), QUARTER),
        (lambda rng: int(rng.standard_exponential() < -np.log(0.75)), QUARTER),
        (lambda rng: int(1 - rng.random() < 0.25), QUARTER),
        (lambda rng: int(rng.random() - np.int8(-128) < 128.25), QUARTER),
        (lambda rng: [int((u := rng.random()) < 0.5), int(2 * (u - 0.5) < 0)], HALF_TWICE),
        (lambda rng: (rng.random() * np.array([2, 2]) < 1).astype(int), HALF_TWICE),
        (lambda rng: int(-rng.random() > -0.25), QUARTER),
        (lambda rng: int(np.log(rng.random()) < np.log(0.25)), QUARTER),
        (lambda rng: int(-np.log(1 - rng.random()) <= -np.log(0.75)), QUARTER),
        (lambda rng: int((2 * np.log(rng.random(1)) < np.log(0.0625))[0]), QUARTER),
        (lambda rng: int(np.log(rng.random()) < 1000), {(1,): 1}),
        (lambda rng: np.sign(rng.random(1) - 0.75), {(-1,): 0.75, (1,): 0.25}),
    ],
)
def test_the_distribution_is_the_one_computed_by_hand(draw, expected):
    outputs = enumerated(draw)
    assert outputs == pytest.approx(expected, abs=1e-15)
    assert {type(mass) for mass in outputs.values()} == {float}
    assert all(type(x) is int for output in outputs for x in output)


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: int(rng.random() < THIRD),
        lambda rng: int(3 * rng.random() < 1 + 0 * THIRD),
        lambda rng: int(not rng.random() < 2 * THIRD),
        lambda rng: rng.choice(2, p=np.array([2, 1]) * THIRD),
        lambda rng: int(rng.random() < 2 * THIRD and rng.random() < Fraction(1, 2)),
        lambda rng: int(rng.choice(9, p=[Fraction(np.int64(1), np.int64(9))] * 9) < 3),
    ],
)
def test_fractions_stay_fractions(draw):
    outputs = output_distribution(draw)
    assert outputs == {(0,): 2 * THIRD, (1,): THIRD}
    assert {type(mass) for mass in outputs.values()} == {Fraction}


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: rng.random(),
        lambda rng: np.float32(1) - rng.random(),
        lambda rng: rng.random(1, dtype=np.float32)[0] * 2,
        lambda rng: rng.random() < np.float32(0.3),
        lambda rng: np.float64(0.3) > rng.random(),
        lambda rng: rng.uniform(2, 4, size=1)[0] >= 3,
        lambda rng: rng.random() * np.float64(2) < 1,
        lambda rng: rng.random() / np.float64(2) < 0.3,
        lambda rng: np.log(rng.random()) < -1,
        lambda rng: rng.standard_exponential(),
        lambda rng: rng.exponential(2),
        lambda rng: np.array(2.0) + rng.random() > 2.5,
        lambda rng: np.random.default_rng(rng).choice(4),
    ],
)
def test_types_are_those_of_numpy(draw):
    """~ means "not" for a np.bool_, but ~True is -2, which is true."""
    types = []

    def draw_and_note(rng):
        types.append(draw(rng).__class__)
        return 0

    sum_over_paths(draw_and_note)
    assert {*types} == {type(draw(np.random.default_rng(0)))}


# ---- What NumPy refuses, and what is refused here ----


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: int((np.array([200], np.uint8) - rng.random() > 199.7)[0]),
        lambda rng: int(rng.uniform(0, np.inf) < 1),
        lambda rng: rng.choice(3, p=ROW),
        lambda rng: rng.choice(3, p=list(ROW)),
        lambda rng: rng.choice(3, p=[0.2, np.nan, 0.8]),
        lambda rng: rng.rand(),
        lambda rng: int(rng.random(()) < 0.3),
    ],
)
def test_an_odd_call_does_what_it_does_in_numpy(draw):
    def draw_or_fail(rng):
        try:
            return draw(rng)
        except Exception:
            return 9

    enumerated(draw_or_fail)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda rng: rng.random(), "a random number was used as a value; to be exact, compare it"),
        (lambda rng: rng.random() < rng.random(), "combined with another one"),
        (lambda rng: rng.random().is_integer(), r"asked for \.is_integer"),
        (lambda rng: np.float32(2**20) + rng.random() < 2**20, "rounding in float32 decides"),
        (lambda rng: rng.random() < np.nan, "NaN"),
        (lambda rng: rng.normal(), r"rng\.normal cannot be enumerated; use rng\.choice"),
        (lambda rng: int(np.isnan(rng.random(2)).any()), r"given to np\.isnan"),
        (lambda rng: np.sqrt(rng.random(2)), "used as a value"),
        (lambda rng: rng.random(out=np.ones(2)) < 0, r"rng\.random\(out=\.\.\.\) cannot be enum"),
        (
            lambda rng: rng.choice(3, 2, False, shuffle=False),
            r"rng\.choice\(shuffle=False\)",
        ),
        (lambda rng: rng.integers([2, 3]), "found an array; call it once for each"),
        (lambda rng: rng.integers(2**31), "a choice among 2,147,483,648 items"),
        (lambda rng: copy.deepcopy(rng).choice(2), "a copy of rng"),
    ],
)
def test_what_cannot_be_enumerated_is_refused_even_if_the_program_catches_it(draw, message):
    def draw_or_fail(rng):
        with contextlib.suppress(Exception):
            return draw(rng)
        return 0

    def draw_until_it_works(rng):
        while True:
            with contextlib.suppress(Exception):
                return draw(rng)

    for function in draw, draw_or_fail, draw_until_it_works:
        with pytest.raises((TypeError, ValueError, TooManyPaths), match=message):
            sum_over_paths(function)


def draw_until(rng, below):
    while (rng.random() < 0.5) != below:
        pass
    return 0


def draw_until_rare(rng):
    while rng.random() >= 0.01:
        pass
    return 0


@pytest.mark.parametrize(
    ("draw", "max_paths", "message", "covered"),
    [
        (lambda rng: draw_until(rng, True), 5, "more than max_paths = 5 paths", 1 - 2**-5),
        (lambda rng: rng.choice(2) and draw_until(rng, False), 5, "more than 10,000 forks", 0.5),
        (lambda rng: draw_until(rng, True), 1000, "a path with 333 forks and a probability", 1),
        (draw_until_rare, 999, r"\d+,\d+ forks along 378 paths", 1 - 0.99**378),
    ],
)
def test_a_loop_without_end_is_an_error_that_says_how_much_was_covered(
    draw, max_paths, message, covered, monkeypatch
):
    monkeypatch.setattr(forks, "ALL_FORKS", 60_000)
    with pytest.raises(TooManyPaths, match=message) as error:
        sum_over_paths(draw, max_paths)
    assert error.value.covered == pytest.approx(covered, abs=1e-12)
