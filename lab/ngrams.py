"""Next-token distributions from counted n-grams: of a given text, or of the text so far (`online`).

The context is the last few tokens. Long contexts predict better but are rare, so the
counts after contexts of all lengths are blended.
"""

import numpy as np

from checkpoint import UserError

DISCOUNT = 0.75


def blend(p, tokens, counts):
    """Refine p [n_vocab] by the counts of a longer context.

    It is interpolated absolute discounting (Ney et al. 1994). tokens [m] followed the longer
    context, counts [m] times each. DISCOUNT is taken off each count, and what this frees is
    distributed like p.
    """
    total = counts.sum()
    p = p * (DISCOUNT * len(counts) / total)
    p[tokens] += (counts - DISCOUNT) / total
    return p


class NGram:
    """Predicts from the n-grams of a fixed text: `NGram(ids) -> float64 [n_vocab]`.

    `ngram` or `load` makes one. tables has a pair (n-grams, counts) for n = 1, 2, ... An
    n-gram is one int64, whose digits in base n_vocab are its ids. They are sorted, so those
    that begin with the same context are neighbours, and a binary search finds them.
    """

    def __init__(self, n_vocab, tables):
        self.n_vocab = n_vocab
        self.tables = tables
        self.unigram = blend(np.full(n_vocab, 1 / n_vocab), *tables[0])

    def __call__(self, ids):
        p = self.unigram.copy()
        longer = self.tables[1 : len(ids) + 1]
        for n, (grams, counts) in enumerate(longer, start=2):
            first = 0  # becomes the first n-gram with this context
            for token in ids[1 - n :].tolist():
                first = (first + token) * self.n_vocab
            begin, end = np.searchsorted(grams, [first, first + self.n_vocab])
            if begin == end:
                break
            p = blend(p, grams[begin:end] - first, counts[begin:end])
        return p

    @classmethod
    def load(cls, path, order):
        """Read the bundled .npz, up to this order. UserError if the file is damaged.

        The file has the differences between neighbouring n-grams, which are small.
        """
        tables = []
        with open(path, "rb") as file:
            try:
                arrays = np.load(file, allow_pickle=False)
                for n in range(1, order + 1):
                    grams = np.cumsum(arrays[f"steps_{n}"], dtype=np.int64)
                    counts = arrays[f"counts_{n}"].astype(np.int64)
                    if len(grams) != len(counts):
                        raise ValueError("an n-gram has no count, or a count has no n-gram")
                    tables.append((grams, counts))
                return cls(int(arrays["n_vocab"]), tables)
            except Exception as error:  # almost anything, from BadZipFile to KeyError
                problem = f"{path} is damaged, or has no {order}-grams"
                raise UserError(f"{problem}, so restore it: {error}") from None


def ngram(ids, n_vocab, order):
    """Count the n-grams of a text, for n = 1 ... order -> NGram.

    UserError if there are no ids. n_vocab ** order must fit into an int64.
    """
    ids = np.asarray(ids, dtype=np.int64)
    n_vocab = int(n_vocab)
    if len(ids) == 0:
        raise UserError("the text to count n-grams in is empty; give at least one token")
    tables = []
    grams = np.zeros(len(ids), dtype=np.int64)
    for n in range(1, order + 1):
        shorter = grams[: len(ids) - n + 1]
        grams = shorter * n_vocab + ids[n - 1 :]  # each with its next token
        tables.append(np.unique(grams, return_counts=True))
    return NGram(n_vocab, tables)


def online(ids, n_vocab, order=3):
    """The distribution after ids by the n-grams of these ids: it learns while the text grows."""
    p = np.full(n_vocab, 1 / n_vocab)
    for nexts in continuations(ids, order - 1):
        p = blend(p, *np.unique(ids[nexts], return_counts=True))
    return p


def continuations(ids, longest):
    """Where the tokens are that follow a copy of the last m tokens, for m = 0, 1, ... longest.

    It stops at the first m without a copy. For 5 6 5 6 7 5 6 it yields 0 to 6, then 2
    and 4 after copies of 6, and 2 and 4 again after copies of 5 6.
    """
    nexts = np.arange(len(ids))
    for m in range(longest + 1):
        if m > 0:
            nexts = nexts[nexts >= m]
            nexts = nexts[ids[nexts - m] == ids[-m]]
        if len(nexts) == 0:
            return
        yield nexts
