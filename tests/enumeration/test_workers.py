"""Paths that many processes share: the same distribution, and one line where that can't be."""

import importlib.util
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

from enumeration import NotByRng, TooManyPaths, output_distribution, total_variation, workers
from gallery import SETTING, P, Q, Setting
from speculative import speculative_sampling

FLOATS = Setting(P.astype(float), Q.astype(float))
ANOTHER_GENERATOR = np.random.default_rng(0)


def exact(rng):
    return speculative_sampling([0], SETTING.draft_model, SETTING.target_model, 2, 1, rng)


def in_floats(rng):
    return speculative_sampling([0], FLOATS.draft_model, FLOATS.target_model, 2, 1, rng)


def one_path(rng):
    return 7


def two_paths(rng):
    return rng.choice(2)


def by_value(rng):
    return [rng.choice(2), int(float(rng.random()) < 0.25)]


def by_another(rng):
    path = [rng.choice(2) for _ in range(9)]
    return [*path, int(all(path) and ANOTHER_GENERATOR.random() < 1e-9)]


@pytest.fixture(autouse=True)
def few_subtrees(monkeypatch):
    """Subtrees are few here, because each is watched, which takes a look at all objects."""
    monkeypatch.setattr(workers, "N_SUBTREES", 8)


@pytest.fixture(scope="module")
def executor():
    spawn = multiprocessing.get_context("spawn")  # a fork would copy the threads of other tests
    with ProcessPoolExecutor(2, mp_context=spawn) as executor:
        yield executor


def test_two_processes_find_the_same(executor):
    assert output_distribution(exact, executor=executor) == output_distribution(exact)
    for function in in_floats, one_path, two_paths:
        distribution = output_distribution(function, executor=executor)
        assert total_variation(distribution, output_distribution(function)) < 1e-12


@pytest.mark.parametrize(
    ("function", "max_paths"),
    [(two_paths, 1), (in_floats, 25)],  # before there are workers, and of all together
)
def test_too_many_paths(executor, function, max_paths):
    with pytest.raises(TooManyPaths, match=f"more than max_paths = {max_paths} paths"):
        output_distribution(function, max_paths=max_paths, executor=executor)


def test_a_number_that_is_used_as_a_value(executor):
    distribution = output_distribution(by_value, executor=executor, resolution=0.1)
    assert distribution == {(0, 0): 0.375, (0, 1): 0.125, (1, 0): 0.375, (1, 1): 0.125}
    assert distribution.resolution < 0.1
    with pytest.raises(TypeError, match="used as a value"):
        output_distribution(by_value, executor=executor, resolution=0)
    with pytest.raises(RuntimeError, match="9 runs are not enough"):
        output_distribution(by_value, executor=executor, max_paths=9, resolution=5)


def test_another_generator_is_seen(executor):
    with pytest.raises(NotByRng):
        output_distribution(by_another, executor=executor)


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("distributed"), reason="dask is not installed")
def test_a_cluster_of_dask_takes_closures():
    from dask.distributed import Client, LocalCluster

    q = np.array([0.25, 0.75])
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        executor = client.get_executor()
        assert output_distribution(exact, executor=executor) == output_distribution(exact)
        assert output_distribution(lambda rng: rng.choice(2, p=q), executor=executor) == {
            (0,): 0.25,
            (1,): 0.75,
        }
