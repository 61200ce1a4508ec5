"""The exact output distribution of code that is given its random numbers, from its outputs alone.

Compiled code can't take the numbers without a value that `EveryBranch` hands out. So here
it gets real ones, as many as it asks for, and is watched from outside. If one number goes
from 0 to 1, the outcome stays the same for a while, changes at a threshold, stays the same
again. Take a sampler with p = (1/2, 1/2) and q = (3/4, 1/4). One number, u, draws a guess.
The next one, v, tests it, and a guess of 1 that is rejected becomes a 0:

    v
    1 +-----------+-----------+
      |           |     0     |
    1/2     0     +-----------+     0:  1/2 + 1/2 * 1/2 = 3/4
      |           |     1     |     1:        1/2 * 1/2 = 1/4
    0 +-----------+-----------+
      0          1/2          1  u

To find the edges, take two inputs with different outcomes, and turn one into the other,
number by number. At some number the outcome changes, and bisection tells where, to the
last bit: at u = 1/2. Cut the square there, and go on with both parts, until none shows two
outcomes at its corners or at random points. Then add up the areas:

    found = output_distribution(lambda draw: my_compiled_sampler(prompt, draw))
    print(total_variation(found, wanted), found.resolution)

draw() is the next number in [0, 1). Code that draws a token by a race, argmax(w / e) or
argmin(e / w) or argmax(log(w) + g), gets its noise from draw.exponential(n) or
draw.gumbel(n). A token wins with a probability in proportion to its w, and the ratio of
two weights is the ratio of their e at which the winner changes.

Something as narrow as 0.5 < u < 0.50001 can be missed. That is why thousands of random
inputs come last. If one of them contradicts its part, the search goes on; if they all
agree, little was missed, and `resolution` says how little.

And if the edges are no thresholds? Those of u * v < c are curves. In a row of noise that
draws two tokens, one winner says something about the other. Both are refused by name, and
`by_boxes` integrates the first kind, with a bound of its error. `Program` talks to code in
any language.

This page needs nothing but NumPy, and none of the pages beside it.
"""

import functools
import itertools
import math
import random
import subprocess
import threading
from collections import Counter
from typing import NamedTuple

import numpy as np

UNIT = 2**53  # numbers are whole numbers of units 2^-53, as those of NumPy and Python
WHOLE = 0, UNIT
NEAR, FAR = 2.0**-60, 2.0**100  # exponential noise with which a token wins for sure, or loses
CLOSE = 1e-5  # a race that is won by less may end otherwise in float32, so it is no evidence
N_POINTS = 32  # at which each part is tried
N_PAIRS = 8  # of points with different outcomes, which are compared before a cut
N_NUDGES = 8  # of all other values, which show whether a threshold moves
NUDGE = 2.0**-30  # as a part of the way to a corner
SMALL = 2.0**-60  # parts with less probability are not cut; a million of them have 1e-12
MAX_NUMBERS = 1_000  # in one run

SEVERAL = "the outcome depends on several numbers at once, as u * v < c does; see by_boxes"
NO_RACE = "a row of noise has to decide one draw, as in argmax(w / e), and nothing else"
STATE = "the same numbers gave another outcome when run again, so something else decides as well"


class NotByThresholds(RuntimeError):
    """The outcomes have no parts that can be measured."""

    def __init__(self, problem):
        super().__init__(f"not by thresholds: {problem}")


class TooManyRuns(RuntimeError):
    """More than max_runs calls of the function, or a run that asks for numbers without end."""


class Distribution(dict):
    """{outcome: probability}, within a total variation distance `resolution` of the truth."""

    def __init__(self, masses, resolution, n_runs):
        super().__init__({outcome: math.fsum(found) for outcome, found in masses.items()})
        self.resolution = resolution
        self.n_runs = n_runs


