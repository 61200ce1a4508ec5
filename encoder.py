"""GPT-2's byte pair encoding (Radford et al. 2019, section 2.2).

A regular expression cuts the text into words, and a word begins as its UTF-8 bytes. Then
neighbours are merged, the pair that was learned earliest first. What remains are tokens.
Every byte is a token too, so there is nothing that cannot be encoded.
"""

import math
from itertools import pairwise
from pathlib import Path

import regex

from checkpoint import UserError
from checkpoint.openai import BYTES
from checkpoint.read import open_model

# An ending like 's; or a run of letters, digits or other signs, with the space before
# it; or white space, without the space that belongs to the next word.
WORD = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
TO_BYTE = {char: byte for byte, char in BYTES.items()}


def merge(pieces, ranks):
    """Merge the pair of lowest rank, everywhere, until no neighbours have a rank.

    n characters take up to n^2 steps.
    """
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
        The id of each token, 0, 1, ... in some order. Bytes and the results of merges have one.
    eos : int, optional
        The id that ends a text.
    special : dict of str to bool, optional
        Tokens that stand for themselves, and are never cut into bytes. Those with True are
        looked for only in what is left between the others.
    library : tokenizers.Tokenizer, optional
        Encodes in place of all this.
    """

    def __init__(self, merges, ids, eos=None, special=None, library=None):
        self.ids, self.eos, self.library = ids, eos, library
        self.tokens = {id: token for token, id in ids.items()}
        self.ranks = {pair: rank for rank, pair in enumerate(merges)}
        self.learned = {*TO_BYTE, *map("".join, merges)}
        self.special = special or {}
        self.finds = [pattern(self.special, later) for later in (False, True)]
        self.known = {}  # words recur

    def encode(self, text):
        """Text -> list of ids. UserError if it cannot be encoded."""
        check_is_utf8(text)
        if self.library is not None:
            return self.library.encode(text).ids
        return self.cut_ids(text, self.finds)

    def cut_ids(self, text, finds):
        """The ids of a text whose special tokens are found, as the library tokenizers does."""
        if not finds:
            return [id for word in WORD.findall(text) for id in self.word_ids(word)]
        find, *later = finds
        ids = []
        for i, piece in enumerate(find.split(text)):  # every second piece is a token
            ids += [self.ids[piece]] if i % 2 else self.cut_ids(piece, later)
        return ids

    def word_ids(self, word):
        if word not in self.known:
            pieces = merge([BYTES[byte] for byte in word.encode()], self.ranks)
            self.known[word] = tuple(self.ids[piece] for piece in pieces)
        return self.known[word]

    def bytes_of(self, ids):
        """Ids -> bytes. A character of several bytes may be spread over several tokens."""
        return b"".join(self.spelling(self.tokens[int(id)]) for id in ids)

    def spelling(self, token):
        is_text = token in self.special and token not in self.learned
        if is_text or not TO_BYTE.keys() >= {*token}:
            return token.encode()
        return bytes(TO_BYTE[char] for char in token)

    def decode(self, ids):
        """Ids -> text. Bytes that are not UTF-8, such as half of a character, become U+FFFD."""
        return self.bytes_of(ids).decode("utf-8", errors="replace")


def pattern(special, later):
    """What finds those special tokens, the longest first. It finds nothing if there are none."""
    tokens = [regex.escape(token) for token in special if special[token] == later]
    tokens.sort(key=len, reverse=True)
    return regex.compile(f"({'|'.join(tokens) or '(?!)'})")


def check_is_utf8(text):
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"the text is not UTF-8: {error}") from None


def get_encoder(model_size, models_dir):
    """The `Encoder` of a folder with the files of a model. UserError if they are damaged."""
    files = open_model(Path(models_dir, model_size))
    return Encoder(**files.tokenizer())
