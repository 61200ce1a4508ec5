"""enumeration/: distributions computed by hand, and errors where it would be wrong in silence."""

import copy
import functools
import gc
import math
import multiprocessing
import random
import re
import shutil
import sys
import tempfile
import types
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from support import ROOT, run

from enumeration import (
    Contradicted,
    NotByRng,
    TooManyPaths,
    assert_same_distribution,
    check_real_runs,
    output_distribution,
    total_variation,
)

P = np.array([0.125, 0.5, 0, 0.375])
ONE_DRAW = {(0,): 0.125, (1,): 0.5, (3,): 0.375}
TWO_DRAWS = {(i, j): P[i] * P[j] for i in (0, 1, 3) for j in (0, 1, 3)}
COIN = {(0,): 0.5, (1,): 0.5}
QUARTER = {(1,): 0.25, (0,): 0.75}
HALF_TWICE = {(1, 1): 0.5, (0, 0): 0.5}
QUARTER_AND_HALF = {(1, 1): 0.125, (1, 0): 0.125, (0, 1): 0.375, (0, 0): 0.375}
THIRD = Fraction(1, 3)
ROW = np.float32([0.3, 0.3000001, 0.4])  # NumPy takes it as an array, but not as a list


# ---- Right distributions ----


def halves(u, v):
    """How many of two numbers are below 1/2. The sum of two bools is 0, 1 or 2, of np.bool_ not."""
    return int((u < 0.5) + (v < 0.5))


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (lambda rng: np.array([3, 1]), {(3, 1): 1}),
        (lambda rng: rng.choice(2), COIN),
        (lambda rng: rng.choice([5, 6, 7, 8], p=P) - 5, ONE_DRAW),
        (lambda rng: rng.choice(4, size=(2, 1), p=P), TWO_DRAWS),
        (lambda rng: np.arange(4)[rng.choice(4, size=0)], {(): 1}),
        (lambda rng: rng.integers(3, 4, size=1, endpoint=True) - 3, COIN),
        (lambda rng: rng.integers(np.uint8(254), 256) - 254, COIN),
        (lambda rng: np.argmax(rng.multinomial(1, P, size=2), axis=-1), TWO_DRAWS),
        (lambda rng: rng.multinomial(2, [0.25, 0.5])[0] // 2, {(1,): 1 / 16, (0,): 15 / 16}),
        (lambda rng: int(rng.random() < -0.5), {(0,): 1}),
        (lambda rng: int(rng.random() < 1), {(1,): 1}),
        (lambda rng: int(rng.random() < np.inf), {(1,): 1}),
        (lambda rng: int(~(np.float64(0.25) <= rng.random())), QUARTER),
        (lambda rng: int(~np.greater_equal(rng.random(), 0.25)), QUARTER),
        (lambda rng: -int(rng.random() < 0.25), {(-1,): 0.25, (0,): 0.75}),
        (lambda rng: halves(rng.random(), rng.random()), {(0,): 0.25, (1,): 0.5, (2,): 0.25}),
        (lambda rng: halves(*rng.random(2)), {(0,): 0.25, (1,): 0.75}),
        (lambda rng: [int((u := rng.random()) < u), int(u > u)], {(0, 0): 1}),
        (lambda rng: np.searchsorted(np.cumsum(P), rng.random(), side="right"), ONE_DRAW),
        (lambda rng: [np.cumsum(P).searchsorted(u) for u in rng.random(2)], TWO_DRAWS),
        (lambda rng: (np.cumsum(P) < rng.random()).sum(), ONE_DRAW),
        (lambda rng: (rng.random(2) < [0.25, 0.5]).astype(int), QUARTER_AND_HALF),
        (lambda rng: (rng.uniform([1, 2], [2, 4]) < [1.25, 3]).astype(int), QUARTER_AND_HALF),
        (lambda rng: (rng.uniform(size=0) < 1).astype(int), {(): 1}),
        (lambda rng: (~(-(rng.random() * np.array([])) < 1)).astype(int), {(): 1}),
        (lambda rng: int(rng.uniform(2, 4) < 2.5), QUARTER),
        (lambda rng: int(1 - rng.random() < 0.25), QUARTER),
        (lambda rng: int(rng.random() - np.int8(-128) < 128.25), QUARTER),
        (lambda rng: [int((u := rng.random()) < 0.5), int(2 * (u - 0.5) < 0)], HALF_TWICE),
        (lambda rng: (rng.random() * np.array([2, 2]) < 1).astype(int), HALF_TWICE),
        (lambda rng: int(-rng.random() > -0.25), QUARTER),
        (lambda rng: int(np.log(rng.random()) < np.log(0.25)), QUARTER),
        (lambda rng: int(-np.log(1 - rng.random()) <= -np.log(0.75)), QUARTER),
        (lambda rng: int((2 * np.log(rng.random(1)) < np.log(0.0625))[0]), QUARTER),
        (lambda rng: int(np.log(rng.random()) < 1000), {(1,): 1}),
    ],
)
def test_the_distribution_is_the_one_computed_by_hand(draw, expected):
    outputs = output_distribution(draw, real_runs=2000)
    assert outputs == pytest.approx(expected, abs=1e-15)
    assert {type(mass) for mass in outputs.values()} == {float}
    assert all(type(x) is int for output in outputs for x in output)


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: int(rng.random() < THIRD),
        lambda rng: int(3 * rng.random() < 1 + 0 * THIRD),
        lambda rng: int(rng.random() / 2 < THIRD / 2),
        lambda rng: int(not rng.random() < 2 * THIRD),
        lambda rng: rng.choice(2, p=np.array([2, 1]) * THIRD),
        lambda rng: int(rng.random() < 2 * THIRD and rng.random() < Fraction(1, 2)),
        lambda rng: np.argmax(rng.multinomial(1, [2 * THIRD, THIRD])),
        lambda rng: rng.choices([0, 1], [2, 3 * THIRD])[0],
    ],
)
def test_fractions_stay_fractions(draw):
    outputs = output_distribution(draw)
    assert outputs == {(0,): 2 * THIRD, (1,): THIRD}
    assert {type(mass) for mass in outputs.values()} == {Fraction}


