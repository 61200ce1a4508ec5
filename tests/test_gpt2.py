"""The forward pass against transformers' logits (fixtures/micro), and against itself however it is called."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpt2
import tensor_bundle
from gpt2 import GPT2, MAX_GROUP, in_parallel, linear, rows_are_independent, tiles
from speculative import sampler, speculative_sampling
from tensor_bundle import CheckpointError
from utils import BUNDLED, MODELS_DIR, expected_shapes, load_hparams_and_params, nest

MICRO = Path(__file__).parent / "fixtures" / "micro"
GOLDEN = np.load(MICRO / "golden.npz")
IDS, LOGITS = GOLDEN["ids"], GOLDEN["logits"]  # [64], float64 [64, 300]
TOLERANCE = 1e-5  # 2.6e-6 is what we see; the logits are up to 9 in absolute value


@pytest.fixture(scope="module")
def micro():
    hparams, params = load_hparams_and_params(MICRO)
    return GPT2(params, hparams)


def random_gpt2(seed, **hparams):
    rng = np.random.default_rng(seed)
    shapes = expected_shapes(**hparams)
    tensors = {name: rng.standard_normal(shape, np.float32) * np.float32(0.1) for name, shape in shapes.items()}
    return GPT2(nest(tensors, hparams["n_layer"]), hparams)


def bundled(name):
    hparams, params = load_hparams_and_params(Path(MODELS_DIR) / name)
    return GPT2(params, hparams)


# ---- The right logits ----


def test_all_positions_at_once(micro):
    micro.forget()
    assert np.abs(micro(IDS, len(IDS)) - LOGITS).max() < TOLERANCE


def test_one_position_after_the_other(micro):
    micro.forget()
    for n in range(1, len(IDS) + 1):
        assert np.abs(micro(IDS[:n]) - LOGITS[n - 1]).max() < TOLERANCE


@given(calls=st.lists(st.tuples(st.integers(1, 64), st.integers(1, 64), st.integers(0, 63)), max_size=12))
def test_any_split_and_any_rollback(micro, calls):
    """Each call asks for some rows of some prefix, after a call with ids that differ from one place on."""
    for n, n_rows, wrong in calls:
        n_rows = min(n, n_rows)
        other = IDS[:n].copy()
        other[wrong % n :] = (other[wrong % n :] + 1) % 300
        micro(other)
        assert np.abs(micro(IDS[:n], n_rows) - LOGITS[n - n_rows : n]).max() < TOLERANCE


@pytest.fixture
def n_computed(monkeypatch):
    """A list that gets the number of positions of each forward pass."""
    numbers, original = [], gpt2.gpt2
    monkeypatch.setattr(gpt2, "gpt2", lambda ids, *args, **kw: numbers.append(len(ids)) or original(ids, *args, **kw))
    return numbers


def test_only_what_is_new_is_computed(micro, n_computed):
    micro.forget()
    other = np.append(IDS[:12], (IDS[12:20] + 1) % 300)
    for ids, n_rows in (IDS[:10], 1), (IDS[:15], 5), (IDS[:20], 1), (other, 3), (other, 2), (other[:4], 1):
        micro(ids, n_rows)
    assert n_computed == [10, 5, 5, 8, 2, 1]


@pytest.mark.parametrize(("n_rows", "pieces"), [(1, [20, 20, 20, 4]), (30, [20, 44]), (64, [64])])
def test_long_prompts_run_in_pieces(micro, monkeypatch, n_computed, n_rows, pieces):
    monkeypatch.setattr(gpt2, "PROMPT", 20)
    micro.forget()
    assert np.abs(micro(IDS, n_rows) - LOGITS[-n_rows:]).max() < TOLERANCE
    assert n_computed == pieces


def test_the_cache_has_few_bytes_to_spare_also_while_it_grows():
    net = random_gpt2(0, n_vocab=10, n_ctx=300, n_embd=64, n_head=2, n_layer=20)
    peaks = []
    tracemalloc.start()
    for n in range(5, 301, 5):
        net(np.zeros(n, dtype=int))
        cached = sum(k.nbytes + v.nbytes for k, v in net.past)
        peaks.append(tracemalloc.get_traced_memory()[1] / cached)
    tracemalloc.stop()
    assert max(peaks) < 1.25
    assert cached == 20 * 2 * (32 + 48) * (300 + 32) * 4  # layers, heads, dimensions, positions, bytes


@pytest.mark.parametrize("id", [-1, 300])
def test_ids_outside_the_vocabulary(micro, id):
    with pytest.raises(ValueError, match=rf"ids from .*{id}.*from 0 to 299"):
        micro([1, id, 2])


def test_the_callers_array_is_not_the_models(micro, monkeypatch):
    ids = IDS[:9].copy()
    micro(ids[:5])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(gpt2, "transformer_block", interrupt)
        micro(ids)
    ids[:3] = (ids[:3] + 1) % 300
    kept = micro(ids)
    micro.forget()
    assert np.array_equal(kept, micro(ids))


def interrupt(*args, **kw):
    raise KeyboardInterrupt


def test_what_is_forgotten_during_a_call_is_forgotten_after_it(micro, monkeypatch):
    """Or the ids would be remembered, and of their keys and values nothing."""
    forgetful = threading.Thread(target=micro.forget)
    original = gpt2.gpt2

    def gpt2_while_another_thread_forgets(*args, **kw):
        forgetful.start()
        forgetful.join(0.1)
        return original(*args, **kw)

    monkeypatch.setattr(gpt2, "gpt2", gpt2_while_another_thread_forgets)
    micro(IDS[:9])
    forgetful.join()
    assert len(micro.ids) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own(micro, monkeypatch):
    monkeypatch.setattr(gpt2, "n_cores", lambda: 2)
    monkeypatch.setattr(gpt2, "HEAD_START", 0)
    micro(IDS)
    pid = os.fork()
    if pid == 0:
        try:
            micro.forget()
            os._exit(0 if np.abs(micro(IDS, 64) - LOGITS).max() < TOLERANCE else 1)
        finally:
            os._exit(2)
    for _ in range(1000):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        time.sleep(0.02)
    else:
        os.kill(pid, signal.SIGKILL)
    assert done and status == 0


@pytest.mark.parametrize(("n", "n_rows"), [(0, 1), (65, 1), (3, 0), (3, 4)])
def test_bad_calls(micro, n, n_rows):
    with pytest.raises(ValueError, match=f"{n} ids and n_rows = {n_rows}"):
        micro(np.zeros(n, dtype=int), n_rows)


def test_results_are_not_overwritten_by_later_calls(micro):
    first = micro(IDS[:5])
    kept = first.copy()
    micro(IDS[:9], 2)
    assert np.array_equal(first, kept)


def test_everything_stays_float32(micro, monkeypatch):
    """One float64 scalar would turn every activation after it, and each weight it meets, into float64."""
    dtypes = set()
    monkeypatch.setattr(gpt2, "linear", lambda x, w, b: dtypes.add((x.dtype, w.dtype, b.dtype)) or linear(x, w, b))
    assert micro(IDS[:20] + 1, 2).dtype == np.float32
    assert dtypes == {(np.dtype(np.float32),) * 3}


# ---- linear ----


@given(
    n=st.integers(1, 12).filter(lambda n: n <= MAX_GROUP) | st.sampled_from([16, 24]),
    n_in=st.sampled_from([1, 5, 64, 1599, 1600, 1601, 3072]),
    n_out=st.sampled_from([1, 63, 64, 65, 700]),
    cores=st.integers(1, 3),
)
def test_linear_is_a_matrix_product(n, n_in, n_out, cores):
    rng = np.random.default_rng(n)
    x, w, b = (rng.standard_normal(shape, np.float32) for shape in ((n, n_in), (n_in, n_out), (n_out,)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpt2, "n_cores", lambda: cores)
        patch.setattr(gpt2, "HEAD_START", 0)
        assert np.abs(linear(x, *tiles(w), b) - (x.astype(float) @ w + b)).max() < 1e-3


def test_all_matrices_are_views_of_one_array(micro):
    """Which is large enough for huge pages, where most of the matrices are not."""
    block, head = micro.weights["blocks"][0], micro.weights["head"]
    layers = [*block["attn"].values(), *block["mlp"].values(), head]
    assert len({id(layer["w"].base) for layer in layers}) == 1


# ---- The same bits, however positions are grouped into calls ----

same_bits = pytest.mark.xfail(
    not rows_are_independent(), reason="in this BLAS a row depends on the rows beside it", strict=False
)


def check_bits(net, n, seed):
    """The logits of each prefix of n random ids: in groups of 1 to 9 rows, with rollbacks, against all in one call."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(net.n_vocab, size=n)
    net.forget()
    n_rows = min(n, 40)
    whole = net(ids, n_rows)
    for group in range(1, MAX_GROUP + 1):
        net.forget()
        for end in range(n - n_rows + 1, n + 1, group):
            r = min(group, end)
            start = end - r - (n - n_rows)
            rows = net(ids[:end], r)
            assert np.array_equal(rows[max(-start, 0) :], whole[max(start, 0) : start + r])
            wrong = ids[:end].copy()
            wrong[-1 - rng.integers(r)] = rng.integers(net.n_vocab)
            net(wrong[: end - rng.integers(r)])  # and roll back in the next call


