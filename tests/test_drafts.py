"""Each draft by the exact proof, then for what it is: n-grams against counts by hand, lookup against a search."""

from collections import Counter

import numpy as np
import pytest
from enumeration import output_distribution, total_variation
from hypothesis import given, settings
from hypothesis import strategies as st
from test_gpt2 import random_gpt2
from test_speculative import assert_lossless, models

from drafts import DISCOUNT, NGram, Online, bigram, early_exit, log_probs, lookup, ngram, not_found, unigram
from speculative import autoregressive_sampling, sampler, speculative_sampling, verify, verify_block

pytestmark = pytest.mark.filterwarnings("error")
texts = st.lists(st.integers(0, 2), min_size=1, max_size=30).map(np.array)
ORDERS = [1, 2, 3, 4]


def by_hand(text, n_vocab, order, ids, least=1):
    """The row after ids of an n-gram model with interpolated absolute discounting, straight from its definition."""
    p = np.full(n_vocab, 1 / n_vocab)
    for n in range(1, min(order, len(ids) + 1) + 1):
        context = tuple(ids[len(ids) - n + 1 :])
        grams = Counter(tuple(text[i : i + n]) for i in range(len(text) - n + 1))
        counts = np.array([grams[(*context, token)] for token in range(n_vocab)])
        counts[counts < (least if n > 1 else 1)] = 0
        if not counts.any():
            break
        p = (np.maximum(counts - DISCOUNT, 0) + DISCOUNT * (counts > 0).sum() * p) / counts.sum()
    return p


# Exact, whatever they propose


@pytest.mark.parametrize("verifier", [verify, verify_block])
@pytest.mark.parametrize("temperature", [1, 0.5, 0])
@pytest.mark.parametrize(
    "draft",
    [
        lambda text, n_vocab: unigram(text % n_vocab, n_vocab),
        lambda text, n_vocab: bigram(text % n_vocab, n_vocab),
        lambda text, n_vocab: ngram(text % n_vocab, n_vocab, 3),
        lambda text, n_vocab: Online(n_vocab),
        lambda text, n_vocab: lookup(n_vocab),
    ],
    ids=["unigram", "bigram", "trigram", "online", "lookup"],
)
@settings(max_examples=12)
@given(drawn=models(sizes=[3, 2]), text=texts, N=st.sampled_from([3, 4]), K=st.integers(1, 3), stops=st.booleans())
def test_lossless(verifier, temperature, draft, drawn, text, N, K, stops):
    _, target, x = drawn
    model = sampler(log_probs(draft(text, target.rows.shape[1])), temperature)
    assert_lossless((model, target, x), N, K, verify=verifier, stop=not_found if stops else None)


@pytest.mark.parametrize("n_layer", [1, 2])
def test_lossless_early_exit(n_layer):
    network = random_gpt2(0, n_vocab=3, n_ctx=16, n_embd=8, n_head=2, n_layer=2)
    target, draft = (by_prefix(sampler(net, 0.2)) for net in (network, early_exit(network, n_layer)))
    decoded = output_distribution(lambda rng: speculative_sampling([0, 2], draft, target, 3, 2, rng))
    plain = output_distribution(lambda rng: autoregressive_sampling([0, 2], target, 3, rng))
    assert total_variation(decoded, plain) < 1e-12


def by_prefix(model):
    """Each prefix's row computed once: float32 may round differently in calls that are grouped differently."""
    known = {}

    def row(ids):
        if tuple(ids) not in known:
            known[tuple(ids)] = model(np.array(ids))[-1]
        return known[tuple(ids)]

    return lambda ids, n_rows=1: np.array([row(ids[: len(ids) - i]) for i in reversed(range(n_rows))])


# n-grams


