"""What happened in each round of speculative sampling, in a form that can be drawn."""

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
    """Keeps the rounds of a run. To be used both as the `rng` of the run and as its `on_round`.

    The coins that `verify` tosses are known to nobody but the rng. So the recorder stands between the two, and writes
    down each number that random() returns. `verify` does not notice.

    Parameters
    ----------
    rng : numpy.random.Generator
    rule : callable
        `speculative.verify` or `speculative.verify_block`: the rule that the run uses. With another one, a ValueError
        is raised, here or after a round.
    """

    def __init__(self, rng, rule):
        if rule not in (verify, verify_block):
            raise ValueError("a Recorder knows only the rules verify and verify_block of speculative.py")
        self.rng, self.is_block = rng, rule is verify_block
        self.coins = []  # of this round
        self.rounds = []  # all rounds so far

    def random(self):
        self.coins.append(self.rng.random())
        return self.coins[-1]

    def choice(self, n, p):
        return self.rng.choice(n, p=p)

    def __call__(self, r):
        coins, self.coins = self.coins, []
        k, w, n_coins = len(r.drafted), None, len(coins)
        if self.is_block:
            w, keep = block_probabilities(r.drafted, r.p, r.q)
            coins = dict(zip(range(k, 0, -1), coins))  # the first coin is for k tokens, the next one for k - 1, ...
            n_kept = next((i for i, coin in coins.items() if coin < keep[i]), 0)
        else:
            keep = [1.0, *(acceptance(p[token], q[token]) for token, p, q in zip(r.drafted, r.p, r.q))]
            coins = dict(enumerate(coins, start=1))  # one for each token from the left, up to a rejection
            n_kept = sum(coin < keep[i] for i, coin in coins.items())
        n_needed = k - n_kept + (n_kept > 0) if self.is_block else min(n_kept + 1, k)
        is_cut = n_kept > r.n_accepted == len(r.emitted)  # by an accepted eos
        if n_coins != n_needed or (n_kept != r.n_accepted and not is_cut):
            raise ValueError("the random numbers do not fit the Recorder's rule; was the run given another one?")
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
