"""enumeration/: distributions computed by hand, and errors where it would be wrong in silence."""

import contextlib
import copy
import functools
import gc
import importlib
import itertools
import json
import math
import multiprocessing
import os
import random
import re
import secrets
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from support.programs import run

from enumeration import (
    Contradicted,
    NotByRng,
    TooManyPaths,
    assert_same_distribution,
    check_real_runs,
    forks,
    output_distribution,
    sum_over_paths,
    total_variation,
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
    """Its distribution, which 2,000 real runs do not contradict."""
    outputs = sum_over_paths(draw)
    usual = np.random.default_rng(0)
    check_real_runs(outputs, lambda: as_output(draw(usual)), 2000)
    return outputs


# ---- Right distributions ----


def halves(u, v):
    """How many of two numbers are below 1/2. The sum of two bools is 0, 1 or 2, of np.bool_ not."""
    return int((u < 0.5) + (v < 0.5))


TABLE = np.array([[1, 2], [3, 4]])


def written_to(row):
    """If it weren't a copy, the next path would find a 9 in the table."""
    row[0] = 9
    return row


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (lambda rng: np.array([3, 1]), {(3, 1): 1}),
        (lambda rng: int(hasattr(rng, "choices")), {(0,): 1}),
        (lambda rng: rng.choice(2), COIN),
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


# ---- Numbers that are used as values ----


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
    found = output_distribution(draw, resolution=0.1)
    assert total_variation(found, expected) < 1e-12
    assert 0.05 < found.resolution < 0.1
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


# ---- Something else decides ----


def draws_less_often(rng, n_calls):
    if n_calls == 1:
        rng.choice(2)
    return rng.choice(2)


def draws_more_often(rng, n_calls):
    token = rng.choice(2)
    if n_calls > 1:
        rng.choice(2)
    return token


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
        lambda rng, n_calls: [rng.choice(2), n_calls > 9],
        lambda rng, n_calls: [rng.choice(1000), 600 < n_calls < 900],
        draws_less_often,
        draws_more_often,
        catches_that_probabilities_differ,
        *map(first_of, (2, 200)),
        *map(flips, (2, 3, 4)),
    ],
)
def test_a_function_that_depends_on_more_than_rng_is_an_error(draw):
    calls = []

    def counted(rng):
        calls.append(1)
        return draw(rng, len(calls))

    with pytest.raises(NotByRng, match="something else than rng decides as well"):
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


def rejected_by_rounding(share):
    """As where the draft is the target, and a cache adds up in another order each time."""
    calls = itertools.count()

    def draw(rng):
        call = next(calls)
        if rng.random() < 1 - share * (call % 2):
            return rng.choice(2)
        for _ in range(call % 5):
            rng.choice(3, p=np.roll([0.2, 0.3, 0.5], call))
        return 2

    return draw


def test_after_a_rejection_that_rounding_opens_the_residual_may_be_noise():
    assert_same_distribution(rejected_by_rounding(1e-7), COIN, tolerance=1e-6)
    with pytest.raises(NotByRng):
        output_distribution(rejected_by_rounding(1e-5))


# ---- Other generators ----


PCG64, MT19937, PYTHONS = np.random.default_rng(1), np.random.RandomState(1), random.Random(1)


@functools.cache
def made_on_some_path(path):
    return random.Random(path)


