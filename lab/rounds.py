"""What happened in each round, in a form that can be drawn."""

from typing import NamedTuple

import numpy as np

from lab.block import block_probabilities, verify_block
from runs import origins
from speculative import residual


class Drafted(NamedTuple):
    """A guess, and what became of it."""

    token: int
    probabilities: (
        list  # p and q of the token, and w of block verification, see block.block_probabilities
    )
    u: float | None  # the random number that decided, or None if the token was not looked at
    keep: float | None  # what it was compared with: min(1, q/p), or h of block verification
    kept: bool  # also if an eos before it ended the text


class RecordedRound(NamedTuple):
    """A `speculative.Round` with the numbers that were drawn, in plain lists."""

    is_block: bool
    drafted: list  # of Drafted
    origins: list  # of str, see runs.origins
    emitted: list  # of int
    top: dict  # {name of a distribution: [(token, probability), ...]} at a rejection, otherwise empty

    @property
    def looked_at(self):
        """The drafted tokens that were looked at: all by block verification, otherwise up to the rejected one."""
        return [d for d in self.drafted if self.is_block or d.u is not None]


class RecordingRng:
    """A generator that notes each number with what it is compared with, and otherwise is rng."""

    def __init__(self, rng):
        self.rng = rng
        self.choice = rng.choice
        self.compared = []

    def random(self):
        return RecordedNumber(self.rng.random(), self.compared)


class RecordedNumber:
    def __init__(self, u, compared):
        self.u = u
        self.compared = compared

    def __lt__(self, keep):
        self.compared.append((self.u, float(keep)))
        return self.u < keep


class Recorder:
    """An `on_round` that keeps each round. The run has to draw from its rng, and to judge by rule."""

    def __init__(self, rng, rule):
        self.rng = RecordingRng(rng)
        self.is_block = rule is verify_block
        self.rounds = []

    def __call__(self, r):
        k = len(r.drafted)
        # `verify` compares for the first guess, the second, ..., block verification for k
        # guesses, for k - 1, ...
        order = range(k, 0, -1) if self.is_block else range(1, k + 1)
        compared = dict(zip(order, self.rng.compared))
        self.rng.compared.clear()
        w = [1.0] * (k + 1)
        if self.is_block:
            w, _ = block_probabilities(r.drafted, r.p, r.q)
        kept = [i for i, (u, keep) in compared.items() if u < keep]
        n_kept = max(kept, default=0)  # an eos may have cut off some of them
        drafted = []
        for i, token in enumerate(r.drafted.tolist(), start=1):
            probabilities = [r.p[i - 1, token], r.q[i - 1, token]]
            if self.is_block:
                probabilities.append(w[i])
            u, keep = compared.get(i, (None, None))
            drafted.append(Drafted(token, probabilities, u, keep, i <= n_kept))
        where_from = origins(r)
        top = {}
        if "resampled" in where_from:
            p, q = r.p[n_kept], r.q[n_kept]
            rows = {"p": p, "q": q, "residual": residual(p, w[n_kept] * q)}
            marked = int(r.drafted[n_kept]), int(r.emitted[-1])
            top = {name: most_probable(row, marked) for name, row in rows.items()}
        emitted = r.emitted.tolist()
        self.rounds.append(RecordedRound(self.is_block, drafted, where_from, emitted, top))


def most_probable(row, marked=()):
    """The 5 most probable tokens of a row that are possible, and the marked ones: [(token, probability), ...]"""
    order = np.argsort(-row, kind="stable")[:5].tolist()
    order = [token for token in order if row[token] > 0]
    order += sorted({*marked} - {*order}, key=lambda token: -row[token])
    return [(token, float(row[token])) for token in order]