def output_distribution(function, n_checks=10_000, max_runs=1_000_000, seed=0):
    """The `Distribution` of function(draw), an int or several, which depends on its numbers alone.

    At the end, n_checks random inputs must agree with it. More of them take longer, and make
    `resolution` smaller. Raises NotByThresholds, or TooManyRuns.
    """
    search = Search(function, max_runs, seed)
    root = Part({})
    while search.explore([*root.leaves()]) or search.contradicts(root, n_checks):
        pass  # until neither finds anything new
    search.run_again(root.point)  # the first one, which alone has seen the function as it was
    masses = {}
    n_races = 0  # on the way to a part, at most
    for part in root.leaves():
        masses.setdefault(part.point.outcome, []).append(part.mass)
        n_races = max(n_races, len(part.races()))
    resolution = bound(n_checks, search.n_tests) + n_races * CLOSE
    return Distribution(masses, resolution, search.n_runs)


def by_boxes(function, n_numbers, max_error=1e-3, n=8, n_checks=10_000, max_runs=1_000_000):
    """The `Distribution` of a function of several numbers at once, such as u * v < c.

    First each number has n parts, a power of two. A box counts as a whole if its corners
    agree. That is right where edges rise or fall all along, as with products, sums and
    comparisons. Other boxes are halved, until their mass together is at most max_error.
    Half the error takes twice the runs for two numbers, and four times as many for three.
    """
    search = Search(function, max_runs)
    root = Part({(0, i): WHOLE for i in range(n_numbers)})

    @functools.cache
    def outcome_at(corner):
        numbers = {key: min(number, UNIT - 1) for key, number in zip(root.box, corner)}
        point = Point(numbers, functools.partial(search.inside, {}))
        outcome = search.outcome(point)
        if len(point) > n_numbers:
            raise NotByThresholds(f"it asks for more than n_numbers = {n_numbers}, or for noise")
        return outcome

    def outcomes(part):
        return [outcome_at(corner) for corner in itertools.product(*part.box.values())]

    def is_doubtful(part):
        return part.mass > n**-n_numbers or len({*outcomes(part)}) > 1

    doubtful = [root]
    while sum(part.mass for part in doubtful) > max_error:
        for part in doubtful:
            widths = {key: high - low for key, (low, high) in part.box.items()}
            widest = max(widths, key=widths.get)
            part.cut(Threshold(widest, sum(part.box[widest]) // 2))
        doubtful = [half for part in doubtful for half in part.parts if is_doubtful(half)]
    for _ in range(n_checks):
        point = search.point({})
        known = {*outcomes(root.leaf_of(point))}
        if len(known) == 1 and search.outcome(point) not in known:
            raise NotByThresholds(f"something is narrower than a box; take more than n = {n}")
    masses = {}
    for part in root.leaves():
        found = outcomes(part)
        for outcome in found:
            masses.setdefault(outcome, []).append(part.mass / len(found))
    error = sum(part.mass for part in doubtful)
    return Distribution(masses, error + bound(n_checks), search.n_runs)


def bound(n_checks, n_tests=1):
    """The share of wrong inputs that n_checks of them miss with a probability of 1e-9."""
    return min(1, math.log(1e9 * n_tests) / max(1, n_checks))


class Program:
    """A program in any language, as a function for `output_distribution`.

    It runs its sampler again and again. A line "?" that it writes asks for a number, which
    it reads from the next line, and "? 4" asks for a row of exponential noise, 4 numbers
    on a line. Any other line holds the tokens of a run. Each has to be flushed at once.
    """

    def __init__(self, *command, timeout=10):
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.name = command[0]
        self.timeout = timeout
        self.process = subprocess.Popen(command, **pipes)

    def __call__(self, draw):
        alarm = threading.Timer(self.timeout, self.process.kill)
        alarm.start()
        try:
            return self.one_run(draw)
        finally:
            alarm.cancel()

    def one_run(self, draw):
        for line in self.process.stdout:
            if not line.startswith("?"):
                return [int(token) for token in line.split()]
            size = line[1:].strip()
            numbers = draw.exponential(int(size)) if size else [draw()]
            print(*numbers, file=self.process.stdin, flush=True)
        problem = f"{self.name} has ended, or a run took more than {self.timeout} s"
        raise EOFError(f"{problem}; does it flush its lines, and run its sampler again and again?")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


# ---- Inputs ----


class Draw:
    """Hands out the values of a `Point`: number i has the key (0, i), row i of n numbers (n, i)."""

    def __init__(self, point):
        self.point = point
        self.counts = Counter()
        self.refused = None

    def __call__(self):
        return self.next(0) / UNIT

    def exponential(self, n):
        if n < 1:
            raise ValueError(f"a row of noise needs at least one entry; found n = {n}")
        return self.next(int(n)).copy()

    def gumbel(self, n):
        return -np.log(self.exponential(n))

    def next(self, size):
        key = size, self.counts[size]
        self.counts[size] += 1
        if self.counts[size] > MAX_NUMBERS:
            problem = f"a run asked for more than {MAX_NUMBERS:,} numbers; does its loop end?"
            self.refused = TooManyRuns(problem)
        if self.counts[size] > 100 * MAX_NUMBERS:  # not before, as a loop in C can't be stopped
            raise self.refused
        return self.point[key]


class Point(dict):
    """{key: value} of an input. One that is missing is new(key) when it is asked for, and stays."""

    outcome = None  # as long as it hasn't been run
    asked = None  # how many numbers and rows that run asked for

    def __init__(self, values, new):
        super().__init__(values)
        self.new = new

    def __missing__(self, key):
        self[key] = self.new(key)
        return self[key]

    def but(self, key, value):
        return Point({**self, key: value}, self.new)


def noise_of(size, entries):
    """Noise with these entries, {token: noise}, where all other tokens lose."""
    noise = np.full(size, FAR)
    for token, value in entries.items():
        noise[token] = value
    return noise


# ---- Parts ----


class Part:
    """A box of inputs: (low, high) of some numbers, (race, winner) of some rows, the rest free."""

    def __init__(self, box, above=()):
        self.box = box
        self.above = above  # the parts that it is a part of
        self.mass = math.prod(share(entry) for entry in box.values())
        self.split = None
        self.parts = []
        self.point = None  # it stands for the part

    def cut(self, split):
        above = *self.above, self
        boxes = [{**self.box, split.key: entry} for entry in split.entries(self.box)]
        self.split, self.parts = split, [Part(box, above) for box in boxes]

    def leaves(self):
        todo = [self]
        while todo:
            part = todo.pop()
            todo += part.parts
            if part.split is None:
                yield part

    def leaf_of(self, point):
        """The part that a point lies in. None if a race was so close that rounding may decide."""
        part = self
        while part.split is not None:
            value = point[part.split.key]
            if part.split.is_close(value):
                return None
            part = part.parts[part.split.side(value)]
        return part

    def races(self):
        """The parts above it that a race divides."""
        return [part for part in self.above if isinstance(part.split, Race)]


class Threshold(NamedTuple):
    """Where a number divides a part."""

    key: tuple
    at: int

    def side(self, number):
        return int(number >= self.at)

    def is_close(self, number):
        return False

    def entries(self, box):
        low, high = box.get(self.key, WHOLE)
        return (low, self.at), (self.at, high)


class Race(NamedTuple):
    """argmax(weights / noise), which divides a part. The weights were found at a point of it."""

    key: tuple
    weights: np.ndarray
    point: Point

    def side(self, noise):
        return int(np.argmax(self.weights / noise))

    def entries(self, box):
        return [(self, winner) for winner in range(len(self.weights))]

    def won_by(self, winner, noise):
        """Turn noise into noise with which this token wins: the others start when it arrives."""
        arrival = noise[winner] / self.weights.sum()
        noise[winner] = 0
        return noise + self.weights * arrival

    def is_close(self, noise):
        *_, second, best = [0, *np.sort(self.weights / noise)]
        return second > best * (1 - CLOSE)


def share(entry):
    """The probability of an entry of a box."""
    if isinstance(entry[0], Race):
        race, winner = entry
        return race.weights[winner] / race.weights.sum()
    low, high = entry
    return (high - low) / UNIT


# ---- The search ----


class Search:
    """Runs the function, and cuts a `Part` until each of its parts has one outcome."""

    def __init__(self, function, max_runs, seed=0):
        self.function = function
        self.max_runs = max_runs
        self.random = random.Random(seed)
        self.n_runs = 0
        self.n_tests = 0

    def run(self, point):
        """The outcome, and how many numbers and rows of each size were asked for."""
        if self.n_runs == self.max_runs:
            problem = f"max_runs = {self.max_runs:,} are not enough"
            raise TooManyRuns(f"{problem}; take fewer tokens, or by_boxes for u + v < c")
        self.n_runs += 1
        draw = Draw(point)
        try:
            output = self.function(draw)
        except Exception as error:
            numbers = [value / UNIT for (size, _), value in sorted(point.items()) if size == 0]
            failed = RuntimeError(f"with the numbers {numbers[:8]} it raised {error!r}")
            raise draw.refused or failed from error
        if draw.refused:  # code in C does not notice
            raise draw.refused
        tokens = np.ravel(output)
        if tokens.size and tokens.dtype.kind not in "biu":
            raise TypeError(f"an outcome is an int, or several; found {output!r}")
        return tuple(tokens.tolist()), draw.counts

    def run_again(self, point):
        """An error if the outcome is another one now, or comes from other numbers."""
        if self.run(point) != (point.outcome, point.asked):
            raise NotByThresholds(STATE)

    def outcome(self, point):
        if point.outcome is None:
            point.outcome, point.asked = self.run(point)
        return point.outcome

    def differ(self, x, y):
        return self.outcome(x) != self.outcome(y)

    # Where to look

    def inside(self, box, key):
        """A random value in a box."""
        size, _ = key
        if size == 0:
            return self.random.randrange(*box.get(key, WHOLE))
        noise = np.array([self.random.expovariate(1) for _ in range(size)])
        if key not in box:
            return noise
        race, winner = box[key]
        noise = race.won_by(winner, noise)
        return self.inside(box, key) if race.is_close(noise) else noise

    def corner(self, box, key):
        if key[0] > 0:
            return self.inside(box, key)
        low, high = box.get(key, WHOLE)
        return self.random.choice((low, high - 1))

    def point(self, box):
        return Point({}, functools.partial(self.inside, box))

    def corner_point(self, box):
        return Point({}, functools.partial(self.corner, box))

    def points(self, box):
        """Random points and random corners, by turns."""
        for _ in range(N_POINTS // 2):
            yield self.point(box)
            yield self.corner_point(box)

    def explore(self, todo):
        """Cut these parts, and theirs, as long as they have several outcomes. How many were cut."""
        n_cuts = 0
        while todo:
            part = todo.pop()
            same, others = self.look_at(part)
            if not others:
                continue
            cut = self.divide(part, same, others)
            n_cuts += 1
            if cut is not part:
                todo = [part for part in todo if cut not in part.above]  # they are gone
            todo += cut.parts
        return n_cuts

    def look_at(self, part):
        """Points of a part with the outcome of its first point, and points with another one."""
        if part.point is None:
            part.point = self.point(part.box)
            self.outcome(part.point)
        same, others = [part.point], []
        for point in self.points(part.box) if part.mass > SMALL else ():
            group = others if self.differ(part.point, point) else same
            group.append(point)
        return same, others

    def contradicts(self, root, n_checks):
        """Try random inputs. If one contradicts its part, cut there, and return True."""
        self.n_tests += 1
        for _ in range(n_checks):
            point = self.point({})
            self.outcome(point)  # before leaf_of, for the order of its values
            part = root.leaf_of(point)
            if part is not None and self.differ(part.point, point):
                self.divide(part, [part.point], [point])
                return True
        return False

    # Where to cut

    def divide(self, part, same, others):
        """Cut a part, or one above it whose race has other weights at a point. Returns which."""
        pair = self.earliest_pair(same, others)
        for above in part.races():
            for point in (same[0], *others[:N_PAIRS], *pair):
                found = self.contradiction(above.split, point)
                if found is not None:
                    above.cut(self.split(above.box, *found))
                    return above
        part.cut(self.split(part.box, *pair))
        return part

    def earliest_pair(self, same, others):
        """Points that differ in one value and the outcome, and among several such, the earliest."""
        limit = math.inf
        pair = None
        for x, y in zip(itertools.cycle(same), others[:N_PAIRS]):
            for start, end in ((x, y), (y, x)):
                found = self.walk(start, end, limit)
                if found is not None:
                    limit, _, *pair = found
        return pair

    def walk(self, x, y, limit=math.inf):
        """Turn x into y until the outcome changes: (number of steps, key, point before, after)."""
        for n_steps, (key, value) in enumerate([*y.items()]):
            if n_steps == limit:
                return None
            if x.get(key) is value:
                continue
            step = x.but(key, value)
            if self.differ(x, step):
                return n_steps, key, x, step
            x = step
        raise NotByThresholds(STATE)

    def split(self, box, x, y, tried=()):
        """The `Threshold` or `Race` that divides a box in which x and y have different outcomes."""
        _, key, x, y = self.walk(x, y)
        if key in tried:
            raise NotByThresholds(SEVERAL)
        if key[0] == 0:
            split, pair = self.threshold(box, key, x, y)
        elif key in box:  # which has no room for a second race of a row
            raise NotByThresholds(NO_RACE)
        else:
            split, pair = self.race(box, key, y)
        return split if pair is None else self.split(box, *pair, (*tried, key))

    def threshold(self, box, key, x, y):
        """(`Threshold`, None), or (None, pair) with points that show what else moves it."""
        low, high = x[key], y[key]
        while abs(high - low) > 1:
            y = y.but(key, (low + high) // 2)
            if self.differ(x, y):
                high = y[key]
            else:
                low = y[key]
        sides = [y.but(key, number) for number in sorted((low, high))]
        if not self.differ(*sides):
            raise NotByThresholds(STATE)
        self.run_again(sides[0])
        for _ in range(N_NUDGES):  # some directions lead across another threshold
            moved_sides = self.nudged(box, key, sides)
            if self.differ(*moved_sides):
                return Threshold(key, max(low, high)), None
        return None, next(pair for pair in zip(sides, moved_sides) if self.differ(*pair))

    def nudged(self, box, key, sides):
        """The two sides of a threshold, with all other values a little nearer to a corner."""
        below, above = sides
        corner = self.corner_point(box)
        moved = below.but(key, above[key])
        for other, value in {**below, **above}.items():
            way = (corner[other] - value) * NUDGE
            moved[other] = value + (way if other[0] > 0 else int(way))
        return [moved.but(key, side[key]) for side in sides]

    def race(self, box, key, point):
        """(`Race`, None), or (None, pair) with points that show what else changes its weights."""
        race = Race(key, self.weights(key, point), point)
        for point in self.points(box):
            self.outcome(point)
            pair = self.contradiction(race, point)
            if pair is not None:
                return None, pair
        return race, None

    def contradiction(self, race, y):
        """Two points with one noise, where a race tells the outcome of one but not of the other."""
        noise = y[race.key]
        if race.is_close(noise):
            return None
        winner = race.side(noise)
        sure = noise_of(len(noise), {winner: NEAR})
        there = y, y.but(race.key, sure)
        if not self.differ(*there):
            return None
        x = race.point.but(race.key, noise)
        self.outcome(x)  # which draws what the other one needs as well
        here = x, x.but(race.key, sure)
        if self.differ(*here):
            raise NotByThresholds(NO_RACE)
        return next(pair for pair in zip(here, there) if self.differ(*pair))

    def weights(self, key, point):
        """By duels. A token with noise e beats one with noise 1 while e is below w[0] / w[1]."""
        size, _ = key

        def outcome(entries):
            nonlocal point  # so that it keeps what the runs ask for
            point = point.but(key, noise_of(size, entries))
            return self.outcome(point)

        def ratio(token, other):
            low, middle, high = NEAR, 1, 1 / NEAR
            while low < middle < high:
                if outcome({token: middle, other: 1}) == won[token]:
                    low = middle
                else:
                    high = middle
                middle = math.sqrt(low * high)
            return low

        won = [outcome({token: NEAR}) for token in range(size)]
        rival = int(np.argmax([found != won[0] for found in won]))
        # A token without weight has the outcome of another one, so one of these two has a weight.
        first = 0 if outcome({0: NEAR, rival: 1}) == won[0] else rival
        weights = np.zeros(size)
        for token in range(size):
            if won[token] != won[first]:
                weights[token] = ratio(token, first)
        second = int(np.argmax(weights))
        for token in range(size):
            if won[token] == won[first]:  # they can't be told apart, but each from the second
                weights[token] = ratio(token, second) * weights[second]
        return weights
