"""What a run asks for, and the values that it gets: numbers, rows of noise, and choices."""

import functools
import itertools
import math
from collections import Counter
from typing import NamedTuple

import numpy as np

from .refusals import Refusals, TooManyRuns, end_process

UNIT = 2**53  # draw() is a whole number of units 2^-53, as in NumPy and Python
NEAR, FAR = 2.0**-60, 2.0**100  # exponential noise with which a token wins for sure, or loses
NUDGE = 2.0**-20  # as a part of the way to a corner, or of the noise; float32 can see it
WIDE = 2**20  # a number with more values than this can't have an outcome for each
ROUNDING = 1e-6  # by which the weights of a choice may change from run to run
MAX_NUMBERS = 1_000  # in one run
ENDLESS = f"a run asked for more than {MAX_NUMBERS:,} numbers; take a loop with a limit"


# ---- What a run asks for: its keys. Their lengths differ, so no two kinds are equal ----

# In a box, `entry` says which values of a key are left, and None means all. Each kind of key has
#   inside(random, entry)            a random value that is left
#   corner(random, entry, is_high)   one at the edge of what is left
#   share(entry)                     the probability of what is left
# Numbers and noise also have
#   nearer(value, corner)            a value that lies a little nearer to a corner
#   middle(low, high)                where bisection looks next


class Choice(NamedTuple):
    """Choice i of a run. Its value is a branch, or a number in [0, 1) that leads to one."""

    i: int

    def inside(self, random, entry=None):
        if entry is None:
            return random.random()
        _, branch = entry
        return branch

    def corner(self, random, entry, is_high):
        return self.inside(random, entry)

    def share(self, entry):
        fork, branch = entry
        return fork.row.shares[branch]


class Number(NamedTuple):
    """Number i among those below n, which are equally probable."""

    n: int
    i: int

    def inside(self, random, entry=None):
        return random.randrange(*entry or (0, self.n))

    def corner(self, random, entry, is_high):
        low, high = entry or (0, self.n)
        return high - 1 if is_high else low

    def share(self, entry):
        low, high = entry
        return (high - low) / self.n

    def nearer(self, number, corner):
        """A number a little nearer to the corner, by 1 at least. Among few values, the same one."""
        if self.n <= WIDE:
            return number
        step = (corner - number) * NUDGE
        return number + (int(step) or int(math.copysign(corner != number, step)))

    def middle(self, low, high):
        return (low + high) // 2


class Noise(NamedTuple):
    """Row i of n exponential numbers of a dtype."""

    n: int
    dtype: type
    i: int

    def inside(self, random, entry=None):
        noise = self.rounded([random.expovariate(1) for _ in range(self.n)])
        if entry is None:
            return noise
        race, winner = entry
        noise = self.rounded(race.won_by(winner, noise))
        return self.inside(random, entry) if race.is_close(noise) else noise

    def corner(self, random, entry, is_high):
        """Noise with which a random token wins, however small its weight is."""
        if entry is None:
            return self.of({random.randrange(self.n): NEAR})
        return self.inside(random, entry)

    def share(self, entry):
        race, winner = entry
        return race.weights[winner] / race.weights.sum()

    def nearer(self, noise, corner):
        return self.rounded(noise * (1 + NUDGE * np.sign(corner - noise)))

    def middle(self, low, high):
        return float(self.dtype(math.sqrt(low * high)))

    def rounded(self, noise):
        return np.array(noise, self.dtype).astype(float)

    def of(self, entries):
        """Noise with these entries, {token: noise}, where all other tokens lose."""
        noise = np.full(self.n, FAR)
        for token, value in entries.items():
            noise[token] = value
        return noise


