"""enumeration/: distributions computed by hand, and errors where it would be wrong in silence."""

import copy
import itertools
import math
import random
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from enumeration import NotByRng, TooManyPaths, output_distribution, total_variation

P = np.array([0.125, 0.5, 0, 0.375])
ONE_DRAW = {(i,): p for i, p in enumerate(P) if p > 0}
TWO_DRAWS = {(i, j): p * q for i, p in enumerate(P) for j, q in enumerate(P) if p * q > 0}
QUARTER = {(1,): 0.25, (0,): 0.75}
HALF_TWICE = {(1, 1): 0.5, (0, 0): 0.5}
QUARTER_AND_HALF = {(1, 1): 0.125, (1, 0): 0.125, (0, 1): 0.375, (0, 0): 0.375}


@pytest.mark.parametrize(
    "draw, expected",
    [
        (lambda rng: np.array([3, 1]), {(3, 1): 1}),
        (lambda rng: rng.choice(4), {(i,): 0.25 for i in range(4)}),
        (lambda rng: rng.choice(2, p=[1 - 2**-50, Fraction(1, 2**50)]), {(0,): 1 - 2**-50, (1,): 2**-50}),
        (lambda rng: rng.choice([5, 6, 7, 8], p=P) - 5, ONE_DRAW),
        (lambda rng: rng.choice(4, size=(2, 1), p=P), TWO_DRAWS),
        (lambda rng: np.arange(4)[rng.choice(4, size=0)], {(): 1}),
        (lambda rng: rng.integers(3, 4, size=2, endpoint=True), {(i, j): 1 / 4 for i in (3, 4) for j in (3, 4)}),
        (lambda rng: rng.integers(254, np.uint8(255), endpoint=True), {(254,): 0.5, (255,): 0.5}),
        (lambda rng: np.argmax(rng.multinomial(1, P, size=2), axis=-1), TWO_DRAWS),
        (lambda rng: int(np.float64(0.25) > rng.random()), QUARTER),
        *((lambda rng, a=a: int(rng.random() < a), {(0,): 1}) for a in (0, -0.5)),
        *((lambda rng, a=a: int(rng.random() < a), {(1,): 1}) for a in (1, 1.5, np.inf)),
        (lambda rng: int(~(np.float64(0.25) <= rng.random())), QUARTER),
        (lambda rng: [int((u := rng.random()) < u), int(u > u)], {(0, 0): 1}),
        (lambda rng: np.searchsorted(np.cumsum(P), rng.random(), side="right"), ONE_DRAW),
        (lambda rng: [np.cumsum(P).searchsorted(u) for u in rng.random(2)], TWO_DRAWS),
        (lambda rng: (np.cumsum(P) < rng.random()).sum(), ONE_DRAW),
        (lambda rng: [int(rng.random() < 0.25), int(rng.random() < 0.5)], QUARTER_AND_HALF),
        (lambda rng: (rng.random(2) < [0.25, 0.5]).astype(int), QUARTER_AND_HALF),
        (lambda rng: (np.array([0.25, 1]) >= rng.random(2)).astype(int), {(1, 1): 0.25, (0, 1): 0.75}),
        (lambda rng: (rng.uniform([1, 2], [2, 4]) < [1.25, 3]).astype(int), QUARTER_AND_HALF),
        (lambda rng: (rng.uniform(2, 4, size=2) < [2.5, 3]).astype(int), QUARTER_AND_HALF),
        (lambda rng: (rng.uniform(size=0) < 1).astype(int), {(): 1}),
        (lambda rng: int(rng.uniform(2, 4) < 2.5), QUARTER),
        (lambda rng: int(1 - rng.random() < 0.25), QUARTER),
        (lambda rng: [int((u := rng.random()) < 0.5), int(2 * (u - 0.5) < 0)], HALF_TWICE),
        (lambda rng: (rng.random() * np.array([2, 2]) < 1).astype(int), HALF_TWICE),
        (lambda rng: int(-rng.random() > -0.25), QUARTER),
        (lambda rng: np.argmax(rng.multinomial(1, [0.25, 0.5])) ^ 1, QUARTER),
    ],
)  # fmt: skip
def test_the_distribution_is_the_one_computed_by_hand(draw, expected):
    outputs = output_distribution(draw)
    assert outputs == pytest.approx(expected, abs=1e-15) and {type(mass) for mass in outputs.values()} == {float}
    assert all(type(x) is int for output in outputs for x in output)


