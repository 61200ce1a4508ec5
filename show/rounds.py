"""What happened in each round of speculative sampling, in a form that can be drawn."""

from typing import NamedTuple

import numpy as np

from speculative import acceptance, block_probabilities, residual, verify_block


class Drafted(NamedTuple):
    """A drafted token, and what became of it."""

    token: int
    probabilities: list  # p and q of the token, and w of block verification: see speculative.block_probabilities
    keep: float  # what the random number is compared with: min(1, q/p), or h of block verification
    coin: float | None  # the random number that was compared with `keep`, or None if there was no such number
    kept: bool  # (tokens that were kept after an eos are not in the text)


class Seen(NamedTuple):
    """A `speculative.Round` with the numbers that were drawn, in plain lists."""

    is_block: bool  # whether block verification was used
    drafted: list  # of Drafted
    origins: list  # of str, for each emitted token: "accepted", "residual" or "extra"
    emitted: list  # of int
    top: dict  # {name of a distribution: [(token, probability), ...]} at the position of the rejection, or empty

    @property
    def looked_at(self):
        """The drafted tokens that were looked at: all by block verification, otherwise up to the rejected one."""
        return [d for d in self.drafted if self.is_block or d.coin is not None]


def origins(r):
    """Where each emitted token of a `speculative.Round` comes from.

    "accepted" tokens were drafted. After a rejection, one token comes from the "residual". If all drafted tokens were
    accepted, the target adds one "extra" token. (If eos ended the text, the round may end before that.)
    """
    last = "extra" if r.n_accepted == len(r.drafted) else "residual"
    return ["accepted"] * r.n_accepted + [last] * (len(r.emitted) - r.n_accepted)


class Recorder:
    """Keeps the rounds of a run, as a list of `Seen`. It is both the rng and the `on_round` of that run.

    The coins that `verify` tosses are known to nobody but the rng. So the recorder stands between the two, and notes
    the coins down on their way. (Only coins come from `rng.random()`, because `sampling.sample` uses `rng.choice`.)

    Parameters
    ----------
    rng : numpy.random.Generator
    rule : callable
        The rule of the run: `speculative.verify` or `speculative.verify_block`.
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
        n_kept = max((i for i, coin in coins.items() if coin < keep[i]), default=0)  # (an eos may cut off some of them)
        drafted = []
        for i, token in enumerate(r.drafted.tolist(), start=1):
            probabilities = [r.p[i - 1, token], r.q[i - 1, token], *([w[i]] if w else [])]
            drafted.append(Drafted(token, probabilities, keep[i], coins.get(i), i <= n_kept))
        top, where_from = {}, origins(r)
        if "residual" in where_from:
            p, q = r.p[n_kept], r.q[n_kept]
            rows = {"p": p, "q": q, "residual": residual(p, w[n_kept] * q if w else q)}
            top = {name: most_probable(row) for name, row in rows.items()}
        self.coins = []
        self.rounds.append(Seen(self.is_block, drafted, where_from, r.emitted.tolist(), top))


def most_probable(row):
    """The 5 most probable tokens of a row, [(token, probability), ...], without those that are impossible."""
    order = np.argsort(-row, kind="stable")[:5]
    return [(int(token), float(row[token])) for token in order if row[token] > 0]
