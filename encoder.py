"""GPT-2's byte pair encoding (Radford et al. 2019, section 2.2), from OpenAI's encoder.json and vocab.bpe.

A regular expression cuts the text into words, and each word begins as a list of its UTF-8 bytes. Then neighbours are
merged, the pair that was learned earliest first, until no learned pair is left. The pieces that remain are the tokens.
Any text that UTF-8 can express can be encoded, because each byte is a token too.
"""

import heapq
import json
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import regex

from errors import UserError

EOT = "<|endoftext|>"


class VocabularyError(UserError):
    """encoder.json or vocab.bpe is damaged."""


def bytes_to_unicode():
    """The printable character that stands for each byte in OpenAI's files -> {byte: character}.

    A byte that is a visible character in Latin-1 is represented by this character. The other bytes (a space too) are
    represented by the characters from U+0100 on, in order.
    """
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}


# A word is the ending of an English contraction ('s, 't, ...); or a run of letters, of digits or of other signs, with
# the space before it; or white space. If several white-space characters come before a word, the last one is not part of
# their run, so that a space can belong to the word.
WORD = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")


class Encoder:
    """Text to token ids and back.

    Parameters
    ----------
    vocabulary : dict
        {token: id}, with the ids 0 ... n_vocab - 1.
    merges : list of (str, str)
        The pairs, in the order in which they were learned.

    Attributes
    ----------
    ids : dict
        The vocabulary. ids[EOT] is the id of <|endoftext|>, which `encode` never returns.
    """

    def __init__(self, vocabulary, merges):
        check_vocabulary(vocabulary, merges)
        self.ids = vocabulary
        self.tokens = {id: token for token, id in vocabulary.items()}
        self.ranks = {pair: rank for rank, pair in enumerate(merges)}
        self.to_char = bytes_to_unicode()
        self.to_byte = {char: byte for byte, char in self.to_char.items()}
        self.word_ids = lru_cache(maxsize=100_000)(self.word_ids)  # because words recur

    def word_ids(self, word):
        return [self.ids[token] for token in merge("".join(self.to_char[b] for b in word.encode()), self.ranks)]

    def encode(self, text):
        """Text -> list of token ids. `<|endoftext|>` is ordinary text here, as in OpenAI's encoder.

        Raises UserError if the text contains a lone surrogate (half of a UTF-16 pair), which UTF-8 cannot express.
        """
        try:
            return [id for word in WORD.findall(text) for id in self.word_ids(word)]
        except UnicodeEncodeError as error:
            lone = ord(error.object[error.start])
            raise UserError(f"the text contains a lone surrogate, U+{lone:04X}; remove it or replace it") from None

    def bytes_of(self, ids):
        """Token ids -> bytes. A character of several bytes may be spread over several tokens."""
        return bytes(self.to_byte[char] for id in ids for char in self.tokens[int(id)])

    def decode(self, ids):
        """Token ids -> text. Bytes that are not UTF-8, such as half of a character, become U+FFFD."""
        return self.bytes_of(ids).decode("utf-8", errors="replace")


def merge(word, ranks):
    """Cut a word into tokens: merge the neighbours of lowest rank (the leftmost on ties), until none have a rank.

    With a heap and a linked list, a word of n characters takes n log n steps. A new search for the lowest rank after
    each merge would take n^2 steps, which is minutes for a long text without spaces.
    """
    pieces = list(word)
    before, after = list(range(-1, len(pieces) - 1)), list(range(1, len(pieces) + 1))  # the neighbours of each piece
    heap = [(ranks[pair], i, *pair) for i, pair in enumerate(pairwise(pieces)) if pair in ranks]
    heapq.heapify(heap)
    while heap:
        _, i, left, right = heapq.heappop(heap)
        j = after[i]
        if pieces[i] != left or pieces[j] != right:
            continue  # one of the two has since been merged with another piece
        pieces[i], pieces[j], after[i] = left + right, None, after[j]
        if after[i] < len(pieces):
            before[after[i]] = i
        for a, b in ((before[i], i), (i, after[i])):  # the two new pairs
            if 0 <= a and b < len(pieces) and (pieces[a], pieces[b]) in ranks:
                heapq.heappush(heap, (ranks[pieces[a], pieces[b]], a, pieces[a], pieces[b]))
    return [piece for piece in pieces if piece is not None]


def check_vocabulary(vocabulary, merges):
    """Raise VocabularyError unless any text can be encoded and any id decoded."""
    if not isinstance(vocabulary, dict) or not all(type(id) is int for id in vocabulary.values()):
        raise VocabularyError("encoder.json is not a JSON object that maps tokens to ids")
    n_vocab = len(vocabulary)
    if sorted(vocabulary.values()) != list(range(n_vocab)):
        raise VocabularyError(f"the {n_vocab} ids in encoder.json are not 0 to {n_vocab - 1}, each once")
    chars = {*bytes_to_unicode().values()}
    if odd := next((token for token in vocabulary if not chars.issuperset(token)), None):
        raise VocabularyError(f"encoder.json has the token {odd[:40]!r}, which has a character that stands for no byte")
    needed = chars.union(left + right for left, right in merges)
    if missing := sorted(needed - vocabulary.keys()):
        raise VocabularyError(f"{len(missing)} tokens are missing from encoder.json, such as {missing[0][:40]!r}")


def get_encoder(model_size, models_dir):
    """The `Encoder` of models_dir/model_size. If a file is damaged, VocabularyError says so."""
    directory, name = Path(models_dir, model_size), "encoder.json"
    try:
        vocabulary = json.loads((directory / name).read_text(encoding="utf-8"))
        name = "vocab.bpe"
        lines = (directory / name).read_text(encoding="utf-8").split("\n")
        merges = [tuple(line.split(" ")) for line in lines[1:] if line]  # the first line is a version
        if bad := [pair for pair in merges if len(pair) != 2]:
            raise VocabularyError(f"vocab.bpe has a line that is not a pair: {' '.join(bad[0])[:40]!r}")
        if lines[-1]:  # a pair that was cut off is often still a pair
            raise VocabularyError(f"vocab.bpe ends within a line, {lines[-1][:40]!r}")
        return Encoder(vocabulary, merges)
    except (ValueError, RecursionError) as error:  # our own, or not JSON, not UTF-8, or a number of 5,000 digits
        advice = "restore encoder.json and vocab.bpe, or (for OpenAI's models) remove both to download them again"
        where = f"the vocabulary in {directory}" if isinstance(error, VocabularyError) else directory / name
        raise VocabularyError(f"{where} is damaged: {error}; {advice}") from None
