"""GPT-2's byte pair encoding (Radford et al. 2019, section 2.2).

A regular expression cuts the text into words, and a word begins as its UTF-8 bytes. Then
neighbours are merged, the pair that was learned earliest first. What remains are tokens.
Every byte is a token too, so there is nothing that cannot be encoded.
"""

import math
from itertools import pairwise
from pathlib import Path

import regex

from checkpoint.read import read_tokenizer
from errors import UserError

# An ending like 's; or a run of letters, digits or other signs, with the space before
# it; or white space, without the space that belongs to the next word.
WORD = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")


def bytes_to_unicode():
    """The printable character for each byte in OpenAI's files: its own in Latin-1, or one from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}


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
    """Text to token ids and back.

    Parameters
    ----------
    merges : list of (str, str)
        Pairs of neighbours, in the order in which they were learned.
    ids : dict of str to int
        The id of each token. ValueError if a byte or the result of a merge has none.
    eos : int, optional
        The id that ends a text.
    """

    def __init__(self, merges, ids, eos=None):
        self.ids, self.tokens, self.eos = ids, {id: token for token, id in ids.items()}, eos
        self.ranks = {pair: rank for rank, pair in enumerate(merges)}
        self.to_char = bytes_to_unicode()
        self.to_byte = {char: byte for byte, char in self.to_char.items()}
        for token in [*self.to_byte, *("".join(pair) for pair in merges)]:
            if token not in ids:
                raise ValueError(f"the vocabulary has no token {token[:20]!r}, which byte pair encoding needs")
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
    """The `Encoder` of a folder with the files of a model. UserError if they are damaged."""
    folder = Path(models_dir, model_size)
    try:
        return Encoder(*read_tokenizer(folder))
    except ValueError as error:
        raise UserError(f"{folder} cannot be used: {error}") from None