OTHERS = {  # what the error calls the generator: function(path) -> a number
    "np.random": lambda path: np.random.random(),
    "Python's random": lambda path: random.random(),
    "a PCG64": lambda path: PCG64.random(),
    "a MT19937": lambda path: MT19937.random(),
    "a Random": lambda path: PYTHONS.random(),
    "a SeedSequence": lambda path: PCG64.spawn(1)[0].random(),
    "a Random, or": lambda path: made_on_some_path(path).random(),
    "PyTorch's generator": lambda path: pytest.importorskip("torch").rand(1),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_generator_with_a_seed_that_decides_is_seen_wherever_it_is(name):
    """It draws on one of 12 paths, and hardly ever decides, so that no run differs."""
    made_on_some_path.cache_clear()

    def draw(rng):
        path = 4 * rng.choice(3) + rng.choice(4)
        return int(path == 7 and OTHERS[name](path) < 1e-4)

    gc.freeze()  # what is frozen is hidden from get_objects
    with pytest.raises(NotByRng, match=f"draws from {name}.*let rng alone decide"):
        output_distribution(draw)


PROCESSES = {  # what starts one
    "os.fork": lambda: os.fork() or os._exit(0),
    "os.system": lambda: os.system("true"),
    "subprocess": lambda: subprocess.run([sys.executable, "-c", ""]),
}
for method in multiprocessing.get_all_start_methods():
    context = multiprocessing.get_context(method)
    PROCESSES[method] = lambda context=context: context.Process(target=print).start()


@pytest.mark.parametrize("name", PROCESSES)
def test_a_child_is_refused(name):
    def draw(rng):
        PROCESSES[name]()
        return 0

    with pytest.raises(NotByRng, match="the function starts a process"):
        output_distribution(draw)


def test_a_module_may_ask_when_it_is_imported(tmp_path, monkeypatch):
    (tmp_path / "asks.py").write_text("import random\nrandom.Random()\n")
    monkeypatch.syspath_prepend(tmp_path)

    def draw(rng):
        importlib.import_module("asks")
        return rng.choice(2)

    assert output_distribution(draw) == COIN


def seeds_anew_and_back():
    state = random.getstate()
    random.seed()
    found = random.random()
    random.setstate(state)
    return found


@pytest.mark.parametrize(
    "draw",
    [
        lambda: os.urandom(1),
        lambda: getattr(os, "getrandom", os.urandom)(1),
        uuid.uuid4,
        lambda: secrets.randbelow(2),
        lambda: random.SystemRandom().random(),
        random.Random,
        np.random.default_rng,
        np.random.RandomState,
        np.random.SeedSequence,
        seeds_anew_and_back,
        lambda: ThreadPoolExecutor(1).submit(np.random.default_rng).result(),
    ],
)
def test_who_asks_the_operating_system_is_refused(draw):
    def function(rng):
        path = 2 * rng.choice(2) + rng.choice(2)
        if path == 3:
            with contextlib.suppress(NotByRng):
                draw()
        return path

    with pytest.raises(NotByRng, match="the function asks the operating system"):
        output_distribution(function)


# ---- Outputs ----


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ab", "ab\0"),
        (b"ab", b"ab\0"),
        ([1, "a"], ["1", "a"]),
        ([[1], [2]], [[1, 2]]),
        (np.zeros((2, 3)), np.zeros((3, 2))),
        ([2**63 + 1, -1], [2**63 + 3, -1]),
        (np.array([1, 2]), (1, (2,))),
        (range(2), range(3)),
    ],
)
def test_outputs_are_compared_as_they_are(one, other):
    assert len(sum_over_paths(lambda rng: one if rng.choice(2) else other)) == 2


async def asleep():
    return 1


@pytest.mark.filterwarnings("ignore:coroutine")
@pytest.mark.parametrize(
    ("output", "advice"),
    [
        (lambda: None, "found None; return what was drawn"),
        (lambda: [1, None], "found None; return what was drawn"),
        (lambda: {1: 2}, r"found {1: 2}; return sorted\(output\.items\(\)\)"),
        (lambda: {1}, r"found \{1\}; return sorted\(output\)"),
        (lambda: (i for i in range(2)), r"found <generator .*>; return \[\*output\]"),
        (asleep, r"found <coroutine .*>; return asyncio\.run\(output\)"),
        (lambda: math.nan, "found nan"),
    ],
)
def test_an_output_that_is_none_says_what_to_return(output, advice):
    with pytest.raises(TypeError, match=f"an output is .*; {advice}"):
        output_distribution(lambda rng: output())


# ---- Comparisons ----