THIRD = Fraction(1, 3)


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: int(rng.random() < THIRD),
        lambda rng: int(3 * rng.random() < 1 + 0 * THIRD),
        lambda rng: int(not rng.random() < 2 * THIRD),
        lambda rng: rng.choice(2, p=np.array([2, 1]) * THIRD),
        lambda rng: int(rng.random() < 2 * THIRD and rng.random() < Fraction(1, 2)),
        lambda rng: rng.choice(2, p=[2 * THIRD, Fraction(np.int64(1), np.int64(3))]),
        lambda rng: int(not rng.random() < Fraction(np.int64(2), np.int64(3))),
        lambda rng: np.argmax(rng.multinomial(1, [2 * THIRD, THIRD])),
        lambda rng: int(rng.random() < Decimal("0.5")) and int(rng.random() < 2 * THIRD),
    ],
)
def test_fractions_stay_fractions(draw):
    outputs = output_distribution(draw)
    assert outputs == {(0,): 2 * THIRD, (1,): THIRD} and {type(mass) for mass in outputs.values()} == {Fraction}
    assert total_variation(outputs, {(0,): Fraction(1)}) == THIRD


def test_total_variation():
    assert total_variation({(0,): 0.5, (1,): 0.5}, {(0,): 0.25, (1,): 0.25, (2,): 0.5}) == 0.5
    assert total_variation({(0,): 1.0}, {(1,): 1.0}) == 1
    assert total_variation({(0,): 1.0}, {(0,): 1.0}) == 0
    with pytest.raises(TypeError, match=r"tuples, and others are not; write \(0,\)"):
        total_variation(output_distribution(lambda rng: 0), {0: 1.0})
    with pytest.raises(ValueError, match=r"outputs of 2 tokens are compared with outputs of 1; is the prompt in one"):
        total_variation({(0, 1): 1.0}, {(1,): 1.0})
    assert total_variation({(0, 1): 0.5, (1,): 0.5}, {(1,): 1.0}) == 0.5  # as when an eos ends a text


@pytest.mark.parametrize(
    ("draw", "error", "message"),
    [
        (lambda rng: rng.random(), TypeError, "stands for all its values"),
        (lambda rng: rng.normal(), TypeError, r"rng\.normal cannot be enumerated; use rng\.choice"),
        (lambda rng: rng.rand(), AttributeError, "has no attribute 'rand'"),
        (lambda rng: rng.choice(3, size=2, replace=False), TypeError, "replace"),
        (lambda rng: rng.uniform(3, 1), ValueError, "high - low"),
        (lambda rng: rng.random() < ".3", TypeError, None),
        (lambda rng: rng.random() + "1", TypeError, None),
        (lambda rng: rng.integers(2**31), TooManyPaths, "a choice among 2,147,483,648 items"),
        (lambda rng: rng.random() < rng.random(), TypeError, "with plain numbers"),
        (lambda rng: int(rng.random() < np.nan), ValueError, "NaN"),
        (lambda rng: int(0 * rng.random() < 1), ValueError, "multiplied by 0"),
        (lambda rng: int(np.inf * rng.random() < 1), ValueError, "finite"),
        (lambda rng: rng.choice(2, p=[0.5, 0.5000005]), ValueError, "[Pp]robabilities"),
        (lambda rng: copy.deepcopy(rng).choice(2), TypeError, "copy"),
        (lambda rng: rng.choice(2, p=[Fraction(1, 2), Fraction(1, 3)]), ValueError, "2 probabilities with a sum of 1"),
        (lambda rng: rng.multinomial(1, np.float32([0.6, 0.4000002, 0])), ValueError, "sum"),
        (lambda rng: rng.random() < np.float16(0.3), TypeError, "float16"),
        (lambda rng: rng.random(dtype=np.float32), TypeError, "dtype; leave it out"),
    ],
)  # fmt: skip
def test_a_draw_that_cannot_be_enumerated_is_an_error(draw, error, message):
    with pytest.raises(error, match=message):
        output_distribution(draw)