class Draw(Refusals):
    """Hands out the values of a `Point` in one run."""

    def __init__(self, point):
        self.point = point
        self.counts = Counter()
        self.keys = []
        self.choices = []  # (Row, branch that was taken) for each
        self.is_in_c = False  # if so, the program goes on after an error

    def __call__(self):
        return self.below(UNIT) / UNIT

    def below(self, n):
        """A whole number below n, each as probable as another."""
        return self.next(Number, n)

    def exponential(self, n, dtype=float):
        """A row of n exponential numbers, for a race between n tokens."""
        if n < 1:
            raise ValueError(f"a row of noise needs at least one entry; found n = {n}")
        return self.next(Noise, int(n), dtype).copy()

    def gumbel(self, n):
        """A row of n Gumbel numbers, for an argmax of n logits."""
        return -np.log(self.exponential(n))

    def choice(self, weights):
        """An index, with a probability in proportion to its weight."""
        row = row_of(np.array(weights, float).tobytes())
        if len(row.possible) == 1:
            return row.possible[0]
        branch = row.branch(self.next(Choice))
        self.choices.append((row, branch))
        return branch

    def next(self, kind, *form):
        """The value of the next key of this kind."""
        i = self.counts[kind, form]
        self.counts[kind, form] += 1
        key = kind(*form, i)
        self.keys.append(key)
        if len(self.keys) > MAX_NUMBERS:
            self.end()
        return self.point[key]

    def end(self):
        """TooManyRuns. A loop in C goes on after it, and has some time to end by itself."""
        if not self.is_in_c:
            self.refuse(TooManyRuns(ENDLESS))
        if len(self.keys) > 100 * MAX_NUMBERS:
            end_process(f"TooManyRuns: {ENDLESS} It can't be stopped in C.")


class Row:
    """The weights of a choice. Two rows are equal if they differ by rounding alone."""

    def __init__(self, weights):
        total = weights.sum()
        if not (weights >= 0).all() or not 0 < total < math.inf:
            raise ValueError(f"weights with a finite sum above 0 are needed; found {weights}")
        self.shares = weights / total
        self.possible = np.flatnonzero(self.shares).tolist()

    def __eq__(self, other):
        if not isinstance(other, Row) or self.shares.shape != other.shares.shape:
            return False
        return abs(self.shares - other.shares).max() < ROUNDING

    def branch(self, value):
        """The token that a number in [0, 1) leads to, or the branch that was given."""
        if isinstance(value, int) and value in self.possible:
            return value
        token = int(np.searchsorted(self.shares.cumsum(), value, side="right"))
        return min(token, self.possible[-1])


@functools.lru_cache(maxsize=9999)  # because many runs draw with the same weights
def row_of(weights):
    """The `Row` of weights in bytes."""
    return Row(np.frombuffer(weights))


class Record(NamedTuple):
    """What was seen in a run."""

    outcome: tuple
    keys: list
    choices: list

    def row(self, i):
        """The weights of choice i, if there was one."""
        return self.choices[i][0] if i < len(self.choices) else None


class Point(dict):
    """{key: value} of an input. One that is missing is new(key) when it is asked for, and stays.

    It is looked at up to choice number `depth`: what is seen there are the weights of this
    choice and of those before it, and if there is no such choice, the outcome.
    """

    record = None  # until it has been run

    def __init__(self, new, depth=0, values=()):
        super().__init__(values)
        self.new = new
        self.depth = depth

    def __missing__(self, key):
        self[key] = self.new(key)
        return self[key]

    def but(self, key, value):
        """This point with another value. Whatever else a run asks for, both have the same."""
        return Point(self.__getitem__, self.depth, {key: value})

    def at(self, depth):
        """The same run, looked at up to another choice."""
        point = Point(self.new, depth, self)
        point.record = self.record
        return point

    def seen(self):
        """The weights up to choice `depth`, and the outcome if there is no such choice."""
        rows = [row for row, _ in self.record.choices[: self.depth + 1]]
        return rows, None if len(rows) > self.depth else self.record.outcome

    def on_the_way_to(self, other, n):
        """This point with the first n values that the other one asked for."""
        values = {key: other[key] for key in other.numbers()[:n]}
        return Point(self.__getitem__, self.depth, values)

    def numbers(self):
        """The keys of all numbers and noise that were asked for before choice `depth`."""
        before = itertools.takewhile(lambda key: key != Choice(self.depth), self.record.keys)
        return [key for key in before if not isinstance(key, Choice)]