def test_fractions_of_numpy_integers_do_not_overflow():
    p = Fraction(np.int64(1), np.int64(10**10))
    outputs = output_distribution(lambda rng: [rng.random() < p, rng.choice(2, p=[1 - p, p])])
    assert outputs[1, 1] == Fraction(1, 10**20)


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: rng.random() < 0.3,
        lambda rng: rng.random() < np.float32(0.3),
        lambda rng: np.float64(0.3) > rng.random(),
        lambda rng: rng.random(2)[0] < 0.3,
        lambda rng: rng.uniform(2, 4) < 3,
        lambda rng: rng.uniform(2, 4, size=1)[0] >= 3,
        lambda rng: 1 - rng.random() < 0.3,
        lambda rng: rng.random() * np.float64(2) < 1,
        lambda rng: rng.random() / np.float64(2) < 0.3,
        lambda rng: np.log(rng.random()) < -1,
        lambda rng: np.array(2.0) + rng.random() > 2.5,
        lambda rng: (np.array([1, 2]) * rng.random())[0] < 1,
        lambda rng: np.random.default_rng(rng).choice(4),
        lambda rng: rng.choice([5, 6]),
        lambda rng: rng.choice(4, size=2),
        lambda rng: rng.integers(4),
    ],
)
def test_types_are_those_of_numpy(draw):
    """~ means "not" for a np.bool_, but ~True is -2, which is true."""
    types = []

    def draw_and_note(rng):
        types.append(type(draw(rng)))
        return 0

    output_distribution(draw_and_note)
    assert {*types} == {type(draw(np.random.default_rng(0)))}


def test_a_drawn_row_is_a_copy():
    table = np.array([[1, 2], [3, 4]])

    def draw(rng):
        row = rng.choice(table)
        row[0] = 9
        return row

    assert output_distribution(draw) == {(9, 2): 0.5, (9, 4): 0.5}
    assert table[0, 0] == 1


