"""Drafts that only count: n-grams of a text, fitted beforehand (`NGram`) or on the text so far (`Online`).

Both are models as in speculative.py. After a context that was seen before, the next token is predicted from how often
each token followed. A context that is too long to have been seen is shortened, token by token.
"""

import zipfile
import zlib

import numpy as np

from errors import UserError
from gpt2 import common_prefix

DISCOUNT = 0.75  # taken from each count and given to the tokens that were not seen: see `blend`


def blend(p, tokens, counts):
    """The distribution after a context, given p [n_vocab], the distribution after the same context one token shorter.

    Interpolated absolute discounting (Ney, Essen and Kneser 1994): each token was seen counts times after the context.
    DISCOUNT is taken off each count, and what was taken off is distributed like p.
    """
    total = counts.sum()
    p = p * (DISCOUNT * len(counts) / total)
    p[tokens] += (counts - DISCOUNT) / total
    return p


def each_row(row):
    """A method `row(ids)`, which gives the distribution after ids, as a model's `(ids, n_rows=1) -> probs`."""

    def model(self, ids, n_rows=1):
        ids = np.asarray(ids)
        return np.array([row(self, ids[: len(ids) - i]) for i in reversed(range(n_rows))])  # [n_rows, n_vocab]

    return model


class NGram:
    """The next token given up to order - 1 tokens before it. A model.

    Parameters
    ----------
    n_vocab : int
    tables : list of (int64 [m], int [m])
        For n = 1 ... order: the n-grams that occur, in ascending order, and how often each occurs. An n-gram is stored
        as one number, whose digits to the base n_vocab are its ids. So n-grams that begin alike are neighbours, and a
        bisection finds them.
    """

    def __init__(self, n_vocab, tables):
        self.n_vocab, self.tables = n_vocab, tables
        self.unigram = blend(np.full(n_vocab, 1 / n_vocab), *tables[0])

    def row(self, ids):
        p = self.unigram
        for n, (grams, counts) in enumerate(self.tables[1 : len(ids) + 1], start=2):
            first = as_number(ids[len(ids) - n + 1 :], self.n_vocab) * self.n_vocab  # the context, followed by token 0
            begin, end = np.searchsorted(grams, [first, first + self.n_vocab])
            if begin == end:
                break  # longer contexts cannot have been seen either
            p = blend(p, grams[begin:end] - first, counts[begin:end])
        return p

    __call__ = each_row(row)

    def save(self, path):
        """Write the tables as a .npz. Of the ascending n-grams only the steps are stored, which compress well."""
        arrays = {f"steps_{n}": np.diff(grams, prepend=0) for n, (grams, _) in enumerate(self.tables, start=1)}
        arrays |= {f"counts_{n}": counts for n, (_, counts) in enumerate(self.tables, start=1)}
        small = {name: array.astype(np.min_scalar_type(array.max(initial=0))) for name, array in arrays.items()}
        np.savez_compressed(path, n_vocab=self.n_vocab, **small)

    @classmethod
    def load(cls, path, order):
        """The n-grams up to this order, from a file by `save`. UserError if it is damaged or has only shorter ones."""
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as f:
                n_vocab = int(f["n_vocab"])
                grams = [np.cumsum(f[f"steps_{n}"], dtype=np.int64) for n in range(1, order + 1)]
                counts = [f[f"counts_{n}"].astype(np.int64) for n in range(1, order + 1)]
            return cls(n_vocab, list(zip(grams, counts, strict=True)))
        except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError) as error:
            raise UserError(f"{path} is damaged, or has no {order}-grams: {error}") from None


def ngram(ids, n_vocab, order, least=1):
    """An `NGram` fitted on a text.

    Parameters
    ----------
    ids : int [n], at least one
    n_vocab : int
    order : int
        1 for unigram, 2 for bigram, ...
    least : int
        N-grams of two tokens and more that occur less often than this are left out. The table is smaller, and little
        is lost.

    Raises
    ------
    UserError
        If there are no ids, if an id is not in the vocabulary, or if an n-gram does not fit in 63 bits.
    """
    ids = np.asarray(ids, dtype=np.int64)
    if len(ids) == 0:
        raise UserError("n-grams need a text to count in, and this one is empty")
    if ids.min() < 0 or ids.max() >= n_vocab:
        raise UserError(f"ids from {ids.min()} to {ids.max()}: the vocabulary goes from 0 to {n_vocab - 1}")
    if not 1 <= order <= np.log(2.0**63) / np.log(max(n_vocab, 2)):
        raise UserError(f"order = {order}: 1 or more is needed, and {n_vocab} ** order must fit in 63 bits")
    tables, grams = [], np.zeros(len(ids), dtype=np.int64)
    for n in range(1, order + 1):
        before = grams[: len(ids) - n + 1]  # the (n-1)-grams that another token follows
        grams = before * n_vocab + ids[n - 1 :]  # [len(ids)-n+1]
        found, counts = np.unique(grams, return_counts=True)
        kept = counts >= (least if n > 1 else 1)
        tables.append((found[kept], counts[kept]))
    return NGram(n_vocab, tables)


def as_number(ids, n_vocab):
    """The number whose digits to the base n_vocab are ids."""
    number = 0
    for token in ids:
        number = number * n_vocab + int(token)
    return number


class Online:
    """An n-gram model fitted on the very ids that it is called with: it learns the prompt, and the text as it grows.

    A pure function of these ids. It keeps the counts from the last call. Where the ids are different now, it takes
    back what it had counted.
    """

    def __init__(self, n_vocab, order=3):
        self.n_vocab, self.order, self.ids = n_vocab, order, np.zeros(0, dtype=np.int64)
        self.counts = {}  # {context: {token: how often it came next}}; a context is a tuple of up to order - 1 ids

    def row(self, ids):
        n_same = common_prefix(ids, self.ids)
        for i in reversed(range(n_same, len(self.ids))):
            self.count(self.ids, i, -1)
        for i in range(n_same, len(ids)):
            self.count(ids, i, 1)
        self.ids = ids.copy()

        p = np.full(self.n_vocab, 1 / self.n_vocab)
        for context in self.contexts(ids, len(ids)):
            if context not in self.counts:
                break
            nexts = self.counts[context]
            p = blend(p, np.fromiter(nexts.keys(), int, len(nexts)), np.fromiter(nexts.values(), int, len(nexts)))
        return p

    __call__ = each_row(row)

    def count(self, ids, i, change):
        """Add change, 1 or -1, to the counts of ids[i] after each of its contexts."""
        token = int(ids[i])
        for context in self.contexts(ids, i):
            nexts = self.counts.setdefault(context, {})
            nexts[token] = nexts.get(token, 0) + change
            if nexts[token] == 0:
                del nexts[token]
            if not nexts:
                del self.counts[context]

    def contexts(self, ids, i):
        """The 0, 1, ... order - 1 ids before position i, as tuples. There are fewer where the text begins."""
        before = tuple(ids[max(0, i - self.order + 1) : i].tolist())
        return [before[len(before) - n :] for n in range(len(before) + 1)]
