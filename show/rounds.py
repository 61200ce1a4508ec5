"""What happened in each round of speculative sampling, in a form that can be drawn."""

from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from speculative import acceptance, block_probabilities, residual, verify, verify_block

TOP = 5  # how many of the most probable tokens are kept of a distribution


class Drafted(NamedTuple):
    """A drafted token, and what became of it."""

    token: int
    p: float  # the draft's probability of the token
    q: float  # the target's
    keep: float  # what the random number is compared with: min(1, q/p), or h of block verification
    w: float | None  # block verification: see speculative.block_probabilities
    coin: float | None  # the random number that was compared with `keep`, or None if there was no such number
    kept: bool  # (tokens that were kept after an eos are not in the text)


class Seen(NamedTuple):
    """A `speculative.Round` with the numbers that were drawn, in plain lists."""

    drafted: list  # of Drafted
    origins: list  # of str, for each emitted token: "accepted", "residual" or "extra"
    emitted: list  # of int
    top: dict  # {name of a distribution: [(token, probability), ...]} at the position of the rejection, or empty

    @property
    def is_block(self):
        """Whether block verification was used. (Without drafted tokens, both rules are the same.)"""
        return any(d.w is not None for d in self.drafted)

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
    """Keeps the rounds of a run. Its `verify` is used as the rule of the run, and the recorder itself as `on_round`.

    Parameters
    ----------
    rule : callable
        `speculative.verify` or `speculative.verify_block`.
    """

    def __init__(self, rule):
        if rule not in (verify, verify_block):
            raise ValueError("a Recorder knows only the rules verify and verify_block of speculative.py")
        self.rule, self.rounds = rule, []

    def verify(self, drafted, p, q, rng):
        """The rule. The coins that it tosses are known to nobody but the rng, so they are noted down on their way."""
        self.coins = []

        def random():
            self.coins.append(rng.random())
            return self.coins[-1]

        emitted = self.rule(drafted, p, q, SimpleNamespace(random=random, choice=rng.choice))
        self.n_kept = len(emitted) - 1  # an eos may cut off some of them later
        return emitted

    def __call__(self, r):
        k, n_kept, w = len(r.drafted), self.n_kept, None
        if self.rule is verify_block:
            w, keep = block_probabilities(r.drafted, r.p, r.q)
            coins = dict(zip(range(k, 0, -1), self.coins))  # the first coin is for k tokens, the next for k - 1, ...
        else:
            keep = [1.0, *(acceptance(p[token], q[token]) for token, p, q in zip(r.drafted, r.p, r.q))]
            coins = dict(enumerate(self.coins, start=1))  # one for each token from the left, up to a rejection
        drafted = [
            Drafted(int(token), r.p[i - 1, token], r.q[i - 1, token], keep[i], w and w[i], coins.get(i), i <= n_kept)
            for i, token in enumerate(r.drafted, start=1)
        ]
        top, where_from = {}, origins(r)
        if "residual" in where_from:
            p, q = r.p[n_kept], r.q[n_kept]
            top = {"p": most_probable(p), "q": most_probable(q)}
            top["residual"] = most_probable(residual(p, w[n_kept] * q if w else q))
        self.rounds.append(Seen(drafted, where_from, r.emitted.tolist(), top))


def most_probable(row):
    """The TOP most probable tokens of a row, [(token, probability), ...], without those that are impossible."""
    order = np.argsort(-row, kind="stable")[:TOP]
    return [(int(token), float(row[token])) for token in order if row[token] > 0]
