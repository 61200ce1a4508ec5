"""encoder.py on texts whose ids are known from tiktoken, on texts drawn by hypothesis, and on damaged files."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoder import Encoder, VocabularyError, bytes_to_unicode, get_encoder, merge

BPE = Path(__file__).parent / "fixtures" / "bpe"


@pytest.fixture(scope="module")
def gpt2():
    """OpenAI's encoder. Its encoder.json follows from its vocab.bpe: bytes, merges in order, <|endoftext|>."""
    merges = [tuple(line.split(" ")) for line in (BPE / "vocab.bpe").read_text(encoding="utf-8").split("\n")[1:-1]]
    tokens = [*bytes_to_unicode().values(), *map("".join, merges), "<|endoftext|>"]
    return Encoder({token: id for id, token in enumerate(tokens)}, merges)


@pytest.mark.parametrize(("text", "ids"), json.loads((BPE / "golden.json").read_text(encoding="utf-8")))
def test_ids_are_tiktokens(gpt2, text, ids):
    assert gpt2.encode(text) == ids and gpt2.decode(ids) == text


@given(text=st.text())
def test_decode_undoes_encode(gpt2, text):
    assert gpt2.decode(gpt2.encode(text)) == text


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


BYTES_AND_AB = {**{char: byte for byte, char in enumerate(bytes_to_unicode().values())}, "ab": 256}
GOOD = json.dumps(BYTES_AND_AB)


@pytest.mark.parametrize(
    ("encoder_json", "merges", "message"),
    [
        ("not JSON", "a b\n", "damaged: Expecting value"),
        ("[1, 2]", "a b\n", "not a JSON object that maps tokens to ids"),
        (json.dumps(BYTES_AND_AB | {"ab": "256"}), "a b\n", "not a JSON object that maps tokens to ids"),
        (json.dumps(BYTES_AND_AB | {"ab": 255}), "a b\n", "are not 0 to 256, each once"),
        (json.dumps(BYTES_AND_AB | {"漢": 257}), "a b\n", "token '漢', which has a character that stands for no byte"),
        (GOOD.replace("256", "9" * 5000), "a b\n", "limit"),
        (GOOD.replace('"a"', '"b"'), "a b\n", "are not 0 to 255, each once"),
        (GOOD, "a b\na c\n", "1 tokens are missing from encoder.json, such as 'ac'"),
        (GOOD, "a b c\n", "not a pair: 'a b c'"),
        (GOOD, "a b\na b", "ends within a line, 'a b'"),
        (GOOD, "a" * 9999, "not a pair: '" + "a" * 40 + "'"),
    ],
)
def test_a_damaged_vocabulary_is_found_when_it_is_loaded(tmp_path, encoder_json, merges, message):
    (tmp_path / "encoder.json").write_text(encoder_json)
    (tmp_path / "vocab.bpe").write_text("#version: 0.2\n" + merges)
    with pytest.raises(VocabularyError, match=message) as error:
        get_encoder(tmp_path.name, tmp_path.parent)
    said = str(error.value)
    assert str(tmp_path) in said and "restore encoder.json and vocab.bpe, or (for OpenAI's models)" in said
