"""Rows predicted from n-grams, which are sequences of n tokens.

`ngram` counts n-grams in a given text and returns an `NGram`. A call of the `NGram` with ids, an int array [n_ids],
returns the row after them, float64 [n_vocab]. `online` returns such a row too, but counts in these ids alone.

The *context* is the last few tokens of the ids. The *order* is the largest n, so contexts have up to order - 1 tokens.
Long contexts predict better but are rare, so `blend` combines the counts after contexts of all lengths.
"""

import numpy as np

from errors import UserError

DISCOUNT = 0.75  # taken off each count, see `blend`


def blend(p, tokens, counts):
    """Refine the row p with the counts of a longer context: interpolated absolute discounting (Ney et al. 1994).

    DISCOUNT is taken off each count, and the probability that this frees is distributed like p. So a token that never
    followed the longer context keeps some probability. p itself is not changed.

    Parameters
    ----------
    p : float64 [n_vocab]
        The row for the shorter context, which is the context without its first token.
    tokens, counts : int [m]
        The tokens that followed the context, and how often each of them did.
    """
    total = counts.sum()
    p = p * (DISCOUNT * len(counts) / total)
    p[tokens] += (counts - DISCOUNT) / total
    return p


class NGram:
    """Predicts from the n-gram counts of a fixed text. Use `ngram` or `NGram.load` to make one.

    Parameters
    ----------
    n_vocab : int
    tables : list of (int64 [m], int [m])
        For n = 1 ... order: the n-grams that were counted, in ascending order, and how often each occurs. An n-gram is
        stored as one number, whose digits in base n_vocab are its ids. So all n-grams that begin with the same context
        are neighbours, and a binary search finds them.
    """

    def __init__(self, n_vocab, tables):
        self.n_vocab, self.tables = n_vocab, tables
        self.unigram = blend(np.full(n_vocab, 1 / n_vocab), *tables[0])

    def __call__(self, ids):
        p = self.unigram.copy()
        tables = self.tables[1 : len(ids) + 1]  # for n = 2, 3, ..., as long as the context fits into ids
        for n, (grams, counts) in enumerate(tables, start=2):
            first = 0  # will be the number of the first n-gram with this context, whose last token is 0
            for token in ids[1 - n :].tolist():
                first = (first + token) * self.n_vocab
            begin, end = np.searchsorted(grams, [first, first + self.n_vocab])
            if begin == end:
                break  # longer contexts are not in the tables either
            p = blend(p, grams[begin:end] - first, counts[begin:end])
        return p

    def save(self, path):
        """Write a .npz with the differences between neighbouring n-grams, which compress better than the n-grams."""
        arrays = {f"steps_{n}": np.diff(grams, prepend=0) for n, (grams, _) in enumerate(self.tables, start=1)}
        arrays |= {f"counts_{n}": counts for n, (_, counts) in enumerate(self.tables, start=1)}
        small = {name: array.astype(np.min_scalar_type(array.max(initial=0))) for name, array in arrays.items()}
        np.savez_compressed(path, n_vocab=self.n_vocab, **small)

    @classmethod
    def load(cls, path, order):
        """Read a file that `save` wrote, up to this order. UserError if the file is damaged or has no such n-grams."""
        with open(path, "rb") as file:
            try:
                with np.load(file, allow_pickle=False) as f:
                    n_vocab = int(f["n_vocab"])
                    grams = [np.cumsum(f[f"steps_{n}"], dtype=np.int64) for n in range(1, order + 1)]
                    counts = [f[f"counts_{n}"].astype(np.int64) for n in range(1, order + 1)]
                if list(map(len, grams)) != list(map(len, counts)):
                    raise ValueError("an n-gram has no count, or a count has no n-gram")
                return cls(n_vocab, list(zip(grams, counts)))
            except Exception as error:  # a damaged file can raise almost anything, from BadZipFile to KeyError
                raise UserError(f"{path} is damaged, or has no {order}-grams, so restore it: {error}") from None


def ngram(ids, n_vocab, order, least=1):
    """Count the n-grams of a text.

    Parameters
    ----------
    ids : int [n]
        The text, at least one token.
    n_vocab : int
    order : int
        The largest n to count, at least 1.
    least : int
        Leave out n-grams that occur less often than this, which makes the tables smaller. Single tokens are all kept.

    Returns
    -------
    NGram

    Raises
    ------
    UserError
        If there are no ids, if an id is outside the vocabulary, if order is below 1, or if n_vocab ** order is
        2 ** 63 or more.
    """
    ids, n_vocab = np.asarray(ids, dtype=np.int64), int(n_vocab)  # (a NumPy int32 could overflow in **)
    if len(ids) == 0:
        raise UserError("the text to count n-grams in is empty; give at least one token")
    if ids.min() < 0 or ids.max() >= n_vocab:
        raise UserError(f"the text has ids from {ids.min()} to {ids.max()}; they must be from 0 to {n_vocab - 1}")
    if order < 1 or n_vocab**order >= 2**63:
        raise UserError(f"order = {order}, but it must be 1 or more, and {n_vocab} ** order must be below 2 ** 63")
    tables, grams = [], np.zeros(len(ids), dtype=np.int64)
    for n in range(1, order + 1):
        before = grams[: len(ids) - n + 1]  # all (n-1)-grams that a token follows
        grams = before * n_vocab + ids[n - 1 :]  # [len(ids)-n+1]
        found, counts = np.unique(grams, return_counts=True)
        kept = counts >= (least if n > 1 else 1)
        tables.append((found[kept], counts[kept]))
    return NGram(n_vocab, tables)


def online(ids, n_vocab, order=3):
    """The row after ids, computed from the n-grams of these ids. So the draft learns while the text is decoded."""
    p = np.full(n_vocab, 1 / n_vocab)
    for nexts in continuations(ids, order - 1):
        p = blend(p, *np.unique(ids[nexts], return_counts=True))
    return p


def continuations(ids, longest):
    """For m = 0, 1, ... longest: yield the indices of all tokens that follow an earlier copy of the last m tokens.

    For m = 0, these are all indices. It stops at the first m without an earlier copy. For example, for the ids 5 6 5 6
    7 5 6, it yields 0 to 6, then 2 and 4 (for 6), and again 2 and 4 (for 5 6).
    """
    nexts = np.arange(len(ids))
    for m in range(longest + 1):
        if m > 0:
            nexts = nexts[nexts >= m]
            nexts = nexts[ids[nexts - m] == ids[-m]]
        if len(nexts) == 0:
            return
        yield nexts
