"""The matrix product, the attention and the threads of fast/, with each kernel that this machine has."""

import multiprocessing
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from plain_gpt2 import softmax
from support import random_gpt2

from fast import KeysAndValues, attention, bits_are_independent, lay_out, linear, matrix_kernel, product, threads
from fast.product import GROUPED, SINGLE
from sampling import sampler
from speculative import autoregressive_sampling

MATRIX_KERNEL = product.matrix_kernel.__wrapped__  # the functions without their caches
N_CORES, BYTES_WORTH_WAKING = threads.n_cores.__wrapped__, threads.bytes_worth_waking.__wrapped__


@pytest.fixture(autouse=True, params=dict.fromkeys([SINGLE, matrix_kernel()]))
def kernel(request, monkeypatch):
    """Run each test with each kernel, and let two threads share even the small products of the tests."""
    monkeypatch.setattr(product, "matrix_kernel", lambda: request.param)
    monkeypatch.setattr(threads, "n_cores", lambda: 2)
    monkeypatch.setattr(threads, "bytes_worth_waking", lambda: 0)


# ---- Product and attention ----


@given(
    n=st.integers(1, 14) | st.sampled_from([60, 100]),
    n_in=st.sampled_from([1, 5, 64, 1599, 1600, 1601, 3072]),
    n_out=st.sampled_from([1, 63, 64, 65, 700]),
)
def test_linear_is_a_matrix_product(n, n_in, n_out):
    rng = np.random.default_rng(n)
    x, w, b = (rng.standard_normal(shape, np.float32) for shape in ((n, n_in), (n_in, n_out), (n_out,)))
    assert np.abs(linear(x, **lay_out({"w": w, "b": b})) - (x.astype(float) @ w + b)).max() < 1e-3


def test_groups_are_those_that_product_py_describes(monkeypatch):
    monkeypatch.setattr(product, "matrix_kernel", lambda: GROUPED)
    assert [product.group_size(n) for n in (1, 2, 5, 12, 13)] == [2, 2, 6, 12, 6]
    assert [product.group_size(12, depth) for depth in (1302, 1303)] == [12, 6]
    assert [product.group_size(10, depth) for depth in (1562, 1563)] == [10, 6]


def test_bits_are_compared_for_each_number_of_positions():
    def wrong_for(n):
        """A network whose logits are wrong in calls for n positions."""
        return Mock(side_effect=lambda ids, n_rows: np.full((n_rows, 7), n_rows == n), n_ctx=100, n_vocab=7)

    assert [n for n in range(95) if not bits_are_independent(wrong_for(n))] == [*range(1, 14), 91]


@pytest.mark.parametrize("d", [64, 1360, 2700, 8000])
def test_bits_of_attention_with_large_heads(d):
    """For these sizes, the small-matrix kernel takes at most 12, 10, 4 or 1 rows at a time: the products get larger."""
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 20, d), dtype=np.float32)
    past = KeysAndValues(20, 1, d)
    past.write(0, k, v)
    together = past.attend(q, 0)
    assert all(np.array_equal(past.attend(q[:, i:j], i), together[i:j]) for j in range(1, 21) for i in range(j))


def test_the_masks_of_long_prompts_are_not_kept():
    """They would take up to a gigabyte, also after the model is gone."""
    attention.small_mask.cache_clear()
    past, q = KeysAndValues(65, 1, 8), np.ones((1, 65, 8), np.float32)
    past.write(0, q, q)
    past.attend(q, 0)
    assert attention.small_mask.cache_info().currsize == 0


@pytest.mark.parametrize(
    ("sizes", "places", "seconds", "expected"),
    [((), slice(0), 0.6, GROUPED), ((), slice(0), 0.9, SINGLE),
     *((range(13), places, 0.4, SINGLE) for places in (slice(1, None, 2), slice(4, None), slice(8, None))),
     *(((size,), slice(None), 0.4, SINGLE) for size in range(2, 13, 2))],
)  # fmt: skip
def test_the_small_matrix_kernel_needs_speed_and_the_same_bits(monkeypatch, sizes, places, seconds, expected):
    """Groups of 6 take `seconds`, and single rows take 1. In groups of a size in `sizes`, rows at `places` differ."""

    def matmul(rows, tile):
        out = (rows[..., None] * tile).sum(axis=-2)
        if len(rows) in sizes:
            out[places] *= 2
        return out

    times = iter([seconds, 1.0])
    monkeypatch.setattr(np, "matmul", matmul)
    monkeypatch.setattr(product.timeit, "repeat", lambda *args, **options: [next(times)])
    assert MATRIX_KERNEL() == expected


def test_all_matrices_are_views_of_one_array():
    """One array is large enough for huge pages, and most matrices alone are not."""
    layers = lay_out([{"w": np.ones((9, 9))}, {"inner": {"w": np.ones((70, 200)), "b": np.ones(200)}}])
    w, v = layers[0]["w"], layers[1]["inner"]["w"]
    assert w.base is v.base is not None and w.dtype == v.dtype == layers[1]["inner"]["b"].dtype == np.float32