@pytest.mark.parametrize("order", ORDERS)
@given(text=texts, ids=texts, n_rows=st.integers(1, 30), least=st.integers(1, 3))
def test_ngram_is_what_counting_by_hand_gives(order, text, ids, n_rows, least):
    n_rows = min(n_rows, len(ids))
    rows = ngram(text, 4, order, least)(ids, n_rows)  # a vocabulary of 4, of which 3 occurs nowhere
    assert rows.shape == (n_rows, 4) and rows.dtype == np.float64
    np.testing.assert_allclose(rows.sum(axis=-1), 1, atol=1e-12)
    expected = [by_hand(text, 4, order, ids[: len(ids) - i], least) for i in reversed(range(n_rows))]
    np.testing.assert_allclose(rows, expected, atol=1e-12)
    assert (rows > 0).all()


@given(text=texts, ids=texts)
def test_unigram_and_bigram(text, ids):
    np.testing.assert_allclose(unigram(text, 3)(ids)[0], by_hand(text, 3, 1, ids), atol=1e-12)
    np.testing.assert_allclose(bigram(text, 3)(ids)[0], by_hand(text, 3, 2, ids), atol=1e-12)


@settings(max_examples=10)
@given(text=texts, order=st.sampled_from(ORDERS), ids=texts)
def test_saved_and_loaded_it_is_the_same(tmp_path_factory, text, order, ids):
    path = tmp_path_factory.mktemp("tables") / "ngrams.npz"
    ngram(text * 40_000, 100_000, 3).save(path)
    for n in range(1, 4):
        rows = NGram.load(path, n)(ids * 40_000)
        assert np.array_equal(rows, ngram(text * 40_000, 100_000, n)(ids * 40_000))
    with pytest.raises(ValueError, match="no 4-grams"):
        NGram.load(path, 4)
    for damaged in (b"", b"PK", path.read_bytes()[:-9]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError):
            NGram.load(path, 1)


@pytest.mark.parametrize(
    "arrays",
    [
        {"n_vocab": 5, "steps_1": [0, 1], "counts_1": [1, 0]},  # a count of nothing
        {"n_vocab": 5, "steps_1": [0, 5], "counts_1": [1, 1]},  # token 5 of 0 to 4
        {"n_vocab": 5, "steps_1": [1, 0], "counts_1": [1, 1]},  # token 1 twice
        {"n_vocab": 5, "steps_1": [0, 1], "counts_1": [1]},
        {"n_vocab": 5, "steps_1": [], "counts_1": []},
        {"n_vocab": "x", "steps_1": [0], "counts_1": [1]},
        {"steps_1": [0], "counts_1": [1]},
        None,  # an array, of no name
    ],
)
def test_tables_that_cannot_be_are_refused(tmp_path, arrays):
    path = tmp_path / "ngrams.npz"
    with open(path, "wb") as f:
        np.save(f, np.ones(3)) if arrays is None else np.savez(f, **arrays)
    with pytest.raises(ValueError, match=r"ngrams.npz is damaged"):
        NGram.load(path, 1)


def test_what_cannot_be_fitted():
    with pytest.raises(ValueError, match="there are none"):
        ngram([], 5, 2)
    with pytest.raises(ValueError, match="63 bits"):
        ngram([1, 2], 50257, 5)
    with pytest.raises(ValueError, match="order = 0"):
        ngram([1, 2], 5, 0)
    with pytest.raises(ValueError, match="ids from 1 to 5"):
        ngram([1, 5], 5, 2)
    row = ngram([50256] * 6, 50257, 4)([50256] * 3)[0]  # the largest number of all
    assert row[50256] == pytest.approx(0.9, abs=0.1)
    assert ngram([1], 5, 3)([1, 1]).shape == (1, 5)  # fewer ids than the order


