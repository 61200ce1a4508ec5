"""The forward pass against transformers' logits and a plain definition, and against itself however it is called."""

import threading
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_gpt2 import plain_gpt2
from support import MICRO, bundled, random_gpt2, stored_gpt2

import gpt2
from checkpoint.bundle import load
from errors import UserError
from gpt2 import GPT2
from utils import BUNDLED, load_hparams_and_params, nest

GOLDEN = np.load(MICRO / "golden.npz")
IDS, LOGITS = GOLDEN["ids"], GOLDEN["logits"]  # [64], float64 [64, 300], computed by transformers
TOLERANCE = 1e-5  # the largest difference that we see is 2.6e-6; the logits are up to 9 in absolute value


@pytest.fixture(scope="module")
def micro():
    return stored_gpt2(MICRO)


# ---- The right logits ----


def test_the_plain_definition_is_right():
    hparams, params = load_hparams_and_params(MICRO)
    assert np.abs(plain_gpt2(IDS, params, hparams["n_head"]) - LOGITS).max() < TOLERANCE


def test_all_positions_at_once(micro):
    micro.forget()
    assert np.abs(micro(IDS, len(IDS)) - LOGITS).max() < TOLERANCE


def test_one_position_at_a_time(micro):
    micro.forget()
    for n in range(1, len(IDS) + 1):
        assert np.abs(micro(IDS[:n]) - LOGITS[n - 1]).max() < TOLERANCE


@given(calls=st.lists(st.tuples(st.integers(1, 64), st.integers(1, 64), st.integers(0, 63)), max_size=12))
def test_any_split_and_any_rollback(micro, calls):
    """Each call asks for some rows of some prefix, after a call with ids that differ from some position on."""
    for n, n_rows, wrong in calls:
        n_rows = min(n, n_rows)
        other = IDS[:n].copy()
        other[wrong % n :] = (other[wrong % n :] + 1) % 300
        micro(other)
        assert np.abs(micro(IDS[:n], n_rows) - LOGITS[n - n_rows : n]).max() < TOLERANCE


@pytest.mark.parametrize("n_layer", [1, 2])
def test_the_first_layers_are_a_model_of_their_own(micro, n_layer):
    hparams, params = load_hparams_and_params(MICRO)
    expected = plain_gpt2(IDS[:20], params | {"blocks": params["blocks"][:n_layer]}, hparams["n_head"])
    first = micro.first_layers(n_layer)
    micro(IDS[:30])
    assert np.abs(first(IDS[:20], 20) - expected).max() < TOLERANCE
    first(IDS[30:60])
    assert np.abs(micro(IDS[:31]) - LOGITS[30]).max() < TOLERANCE  # each has keys, values and a lock of its own
    assert first.lock is not micro.lock


@pytest.mark.parametrize("n_layer", [0, 4])
def test_layers_that_are_not_there(micro, n_layer):
    with pytest.raises(UserError, match=f"first {n_layer} layers were asked for; there must be 1 to 3"):
        micro.first_layers(n_layer)


# ---- The cache ----


@pytest.fixture
def n_computed(monkeypatch):
    """A list to which each forward pass adds the number of its positions."""
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


@pytest.mark.parametrize("again", [IDS[:9], np.append(IDS[:5], IDS[20:24])])
def test_a_call_that_was_interrupted_leaves_nothing_wrong_behind(micro, monkeypatch, again):
    """Its keys and values overwrite older ones, in some layers. So neither its ids nor the older ones may be kept."""
    micro.forget()
    micro(np.append(IDS[:5], IDS[20:24]))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(gpt2, "ffn", interrupt)
        micro(IDS[:9])
    kept = micro(again)
    micro.forget()
    assert np.array_equal(kept, micro(again))


def interrupt(*args, **kw):
    raise KeyboardInterrupt


def test_the_callers_array_is_not_the_models(micro):
    ids = IDS[:9].copy()
    micro(ids)
    ids[:3] = (ids[:3] + 1) % 300
    kept = micro(ids)
    micro.forget()
    assert np.array_equal(kept, micro(ids))


def test_what_is_forgotten_during_a_call_is_forgotten_after_it(micro, monkeypatch):
    """Otherwise the ids would be remembered, but not their keys and values."""
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


def test_results_are_not_overwritten_by_later_calls(micro):
    first = micro(IDS[:5])
    kept = first.copy()
    micro(IDS[:9], 2)
    assert np.array_equal(first, kept)


def test_everything_stays_float32(micro, monkeypatch):
    """One float64 scalar would turn every activation after it into float64, and each weight it is multiplied by."""
    dtypes, linear = set(), gpt2.linear
    monkeypatch.setattr(gpt2, "linear", lambda x, w, b: dtypes.add((x.dtype, w.dtype, b.dtype)) or linear(x, w, b))
    assert micro(IDS[:20] + 1, 2).dtype == np.float32
    assert dtypes == {(np.dtype(np.float32),) * 3}