@example(lengths=[47, 13], n_head=1, d=8, seed=0, scale=1)  # 60 positions, and 5 of padding, need two blocks
@given(
    lengths=st.lists(st.integers(1, 70), min_size=1, max_size=5), n_head=st.integers(1, 3),
    d=st.sampled_from([1, 8, 33, 64]), seed=st.integers(0, 99), scale=st.sampled_from([1, 100]),
)  # fmt: skip
def test_attention_is_its_definition(lengths, n_head, d, seed, scale):
    """Positions are added in steps of these lengths, over older keys and values that must not matter."""
    rng, n = np.random.default_rng(seed), sum(lengths)
    q, k, v = rng.standard_normal((3, n, n_head, d), dtype=np.float32)
    q *= scale  # 100 makes scores above 89, whose exp is infinite in float32
    past = KeysAndValues(n, n_head, d)
    past.write(0, v.swapaxes(0, 1), k.swapaxes(0, 1))
    found, n_past = [], 0
    for length in lengths:
        # as in gpt2.py, the new positions may be followed by padding
        new = [product.whole_groups(x[n_past : n_past + length]).swapaxes(0, 1) for x in (q, k, v)]
        past.write(n_past, *new[1:])
        found.append(past.attend(new[0], n_past)[:length])
        n_past += length
    mask = np.where(np.tri(n), 0, -np.inf)
    heads = [softmax(q[:, h].astype(float) @ k[:, h].T / np.sqrt(d) + mask) @ v[:, h] for h in range(n_head)]
    assert np.abs(np.concatenate(found) - np.hstack(heads)).max() < 1e-5 * scale


# ---- Threads ----


@pytest.mark.parametrize("n_networks", [1, 8])
def test_eight_threads_decode_the_same_as_one(request, n_networks):
    request.addfinalizer(partial(sys.setswitchinterval, sys.getswitchinterval()))
    sys.setswitchinterval(1e-6)
    hparams = dict(n_vocab=50, n_ctx=64, n_embd=16, n_head=2, n_layer=2)
    models = [sampler(random_gpt2(seed, **hparams), temperature=0.1) for seed in range(n_networks)]

    def decode(i):
        return autoregressive_sampling([i], models[i % n_networks], 30, np.random.default_rng(i)).tolist()

    alone = list(map(decode, range(8)))
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(decode, range(8))) == alone


@given(n=st.integers(1, 50), n_bytes=st.integers(1, 40), cores=st.integers(1, 64))
def test_in_parallel_does_all_work_once(n, n_bytes, cores):
    slices = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "n_cores", lambda: cores)
        patch.setattr(threads, "bytes_worth_waking", lambda: 100)
        threads.in_parallel(slices.append, n, n_bytes)
    assert sorted(i for some in slices for i in range(n)[some]) == list(range(n))
    assert all(range(n)[some] for some in slices)  # no slice is empty
    first, *others = sorted((range(n)[some] for some in slices), key=min)
    # the calling core is 40 / n_bytes items ahead: HEAD_START of the 100 bytes
    assert all(len(first) - len(other) >= 40 // n_bytes for other in others)
    assert len(slices) == (min(cores, n - 40 // n_bytes) if n * n_bytes >= 100 else 1)


@pytest.mark.parametrize(("waking", "n_tiles"), [(1, 16), (5, 16), (7, 24), (11, 36), (20, 54)])
def test_work_is_shared_from_the_size_on_at_which_that_is_faster(monkeypatch, waking, n_tiles):
    """One core needs a second for each tile. Two cores need half of that, and `waking` seconds to wake the second."""
    seconds = iter([s for n in (16, 24, 36) for _ in range(432 // n) for s in (n, n / 2 + waking)])
    monkeypatch.setattr(threads.timeit, "timeit", lambda way, number: next(seconds))
    assert BYTES_WORTH_WAKING() == n_tiles * 768 * 32 * 4  # bytes


def test_one_core_alone_shares_no_work(monkeypatch):
    monkeypatch.setattr(threads, "n_cores", lambda: 1)
    assert BYTES_WORTH_WAKING() == float("inf")


@pytest.mark.parametrize(
    ("files", "variables", "n_cores"),
    [({}, {}, 8), ({}, {"OMP_NUM_THREADS": "3,1"}, 3), ({}, {"OPENBLAS_NUM_THREADS": "0"}, 8),
     ({}, {"OMP_NUM_THREADS": ""}, 8), ({"cpu.max": "max 100000\n"}, {}, 8), ({"cpu.max": "250000 100000\n"}, {}, 3),
     ({"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}, {}, 8),
     ({"cpu.cfs_quota_us": "50000\n", "cpu.cfs_period_us": "100000\n"}, {}, 1)],
)  # fmt: skip
def test_limits_on_the_number_of_cores(monkeypatch, tmp_path, files, variables, n_cores):
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(threads, "Path", lambda folder, file: tmp_path / Path(file).name)
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda pid: range(64), raising=False)
    monkeypatch.setattr(threads.os, "environ", variables)
    assert N_CORES() == n_cores


def test_an_error_in_a_helping_thread_reaches_the_caller():
    """The error must not end the thread, because the next call would wait for the thread forever."""
    for _ in range(9):
        with pytest.raises(SystemExit):  # which is no Exception
            threads.in_parallel(lambda some: some.start and sys.exit(), 2, 1)


def test_helping_threads_keep_no_weights():
    """Otherwise a deleted model would stay in memory until another model is called."""
    weights, released = np.zeros(9), threading.Event()
    weakref.finalize(weights, released.set)
    threads.in_parallel(lambda some, w=weights: None, 2, 1)
    del weights
    assert released.wait(5)  # the helper may be slow to release it


def test_each_other_core_has_a_helping_thread(monkeypatch):
    monkeypatch.setattr(threads, "n_cores", lambda: 4)
    before = threading.active_count()
    threads.job_queue.__wrapped__()
    assert threading.active_count() == before + 3


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_starts_its_own_threads():
    work = lambda some: None, 2, 1
    threads.in_parallel(*work)
    child = multiprocessing.get_context("fork").Process(target=threads.in_parallel, args=work)
    child.start()
    child.join(20)
    child.kill()  # in case it is still waiting for a thread
    child.join()
    assert child.exitcode == 0
