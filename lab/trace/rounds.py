"""What happened in each round of `speculative.verify`, in a form that can be drawn."""

from typing import NamedTuple

import numpy as np

from runs import origins
from speculative import acceptance, residual


class Drafted(NamedTuple):
    """A guess, and what became of it."""

    token: int
    probabilities: tuple  # p and q of the token
    u: float | None  # the random number that decided, or None if it was not looked at

    @property
    def acceptance(self):
        """The probability that it is accepted."""
        return acceptance(*self.probabilities)

    @property
    def is_accepted(self):
        """Whether it was accepted. It is not in the text if an eos before it was accepted, too."""
        return self.u is not None and self.u < self.acceptance


class RecordedRound(NamedTuple):
    """A `speculative.Round` with the numbers that were drawn, in plain lists."""

    drafted: list  # of Drafted
    origins: list  # of str, see runs.origins
    emitted: list  # of int
    top: dict  # {"p", "q" and "residual": [(token, probability), ...]} at a rejection

    @property
    def looked_at(self):
        """The guesses up to the rejected one, or all."""
        return [guess for guess in self.drafted if guess.u is not None]


class RecordingRng:
    """A generator that draws as rng does, and notes its random numbers."""

    def __init__(self, rng):
        self.rng = rng
        self.choice = rng.choice
        self.numbers = []

    def random(self):
        self.numbers.append(self.rng.random())
        return self.numbers[-1]


class Recorder:
    """An `on_round` that keeps each round. The run has to draw from its rng."""

    def __init__(self, rng):
        self.rng = RecordingRng(rng)
        self.rounds = []

    def __call__(self, r):
        numbers = self.rng.numbers  # one for each guess that was looked at
        drafted = []
        for i, token in enumerate(r.drafted.tolist()):
            probabilities = r.p[i, token], r.q[i, token]
            u = numbers[i] if i < len(numbers) else None
            drafted.append(Drafted(token, probabilities, u))
        numbers.clear()
        where_from = origins(r)
        emitted = r.emitted.tolist()
        top = {}
        if "resampled" in where_from:
            i = r.n_accepted
            marked = drafted[i].token, emitted[-1]
            top["p"] = most_probable(r.p[i], marked)
            top["q"] = most_probable(r.q[i], marked)
            top["residual"] = most_probable(residual(r.p[i], r.q[i]), marked)
        self.rounds.append(RecordedRound(drafted, where_from, emitted, top))


def most_probable(row, marked=()):
    """The 5 most probable tokens that are possible, and the marked: [(token, probability), ...]"""
    order = np.argsort(-row, kind="stable")[:5].tolist()
    order = [token for token in order if row[token] > 0]
    others = {*marked} - {*order}
    order += sorted(others, key=lambda token: -row[token])
    return [(token, float(row[token])) for token in order]
