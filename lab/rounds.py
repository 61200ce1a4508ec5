"""What happened in each round, in a form that can be drawn."""

from typing import NamedTuple

import numpy as np

from lab.block import block_probabilities, verify_block
from runs import origins
from speculative import residual


class Drafted(NamedTuple):
    """A guess, and what became of it."""

    token: int
    probabilities: list  # p and q of the token, and w of block verification, see block.block_probabilities
    coin: float | None  # the random number that decided, or None if the token was not looked at
    keep: float | None  # what it was compared with: min(1, q/p), or h of block verification
    kept: bool  # also if an eos before it ended the text


class Seen(NamedTuple):
    """A `speculative.Round` with the numbers that were drawn, in plain lists."""

    is_block: bool
    drafted: list  # of Drafted
    origins: list  # of str, see runs.origins
    emitted: list  # of int
    top: dict  # {name of a distribution: [(token, probability), ...]} at a rejection, otherwise empty

    @property
    def looked_at(self):
        """The drafted tokens that were looked at: all by block verification, otherwise up to the rejected one."""
        return [d for d in self.drafted if self.is_block or d.coin is not None]


class Coins:
    """A generator that notes each number with what it is compared with, and otherwise is rng."""

    def __init__(self, rng):
        self.rng, self.choice, self.tossed = rng, rng.choice, []

    def random(self):
        return Coin(self)


class Coin:
    def __init__(self, coins):
        self.number, self.tossed = coins.rng.random(), coins.tossed

    def __lt__(self, keep):
        self.tossed.append((self.number, float(keep)))
        return self.number < keep


class Recorder:
    """An `on_round` that keeps each round as `Seen`. The run has to draw from `coins`, and to judge by `rule`."""

    def __init__(self, rng, rule):
        self.coins, self.is_block, self.rounds = Coins(rng), rule is verify_block, []

    def __call__(self, r):
        k, tossed, where_from = len(r.drafted), self.coins.tossed, origins(r)
        # `verify` tosses for the first guess, the second, ..., block verification for k
        # guesses, for k - 1, ...
        order = range(k, 0, -1) if self.is_block else range(1, k + 1)
        coins = dict(zip(order, tossed))
        n_kept = max((i for i, (coin, keep) in coins.items() if coin < keep), default=0)  # an eos may cut off some
        w = block_probabilities(r.drafted, r.p, r.q)[0] if self.is_block else [1.0] * (k + 1)
        drafted, top = [], {}
        for i, token in enumerate(r.drafted.tolist(), start=1):
            probabilities = [r.p[i - 1, token], r.q[i - 1, token], *([w[i]] if self.is_block else [])]
            drafted.append(Drafted(token, probabilities, *coins.get(i, (None, None)), i <= n_kept))
        if "corrected" in where_from:
            p, q = r.p[n_kept], r.q[n_kept]
            marked = int(r.drafted[n_kept]), int(r.emitted[-1])
            rows = {"p": p, "q": q, "residual": residual(p, w[n_kept] * q)}
            top = {name: most_probable(row, marked) for name, row in rows.items()}
        self.rounds.append(Seen(self.is_block, drafted, where_from, r.emitted.tolist(), top))
        tossed.clear()


def most_probable(row, marked=()):
    """The 5 most probable tokens of a row that are possible, and the marked ones: [(token, probability), ...]"""
    order = np.argsort(-row, kind="stable")[:5].tolist()
    order = [token for token in order if row[token] > 0]
    order += sorted({*marked} - {*order}, key=lambda token: -row[token])
    return [(token, float(row[token])) for token in order]
