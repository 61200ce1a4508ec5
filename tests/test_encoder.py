"""encoder.py on texts whose ids are known from tiktoken, and on texts drawn by hypothesis."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.programs import ROOT, read

from checkpoint.openai import read_merges
from encoder import BYTES, Encoder, merge
from utils import from_bytes

BPE = "tests/fixtures/bpe/"


@pytest.fixture(scope="module")
def gpt2():
    merges = read_merges(ROOT / BPE / "vocab.bpe")
    tokens = [*sorted(BYTES.values()), *map("".join, merges)]
    return Encoder(merges, {token: id for id, token in enumerate(tokens)})


@pytest.mark.parametrize(("text", "ids"), json.loads(read(BPE + "golden.json")))
def test_ids_are_tiktokens(gpt2, text, ids):
    assert gpt2.encode(text) == ids and gpt2.decode(ids) == text


@given(text=st.text())
def test_decode_undoes_encode(gpt2, text):
    assert gpt2.decode(gpt2.encode(text)) == text


@given(
    word=st.text("abc", max_size=40),
    choices=st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=9),
)
def test_merge_takes_the_leftmost_pair_of_lowest_rank(word, choices):
    """One pair at a time, as the algorithm is defined, in an order in which they can be learned."""
    tokens, ranks = ["a", "b", "c"], {}
    for i, j in choices:
        left, right = tokens[i % len(tokens)], tokens[j % len(tokens)]
        if left + right not in tokens:
            ranks[left, right] = len(ranks)
            tokens.append(left + right)
    pieces = list(word)
    while known := [(ranks[pair], i) for i, pair in enumerate(pairwise(pieces)) if pair in ranks]:
        _, i = min(known)
        pieces[i : i + 2] = ["".join(pieces[i : i + 2])]
    assert merge(list(word), ranks) == pieces


def test_an_added_token_stands_for_itself():
    """Spaces and most letters beyond ASCII are written in other ways in the tokens of BPE."""
    assert Encoder([], {"<a b>": 0}).decode([0]) == "<a b>"


def test_half_a_character_decodes_to_the_replacement_character(gpt2):
    ids = gpt2.encode("\U0001f600")
    assert len(ids) == 2 and gpt2.decode(ids[:1]) == "\ufffd"


def test_a_prompt_whose_bytes_python_did_not_understand():
    assert from_bytes("caf\udcc3\udca9") == "café"