def test_a_loop_without_end_is_an_error_that_says_how_much_was_covered():
    def draw_until(rng, below):
        while (rng.random() < 0.5) != below:
            pass
        return 0

    with pytest.raises(TooManyPaths, match=r"more than max_paths = 5 paths.*probability of 0\.96875") as error:
        output_distribution(lambda rng: draw_until(rng, below=True), max_paths=5)
    assert error.value.covered == 1 - 2**-5
    with pytest.raises(TooManyPaths, match=r"more than 1,000 choices along one path.*probability of 0\. "):
        output_distribution(lambda rng: draw_until(rng, below=False))
    with pytest.raises(TooManyPaths, match="1,000 choices") as error:
        output_distribution(lambda rng: rng.choice(2) and draw_until(rng, below=False))
    assert error.value.covered == 0.5
    assert output_distribution(lambda rng: rng.choice(5), max_paths=5) == {(i,): 0.2 for i in range(5)}


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: rng.random() < 0.3,
        lambda rng: rng.random() < np.float32(0.3),
        lambda rng: np.float64(0.3) > rng.random(),
        lambda rng: rng.random() < np.array(0.3),
        lambda rng: rng.random(2)[0] < 0.3,
        lambda rng: next(iter(rng.random(2))) < 0.3,
        lambda rng: rng.uniform(2, 4) < 3,
        lambda rng: rng.uniform(np.array(2.0), 4) < 3,
        lambda rng: rng.uniform(2, 4, size=1)[0] >= 3,
        lambda rng: 1 - rng.random() < 0.3,
        lambda rng: rng.random() * np.float64(2) < 1,
        lambda rng: rng.random() / 2 < 0.3,
        lambda rng: rng.random() / np.float64(2) < 0.3,
        lambda rng: np.random.default_rng(rng).choice(4),
        lambda rng: np.array(2.0) + rng.random() > 2.5,
        lambda rng: (np.array([1, 2]) * rng.random())[0] < 1,
        lambda rng: rng.choice(4),
        lambda rng: rng.choice(4, p=[0.25] * 4),
        lambda rng: rng.choice([5, 6]),
        lambda rng: rng.choice(4, size=2),
        lambda rng: rng.integers(4),
        lambda rng: (rng.random(3) < 0.3)[:2],
    ],
)
def test_types_are_those_of_numpy(draw):
    """~ means "not" for a np.bool_, but ~True is -2, which is true."""
    types = []
    output_distribution(lambda rng: types.append(type(draw(rng))) or 0)
    assert {*types} == {type(draw(np.random.default_rng(0)))}


@pytest.mark.parametrize("draw", [lambda rng: rng.random(), lambda rng: rng.random(2)[0], lambda rng: rng.uniform()])
def test_a_random_number_is_a_float_as_in_numpy(draw):
    kinds = float, np.float64, np.generic
    expected = [isinstance(draw(np.random.default_rng(0)), kind) for kind in kinds]
    assert output_distribution(lambda rng: [isinstance(draw(rng), kind) for kind in kinds]) == {tuple(expected): 1}


def test_a_drawn_row_is_a_copy():
    table = np.array([[1, 2], [3, 4]])

    def draw(rng):
        row = rng.choice(table)
        row[0] = 9
        return row

    assert output_distribution(draw) == {(9, 2): 0.5, (9, 4): 0.5} and table[0, 0] == 1


def caught(draw):
    try:
        return draw()
    except Exception:
        return 0


USES = {  # programs that use a random number as a value, and catch the error
    "int": int, "float": float, "bool": bool, "hash": lambda u: {u: 1}, "==": lambda u: u == 0.5,
    "%": lambda u: u % 2, "//": lambda u: u // 2, "**": lambda u: u**2, "round": round, "math.floor": math.floor,
    "np.log": np.log, "np.minimum": lambda u: np.minimum(u, 0.5), "dtype": lambda u: np.add(u, 1, dtype=float),
    "method": lambda u: u.is_integer(), "format": lambda u: f"{u:.3f}",
}  # fmt: skip
DEPENDENT = {
    "other probabilities": lambda rng, n_calls: int(rng.random() < 1 / (1 + n_calls)),
    "draws less often": lambda rng, n_calls: 0 * (rng.choice(2) + (rng.choice(2) if n_calls == 1 else 0)),
    "returns something else": lambda rng, n_calls: n_calls,
    "returns it later": lambda rng, n_calls: [rng.choice(4), n_calls > 4],
    # A state that flips with each call, also where the number of paths is even
    **{f"flips {n}": lambda rng, n_calls, n=n: [rng.choice(n), n_calls % 2] for n in range(2, 9)},
    "np.random": lambda rng, n_calls: np.random.choice(3),
    "random": lambda rng, n_calls: rng.choice(2) and random.choice([0]),
    "catches a refusal": lambda rng, n_calls: caught(rng.normal),
    "catches other probabilities": lambda rng, n_calls: caught(lambda: rng.choice(1 + n_calls)),
    **{name: lambda rng, n_calls, use=use: caught(lambda: use(rng.random())) for name, use in USES.items()},
}


@pytest.mark.parametrize("name", DEPENDENT)
def test_a_function_that_depends_on_more_than_rng_is_an_error(name):
    calls = []
    with pytest.raises((RuntimeError, TypeError), match=r"let rng alone|cannot be enumerated|stands for"):
        output_distribution(lambda rng: DEPENDENT[name](rng, calls.append(1) or len(calls)))


@pytest.mark.parametrize(
    "make",
    [np.random.default_rng, random.Random, np.random.RandomState, lambda: np.random.Generator(np.random.PCG64())],
)
def test_a_generator_without_a_seed_is_always_seen(make):
    """Wherever it draws: on one path of many, and among so few outcomes that two runs often agree."""
    for n, where, _ in itertools.product((2, 3, 4), range(4), range(2)):

        def draw(rng, n=n, where=where):
            path = 2 * rng.choice(2) + rng.choice(2)
            return path if path != where else int(make().choice(range(n)) > 0)

        with pytest.raises(NotByRng, match="let rng alone decide"):
            output_distribution(draw)