@same_bits
@settings(max_examples=15)
@given(
    seed=st.integers(0, 2**32), n=st.integers(1, 300), n_head=st.integers(1, 4), d=st.sampled_from([1, 8, 24, 64]),
    n_layer=st.integers(1, 3),
)  # fmt: skip
def test_bits_of_random_models(seed, n, n_head, d, n_layer):
    net = random_gpt2(seed, n_vocab=301, n_ctx=320, n_embd=n_head * d, n_head=n_head, n_layer=n_layer)
    check_bits(net, n, seed)


@same_bits
@pytest.mark.parametrize("n", [1, 2, 9, 10, 63, 64, 65, 127, 128, 200, 300])
@pytest.mark.parametrize("name", BUNDLED)
def test_bits_of_the_bundled_pair(name, n):
    check_bits(bundled(name), n, seed=n)


@same_bits
def test_bits_of_a_random_124M():
    net = random_gpt2(0, n_vocab=50257, n_ctx=1024, n_embd=768, n_head=12, n_layer=12)
    for n in 1, 5, 30, 300:
        check_bits(net, n, seed=n)


def test_bit_identical_is_refused_where_it_cannot_be(monkeypatch):
    monkeypatch.setattr(gpt2, "rows_are_independent", lambda: False)
    hparams, params = load_hparams_and_params(MICRO)
    with pytest.raises(RuntimeError, match="BLAS"):
        GPT2(params, hparams, bit_identical=True)


