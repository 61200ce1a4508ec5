"""Both GPT2s, of gpt2.py and of fast/: the right logits, one cache, and clear errors."""

import copy
from unittest.mock import DEFAULT, Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.server import MICRO

import fast
import gpt2
from checkpoint.read import nest, open_model, read
from fast import product, threads

GOLDEN = np.load(MICRO / "golden.npz")
TENSORS = open_model(MICRO).tensors()
IDS = GOLDEN["ids"]  # [64]
LOGITS = GOLDEN["logits"]  # float64 [64, 300], computed by Hugging Face's transformers
TOLERANCE = 1e-5  # our largest difference is 2.6e-6; the largest logit is 9
NETWORKS = gpt2.GPT2, fast.GPT2


@pytest.fixture(scope="module", params=NETWORKS, ids=["plain", "fast"])
def micro(request):
    hparams, params = read(MICRO)
    return request.param(params, hparams)


# ---- The right logits ----


@given(
    calls=st.lists(
        st.tuples(st.integers(1, 64), st.integers(1, 64), st.integers(0, 63)), max_size=12
    )
)
def test_the_logits_do_not_depend_on_earlier_calls(micro, calls):
    """Before each call, the array of ids is changed from some position on. Results stay."""
    results = []
    for n, n_rows, wrong in calls:
        ids = IDS[:n].copy()
        ids[wrong % n :] = (ids[wrong % n :] + 1) % 300
        micro(ids)
        ids[:] = IDS[:n]
        results.append((n, micro(ids, min(n, n_rows))))
    for n, logits in results:
        assert np.abs(logits - LOGITS[n - len(logits) : n]).max() < TOLERANCE


@pytest.mark.parametrize("copy_of", [copy.copy, copy.deepcopy])
def test_a_copy_has_a_cache_of_its_own(micro, copy_of):
    micro(IDS[:30])
    clone = copy_of(micro)
    assert np.abs(clone(IDS[:20], 20) - LOGITS[:20]).max() < TOLERANCE
    clone(IDS[30:60])
    assert np.abs(micro(IDS[:31]) - LOGITS[30]).max() < TOLERANCE


@pytest.mark.parametrize("n_layer", [1, 2, 3])
def test_the_first_layers(n_layer):
    hparams, params = read(MICRO)
    expected = gpt2.GPT2(params | {"blocks": params["blocks"][:n_layer]}, hparams)(IDS, 64)
    micro = fast.GPT2(params, hparams)
    micro(IDS[:30])
    assert np.abs(micro.first_layers(n_layer)(IDS, 64) - expected).max() < TOLERANCE
    assert np.abs(micro(IDS[:31]) - LOGITS[30]).max() < TOLERANCE  # their caches are two


@pytest.mark.parametrize("network", NETWORKS)
def test_weights_are_copied_as_float32(network):
    hparams, params = read(MICRO)
    params = copy.deepcopy(params)
    params["wte"] = params["wte"].astype(np.float64)
    micro = network(params, hparams)
    params["wpe"][:] = 0
    params["blocks"][0]["mlp"]["c_fc"]["b"][:] = 9
    logits = micro(IDS, 64)
    assert logits.dtype == np.float32
    assert np.abs(logits - LOGITS).max() < TOLERANCE


# ---- The cache ----


def test_only_new_positions_are_computed(micro, n_computed):
    micro.reset()
    changed_ids = np.append(IDS[:12], (IDS[12:20] + 1) % 300)
    for ids, n_rows in (
        (IDS[:10], 1),
        (IDS[:15], 5),
        (IDS[:20], 1),
        (changed_ids, 3),
        (changed_ids, 2),
        (changed_ids[:4], 1),
        (np.array([0, 299]), 1),  # the ends of the vocabulary
    ):
        micro(ids, n_rows)
    assert n_computed == [10, 5, 5, 8, 2, 1, 2]


@pytest.mark.parametrize(
    ("network", "n", "n_calls"), [(gpt2.GPT2, 9, 1), (fast.GPT2, 9, 1), (fast.GPT2, 41, 4)]
)
@pytest.mark.parametrize("after", [IDS[:9], np.append(IDS[:5], IDS[20:24]), IDS[:41]])
def test_an_interrupted_call_does_not_change_later_results(
    kernel, monkeypatch, network, n, n_calls, after
):
    """The call has overwritten keys in some layers, or has done a part of a long prompt."""
    monkeypatch.setattr(product, "PART", 20)
    hparams, params = read(MICRO)
    net = network(params, hparams)
    net(np.append(IDS[:5], IDS[20:24]))
    ffn = Mock(wraps=gpt2.ffn, side_effect=[*[DEFAULT] * n_calls, KeyboardInterrupt])
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(gpt2, "ffn", ffn)
        net(IDS[:n])
    logits = net(after)
    net.reset()
    assert np.array_equal(logits, net(after))


# ---- Errors ----


@pytest.mark.parametrize(
    ("ids", "n_rows", "message"),
    [
        ([], 1, r"n_rows=1 and len\(ids\)=0"),
        ([0] * 65, 1, r"n_rows=1 and len\(ids\)=65"),
        ([0] * 3, 0, r"n_rows=0 and len\(ids\)=3"),
        ([0] * 3, 4, r"n_rows=4 and len\(ids\)=3"),
        ([1, -1, 2], 1, "ids from -1 to 2; they must be from 0 to 299"),
        ([1, 300, 2], 1, "ids from 1 to 300; they must be from 0 to 299"),
    ],
)
def test_bad_calls(micro, ids, n_rows, message):
    with pytest.raises(ValueError, match=message):
        micro(ids, n_rows)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", [name for name in TENSORS if "/h" not in name or "/h1/" in name])
def test_weights_that_are_not_finite_are_one_clear_error(monkeypatch, network, bad, name):
    """A warning by NumPy, in any thread, would fail the test: the user should see one line."""
    monkeypatch.setattr(threads, "WORTH_WAKING", 0)
    tensors = TENSORS | {name: TENSORS[name].copy()}
    tensors[name].flat[0 if name == "model/wpe" else -1] = bad
    net = network(nest(tensors, 3), {"n_head": 4, "n_ctx": 64, "n_vocab": 300})
    with pytest.raises(FloatingPointError, match="the logits are not finite: a weight"):
        net(IDS[:1])


@pytest.mark.parametrize("network", NETWORKS)
def test_a_call_that_fails_does_not_change_later_results(network):
    tensors = TENSORS | {"model/wpe": TENSORS["model/wpe"].copy()}
    tensors["model/wpe"][5] = np.nan  # its keys stay behind those of a shorter text
    net = network(nest(tensors, 3), {"n_head": 4, "n_ctx": 64, "n_vocab": 300})
    with pytest.raises(FloatingPointError, match="not finite"):
        net(IDS[:9])
    assert np.abs(net(IDS[:5], 5) - LOGITS[:5]).max() < TOLERANCE
