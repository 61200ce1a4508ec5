"""Each draft by the exact proof, and then for what it is: n-grams against counting by hand, lookup against a search."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import ROOT, assert_lossless, bundled, models, random_gpt2

from drafts import AsNetwork, Lookup, make_draft
from encoder import get_encoder
from enumeration import output_distribution, total_variation
from errors import UserError
from ngrams import DISCOUNT, NGram, Online, ngram
from sampling import sampler
from schedules import draft_confidence
from speculative import autoregressive_sampling, speculative_sampling, verify, verify_block

pytestmark = pytest.mark.filterwarnings("error")
texts = st.lists(st.integers(0, 2), min_size=1, max_size=30).map(np.array)
ORDERS = [1, 2, 3, 4]
TABLES = ROOT / "models" / "ngrams.npz"


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
        lambda text, n_vocab: ngram(text % n_vocab, n_vocab, 1),
        lambda text, n_vocab: ngram(text % n_vocab, n_vocab, 3),
        lambda text, n_vocab: Online(n_vocab),
        lambda text, n_vocab: Lookup(n_vocab),
    ],
    ids=["unigram", "trigram", "online", "lookup"],
)
@settings(max_examples=12)
@given(drawn=models(sizes=[3, 2]), text=texts, N=st.sampled_from([3, 4]), K=st.integers(1, 3), stops=st.booleans())
def test_lossless(verifier, temperature, draft, drawn, text, N, K, stops):
    _, target, x = drawn
    model = sampler(AsNetwork(draft(text, target.rows.shape[1])), temperature)
    assert_lossless((model, target, x), N, K, verify=verifier, stop=draft_confidence(1.0) if stops else None)


@pytest.mark.parametrize("n_layer", [1, 2])
def test_lossless_early_exit(n_layer):
    """Rows are compared to the last bit, so that the two ways to group positions into calls cannot differ."""
    network = random_gpt2(0, n_vocab=3, n_ctx=16, n_embd=8, n_head=2, n_layer=2)
    target, draft = (sampler(net, 0.2) for net in (network, network.first_layers(n_layer)))
    decoded = output_distribution(lambda rng: speculative_sampling([0, 2], draft, target, 3, 2, rng))
    plain = output_distribution(lambda rng: autoregressive_sampling([0, 2], target, 3, rng))
    assert total_variation(decoded, plain) < 1e-12


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


@settings(max_examples=10)
@given(text=texts, ids=texts)
def test_saved_and_loaded_it_is_the_same(tmp_path_factory, text, ids):
    path = tmp_path_factory.mktemp("tables") / "ngrams.npz"
    ngram(text * 40_000, 100_000, 3).save(path)
    for n in range(1, 4):
        rows = NGram.load(path, n)(ids * 40_000)
        assert np.array_equal(rows, ngram(text * 40_000, 100_000, n)(ids * 40_000))
    with pytest.raises(UserError, match="no 4-grams"):
        NGram.load(path, 4)
    for damaged in (b"", b"PK", path.read_bytes()[:-9]):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"ngrams\.npz is damaged"):
            NGram.load(path, 1)


def test_what_cannot_be_fitted():
    with pytest.raises(UserError, match="empty"):
        ngram([], 5, 2)
    with pytest.raises(UserError, match="63 bits"):
        ngram([1, 2], 50257, 5)
    with pytest.raises(UserError, match="order = 0"):
        ngram([1, 2], 5, 0)
    with pytest.raises(UserError, match="ids from 1 to 5"):
        ngram([1, 5], 5, 2)
    row = ngram([50256] * 6, 50257, 4)([50256] * 3)[0]  # the largest number that an n-gram can be
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
    assert sum(len(nexts) for nexts in model.counts.values()) == 1  # all other counts were taken back


# Prompt lookup


def search(ids, n_vocab, longest):
    """The same from its definition: the longest n first, and the last place where it was."""
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
    assert np.array_equal(Lookup(5, longest)(ids, n_rows), expected)


def test_lookup_continues_the_passage_it_found():
    ids = np.array([7, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3])
    for token in (4, 5, 6, 0):
        assert np.argmax(Lookup(8)(ids)[-1]) == token
        ids = np.append(ids, token)


# Drafts by name


@pytest.fixture(scope="module")
def target():
    return bundled("target")


@pytest.mark.parametrize("name", ["unigram", "bigram", "ngram", "online", "lookup", "early-exit:2"])
def test_every_draft_is_a_network(target, name):
    draft, ids = make_draft(name, target, None, TABLES), np.array([5, 6, 7, 5, 6])
    draft.forget()
    logits = draft(ids, 3)
    assert logits.shape == (3, target.n_vocab)
    rows = sampler(draft, 1)(ids, 3)
    np.testing.assert_allclose(rows.sum(axis=-1), 1, atol=1e-12)
    if name == "lookup":
        assert draft.sure == 1 and rows[-1, 7] == 1 and rows[0, 7] == 1 / target.n_vocab


def test_a_corpus_of_ones_own(target, tmp_path):
    encoder, path = get_encoder("target", ROOT / "models"), tmp_path / "corpus.txt"
    path.write_text("A king.\n<|endoftext|>\nA queen.\n", encoding="utf-8")
    end = encoder.ids["<|endoftext|>"]
    text = np.array([*encoder.encode("A king."), end, *encoder.encode("A queen."), end])
    rows = sampler(make_draft("bigram", target, encoder, TABLES, path))(text, 4)
    np.testing.assert_allclose(rows, ngram(text, 2048, 2)(text, 4), atol=1e-12)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match=r"corpus\.txt is not a text in UTF-8"):
        make_draft("bigram", target, encoder, TABLES, path)


def test_the_bundled_tables_are_for_the_bundled_models():
    with pytest.raises(UserError, match="give a --draft_corpus FILE"):
        make_draft("bigram", SimpleNamespace(n_vocab=7), None, TABLES)
