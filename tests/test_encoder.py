"""encoder.py on texts whose ids are known from tiktoken, and on texts drawn by hypothesis."""

import json
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support import read

from encoder import Encoder, bytes_to_unicode, merge

BPE = "tests/fixtures/bpe/"


@pytest.fixture(scope="module")
def gpt2():
    """OpenAI's encoder. Its encoder.json follows from its vocab.bpe: bytes, merges in order, <|endoftext|>."""
    merges = [tuple(line.split(" ")) for line in read(BPE + "vocab.bpe").split("\n")[1:-1]]
    tokens = [*bytes_to_unicode().values(), *map("".join, merges), "<|endoftext|>"]
    return Encoder({token: id for id, token in enumerate(tokens)}, merges)


@pytest.mark.parametrize(("text", "ids"), json.loads(read(BPE + "golden.json")))
def test_ids_are_tiktokens(gpt2, text, ids):
    assert gpt2.encode(text) == ids and gpt2.decode(ids) == text


@given(text=st.text())
def test_decode_undoes_encode(gpt2, text):
    assert gpt2.decode(gpt2.encode(text)) == text


@example(word="aba", pairs=["ab", "aab"])
@given(word=st.text("abc", max_size=30), pairs=st.permutations(["ab", "aa", "bc", "abc", "aab", "aaaa", "abab"]))
def test_merge_gives_the_tokens_of_the_naive_algorithm(word, pairs):
    ranks = {(token[:i], token[i:]): rank for rank, token in enumerate(pairs) for i in range(1, len(token))}
    pieces = list(word)
    while known := [(ranks[pair], i) for i, pair in enumerate(pairwise(pieces)) if pair in ranks]:
        _, i = min(known)
        pieces[i : i + 2] = ["".join(pieces[i : i + 2])]
    assert merge(word, ranks) == pieces


def test_half_a_character_decodes_to_the_replacement_character(gpt2):
    ids = gpt2.encode("\U0001f600")
    assert len(ids) == 2 and gpt2.decode(ids[:1]) == "\ufffd"


def test_a_word_of_100_000_letters_needs_few_lookups():
    """Look-ups are counted, because seconds would depend on the machine."""
    lookups = []

    class Counting(dict):
        def __contains__(self, pair):
            lookups.append(pair)
            return super().__contains__(pair)

    assert merge("ab" * 50_000, Counting({("a", "b"): 0, ("ab", "ab"): 1})) == ["abab"] * 25_000
    assert len(lookups) < 400_000