# ---- What NumPy refuses, and what is refused here ----


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: int((np.array([200], np.uint8) - rng.random() > 199.7)[0]),
        lambda rng: rng.multinomial(1, ROW),
        lambda rng: (rng.uniform([0, 0], 1, size=1) < 0.3).astype(int),
        lambda rng: int(rng.uniform(0, np.inf) < 1),
        lambda rng: rng.choice(3, p=ROW),
        lambda rng: rng.choice(3, p=list(ROW)),
        lambda rng: rng.choice(3, p=[0.2, np.nan, 0.8]),
        lambda rng: rng.choice(3, p=[[0.2, 0.3, 0.5]]),
        lambda rng: rng.choice(3, p=[0.5, 0.5]),
        lambda rng: rng.choice(3, p=[-0.5, 0.5, 1]),
        lambda rng: rng.choice(3.0),
        lambda rng: rng.choice(0),
        lambda rng: rng.choice(3, size=-1),
        lambda rng: rng.integers(3, 1),
        lambda rng: rng.random(2.0),
        lambda rng: int(rng.random(()) < 0.3),
    ],
)
def test_an_odd_call_does_what_it_does_in_numpy(draw):
    def draw_or_fail(rng):
        try:
            return draw(rng)
        except Exception:
            return 9

    output_distribution(draw_or_fail, real_runs=2000)


@pytest.mark.parametrize(
    ("draw", "error", "message"),
    [
        (lambda rng: rng.random(), TypeError, "stands for all its values"),
        (lambda rng: float(rng.random()), TypeError, r"values\.py runs code that needs values"),
        (lambda rng: math.log(rng.random()), TypeError, r"values\.py runs code that needs values"),
        (lambda rng: rng.normal(), TypeError, r"rng\.normal cannot be enumerated; use rng\.choice"),
        (lambda rng: rng.rand(), AttributeError, "has no attribute 'rand'"),
        (lambda rng: rng.choice(3, size=2, replace=False), TypeError, "with replace=False"),
        (lambda rng: rng.choice(3, shuffle=False), TypeError, "shuffle; leave it out"),
        (lambda rng: rng.integers(300, dtype=np.uint8), TypeError, "dtype; leave it out"),
        (lambda rng: rng.random(dtype=np.float32), TypeError, "dtype; leave it out"),
        (lambda rng: rng.uniform(3, 1), ValueError, "high - low"),
        (lambda rng: rng.random() < [0.3], TypeError, "combined with a list; it stands"),
        (lambda rng: rng.random() < Decimal("0.3"), TypeError, "combined with a Decimal"),
        (lambda rng: rng.random() < np.float16(0.3), TypeError, "float16"),
        (lambda rng: rng.random() < rng.random(), TypeError, "combined with another one"),
        (lambda rng: isinstance(rng.random(), float), TypeError, "asked for its type"),
        (lambda rng: rng.integers(2**31), TooManyPaths, "a choice among 2,147,483,648 items"),
        (lambda rng: rng.integers([2, 3]), TypeError, "found an array; call it once for each"),
        (lambda rng: rng.multinomial([1], [0.5, 0.5]), TypeError, "found an array"),
        (lambda rng: rng.multinomial(1, [[0.5, 0.5]]), TypeError, "found an array"),
        (lambda rng: rng.random() < np.nan, ValueError, "NaN"),
        (lambda rng: 0 * rng.random() < 1, ValueError, "multiplied by 0"),
        (lambda rng: rng.random() / 0 < 1, ValueError, "finite"),
        (lambda rng: np.log(rng.random() - 0.5) < -2, TypeError, "was given to np.log"),
        (lambda rng: np.log(np.log(rng.random()) + 2) < 0, TypeError, "was given to np.log"),
        (lambda rng: rng.choice(2, p=[0.5, 0.5000005]), ValueError, "[Pp]robabilities"),
        (lambda rng: rng.choice(2, p=np.array([0.5, THIRD])), ValueError, "[Pp]robabilities"),
        (lambda rng: rng.choice(2, p=[3 * THIRD / 2, THIRD]), ValueError, "2 .* a sum of 1"),
        (lambda rng: rng.multinomial(1, np.float32([0.6, 0.4000002, 0])), ValueError, "sum"),
        (lambda rng: copy.deepcopy(rng).choice(2), TypeError, "copy"),
        (lambda rng: rng.choices([0, 1], [0, 0]), ValueError, "above 0 are needed; found .0, 0."),
        (lambda rng: rng.choices([0, 1], [1, np.nan]), ValueError, "a finite sum above 0"),
        (lambda rng: rng.choices([0, 1], [1, np.inf]), ValueError, "a finite sum above 0"),
        (lambda rng: rng.choices([0, 1], [2, -1]), ValueError, "not non-negative"),
        (lambda rng: rng.choices([0, 1], [1, 1, 1]), ValueError, "same size"),
        (
            lambda rng: rng.choices([0, 1], cum_weights=[1, 2]),
            TypeError,
            "cum_weights; leave it out",
        ),
    ],
)
def test_a_draw_that_cannot_be_enumerated_is_an_error(draw, error, message):
    with pytest.raises(error, match=message):
        output_distribution(draw)


