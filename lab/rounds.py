"""What happened in each round, in a form that can be drawn."""

from typing import NamedTuple

import numpy as np

from lab.block import block_probabilities, verify_block
from speculative import acceptance, residual
from utils import origins


class Drafted(NamedTuple):
    """A drafted token, and what became of it."""

    token: int
    probabilities: list  # p and q of the token, and w of block verification, see block.block_probabilities
    keep: float  # what the random number is compared with: min(1, q/p), or h of block verification
    coin: float | None  # that number, or None if the token was not looked at
    kept: bool  # also if an eos before it ended the text


class Seen(NamedTuple):
    """A `speculative.Round` with the numbers that were drawn, in plain lists."""

    is_block: bool
    drafted: list  # of Drafted
    origins: list  # of str, see utils.origins
    emitted: list  # of int
    top: dict  # {name of a distribution: [(token, probability), ...]} at a rejection, otherwise empty

    @property
    def looked_at(self):
        """The drafted tokens that were looked at: all by block verification, otherwise up to the rejected one."""
        return [d for d in self.drafted if self.is_block or d.coin is not None]


class Recorder:
    """Both the rng and the `on_round` of a run, because only the rng knows the coins that `verify` tosses.

    rule is the rule of the run, `speculative.verify` or `block.verify_block`. The result is `rounds`, a list of Seen.
    """

    def __init__(self, rng, rule):
        self.rng, self.is_block, self.coins, self.rounds = rng, rule is verify_block, [], []
        self.choice = rng.choice

    def random(self):
        self.coins.append(self.rng.random())
        return self.coins[-1]

    def __call__(self, r):
        k, w = len(r.drafted), None
        if self.is_block:
            w, keep = block_probabilities(r.drafted, r.p, r.q)
            coins = dict(zip(range(k, 0, -1), self.coins))  # the first coin is for k tokens, the next for k - 1, ...
        else:
            keep = [1.0, *(acceptance(p[token], q[token]) for token, p, q in zip(r.drafted, r.p, r.q))]
            coins = dict(enumerate(self.coins, start=1))  # one for each token from the left, up to a rejection
        n_kept = max((i for i, coin in coins.items() if coin < keep[i]), default=0)  # an eos may cut off some of them
        drafted = []
        for i, token in enumerate(r.drafted.tolist(), start=1):
            probabilities = [r.p[i - 1, token], r.q[i - 1, token], *([w[i]] if w else [])]
            drafted.append(Drafted(token, probabilities, keep[i], coins.get(i), i <= n_kept))
        top, where_from = {}, origins(r)
        if "corrected" in where_from:
            p, q = r.p[n_kept], r.q[n_kept]
            rows = {"p": p, "q": q, "residual": residual(p, w[n_kept] * q if w else q)}
            marked = int(r.drafted[n_kept]), int(r.emitted[-1])
            top = {name: most_probable(row, marked) for name, row in rows.items()}
        self.coins = []
        self.rounds.append(Seen(self.is_block, drafted, where_from, r.emitted.tolist(), top))


def most_probable(row, marked=()):
    """The 5 most probable tokens of a row that are possible, and the marked ones: [(token, probability), ...]"""
    order = np.argsort(-row, kind="stable")[:5].tolist()
    order = [token for token in order if row[token] > 0]
    order += sorted({*marked} - {*order}, key=lambda token: -row[token])
    return [(token, float(row[token])) for token in order]
