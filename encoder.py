"""GPT-2's byte pair encoding (Radford et al. 2019, section 2.2).

A regular expression cuts the text into words, and a word begins as its UTF-8 bytes. Then
neighbours are merged, the pair that was learned earliest first. What remains are tokens.
Every byte is a token too, so there is nothing that cannot be encoded.
"""

import math
from itertools import pairwise

import regex

# An ending like 's; or a run of letters, digits or other signs, with the space before
# it; or white space, without the space that belongs to the next word.
WORD = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
PLAIN = [*range(33, 127), *range(161, 173), *range(174, 256)]
OTHERS = [byte for byte in range(256) if byte not in PLAIN]
BYTES = {byte: chr(byte) for byte in PLAIN}  # how bytes are written, in the order of their ids
BYTES |= {byte: chr(256 + i) for i, byte in enumerate(OTHERS)}
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
    eos : sequence of int
        The ids that end a text, the usual one first.
    special : str, optional
        A token that is never cut into bytes, such as "<|endoftext|>".
    library : function, optional
        Text to ids, in place of all this.
    """

    def __init__(self, merges, ids, eos=(), special=None, library=None):
        self.ids, self.eos, self.special, self.library = ids, eos, special, library
        self.tokens = {id: token for token, id in ids.items()}
        self.ranks = {pair: rank for rank, pair in enumerate(merges)}
        self.known = {}  # words recur

    def encode(self, text):
        """Text -> list of ids."""
        if self.library is not None:
            return self.library(text)
        if self.special is None:
            return self.text_ids(text)
        first, *others = text.split(self.special)
        ids = self.text_ids(first)
        for other in others:
            ids += [self.ids[self.special], *self.text_ids(other)]
        return ids

    def text_ids(self, text):
        return [id for word in WORD.findall(text) for id in self.word_ids(word)]

    def word_ids(self, word):
        if word not in self.known:
            pieces = merge([BYTES[byte] for byte in word.encode()], self.ranks)
            self.known[word] = tuple(self.ids[piece] for piece in pieces)
        return self.known[word]

    def bytes_of(self, ids):
        """Ids -> bytes. A character of several bytes may be spread over several tokens."""
        return b"".join(spelling(self.tokens[int(id)]) for id in ids)

    def decode(self, ids):
        """Ids -> text. Bytes that are not UTF-8, such as half of a character, become U+FFFD."""
        return self.bytes_of(ids).decode("utf-8", errors="replace")


def spelling(token):
    """The bytes of a token. An added one may have other characters, and stands for itself."""
    if TO_BYTE.keys() >= {*token}:
        return bytes(TO_BYTE[char] for char in token)
    return token.encode()