def test_a_loop_without_end_is_an_error_that_says_how_much_was_covered():
    def draw_until(rng, below):
        while (rng.random() < 0.5) != below:
            pass
        return 0

    message = r"more than max_paths = 5 paths.*probability of 0\.96875"
    with pytest.raises(TooManyPaths, match=message) as error:
        output_distribution(lambda rng: draw_until(rng, below=True), max_paths=5)
    assert error.value.covered == 1 - 2**-5
    with pytest.raises(TooManyPaths, match="more than 1,000 choices along one path") as error:
        output_distribution(lambda rng: rng.choice(2) and draw_until(rng, below=False))
    assert error.value.covered == 0.5
    assert len(output_distribution(lambda rng: rng.choice(5), max_paths=5)) == 5


@pytest.mark.skipif(sys.version_info < (3, 11), reason="no notes here")
def test_an_error_on_a_path_that_rounding_opens_says_so():
    def notes_of(certain):
        with pytest.raises(IndexError) as error:
            output_distribution(lambda rng: 0 if rng.random() < certain else [][0])
        return getattr(error.value, "__notes__", None)

    note = "on a path of probability 2.2e-16, which rounding opens"
    assert notes_of(1 - 2**-52) == [note]
    assert notes_of(0.9) is None
    assert notes_of(1 - Fraction(1, 2**52)) is None


# ---- Something else decides ----


@pytest.mark.parametrize(
    "use",
    [
        int,
        bool,
        round,
        math.floor,
        np.exp,
        lambda u: {u: 1},
        lambda u: u == 0.5,
        lambda u: u % 2,
        lambda u: np.minimum(u, 0.5),
        lambda u: np.add(u, 1, dtype=float),
        lambda u: u.is_integer(),
        lambda u: f"{u:.3f}",
    ],
)
def test_a_program_that_catches_a_refusal_is_refused_all_the_same(use):
    def draw(rng):
        try:
            return use(rng.random())
        except TypeError:
            return 0

    with pytest.raises(TypeError, match=r"a random number was .* it stands for"):
        output_distribution(draw)


def draws_less_often(rng, n_calls):
    if n_calls == 1:
        rng.choice(2)
    return rng.choice(2)


def catches_that_probabilities_differ(rng, n_calls):
    try:
        return rng.choice(1 + n_calls)
    except NotByRng:
        return 0


def first_of(n):
    """Only the first run sees something."""
    return lambda rng, n_calls: [rng.choice(n), n_calls == 1]


def flips(n):
    """A state changes with each call, also where the number of paths is even."""
    return lambda rng, n_calls: [rng.choice(n), n_calls % 2]


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, n_calls: int(rng.random() < 1 / (1 + n_calls)),
        lambda rng, n_calls: n_calls,
        lambda rng, n_calls: [rng.choice(4), n_calls > 4],
        draws_less_often,
        catches_that_probabilities_differ,
        *map(first_of, (2, 16, 17, 200)),
        *map(flips, (2, 3, 4)),
    ],
)
def test_a_function_that_depends_on_more_than_rng_is_an_error(draw):
    calls = []

    def counted(rng):
        calls.append(1)
        return draw(rng, len(calls))

    with pytest.raises(NotByRng, match="let rng alone"):
        output_distribution(counted)


