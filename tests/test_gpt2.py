"""GPT2 returns the right logits, the same bits however it is called, and clear errors."""

import copy
from unittest.mock import DEFAULT, Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import MICRO, bundled, random_gpt2, stored_gpt2

import gpt2
from checkpoint import UserError
from checkpoint.openai import tensors
from checkpoint.read import nest, read
from fast import product, threads
from fast.product import GROUPED
from gpt2 import GPT2

GOLDEN = np.load(MICRO / "golden.npz")
TENSORS = tensors(MICRO)
IDS = GOLDEN["ids"]  # [64]
LOGITS = GOLDEN["logits"]  # float64 [64, 300], computed by Hugging Face's transformers
TOLERANCE = 1e-5  # our largest difference is 2.6e-6; the largest logit is 9


@pytest.fixture(scope="module")
def micro():
    return stored_gpt2(MICRO)


# ---- The right logits ----


@given(
    calls=st.lists(
        st.tuples(st.integers(1, 64), st.integers(1, 64), st.integers(0, 63)), max_size=12
    )
)
def test_the_logits_do_not_depend_on_earlier_calls(micro, calls):
    """Before each call, the array of ids is changed from some position on. Results stay."""
    found = []
    for n, n_rows, wrong in calls:
        ids = IDS[:n].copy()
        ids[wrong % n :] = (ids[wrong % n :] + 1) % 300
        micro(ids)
        ids[:] = IDS[:n]
        found.append((n, micro(ids, min(n, n_rows))))
    for n, logits in found:
        assert np.abs(logits - LOGITS[n - len(logits) : n]).max() < TOLERANCE


@pytest.mark.parametrize(
    ("n_rows", "grouped", "single"),
    [
        (1, [20, 20, 20, 4], [20, 20, 20, 3, 1]),
        (30, [20, 44], [20, 14, 30]),
        (64, [64], [31, 31, 2]),
    ],
)
def test_long_prompts_are_computed_in_parts(
    kernel, monkeypatch, n_computed, n_rows, grouped, single
):
    monkeypatch.setattr(product, "PART", 20)
    found = stored_gpt2.__wrapped__(MICRO)(IDS, n_rows)
    assert np.abs(found - LOGITS[-n_rows:]).max() < TOLERANCE
    assert n_computed == (grouped if kernel == GROUPED else single)


def test_the_pass_without_a_cache_and_tiles():
    hparams, params = read(MICRO)
    assert np.abs(gpt2.gpt2(IDS, **params, n_head=hparams["n_head"]) - LOGITS).max() < TOLERANCE


@pytest.mark.parametrize("n_layer", [1, 2, 3])
@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy])
def test_the_first_layers_and_copies_have_a_cache_of_their_own(micro, way, n_layer):
    hparams, params = read(MICRO)
    expected = gpt2.gpt2(
        IDS[:20], **params | {"blocks": params["blocks"][:n_layer]}, n_head=hparams["n_head"]
    )
    micro(IDS[:30])
    other = way(micro.first_layers(n_layer))
    assert np.abs(other(IDS[:20], 20) - expected).max() < TOLERANCE
    other(IDS[30:60])
    assert np.abs(micro(IDS[:31]) - LOGITS[30]).max() < TOLERANCE
    assert len(other.kv_cache) == n_layer and (other.blocks[0] is micro.blocks[0]) == (
        way is copy.copy
    )


def test_all_numbers_stay_float32(micro, monkeypatch):
    """One float64 number would turn all activations after it into slow float64."""
    dtypes, linear = set(), gpt2.linear

    def watched(x, w, b):
        dtypes.add((x.dtype, w.tiles.dtype, b.dtype))
        return linear(x, w, b)

    monkeypatch.setattr(gpt2, "linear", watched)
    assert micro(IDS[:20] + 1, 2).dtype == np.float32
    assert dtypes == {(np.dtype(np.float32),) * 3}


# ---- The cache ----


def test_only_new_positions_are_computed(micro, n_computed):
    micro.reset()
    other = np.append(IDS[:12], (IDS[12:20] + 1) % 300)
    for ids, n_rows in (
        (IDS[:10], 1),
        (IDS[:15], 5),
        (IDS[:20], 1),
        (other, 3),
        (other, 2),
        (other[:4], 1),
    ):
        micro(ids, n_rows)
    assert n_computed == [10, 5, 5, 8, 2, 1]


@pytest.mark.parametrize("after", [IDS[:9], np.append(IDS[:5], IDS[20:24]), IDS[:41]])
def test_an_interrupted_call_does_not_change_later_results(kernel, monkeypatch, after):
    """It has overwritten keys in some layers, or finished the first part of a long prompt."""
    monkeypatch.setattr(product, "PART", 20)
    net = stored_gpt2.__wrapped__(MICRO)
    net(np.append(IDS[:5], IDS[20:24]))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        ffn = Mock(
            wraps=gpt2.ffn,
            side_effect=[DEFAULT] * (4 if len(after) > 20 else 1) + [KeyboardInterrupt],
        )
        patch.setattr(gpt2, "ffn", ffn)
        net(IDS[:41] if len(after) > 20 else IDS[:9])
    found = net(after)
    net.reset()
    assert np.array_equal(found, net(after))


