"""Byte-level byte pair encoding, GPT-2's (Radford et al. 2019, section 2.2), from OpenAI's encoder.json and vocab.bpe.

Text is cut into words by a regular expression, each word becomes its UTF-8 bytes, and neighbouring pieces are merged,
the pair learned earliest first, until no learned pair is left. As any byte is a token, any text can be encoded.
"""

import heapq
import json
import os
from functools import lru_cache
from itertools import pairwise

import regex

from errors import UserError

EOT = "<|endoftext|>"


class VocabularyError(UserError):
    """encoder.json or vocab.bpe is damaged."""


@lru_cache
def bytes_to_unicode():
    """The printable character that stands for each byte in OpenAI's files, {byte: character}.

    Bytes that are printable Latin-1 stand for themselves; the others, among them the space, are moved up to 256 and
    beyond, in order: so the space is U+0120.
    """
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}


# English contractions, then runs of letters, digits or other signs, each with the space before it, then white space,
# of which the last one before a word is left to the word.
WORD = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")


class Encoder:
    """Text to token ids and back.

    Parameters
    ----------
    vocabulary : dict
        {token: id}; the ids are 0 ... n_vocab - 1.
    merges : list of (str, str)
        The pairs, in the order in which they were learned.
    """

    def __init__(self, vocabulary, merges):
        check_vocabulary(vocabulary, merges)
        self.ids = vocabulary
        self.tokens = {id: token for token, id in vocabulary.items()}
        self.ranks = {pair: rank for rank, pair in enumerate(merges)}
        self.to_char = bytes_to_unicode()
        self.to_byte = {char: byte for byte, char in self.to_char.items()}
        self.word_ids = lru_cache(maxsize=100_000)(self.word_ids)  # words come again and again

    def word_ids(self, word):
        """The ids of one word of the regular expression."""
        return [self.ids[token] for token in merge("".join(self.to_char[b] for b in word.encode()), self.ranks)]

    def encode(self, text):
        """Token ids of a text, a list of int. `<|endoftext|>` in it is ordinary text, as in OpenAI's encoder.

        Raises ValueError for a lone surrogate, half of a UTF-16 pair, which no UTF-8 can express.
        """
        try:
            return [id for word in WORD.findall(text) for id in self.word_ids(word)]
        except UnicodeEncodeError as error:
            lone = ord(error.object[error.start])
            raise UserError(f"the text contains a lone surrogate, U+{lone:04X}; remove it or replace it") from None

    def bytes_of(self, ids):
        """The bytes that token ids stand for. A character of several bytes may be spread over several tokens."""
        return bytes(self.to_byte[char] for id in ids for char in self.tokens[int(id)])

    def decode(self, ids):
        """The text of token ids. Bytes that are not UTF-8, such as half a character, become U+FFFD."""
        return self.bytes_of(ids).decode("utf-8", errors="replace")


def merge(word, ranks):
    """Cut a word into tokens: of all neighbouring pairs, the one with the lowest rank is merged, the leftmost first.

    A heap and a linked list, so that a word of n characters takes n log n steps: looking for the best pair anew after
    each merge would take n squared, minutes for a text without spaces.
    """
    pieces = list(word)
    before, after = list(range(-1, len(pieces) - 1)), list(range(1, len(pieces) + 1))  # the neighbours of each piece
    heap = [(ranks[pair], i, *pair) for i, pair in enumerate(pairwise(pieces)) if pair in ranks]
    heapq.heapify(heap)
    while heap:
        _, i, left, right = heapq.heappop(heap)
        j = after[i]
        if pieces[i] != left or j == len(pieces) or pieces[j] != right:
            continue  # one of the two has been merged with another since
        pieces[i], pieces[j], after[i] = left + right, None, after[j]
        if after[i] < len(pieces):
            before[after[i]] = i
        for a, b in ((before[i], i), (i, after[i])):  # the new pairs
            if 0 <= a and b < len(pieces) and (pieces[a], pieces[b]) in ranks:
                heapq.heappush(heap, (ranks[pieces[a], pieces[b]], a, pieces[a], pieces[b]))
    return [piece for piece in pieces if piece is not None]


def check_vocabulary(vocabulary, merges):
    """Raise VocabularyError unless any text can be encoded and any ids decoded, or it would fail only at token 40."""
    if not isinstance(vocabulary, dict) or not all(type(id) is int for id in vocabulary.values()):
        raise VocabularyError("encoder.json is not an object of token: id; remove it, and download it again")
    if sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise VocabularyError(
            f"the {len(vocabulary)} ids in encoder.json are not 0 to {len(vocabulary) - 1}, each once"
        )
    chars = {*bytes_to_unicode().values()}
    if odd := next((token for token in vocabulary if not chars.issuperset(token)), None):
        raise VocabularyError(f"encoder.json has the token {odd[:40]!r}, some of whose characters stand for no byte")
    needed = chars.union(left + right for left, right in merges)
    if missing := sorted(needed - vocabulary.keys()):
        first = missing[0][:40]
        raise VocabularyError(f"encoder.json lacks {len(missing)} tokens that encoding needs, the first {first!r}")


def get_encoder(model_size, models_dir):
    """The `Encoder` of models_dir/model_size. Raises VocabularyError, which names the file."""
    directory, name = os.path.join(models_dir, model_size), "encoder.json"
    try:
        with open(os.path.join(directory, name), encoding="utf-8") as f:
            vocabulary = json.load(f, object_pairs_hook=unique)
        name = "vocab.bpe"
        with open(os.path.join(directory, name), encoding="utf-8") as f:
            lines = f.read().split("\n")[1:]  # the first is a version
        merges = [tuple(line.split(" ")) for line in lines if line]
        if bad := [pair for pair in merges if len(pair) != 2]:
            raise VocabularyError(f"vocab.bpe has a line that is no pair: {' '.join(bad[0])[:40]!r}")
        if lines and lines[-1]:  # what is left of a pair is often a pair too
            raise VocabularyError(f"vocab.bpe ends within a line, {lines[-1][:40]!r}; remove it, and download it again")
        return Encoder(vocabulary, merges)
    except VocabularyError as error:
        raise VocabularyError(f"the vocabulary in {directory} is damaged: {error}") from None
    except (ValueError, RecursionError) as error:  # of JSON, of UTF-8, of a number of 5,000 digits
        raise VocabularyError(f"{os.path.join(directory, name)} is damaged: {error}") from None


def unique(pairs):
    """What json.load does with an object, but a token that comes twice is an error."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise VocabularyError(f"encoder.json has {len(pairs) - len(found)} tokens twice")
    return found