def jitter(noise):
    """A function of rng whose probabilities are never twice the same."""
    calls = []

    def draw(rng):
        calls.append(1)
        p = Fraction(1, 4) + noise * len(calls)
        return int(rng.random() < p)

    return draw


def test_floats_may_differ_by_rounding_but_fractions_may_not():
    assert_same_distribution(jitter(1e-9), QUARTER, tolerance=1e-7)
    for noise in 1e-5, Fraction(1, 10**9):
        with pytest.raises(NotByRng):
            output_distribution(jitter(noise))


def test_after_a_rejection_that_rounding_opens_the_residual_may_be_noise():
    """As where the draft is the target, and a cache adds up in another order each time."""
    calls = []

    def draw(rng, rejected):
        calls.append(1)
        if rng.random() < 1 - rejected * (len(calls) % 2):
            return rng.choice(2)
        for _ in range(len(calls) % 3):
            rng.choice(3, p=np.roll([0.2, 0.3, 0.5], len(calls)))
        return 2

    assert_same_distribution(lambda rng: draw(rng, 1e-7), COIN, tolerance=1e-6)
    with pytest.raises(NotByRng):
        output_distribution(lambda rng: draw(rng, 1e-5))


# ---- Other generators ----


class Keeper:
    """Has a generator in a class attribute."""

    rng = np.random.default_rng(1)


OTHER_MODULE = types.ModuleType("other_module")
OTHER_MODULE.rng = np.random.RandomState(1)
HIDDEN = [{"deep": (random.Random(1),)}]


@functools.cache
def made_on_some_path(path):
    return random.Random(path)


