"""What the edits of this folder call, beside the names of the functions that they change.

A row is a distribution of the next token.
"""

from fractions import Fraction
from statistics import NormalDist

import numpy as np

from gallery.setting import EOS  # noqa: F401
from sampling import sample
from speculative import max_fn, residual

A, B = 0, 1
λ = Fraction(8, 10)  # of lenient acceptance
UNSURE = Fraction(4, 10)  # a guess with less is an unsure one
HALF = Fraction(1, 2)
Φ = NormalDist().cdf


def one_hot(row, token=None):
    """A row with probability 1 for a token, or for the argmax."""
    return np.eye(len(row), dtype=row.dtype)[row.argmax() if token is None else token]


def softmax(row):
    row = np.exp(row.astype(float))
    return row / row.sum()


def colder(row):
    """A row at half its temperature."""
    return max_fn(row**2)


def only(row, kept):
    """The entries of a row where kept is true, normalised."""
    return max_fn(np.where(kept, row, 0))


def without(row, *tokens):
    """A row without these tokens, normalised."""
    return only(row, ~np.isin(np.arange(len(row)), tokens))


def shared_residual(p, q):
    """The residual without the last token, which the draft does not have."""
    row = residual(p, q)
    return without(row if row[:-1].any() else q, len(q) - 1)


def top_k(row, k=2):
    """The k most probable tokens of a row, normalised."""
    return only(row, row >= np.sort(row)[-k])


def top_p(row, p=Fraction(55, 100)):
    """The most probable tokens up to probability p, normalised."""
    order = np.argsort(-row, kind="stable")
    n = np.argmax(row[order].cumsum() >= p) + 1
    return only(row, np.isin(np.arange(len(row)), order[:n]))


def min_p(row, share=HALF):
    """The tokens with at least this share of the largest probability, normalised."""
    return only(row, row >= share * row.max())


def xtc(row, u):
    """If u is a half or more, only the least probable of the tokens with at least 1/4 stays."""
    probable = row >= Fraction(1, 4)
    if probable.sum() < 2 or u < HALF:
        return row
    return only(row, ~probable | (row == row[probable].min()))


def picked(row, u):
    """The token in whose part of [0, 1) the random number u lies."""
    return int(np.sum(row.cumsum()[:-1] <= u))


def shuffled(children, rng):
    untried = [*children]
    order = []
    while untried:
        n = len(untried)
        i = sample(np.full(n, Fraction(1, n)), rng)
        order.append(untried.pop(i))
    return order
