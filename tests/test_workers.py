"""Paths that many processes share: the same distribution, and one line where that can't be."""

from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

from enumeration import NotByRng, TooManyPaths, output_distribution, total_variation
from lab.gallery import SETTING, P, Q, Setting
from speculative import speculative_sampling

FLOATS = Setting(P.astype(float), Q.astype(float))
OTHER = np.random.default_rng(0)
CALLS = []


def exact(rng):
    return speculative_sampling([0], SETTING.draft_model, SETTING.target_model, 2, 2, rng)


def in_floats(rng):
    return speculative_sampling([0], FLOATS.draft_model, FLOATS.target_model, 3, 2, rng)


def one_path(rng):
    return 7


def two_paths(rng):
    return rng.choice(2)


def by_another(rng):
    return [rng.choice(2), int(OTHER.random() < 0.5)]


def by_a_counter(rng):
    CALLS.append(1)
    return [rng.choice(2), len(CALLS) % 2]


@pytest.fixture(scope="module")
def executor():
    with ProcessPoolExecutor(2) as executor:
        yield executor


def test_two_processes_find_the_same(executor):
    assert output_distribution(exact, executor=executor) == output_distribution(exact)
    for function in in_floats, one_path, two_paths:
        found = output_distribution(function, executor=executor)
        assert total_variation(found, output_distribution(function)) < 1e-12


@pytest.mark.parametrize("max_paths", [2, 400])  # of one worker, and of all together
def test_too_many_paths(executor, max_paths):
    with pytest.raises(TooManyPaths, match=f"more than max_paths = {max_paths} paths"):
        output_distribution(in_floats, max_paths=max_paths, executor=executor)


@pytest.mark.parametrize("function", [by_another, by_a_counter])
def test_what_else_decides_is_seen(executor, function):
    with pytest.raises(NotByRng):
        output_distribution(function, executor=executor)
