"""N-gram rows are those counted by hand, and lookup finds what a search finds."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.models import bundled
from support.programs import ROOT

from lab.drafts import AsNetwork, lookup, make_draft
from lab.ngrams import DISCOUNT, ngram, online
from sampling import as_model
from utils import get_encoder

texts = st.lists(st.integers(0, 2), min_size=1, max_size=30).map(np.array)
orders = st.integers(1, 4)


def by_hand(text, n_vocab, order, ids):
    """The row after ids of an n-gram model, by the definition of absolute discounting."""
    p = np.full(n_vocab, 1 / n_vocab)
    for n in range(1, min(order, len(ids) + 1) + 1):
        context = tuple(ids[len(ids) - n + 1 :])
        grams = Counter(tuple(text[i : i + n]) for i in range(len(text) - n + 1))
        counts = np.array([grams[(*context, token)] for token in range(n_vocab)])
        if not counts.any():
            break
        p = (np.maximum(counts - DISCOUNT, 0) + DISCOUNT * (counts > 0).sum() * p) / counts.sum()
    return p


# n-grams


def prefixes(ids):
    return [ids[:n] for n in range(1, len(ids) + 1)]


# Contexts that are neighbours in the table; one that is too long for ids
@example(order=2, text=np.array([0, 2, 1, 0, 1, 0]), ids=np.array([0]), n_vocab=3)
@example(order=3, text=np.array([0, 1, 2]), ids=np.array([1]), n_vocab=4)
@given(order=orders, text=texts, ids=texts, n_vocab=st.sampled_from([3, 4]))
def test_rows_are_those_counted_by_hand(order, text, ids, n_vocab):
    model = ngram(text, n_vocab, order)  # token 3 of a vocabulary of 4 occurs nowhere
    model(ids)[:] = 0  # a caller may change what it gets
    rows = np.array([model(prefix) for prefix in prefixes(ids)])
    assert rows.dtype == np.float64 and (rows > 0).all()
    np.testing.assert_allclose(rows.sum(axis=-1), 1, atol=1e-12)
    expected = [by_hand(text, n_vocab, order, prefix) for prefix in prefixes(ids)]
    np.testing.assert_allclose(rows, expected, atol=1e-12)
    for prefix in prefixes(ids):  # `online` counts in the ids alone
        np.testing.assert_allclose(
            online(prefix, 4, order), by_hand(prefix, 4, order, prefix), atol=1e-12
        )


def test_the_largest_n_gram():
    network = AsNetwork(ngram([50256] * 6, np.uint16(50257), 4))  # uint16 can overflow
    row = np.exp(network([50256] * 3)[0])
    assert row[50256] == pytest.approx(0.9, abs=0.1)


# Prompt lookup


def search(ids, n_vocab, longest):
    """The row of `lookup` by definition: the longest n first, and the last place with these n."""
    ids = ids.tolist()
    for n in range(longest, 0, -1):
        for i in reversed(range(len(ids) - n)):
            if ids[i : i + n] == ids[len(ids) - n :]:
                return np.eye(n_vocab)[ids[i + n]]
    return np.full(n_vocab, 1 / n_vocab)


@given(ids=texts, longest=st.integers(1, 4))
def test_lookup_is_a_search(ids, longest):
    for prefix in prefixes(ids):
        assert np.array_equal(lookup(prefix, 5, longest), search(prefix, 5, longest))


# Drafts by name


@pytest.mark.parametrize(
    ("name", "guess"), [("unigram", ","), ("bigram", " little"), ("ngram", " time")]
)
def test_the_bundled_tables_fit_the_bundled_vocabulary(name, guess):
    encoder = get_encoder("target", ROOT / "models")
    logits = make_draft(name, bundled("target"), encoder)(encoder.encode("once upon a"))
    assert encoder.decode([logits[-1].argmax()]) == guess


def test_a_draft_can_be_fitted_on_another_corpus(tmp_path):
    target, encoder = bundled("target"), get_encoder("target", ROOT / "models")
    path = tmp_path / "corpus.txt"
    path.write_text(" A king. \n<|endoftext|>\nA queen.\n<|endoftext|>", encoding="utf-8")
    end = encoder.ids["<|endoftext|>"]
    text = np.array([*encoder.encode(" A king. "), end, *encoder.encode("A queen."), end])
    row = as_model(make_draft("bigram", target, encoder, path))(text)[0]
    np.testing.assert_allclose(row, ngram(text, 2048, 2)(text), atol=1e-12)
