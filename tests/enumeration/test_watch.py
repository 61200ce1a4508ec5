"""What decides beside rng is seen: a state, another generator, the one of an earlier run."""

import contextlib
import functools
import gc
import importlib
import itertools
import multiprocessing
import os
import random
import secrets
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
from support.programs import run

from enumeration import (
    NotByRng,
    assert_same_distribution,
    output_distribution,
)

COIN = {(0,): 0.5, (1,): 0.5}
QUARTER = {(1,): 0.25, (0,): 0.75}


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
    """A function whose first run alone has a 1."""
    return lambda rng, n_calls: [rng.choice(n), n_calls == 1]


def flips(n):
    """A function whose state changes with each call, also where the number of paths is even."""
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

    with pytest.raises(NotByRng, match="something other than rng decides as well"):
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
    """A function like a draft that is the target, with a cache that rounds in another way."""
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
    """The generator draws on one of 12 paths, and so rarely decides that no run differs."""
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
    number = random.random()
    random.setstate(state)
    return number


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


def test_a_progress_bar_within_the_function():
    """Only the first bar of a process makes a lock, whose name is random."""
    program = """if True:
        from tqdm import tqdm
        from enumeration import output_distribution
        print(output_distribution(lambda rng: [rng.choice(2) for _ in tqdm(range(1))]))
    """
    assert run("-c", program).stdout == "{(0,): 0.5, (1,): 0.5}\n"
