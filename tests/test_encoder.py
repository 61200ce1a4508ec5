"""GPT-2's encoder against tiktoken's ids (fixtures/bpe/golden.json), and against everything hypothesis can type."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoder import VocabularyError, bytes_to_unicode, get_encoder, merge

BPE = Path(__file__).parent / "fixtures" / "bpe"


def gpt2_vocabulary():
    """OpenAI's encoder.json, which follows from its vocab.bpe: the bytes, the merges in order, `<|endoftext|>`."""
    merges = (BPE / "vocab.bpe").read_text(encoding="utf-8").split("\n")[1:-1]
    tokens = [*bytes_to_unicode().values(), *(line.replace(" ", "") for line in merges), "<|endoftext|>"]
    return {token: id for id, token in enumerate(tokens)}


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    directory = tmp_path_factory.mktemp("gpt2")
    (directory / "encoder.json").write_text(json.dumps(gpt2_vocabulary()))
    (directory / "vocab.bpe").write_bytes((BPE / "vocab.bpe").read_bytes())
    return get_encoder(directory.name, directory.parent)


@pytest.mark.parametrize(("text", "ids"), json.loads((BPE / "golden.json").read_text(encoding="utf-8")))
def test_ids_are_tiktokens(gpt2, text, ids):
    assert gpt2.encode(text) == ids
    assert gpt2.decode(ids) == text


@given(text=st.text())
def test_decode_undoes_encode(gpt2, text):
    assert gpt2.decode(gpt2.encode(text)) == text


@given(word=st.text("abc", max_size=30), pairs=st.permutations(["ab", "aa", "bc", "abc", "aab", "aaaa", "abab"]))
def test_merge_is_the_naive_algorithm(word, pairs):
    ranks = {(token[:i], token[i:]): rank for rank, token in enumerate(pairs) for i in range(1, len(token))}
    pieces = list(word)
    while known := [(ranks[pair], i) for i, pair in enumerate(pairwise(pieces)) if pair in ranks]:
        _, i = min(known)
        pieces[i : i + 2] = ["".join(pieces[i : i + 2])]
    assert merge(word, ranks) == pieces


def test_end_of_text_in_a_prompt_is_ordinary_text(gpt2):
    assert len(gpt2.encode("<|endoftext|>")) > 1


def test_lone_surrogate_is_a_clear_error(gpt2):
    with pytest.raises(ValueError, match=r"lone surrogate, U\+D800"):
        gpt2.encode("half \ud800 of a pair")


def test_half_a_character_decodes_to_the_replacement_character(gpt2):
    ids = gpt2.encode("\U0001f600")
    assert len(ids) == 2 and gpt2.decode(ids[:1]) == "\ufffd" and gpt2.decode(ids) == "\U0001f600"


def test_merging_looks_at_each_pair_a_few_times_only():
    """100,000 letters without a space: n log n, counted in look-ups rather than in seconds."""

    class Counting(dict):
        n_lookups = 0

        def __contains__(self, pair):
            Counting.n_lookups += 1
            return super().__contains__(pair)

    ranks = Counting({("a", "b"): 0, ("ab", "ab"): 1, ("abab", "abab"): 2})
    assert merge("ab" * 50_000, ranks) == ["abababab"] * 12_500
    assert Counting.n_lookups < 400_000


BYTES_AND_AB = {**{char: byte for byte, char in enumerate(bytes_to_unicode().values())}, "ab": 256}


@pytest.mark.parametrize(
    ("encoder_json", "vocab_bpe", "complaint"),
    [
        ("not JSON", "#version: 0.2\na b\n", "encoder.json is damaged: Expecting value"),
        ("[1, 2]", "#version: 0.2\na b\n", "not an object"),
        (json.dumps(BYTES_AND_AB | {"ab": "256"}), "#version: 0.2\na b\n", "not an object of token: id"),
        (json.dumps(BYTES_AND_AB | {"ab": 255}), "#version: 0.2\na b\n", "are not 0 to 256, each once"),
        (json.dumps(BYTES_AND_AB)[:-1] + ', "ab": 256}', "#version: 0.2\na b\n", "1 tokens twice"),
        (json.dumps(BYTES_AND_AB), "#version: 0.2\na b\na c\n", "lacks 1 tokens that encoding needs, the first 'ac'"),
        (json.dumps(BYTES_AND_AB), "#version: 0.2\na b c\n", "no pair: 'a b c'"),
        (json.dumps(BYTES_AND_AB), "#version: 0.2\na b\na b", "ends within a line, 'a b'"),
        (json.dumps(BYTES_AND_AB), "#version: 0.2\n" + "a" * 9999, "no pair: '" + "a" * 40 + "'"),
        (json.dumps(BYTES_AND_AB | {"漢": 257}), "#version: 0.2\na b\n", "token '漢', some of whose"),
        (json.dumps(BYTES_AND_AB | {"ab": int("9" * 4000)}).replace("9", "99"), "#version: 0.2\na b\n", "limit"),
    ],
)
def test_damaged_vocabulary_is_found_at_load(tmp_path, encoder_json, vocab_bpe, complaint):
    (tmp_path / "encoder.json").write_text(encoder_json)
    (tmp_path / "vocab.bpe").write_text(vocab_bpe)
    with pytest.raises(VocabularyError, match=complaint):
        get_encoder(tmp_path.name, tmp_path.parent)