OTHERS = {  # what the error calls the generator: function(path) -> a number
    "np.random": lambda path: np.random.random(),
    "Python's random": lambda path: random.random(),
    "a PCG64 that is rng in": lambda path: Keeper.rng.random(),
    "a MT19937 that is rng in other_module": lambda path: OTHER_MODULE.rng.random(),
    "a Random": lambda path: HIDDEN[0]["deep"][0].random(),
    "a SeedSequence": lambda path: Keeper.rng.spawn(1)[0].random(),
    "a Random that is": lambda path: made_on_some_path(path).random(),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("only", [None, 7])  # on each of 12 paths, or on one
def test_a_generator_with_a_seed_that_decides_is_seen_wherever_it_is(name, only):
    made_on_some_path.cache_clear()

    def draw(rng):
        path = 4 * rng.choice(3) + rng.choice(4)
        if only in (None, path):
            return int(OTHERS[name](path) < 1e-4)  # hardly ever, so that no run differs
        return 0

    with pytest.raises(NotByRng, match=f"drew from {name}.*let rng alone decide"):
        output_distribution(draw)


def test_who_drew_is_said_even_if_no_two_runs_agree():
    with pytest.raises(NotByRng, match=r"drew from np\.random; let rng alone decide"):
        output_distribution(lambda rng: [rng.choice(2), np.random.choice(1000)])


@pytest.mark.parametrize(
    "collect", [lambda: gc.collect(0), lambda: gc.collect(1), gc.collect, gc.freeze]
)
def test_a_generator_is_seen_after_any_collection_of_garbage(collect):
    output_distribution(lambda rng: rng.choice(2))
    other = np.random.default_rng(1)
    collect()
    with pytest.raises(NotByRng, match="drew from a PCG64"):
        output_distribution(lambda rng: int(other.random() < 1e-9))


@pytest.mark.parametrize("collect", [gc.collect, lambda: None])
def test_generators_are_not_kept_alive(collect):
    def n_alive():
        return sum(type(thing) is np.random.PCG64 for thing in gc.get_objects())

    gc.disable()
    try:
        output_distribution(lambda rng: rng.choice(2))
        before = n_alive()
        for _ in range(5):
            output_distribution(lambda rng: rng.choice(2))
            collect()
        assert n_alive() <= before + 2
    finally:
        gc.enable()


def test_a_generator_that_each_path_makes_from_a_seed_may_draw():
    def draw(rng):
        np.random.default_rng(5).random()
        random.Random(5).random()
        return rng.choice(2)

    assert output_distribution(draw) == COIN


def test_names_of_temporary_files_decide_nothing():
    def draw(rng):
        with tempfile.TemporaryDirectory(), tempfile.NamedTemporaryFile():
            multiprocessing.Lock()
            return rng.choice(2)

    assert output_distribution(draw) == COIN
    assert output_distribution(draw) == COIN


@pytest.mark.parametrize(
    "make",
    [
        np.random.default_rng,
        random.Random,
        random.SystemRandom,
        np.random.RandomState,
        lambda: np.random.Generator(np.random.PCG64()),
        lambda: np.random.default_rng(np.random.SeedSequence()),
    ],
)
@pytest.mark.parametrize("where", [0, 3])
def test_a_generator_without_a_seed_is_always_seen(make, where):
    """On one path of four, even if it hardly ever changes what comes out."""

    def draw(rng):
        path = 2 * rng.choice(2) + rng.choice(2)
        return path if path != where else int(make().random() < 1e-9)

    message = "(makes a generator without a seed|drew from a Random).*; let rng alone decide"
    with pytest.raises(NotByRng, match=message):
        output_distribution(draw)


# ---- Comparisons ----


def test_total_variation():
    assert total_variation({(0,): 0.5, (1,): 0.5}, {(0,): 0.25, (1,): 0.25, (2,): 0.5}) == 0.5
    # As when an eos ends a text
    assert total_variation({(0, 1): 0.5, (1,): 0.5}, {(1,): 1.0}) == 0.5
    with pytest.raises(TypeError, match=r"tuples, and others are not; write \(0,\)"):
        total_variation({(0,): 1.0}, {0: 1.0})
    message = "outputs of 2 tokens are compared with outputs of 1; is the prompt in one"
    with pytest.raises(ValueError, match=message):
        total_variation({(0, 1): 1.0}, {(1,): 1.0})


@pytest.mark.parametrize(
    ("found", "expected", "words"),
    [
        (
            {(7, 0): 0.3, (7, 1): 0.7},
            {(7, 0): 0.29, (7, 1): 0.71},
            "wrong by 0.0100; after 7, 0 is emitted with probability 0.3, but should be 0.29",
        ),
        (
            {(0, 0): 0.25, (0, 1): 0.25, (1, 0): 0.5},
            {(0, 0): 0.5, (1, 0): 0.5},
            "wrong by 0.2500; after 0, 0 is emitted with probability 0.5, but should be 1",
        ),
        (
            {(2,): 0.5, (3,): 0.5},
            {(2,): THIRD, (3,): 2 * THIRD},
            "at the beginning, 2 is emitted with probability 0.5, but should be 0.3333",
        ),
        (
            {(0,): 0.5, (1, 0): 0.1, (1, 1): 0.4},
            {(0,): 0.5, (1,): 0.5},
            "after 1, the text should have ended, but 0 follows with probability 0.2",
        ),
        (
            {(0,): 1.0},
            {(0,): 0.75, (0, 1): 0.25},
            "wrong by 0.2500; after 0, 1 is emitted with probability 0, but should be 0.25",
        ),
        (
            {(0,): 0.5, (1,): 0.5},
            {(0,): 0.5 + 1e-9, (1,): 0.5 - 1e-9},
            "at the beginning, 0 is emitted with probability 0.5, but should be 0.500000001",
        ),
        ({0: 0.5, 1: 0.5}, {0: 1.0}, "wrong by 0.5000; at the beginning, 0 is emitted"),
        (
            {(i,): 0.1 + 8e-13 * (-1) ** i for i in range(10)},
            {(i,): 0.1 for i in range(10)},
            "wrong by 4e-12; no token alone by more than 1e-12",
        ),
    ],
)
def test_a_difference_is_said_in_words(found, expected, words):
    with pytest.raises(AssertionError, match=re.escape(words)):
        assert_same_distribution(found, expected)
    assert_same_distribution(found, found, tolerance=0)
    assert_same_distribution(found, expected, tolerance=0.51)


def test_samplers_are_compared_and_tokens_have_names():
    assert_same_distribution(lambda rng: rng.choice(2), lambda rng: int(rng.random() < 0.5))
    with pytest.raises(AssertionError, match="after 1, 0 is emitted with probability 1, but"):
        assert_same_distribution({(0, 5): 0.2, (1, 0): 0.8}, {(1, 1): 1}, tolerance=0.3)
    with pytest.raises(AssertionError, match="after A, B is emitted with probability 0, but"):
        assert_same_distribution(lambda rng: [0, 2], lambda rng: [0, 1], name="ABC".__getitem__)


def test_real_runs_contradict_a_wrong_distribution():
    def is_enumerated(rng):
        return int(type(rng) is not np.random.Generator)

    message = r"2,000 real runs gave \([01],\) .* times, where the distribution says"
    with pytest.raises(Contradicted, match=message):
        output_distribution(is_enumerated, real_runs=2000)
    with pytest.raises(Contradicted, match=r"gave \(2,\) 1 times, where the distribution says 0;"):
        check_real_runs({(0,): 1.0}, iter([(0,)] * 999 + [(2,)]).__next__, 1000)


@pytest.mark.parametrize("p", [0, 1e-12, 0.001, 0.3, Fraction(1, 3), 0.999, 1])
def test_real_runs_contradict_no_right_distribution(p):
    rng = np.random.default_rng(0)

    def draw_once():
        return (int(rng.random() >= p),)

    check_real_runs({(0,): p, (1,): 1 - p}, draw_once, 20_000)
    for wrong in p + 0.05, p - 0.05:
        if 0 <= wrong <= 1:
            with pytest.raises(Contradicted):
                check_real_runs({(0,): wrong, (1,): 1 - wrong}, draw_once, 20_000)


# ---- Python's choices ----


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (lambda rng: rng.choices([5, 6])[0] - 5, {(0,): 0.5, (1,): 0.5}),
        (lambda rng: rng.choices([0, 1], [3, 1])[0], {(0,): 0.75, (1,): 0.25}),
        (lambda rng: rng.choices("ba", weights=[3, 1])[0] == "a", {(0,): 0.75, (1,): 0.25}),
        (lambda rng: rng.choices([0, 1, 2], np.float32([0.3, 0, 0.1])), {(0,): 0.75, (2,): 0.25}),
        (lambda rng: rng.choices(range(4), P, k=2), TWO_DRAWS),
    ],
)
def test_choices_are_those_of_pythons_random(draw, expected):
    found = output_distribution(draw)
    assert found == pytest.approx(expected, abs=1e-7)
    usual = random.Random(0)
    check_real_runs(found, lambda: tuple(np.ravel(draw(usual)).tolist()), 2000)


# ---- Where it is used ----


def test_a_copy_within_another_package_works(tmp_path):
    shutil.copytree(ROOT / "enumeration", tmp_path / "package" / "enumeration")
    program = """if True:
        import sys
        from package.enumeration import assert_same_distribution, values
        coin = values.output_distribution(lambda draw: int(2 * draw()))
        assert_same_distribution(lambda rng: rng.choice(2), coin)
        assert_same_distribution(lambda rng: int(rng.random() < 0.25), {(1,): 0.25, (0,): 0.75})
        print(*sorted(name for name in sys.modules if "enumeration" in name))
    """
    printed = run("-c", program, script="", cwd=tmp_path).stdout
    assert {name.partition(".")[0] for name in printed.split()} == {"package"}


def test_a_progress_bar_within_the_function():
    """It makes a lock, whose name is random. A new process, because only the first bar does."""
    program = """if True:
        from tqdm import tqdm
        from enumeration import output_distribution
        print(output_distribution(lambda rng: [rng.choice(2) for _ in tqdm(range(1))]))
    """
    assert run("-c", program, script="").stdout == "{(0,): 0.5, (1,): 0.5}\n"
