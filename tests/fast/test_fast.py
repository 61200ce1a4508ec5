"""The product, the attention and the threads of fast/, with each kernel of this machine."""

import multiprocessing
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.models import random_gpt2
from support.programs import ROOT, run

import gpt2
from fast import product, threads
from fast.attention import KVCache
from fast.product import GROUPED, SINGLE, tile_params
from sampling import as_model
from speculative import autoregressive_sampling

# Before the tests replace them
MATRIX_KERNEL = product.matrix_kernel.__wrapped__


@pytest.fixture(autouse=True)
def two_threads(kernel, monkeypatch):
    """Each kernel, and two threads that share even the small products of the tests."""
    monkeypatch.setattr(threads, "n_cores", lambda: 2)
    monkeypatch.setattr(threads, "WORTH_WAKING", 0)
    monkeypatch.setattr(threads, "HEAD_START", 0)
    threads.helpers.cache_clear()  # it may know of one core


# ---- Product and attention ----


@given(
    n=st.integers(1, 14) | st.sampled_from([31, 32, 60, 100]),
    n_in=st.sampled_from([1, 5, 64, 1599, 1600, 1601, 3072]),
    n_out=st.sampled_from([1, 63, 64, 65, 700]),
)
def test_a_product_with_tiles_is_a_matrix_product(n, n_in, n_out):
    rng = np.random.default_rng(n)
    x, w = (rng.standard_normal(shape, np.float32) for shape in ((n, n_in), (n_in, n_out)))
    assert np.abs(x @ tile_params({"w": w})["w"] - x.astype(float) @ w).max() < 1e-3


@pytest.mark.parametrize(("choice", "expected"), [("groups", GROUPED), ("single", SINGLE)])
def test_the_environment_fixes_the_kernel(monkeypatch, choice, expected):
    monkeypatch.setenv("SPECULATIVE_KERNEL", choice)
    assert MATRIX_KERNEL() == expected


@pytest.mark.parametrize(
    ("sizes", "places", "seconds", "expected"),
    [((), slice(0), 0.6, GROUPED), ((), slice(0), 0.9, SINGLE),
     (range(13), slice(1, None, 2), 0.4, SINGLE),
     (range(13), slice(4, None), 0.4, SINGLE), (range(13), slice(8, None), 0.4, SINGLE),
     *(((size,), slice(None), 0.4, SINGLE) for size in range(2, 13, 2))],
)  # fmt: skip
def test_the_small_matrix_kernel_needs_speed_and_the_same_bits(
    monkeypatch, sizes, places, seconds, expected
):
    """Groups of 6 take `seconds`, and single rows take 1.

    In groups of a size in `sizes`, rows at `places` differ.
    """
    monkeypatch.delenv("SPECULATIVE_KERNEL", raising=False)

    def matmul(rows, tile):
        np.divide(1.0, 0.0)  # with some BLAS, NumPy warns without a reason
        out = (rows[..., None] * tile).sum(axis=-2)
        if len(rows) in sizes:
            out[places] *= 2
        return out

    times = iter([seconds, 1.0])
    monkeypatch.setattr(np, "matmul", matmul)
    monkeypatch.setattr(product.timeit, "repeat", lambda *args, **options: [next(times)])
    assert MATRIX_KERNEL() == expected


# 60 positions, and 5 of padding, need two blocks
@example(lengths=[47, 13], n_head=1, d=8, seed=0, scale=1)
@given(
    lengths=st.lists(st.integers(1, 70), min_size=1, max_size=5), n_head=st.integers(1, 3),
    d=st.sampled_from([1, 8, 33, 64]), seed=st.integers(0, 99), scale=st.sampled_from([1, 100]),
)  # fmt: skip
def test_attention_is_its_definition(lengths, n_head, d, seed, scale):
    """Positions are added in steps of these lengths, over older keys that must not matter."""
    rng, n = np.random.default_rng(seed), sum(lengths)
    q, k, v = rng.standard_normal((3, n_head, n, d), dtype=np.float32)
    q *= scale  # 100 makes scores above 89, whose exp is infinite in float32
    layer = KVCache(n, n_head, d)
    layer.attend(0, q, v, k)
    outputs, n_past = [], 0
    for length in lengths:
        outputs.append(layer.attend(n_past, *(x[:, n_past : n_past + length] for x in (q, k, v))))
        n_past += length
    expected = gpt2.attention(*(x.astype(float) for x in (q, k, v)))
    assert np.abs(np.concatenate(outputs, axis=1) - expected).max() < 1e-5 * scale


# ---- Threads ----


@pytest.mark.parametrize("n_networks", [1, 8])
def test_eight_threads_decode_the_same_as_one(request, n_networks):
    request.addfinalizer(partial(sys.setswitchinterval, sys.getswitchinterval()))
    sys.setswitchinterval(1e-6)
    hparams = dict(n_vocab=50, n_ctx=64, n_embd=16, n_head=2, n_layer=2)
    models = [as_model(random_gpt2(seed, **hparams), temperature=0.1) for seed in range(n_networks)]

    def decode(i):
        return autoregressive_sampling([i], models[i % n_networks], 12, i).tolist()

    alone = list(map(decode, range(8)))
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(decode, range(8))) == alone


@given(n=st.integers(1, 50), n_bytes=st.integers(1, 40), cores=st.integers(1, 9))
def test_in_parallel_does_all_work_once(n, n_bytes, cores):
    slices = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "helpers", lambda: (SimpleQueue(), cores - 1))  # all of them late
        patch.setattr(threads, "HEAD_START", 40)
        threads.in_parallel(slices.append, n, n_bytes)
    assert sorted(i for part in slices for i in range(n)[part]) == [*range(n)]


def test_an_error_in_a_helping_thread_reaches_the_caller():
    """SystemExit, which is no Exception, must not end the thread: the next call would wait."""
    for _ in range(2):
        with pytest.raises(SystemExit):
            threads.in_parallel(lambda part: part.start and sys.exit(), 2, 1)


needs_fork = pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="no fork here"
)


FORK = """import os, sys, threading
if sys.argv[1] == "first": import numpy
from support.models import bundled
net = bundled("target")
expected, stop = net([1, 2, 3]).tolist(), threading.Event()

def compute():
    while not stop.is_set():
        net.reset()
        net([*range(108)])

threading.Thread(target=compute).start()
for _ in range(12):
    if not (child := os.fork()):
        os._exit(net([1, 2, 3]).tolist() != expected)
    if os.waitpid(child, 0)[1]:
        break
else:
    print("as before")
stop.set()
"""


@pytest.mark.slow
@needs_fork
@pytest.mark.parametrize("numpy_comes", ["first", "later"])
def test_a_process_forked_while_a_thread_computes_can_use_the_network(numpy_comes, kernel):
    """If NumPy comes first, BLAS has threads, which hang if a fork comes within a product."""
    path = f"{ROOT}{os.pathsep}{ROOT / 'tests'}"
    kernel = kernel.split()[0]
    result = run("-c", FORK, numpy_comes, PYTHONPATH=path, SPECULATIVE_KERNEL=kernel)
    assert result.stdout == "as before\n", result.stderr