@pytest.mark.parametrize("order", ORDERS)
@given(calls=st.lists(st.tuples(texts, st.integers(1, 30)), min_size=1, max_size=4))
def test_online_is_fitted_on_the_ids_it_is_called_with(order, calls):
    """Whatever it was called with before: longer, shorter, other ids."""
    model = Online(4, order)
    for ids, n_rows in calls:
        n_rows = min(n_rows, len(ids))
        rows = model(ids, n_rows)
        prefixes = [ids[: len(ids) - i] for i in reversed(range(n_rows))]
        np.testing.assert_allclose(rows, [by_hand(prefix, 4, order, prefix) for prefix in prefixes], atol=1e-12)
    model(calls[0][0][:1])
    assert sum(len(nexts) for nexts in model.counts.values()) == 1  # what was taken back is gone


# Prompt lookup


def search(ids, n_vocab, longest):
    """The same from its definition: the longest n first, and of its places the last."""
    ids = ids.tolist()
    for n in range(longest, 0, -1):
        for i in reversed(range(len(ids) - n)):
            if ids[i : i + n] == ids[len(ids) - n :]:
                return np.eye(n_vocab)[ids[i + n]]
    return np.full(n_vocab, 1 / n_vocab)


@given(ids=texts, n_rows=st.integers(1, 30), longest=st.integers(1, 4))
def test_lookup_is_a_search(ids, n_rows, longest):
    n_rows = min(n_rows, len(ids))
    expected = [search(ids[: len(ids) - i], 5, longest) for i in reversed(range(n_rows))]
    assert np.array_equal(lookup(5, longest)(ids, n_rows), expected)


def test_lookup_goes_on_with_the_passage_it_found():
    ids = np.array([7, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3])
    for token in (4, 5, 6, 0):
        assert np.argmax(lookup(8)(ids)[-1]) == token
        ids = np.append(ids, token)


def test_a_round_ends_where_lookup_finds_nothing():
    rounds, target = [], ngram([0], 9, 1)  # which says 0 nearly always
    rng = np.random.default_rng(0)
    speculative_sampling([1, 2, 3], lookup(9), target, 12, 4, rng, stop=not_found, on_round=rounds.append)
    assert len(rounds[0].drafted) == 1  # a guess
    assert max(len(r.drafted) for r in rounds) == 4
    assert all(row.max() == 1 for r in rounds for row in r.p[:-1])  # after a guess comes nothing


# Early exit


def test_early_exit_is_the_target_without_its_other_layers():
    hparams = dict(n_vocab=30, n_ctx=32, n_embd=16, n_head=2)
    network, ids = random_gpt2(0, **hparams, n_layer=3), np.arange(20) % 7
    logits = network(ids, 5)
    for n_layer in (1, 2, 3):
        shallow = early_exit(network, n_layer)
        cut = random_gpt2(0, **hparams, n_layer=3)
        cut.weights["blocks"] = cut.weights["blocks"][:n_layer]
        cut.forget()
        assert np.array_equal(shallow(ids, 5), cut(ids, 5))
        shallow(ids[::-1], 5)
        assert all(a is b for a, b in zip(shallow.weights["blocks"], network.weights["blocks"], strict=False))
        assert shallow.weights["head"] is network.weights["head"]
    assert len(network.weights["blocks"]) == 3
    np.testing.assert_allclose(network(np.append(ids, 1), 6)[:5], logits, atol=1e-5)  # its cache is as it was
    for n_layer in (0, -1, 4):
        with pytest.raises(ValueError, match="has 3"):
            early_exit(network, n_layer)


def test_log_probs_take_a_temperature():
    rows = np.array([[0.5, 0.5, 0], [0.1, 0.6, 0.3]])
    network = log_probs(lambda ids, n_rows=1: rows)
    np.testing.assert_allclose(sampler(network, 1)([0, 0], 2), rows, atol=1e-15)
    np.testing.assert_allclose(sampler(network, 0.5)([0, 0], 2), rows**2 / (rows**2).sum(-1, keepdims=True), atol=1e-15)
    assert sampler(network, 0)([0, 0], 2).tolist() == [[1, 0, 0], [0, 1, 0]]