def test_total_variation():
    thirds = {(0,): 0.25, (1,): 0.25, (2,): 0.5}
    assert total_variation({(0,): 0.5, (1,): 0.5, (2,): 0}, thirds) == 0.5
    for another in {(0, 1): 1.0}, {0: 1.0}:
        with pytest.raises((TypeError, ValueError), match=r"others are not|compared with outputs"):
            total_variation({(1,): 1.0}, another)


@pytest.mark.parametrize(
    ("law", "message"),
    [
        ({}, "0 outputs have a sum of 0, not of 1"),
        ({(0,): 0.5}, "1 outputs have a sum of 0.5, not of 1"),
        ({(0,): 1 + Fraction(1, 10**5)}, "not of 1"),
        ({(0,): np.float16(0.2), (1,): np.float16(0.8)}, "sum of 0.9997558594, not of 1"),
        ({(0,): math.nan, (1,): 1}, r"the probability of \(0,\) is nan"),
        ({(0,): 1.5, (1,): -0.5}, r"the probability of \(1,\) is -0.5"),
    ],
)
def test_what_is_no_distribution_is_not_compared(law, message):
    for pair in (law, COIN), (COIN, law), (law, law):
        with pytest.raises(ValueError, match=message):
            assert_same_distribution(*pair)
    for name, value in ("tolerance", math.nan), ("resolution", math.nan), ("resolution", -1):
        with pytest.raises(ValueError, match=f"{name} must be 0 or more; found {value}"):
            assert_same_distribution(COIN, COIN, **{name: value})


@pytest.mark.parametrize(
    ("found", "expected", "words"),
    [
        (
            {(7, 0): 0.3, (7, 1): 0.7},
            {(7, 0): 0.29, (7, 1): 0.71},
            "wrong by 0.0100; after 7, 0 is emitted with probability 0.3, but should be 0.29",
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
    with pytest.raises(AssertionError, match="after A, B is emitted with probability 0, but"):
        assert_same_distribution(lambda rng: [0, 2], lambda rng: [0, 1], name="ABC".__getitem__)


def test_real_runs_contradict_a_wrong_distribution():
    with pytest.raises(Contradicted, match=r"^100 real runs gave \(0,\) 100 times, where"):
        output_distribution(lambda rng: rng.choice(1) + (type(rng) is not np.random.Generator))
    with pytest.raises(Contradicted, match=r"gave \(2,\) 1 times, where the distribution says 0;"):
        check_real_runs({(0,): 1.0}, iter([(0,)] * 999 + [(2,)]).__next__, 1000)


@pytest.mark.parametrize("p", [0, 1e-12, 0.001, 0.3, Fraction(1, 3), 0.999, 1])
def test_real_runs_contradict_no_right_distribution(p):
    rng = np.random.default_rng(0)

    def check(claimed):
        check_real_runs({(0,): claimed, (1,): 1 - claimed}, lambda: (int(rng.random() >= p),), 5000)

    check(p)
    with pytest.raises(Contradicted):
        check(p - 0.07 if p > 0.5 else p + 0.07)


# ---- Where it is used ----


def test_a_progress_bar_within_the_function():
    """It makes a lock, whose name is random. A new process, because only the first bar does."""
    program = """if True:
        from tqdm import tqdm
        from enumeration import output_distribution
        print(output_distribution(lambda rng: [rng.choice(2) for _ in tqdm(range(1))]))
    """
    assert run("-c", program).stdout == "{(0,): 0.5, (1,): 0.5}\n"


class KeepsItsFirst:
    rng = None

    def __init__(self, draw):
        self.draw = draw

    def __call__(self, rng):
        self.rng = self.rng or rng
        return [rng.choice(2), self.draw(self.rng)]


@pytest.mark.parametrize("draw", [lambda rng: rng.choice(4), lambda rng: bool(rng.random())])
def test_a_generator_of_an_earlier_run_is_refused(draw):
    with pytest.raises(NotByRng, match="the generator of an earlier run was used"):
        output_distribution(KeepsItsFirst(draw), resolution=0.1)
