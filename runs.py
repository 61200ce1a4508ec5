"""A draft and a target with a clock: `Pair.timed` runs a loop, and a `Run` has the figures.

`in_turns` runs two loops up to five times, so that the figures hold on a busy machine.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sampling import as_model, seeded

N_TURNS, SECONDS = 5, 5  # at most so many turns, in at most so many seconds of the processor


def overlap(p, q):
    """sum min(p, q), with which a draw from p is accepted. [..., n_vocab] -> [...]"""
    return np.minimum(p, q).sum(axis=-1)


class Chances(NamedTuple):
    """Two probabilities for each guess that a rule looks at in a round."""

    p_reached: np.ndarray  # float [m], that all guesses before this one are accepted
    p_accepted: np.ndarray  # float [m], that they are, and this one, too


def chances_of_verify(r):
    """The `Chances` of `speculative.verify`. It looks at no guess behind a rejected one."""
    m = min(len(r.drafted), len(r.emitted))
    return Chances(np.ones(m), overlap(r.p[:m], r.q[:m]))


class Pair:
    """Two networks over one vocabulary, and the models that are made of them.

    temperature and cuts are those of `sampling.as_model`. A seed makes both loops write
    the same text, see `sampling.seeded`. Each thread needs its own Pair, of networks
    copied with `copy.copy`.
    """

    def __init__(self, draft, target, encoder=None, temperature=0.0, seed=None, **cuts):
        self.encoder = encoder
        self.networks = draft, target
        self.sources = [as_model(network, temperature, **cuts) for network in self.networks]
        models = self.sources
        if seed is not None:
            models = [seeded(model, seed) for model in models]
        self.draft_model, self.target_model = models
        self.n_ctx = min(draft.n_ctx, target.n_ctx)
        self.n_vocab = target.n_vocab

    def timed(self, loop, x, N, on_round=None, chances_of=chances_of_verify):
        """Run loop(draft, target, N, on_round) -> ids after the prompt x, with a clock -> `Run`.

        The networks read x before the clock starts, and it stands still during on_round.
        chances_of(round) are the `Chances` of the loop's rule, or None if nobody knows them.
        """
        for network in self.networks:
            network.reset()
            network(np.array(x))
        run = Run(chances_of=chances_of)
        draft = watched(self.draft_model, run.draft_seconds)
        target = watched(self.target_model, run.target_seconds)
        clock = Clock()

        def note(r):
            run.add(r, clock.seconds())
            if on_round is not None:
                on_round(r)
            clock.start()

        run.ids = loop(draft, target, N, note)
        return run


class Clock:
    """A stopwatch, in seconds."""

    def __init__(self):
        self.start()

    def start(self):
        self.begun = time.perf_counter()

    def seconds(self):
        """How many seconds ago it was started."""
        return time.perf_counter() - self.begun


def watched(model, seconds):
    """The model, and `seconds` gets the time of each call."""

    def call(*args):
        clock = Clock()
        rows = model(*args)
        seconds.append(clock.seconds())
        return rows

    return call


@dataclass
class Run:
    """What a loop decoded, and how long it took."""

    ids: np.ndarray = None
    chances_of: Callable = chances_of_verify  # of a round, or None if nobody knows them
    n_drafted: list = field(default_factory=list)  # in each round
    n_accepted: list = field(default_factory=list)
    n_emitted: list = field(default_factory=list)
    chances: list = field(default_factory=list)  # `Chances` of each round
    round_seconds: list = field(default_factory=list)
    draft_seconds: list = field(default_factory=list)  # of each call of the draft
    target_seconds: list = field(default_factory=list)
    n_turns: int = 1  # it is the median of so many

    def add(self, r, seconds):
        """Note a round, and how many seconds it took."""
        self.n_drafted.append(len(r.drafted))
        self.n_accepted.append(r.n_accepted)
        self.n_emitted.append(len(r.emitted))
        if self.chances_of is not None:
            self.chances.append(self.chances_of(r))
        self.round_seconds.append(seconds)

    @property
    def seconds(self):
        """What all rounds took together."""
        return sum(self.round_seconds)

    @property
    def n_new(self):
        """How many tokens were decoded."""
        return sum(self.n_emitted)

    @property
    def tokens_per_second(self):
        return ratio(self.n_new, self.seconds)

    @property
    def tokens_per_round(self):
        return ratio(self.n_new, len(self.round_seconds))

    @property
    def acceptance_rate(self):
        """The share of the guesses that is in the text. Those never looked at count as misses."""
        return ratio(sum(self.n_accepted), sum(self.n_drafted))

    @property
    def n_looked_at(self):
        """How many guesses were looked at, because those before them were accepted."""
        return sum(len(chances.p_accepted) for chances in self.chances)

    @property
    def alpha(self):
        """The mean probability that a guess is accepted if all before it are."""
        reached = sum(sum(chances.p_reached) for chances in self.chances)
        return ratio(sum(sum(chances.p_accepted) for chances in self.chances), reached)

    def predicted(self, expected):
        """How many tokens per round are to be expected, if a round of k guesses has expected[k]."""
        return float(np.mean(expected[self.n_drafted]))

    def cost(self, plain):
        """What a round costs, in plain steps -> K c, v, r: for the guesses, the check, the rest.

        A plain step is what a token of the plain run took.
        """
        plain_step = plain.seconds / plain.n_new
        unit = plain_step * len(self.round_seconds)  # the rounds, if each cost a plain step
        guesses = sum(self.draft_seconds) / unit
        check = sum(self.target_seconds) / unit
        rest = self.seconds / unit - guesses - check
        return guesses, check, rest


def in_turns(loops, show):
    """Run a plain and a faster loop in turns -> the two runs of the turn with the median speedup.

    Of an even number, that is the lower one of the two in the middle. Other programs disturb
    the times, and what slows one run of a turn often slows both.
    loops is {title: decode}. The first turn is for all to see, by show(title, decode).
    """
    begun = time.process_time()  # which stands still while other programs have the processor

    def one_more_fits():
        seconds = time.process_time() - begun
        return seconds + seconds / len(turns) < SECONDS

    turns = [[show(title, decode) for title, decode in loops.items()]]
    while len(turns) < N_TURNS and one_more_fits():
        turns.append([decode() for decode in loops.values()])
    turns.sort(key=lambda turn: speedup(*turn) or 0)
    plain, fast = turns[(len(turns) - 1) // 2]
    fast.n_turns = len(turns)
    return plain, fast


def speedup(plain, fast):
    """None if nothing was decoded."""
    return ratio(fast.tokens_per_second, plain.tokens_per_second)


def ratio(a, b):
    """a / b as a float, or None if b is 0."""
    return float(a / b) if b else None


def expected_tokens(alpha, K):
    """Tokens per round with 0, 1, ... K guesses, if each is accepted with probability alpha.

    1 + alpha + ... + alpha^K = (1 - alpha^(K+1)) / (1 - alpha): Leviathan et al. 2023,
    equation 1. float64 [K+1]
    """
    powers = np.float64(alpha) ** np.arange(K + 1)
    return np.cumsum(powers)  # the fraction is inaccurate for alpha near 1


def origins(r):
    """Where each emitted token of a round comes from: accepted, resampled or bonus."""
    kinds = ["accepted"] * r.n_accepted
    if r.n_accepted < len(r.emitted):
        kind = "bonus" if r.n_accepted == len(r.drafted) else "resampled"
        kinds += [kind] * (len(r.emitted) - r.n_accepted)  # one, of a right rule
    return kinds