# ---- Not a number, nowhere ----


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_weight_that_is_no_number_is_named_at_the_first_row(monkeypatch, bad):
    monkeypatch.setattr(gpt2, "n_cores", lambda: 2)
    monkeypatch.setattr(gpt2, "HEAD_START", 0)
    tensors = tensor_bundle.load(str(MICRO / "model.ckpt"))
    for name, tensor in tensors.items():
        damaged = tensor.copy()
        damaged.reshape(-1)[0 if name == "model/wpe" else -1] = bad
        net = GPT2(nest(tensors | {name: damaged}, 3), {"n_head": 4, "n_ctx": 64, "n_vocab": 300})
        with warnings.catch_warnings(), pytest.raises(CheckpointError, match=rf"{name}, which has a weight of \w+$"):
            warnings.simplefilter("error")  # of NumPy, in any thread: the user sees one line
            net(IDS[:1])


def test_numbers_that_grow_too_large_are_no_logits():
    hparams, params = load_hparams_and_params(MICRO)
    params["blocks"][1]["ln_2"]["g"] = np.full(48, 3e38, dtype=np.float32)
    with pytest.raises(CheckpointError, match=r"model/h1/ln_2/g, which has a weight of 3e.38"):
        GPT2(params, hparams)(IDS)


def test_what_was_not_finite_is_forgotten():
    hparams, params = load_hparams_and_params(MICRO)
    params["wpe"] = params["wpe"].copy()
    params["wpe"][5] = np.nan
    net = GPT2(params, hparams)
    for _ in range(2):
        with pytest.raises(CheckpointError, match="model/wpe"):
            net(IDS[:9])
        assert np.abs(net(IDS[:5], 5) - LOGITS[:5]).max() < TOLERANCE


