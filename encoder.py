"""GPT-2's byte pair encoding (Radford et al. 2019, section 2.2), from OpenAI's encoder.json and vocab.bpe.

A regular expression cuts the text into words, and a word begins as its UTF-8 bytes. Then
neighbours are merged, the pair that was learned earliest first. What remains are tokens.
Every byte is a token too, so there is nothing that cannot be encoded.
"""

import json
import math
from itertools import pairwise
from pathlib import Path

import regex

from errors import UserError

EOT = "<|endoftext|>"

# An ending like 's; or a run of letters, digits or other signs, with the space before
# it; or white space, without the space that belongs to the next word.
WORD = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")


def bytes_to_unicode():
    """The printable character for each byte in OpenAI's files: its own in Latin-1, or one from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def vocabulary(merges, eot_first=False):
    """{token: id}: the bytes, a token for each pair, <|endoftext|>. ValueError if a pair cannot be learned here."""
    ids = {token: id for id, token in enumerate([*[EOT] * eot_first, *bytes_to_unicode().values()])}
    for left, right in merges:
        if left not in ids or right not in ids or left + right in ids:
            raise ValueError(f"the pair {left[:20]!r} {right[:20]!r} cannot come here")
        ids[left + right] = len(ids)
    return ids if eot_first else ids | {EOT: len(ids)}


def merge(pieces, ranks):
    """Merge the pair of lowest rank, everywhere, until no neighbours have a rank. n characters take up to n^2 steps."""
    while len(pieces) > 1:
        pair = min(pairwise(pieces), key=lambda pair: ranks.get(pair, math.inf))
        if pair not in ranks:
            break
        merged = []
        for piece in pieces:
            if merged and (merged[-1], piece) == pair:
                merged[-1] += piece
            else:
                merged.append(piece)
        pieces = merged
    return pieces


class Encoder:
    """Text to token ids and back, for pairs in the order in which they were learned. `ids` is {token: id}."""

    def __init__(self, merges, eot_first=False):
        self.ids = vocabulary(merges, eot_first)
        self.tokens = list(self.ids)
        self.ranks = {pair: rank for rank, pair in enumerate(merges)}
        self.to_char = bytes_to_unicode()
        self.to_byte = {char: byte for byte, char in self.to_char.items()}
        self.known = {}  # words recur

    def word_ids(self, word):
        if word not in self.known:
            pieces = merge([self.to_char[byte] for byte in word.encode()], self.ranks)
            self.known[word] = tuple(self.ids[piece] for piece in pieces)
        return self.known[word]

    def encode(self, text):
        """Text -> list of ids. As in OpenAI's encoder, `<|endoftext|>` is ordinary text here."""
        try:
            return [id for word in WORD.findall(text) for id in self.word_ids(word)]
        except UnicodeEncodeError as error:
            lone = ord(error.object[error.start])
            raise UserError(f"the text contains a lone surrogate, U+{lone:04X}; remove it or replace it") from None

    def bytes_of(self, ids):
        """Ids -> bytes. A character of several bytes may be spread over several tokens."""
        return bytes(self.to_byte[char] for id in ids for char in self.tokens[int(id)])

    def decode(self, ids):
        """Ids -> text. Bytes that are not UTF-8, such as half of a character, become U+FFFD."""
        return self.bytes_of(ids).decode("utf-8", errors="replace")


def get_encoder(model_size, models_dir):
    """The `Encoder` of a folder with encoder.json and vocab.bpe, vocab.json and merges.txt, or tokenizer.json.

    The ids follow from the pairs. So both are read and compared, which shows any damage.
    """
    directory = Path(models_dir, model_size)
    pairs = {"encoder.json": "vocab.bpe", "vocab.json": "merges.txt", "tokenizer.json": "tokenizer.json"}
    name = next((name for name in pairs if (directory / name).exists()), "encoder.json")
    try:
        ids = json.loads((directory / name).read_text(encoding="utf-8"))
        if name == "tokenizer.json":
            merges, added = ids["model"]["merges"], {token["content"]: token["id"] for token in ids["added_tokens"]}
            ids = ids["model"]["vocab"] | added
        else:
            merges = [line for line in (directory / pairs[name]).read_text(encoding="utf-8").split("\n")[1:] if line]
        merges = [tuple(pair.split(" ") if isinstance(pair, str) else pair) for pair in merges]
        encoder = Encoder(merges, eot_first=ids.get(EOT) == 0)  # it is last in OpenAI's files
        if ids != encoder.ids:
            raise ValueError("one does not follow from the other")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        where = f"{directory / name}" + f" or {pairs[name]}" * (pairs[name] != name)
        raise UserError(f"{where} is damaged: {error}; restore it, or remove it to download it again") from None
    return encoder