# ---- Bad calls, bad weights ----


@pytest.mark.parametrize(("n", "n_rows"), [(0, 1), (65, 1), (3, 0), (3, 4)])
def test_bad_lengths(micro, n, n_rows):
    with pytest.raises(ValueError, match=f"{n} ids and n_rows = {n_rows}"):
        micro(np.zeros(n, dtype=int), n_rows)


@pytest.mark.parametrize("id", [-1, 300])
def test_ids_outside_the_vocabulary(micro, id):
    with pytest.raises(ValueError, match=rf"ids from .*{id}.*from 0 to 299"):
        micro([1, id, 2])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_weight_that_is_not_a_number_is_named(monkeypatch, bad):
    tensors = load(str(MICRO / "model.ckpt"))
    for name, tensor in tensors.items():
        damaged = tensor.copy()
        damaged.reshape(-1)[0 if name == "model/wpe" else -1] = bad
        net = GPT2(nest(tensors | {name: damaged}, 3), {"n_head": 4, "n_ctx": 64, "n_vocab": 300})
        with warnings.catch_warnings(), pytest.raises(UserError, match=rf"{name}, which has a weight of \w+$"):
            warnings.simplefilter("error")  # NumPy must not warn in any thread: the user sees one line
            net(IDS[:1])


def test_numbers_that_grow_too_large_are_named():
    hparams, params = load_hparams_and_params(MICRO)
    params["blocks"][1]["ln_2"]["g"] = np.full(48, 3e38, dtype=np.float32)
    with pytest.raises(UserError, match=r"model/h1/ln_2/g, which has a weight of 3e.38"):
        GPT2(params, hparams)(IDS)


def test_what_was_not_finite_is_forgotten():
    hparams, params = load_hparams_and_params(MICRO)
    params["wpe"] = params["wpe"].copy()
    params["wpe"][5] = np.nan
    net = GPT2(params, hparams)
    for _ in range(2):
        with pytest.raises(UserError, match="model/wpe"):
            net(IDS[:9])
        assert np.abs(net(IDS[:5], 5) - LOGITS[:5]).max() < TOLERANCE


# ---- The same bits, however positions are grouped into calls ----


def check_bits(net, n, seed):
    """The logits of each prefix of n random ids: in groups of 1 to 13 rows, with rollbacks, against all in one call."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(net.n_vocab, size=n)
    net.forget()
    n_rows = min(n, 40)
    whole = net(ids, n_rows)
    for group in (1, 2, 3, 4, 5, 6, 7, 9, 13):
        net.forget()
        for end in range(n - n_rows + 1, n + 1, group):
            r = min(group, end)
            start = end - r - (n - n_rows)
            rows = net(ids[:end], r)
            assert np.array_equal(rows[max(-start, 0) :], whole[max(start, 0) : start + r])
            wrong = ids[:end].copy()
            wrong[-1 - rng.integers(r)] = rng.integers(net.n_vocab)
            net(wrong[: end - rng.integers(r)])  # the next call has to roll back


@settings(max_examples=15)
@given(
    seed=st.integers(0, 2**32), n=st.integers(1, 300), n_head=st.integers(1, 4), d=st.sampled_from([1, 8, 24, 64, 96]),
    n_layer=st.integers(1, 3),
)  # fmt: skip
def test_bits_of_random_models(seed, n, n_head, d, n_layer):
    net = random_gpt2(seed, n_vocab=301, n_ctx=320, n_embd=n_head * d, n_head=n_head, n_layer=n_layer)
    check_bits(net, n, seed)


@pytest.mark.parametrize("d", [64, 96, 128, 160])
def test_bits_of_large_heads_in_a_long_context(d):
    net = random_gpt2(d, n_vocab=50, n_ctx=1040, n_embd=d, n_head=1, n_layer=1)
    check_bits(net, 1040, seed=d)


@pytest.mark.parametrize("n", [1, 2, 9, 64, 65, 300])
@pytest.mark.parametrize("name", BUNDLED)
def test_bits_of_the_bundled_pair(name, n):
    check_bits(bundled(name), n, seed=n)


def test_bits_of_the_shapes_of_124M():
    net = random_gpt2(0, n_vocab=5000, n_ctx=1024, n_embd=768, n_head=12, n_layer=2)  # 2 of 12 layers; a small head
    for n in 5, 300:
        check_bits(net, n, seed=n)


def test_bit_identical_is_refused_where_rows_depend_on_each_other(monkeypatch):
    hparams, params = load_hparams_and_params(MICRO)
    GPT2(params, hparams, bit_identical=True)
    monkeypatch.setattr(gpt2, "rows_are_independent", lambda: False)
    with pytest.raises(UserError, match="bit_identical"):
        GPT2(params, hparams, bit_identical=True)