# ---- Threads ----


@pytest.mark.parametrize("shared", [False, True])
def test_eight_threads_decode_what_one_does(monkeypatch, request, shared):
    monkeypatch.setattr(gpt2, "HEAD_START", 0)  # so that all meet in the queue
    usual = sys.getswitchinterval()
    request.addfinalizer(lambda: sys.setswitchinterval(usual))
    sys.setswitchinterval(1e-6)
    sizes = dict(n_vocab=50, n_ctx=64, n_head=2, n_layer=2)
    pairs = [(random_gpt2(seed, n_embd=16, **sizes), random_gpt2(~seed % 99, n_embd=8, **sizes)) for seed in range(8)]
    pairs = pairs[:1] * 8 if shared else pairs

    def decode(i):
        target, draft = (sampler(net, temperature=0.1) for net in pairs[i])
        return speculative_sampling([i], draft, target, 60, 4, np.random.default_rng(i)).tolist()

    alone = list(map(decode, range(8)))
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(decode, range(8))) == alone


@given(n=st.integers(1, 50), n_bytes=st.integers(1, 40), cores=st.integers(1, 16))
def test_work_in_parallel_is_all_done_and_done_once(n, n_bytes, cores):
    slices = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpt2, "n_cores", lambda: cores)
        patch.setattr(gpt2, "HEAD_START", 40)
        in_parallel(slices.append, n, n_bytes)
    assert sorted(i for some in slices for i in range(n)[some]) == list(range(n))
    assert len(slices) == (cores if n > 2 * (40 // n_bytes) else 1)
    own, *others = sorted((len(range(n)[some]) for some in slices), reverse=True)
    assert all(0 <= own - 40 // n_bytes - other <= 3 for other in others)


def test_an_error_in_a_helping_thread_reaches_the_caller(monkeypatch):
    """And does not end the thread, or the next call would wait for ever."""
    monkeypatch.setattr(gpt2, "n_cores", lambda: 2)

    def function(some):
        if some.start:
            raise MemoryError("of a helper")

    for _ in range(9):
        with pytest.raises(MemoryError, match="of a helper"):
            in_parallel(function, 2, gpt2.HEAD_START + 1)


def test_helping_threads_keep_nothing(monkeypatch):
    """A model that is deleted would stay in memory until the next call of another one."""
    monkeypatch.setattr(gpt2, "n_cores", lambda: 2)
    weights = np.zeros(9)
    gone = weakref.ref(weights)
    in_parallel(lambda some, w=weights: None, 2, gpt2.HEAD_START + 1)
    del weights
    for _ in range(100):  # the helper may still be on its way
        gc.collect()
        if gone() is None:
            return
        time.sleep(0.02)
    assert gone() is None


def test_import_starts_no_thread_and_opens_no_file():
    code = "import threading, gpt2, sys; sys.exit(threading.active_count() != 1)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(gpt2.__file__).parent).returncode == 0


def test_one_core_is_enough(micro, monkeypatch):
    monkeypatch.setattr(gpt2, "n_cores", lambda: 1)
    monkeypatch.setattr(gpt2, "HEAD_START", 0)
    micro.forget()
    assert np.abs(micro(IDS, 3) - LOGITS[-3:]).max() < TOLERANCE