# ---- Errors ----


@pytest.mark.parametrize(("n", "n_rows"), [(0, 1), (65, 1), (3, 0), (3, 4)])
def test_bad_numbers_of_positions(micro, n, n_rows):
    with pytest.raises(ValueError, match=rf"n_rows={n_rows} and len\(ids\)={n}, but"):
        micro([0] * n, n_rows)


@pytest.mark.parametrize(("id", "message"), [(-1, "ids from -1 to 2"), (300, "ids from 1 to 300")])
def test_bad_ids(micro, id, message):
    with pytest.raises(ValueError, match=f"{message}.*from 0 to 299"):
        micro([1, id, 2])


def micro_with(name, index, value):
    """The micro model with one weight replaced."""
    found = {name: tensor[0] if tensor.ndim == 3 else tensor for name, tensor in TENSORS.items()}
    found[name] = found[name].copy()
    found[name].flat[index] = value
    return GPT2(nest(found, 3), {"n_head": 4, "n_ctx": 64, "n_vocab": 300})


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_one_clear_error(monkeypatch, bad):
    """A warning by NumPy, in any thread, would fail the test: the user should see one line."""
    monkeypatch.setattr(threads, "WORTH_WAKING", 0)
    for name in TENSORS:
        net = micro_with(name, 0 if name == "model/wpe" else -1, bad)
        with pytest.raises(UserError, match="the logits are not finite: a weight"):
            net(IDS[:1])


def test_a_weight_that_is_too_large_is_an_error():
    with pytest.raises(UserError, match="not finite"):
        micro_with("model/h1/ln_2/g", -1, 3e38)(IDS)


def test_a_call_that_fails_does_not_change_later_results():
    net = micro_with("model/wpe", 5 * 48, np.nan)  # at position 5
    for _ in range(2):
        with pytest.raises(UserError, match="not finite"):
            net(IDS[:9])
        assert np.abs(net(IDS[:5], 5) - LOGITS[:5]).max() < TOLERANCE


# ---- The same bits in both loops ----


def check_bits(net, n, seed=0):
    """After a prompt of n ids, compare calls with n_rows rows with one row a call.

    Between them, there are calls with wrong ids. In every second case, the model remembers a
    text that begins like the prompt.
    """
    rng = np.random.default_rng(seed)
    ids = rng.integers(net.n_vocab, size=n + 26)
    net.reset()
    expected = np.concatenate([net(ids[:end]) for end in range(n, len(ids) + 1)])
    for n_rows in (1, 2, 3, 4, 5, 6, 7, 9, 13):
        net(np.append(ids[: max(n - 40, 0)], rng.integers(net.n_vocab, size=30)))
        if n_rows % 2:
            net.reset()
        for end in range(n + n_rows - 1, len(ids) + 1, n_rows):
            assert np.array_equal(net(ids[:end], n_rows), expected[end - n_rows + 1 - n :][:n_rows])
            wrong = ids[:end].copy()
            wrong[-1 - rng.integers(n_rows)] = rng.integers(net.n_vocab)
            net(wrong[: end - rng.integers(n_rows)])  # so the next call has to go back
    net.reset()
    for i in range(0, 27, 2):  # one position behind, as a draft after a round without a rejection
        assert np.array_equal(net(ids[: n + i])[0], expected[i])
    if product.matrix_kernel() == GROUPED or n <= product.MANY:  # a prompt makes no difference
        net.reset()
        assert np.array_equal(net(ids, len(ids))[n - 1 :], expected)


@pytest.mark.parametrize("n", [1, 2, 32, 33, 34, 65, 258, 259, 260, 512, 517, 518])
def test_bits_of_prompts(kernel, n):
    net = random_gpt2(n, n_vocab=301, n_ctx=560, n_embd=24, n_head=2, n_layer=2)
    check_bits(net, n)
    check_bits(net.first_layers(1), n)


@settings(max_examples=15)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 300),
    n_head=st.integers(1, 4),
    d=st.sampled_from([1, 8, 24, 64, 96]),
    n_layer=st.integers(1, 3),
)
def test_bits_of_random_models(seed, n, n_head, d, n_layer):
    net = random_gpt2(
        seed, n_vocab=301, n_ctx=330, n_embd=n_head * d, n_head=n_head, n_layer=n_layer
    )
    check_bits(net, n, seed)


@pytest.mark.parametrize(
    ("n_embd", "n_head", "n"),
    [(64, 1, 1040), (96, 1, 1040), (128, 1, 1040), (160, 1, 1040), (768, 12, 300)],
)
def test_bits_of_large_models(n_embd, n_head, n):
    check_bits(random_gpt2(0, n_vocab=500, n_ctx=1070, n_embd=n_embd, n_head=n_head, n_layer=2), n)


@pytest.mark.parametrize(
    ("name", "n"), [("draft", 9), ("draft", 65), ("draft", 300), ("target", 9), ("target", 300)]
)
def test_bits_of_the_bundled_pair(name, n):
    check_bits(bundled(name), n)
