"""GPT-2's byte pair encoding (Radford et al. 2019, section 2.2).

A regular expression cuts the text into words, and a word begins as its UTF-8 bytes. Then
neighbours are merged, the pair that was learned earliest first. What remains are tokens.
Every byte is a token too, so there is nothing that cannot be encoded.
"""

import math
from itertools import pairwise
from pathlib import Path

import regex

from checkpoint.openai import BYTES
from checkpoint.read import read_tokenizer
from errors import UserError

# An ending like 's; or a run of letters, digits or other signs, with the space before
# it; or white space, without the space that belongs to the next word.
WORD = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
SPACE, BACKWARDS = regex.compile(r"\s*"), regex.compile(r"(?r)\s*")


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
        The id of each token, 0, 1, ... in some order. ValueError if a byte or the result of
        a merge has none.
    eos : int, optional
        The id that ends a text.
    special : dict of str to (bool, bool, bool), optional
        Tokens that stand for themselves, and are never cut into bytes. The first flag says
        that a token is looked for only in what is left between those without it; the
        others, that it swallows the white space before it, and after it.
    prefix_space : bool
        Whether a text gets a space before it, if it has none.
    before, after : list of int
        Ids that are put around each text.
    """

    def __init__(self, merges, ids, eos=None, special=None, prefix_space=False, before=(), after=()):
        self.ids, self.tokens, self.eos = ids, {id: token for token, id in ids.items()}, eos
        if sorted(ids.values()) != [*range(len(ids))]:
            raise ValueError(f"the {len(ids):,} tokens of the vocabulary do not have the ids 0 to {len(ids) - 1:,}")
        self.ranks = {pair: rank for rank, pair in enumerate(merges)}
        self.to_byte = {char: byte for byte, char in BYTES.items()}
        for token in [*self.to_byte, *("".join(pair) for pair in merges)]:
            if token not in ids:
                raise ValueError(f"the vocabulary has no token {token[:20]!r}, which byte pair encoding needs")
        if not {*before, *after} <= self.tokens.keys():
            raise ValueError(f"the ids {[*before, *after]} are put around a text, but not all of them are tokens")
        self.learned, self.special = {*self.to_byte, *map("".join, merges)}, special or {}
        finds = [], []
        for token in sorted(self.special, key=len, reverse=True):  # the longest that fits counts
            finds[bool(self.special[token][0])].append(regex.escape(token))
        self.finds = [regex.compile("|".join(tokens)) for tokens in finds if tokens]
        self.prefix_space, self.before, self.after = prefix_space, before, after
        self.known = {}  # words recur

    def word_ids(self, word):
        if word not in self.known:
            pieces = merge([BYTES[byte] for byte in word.encode()], self.ranks)
            self.known[word] = tuple(self.ids[piece] for piece in pieces)
        return self.known[word]

    def encode(self, text):
        """Text -> list of ids. UserError if it cannot be encoded."""
        return [*self.before, *self.cut_ids(text, *self.finds), *self.after]

    def cut_ids(self, text, find=None, *later):
        """The ids of a text in which special tokens are to be found, as the library tokenizers finds them."""
        if not find:
            return self.plain_ids(text)
        ids, end = [], 0
        for found in find.finditer(text):
            _, strips_before, strips_after = self.special[found[0]]
            start, stop = found.span()
            if strips_before:
                start = BACKWARDS.match(text, end, max(start, end)).start()
            if strips_after:
                stop = SPACE.match(text, stop).end()
            ids += self.cut_ids(text[end:start], *later)
            ids += [self.ids[found[0]]] * (start < stop)
            end = stop
        return ids + self.cut_ids(text[end:], *later)

    def plain_ids(self, text):
        """The ids of a text without special tokens."""
        if self.prefix_space and text and not text.startswith(" "):
            text = " " + text
        try:
            return [id for word in WORD.findall(text) for id in self.word_ids(word)]
        except UnicodeEncodeError as error:
            code = ord(error.object[error.start])
            what = f"the byte {code - 0xDC00:02X}" if 0xDC80 <= code <= 0xDCFF else f"U+{code:04X}, half of a pair"
            raise UserError(f"the text contains {what}, which is not UTF-8; remove it or replace it") from None

    def bytes_of(self, ids):
        """Ids -> bytes. A character of several bytes may be spread over several tokens."""
        return b"".join(self.spelling(self.tokens[int(id)]) for id in ids)

    def spelling(self, token):
        plain = (token in self.learned or token not in self.special) and self.to_byte.keys() >= {*token}
        return bytes(self.to_byte[char] for char in token) if plain else token.encode()

    def decode(self, ids):
        """Ids -> text. Bytes that are not UTF-8, such as half of a character, become U+FFFD."""
        return self.bytes_of(ids).decode("utf-8", errors="replace")


def get_encoder(model_size, models_dir):
    """The `Encoder` of a folder with the files of a model. UserError if they are damaged."""
    folder = Path(models_dir, model_size)
    try:
        return Encoder(**read_tokenizer(folder))
    except ValueError as error:
        raise UserError(f"{folder} cannot be used: {error}") from None
