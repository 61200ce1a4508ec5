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

draw() is the next number in [0, 1), and draw.below(n) a whole number below n. Code that
draws a token by a race, argmax(w / e) or argmin(e / w) or argmax(log(w) + g), gets its
noise from draw.exponential(n) or draw.gumbel(n). A token wins with a probability in
proportion to its w, and the ratio of two weights is the ratio of their e at which the
winner changes. Where the weights are known, draw.choice(weights) is a fork: each branch is
taken, with its exact probability, and numbers are bisected within each of them.

Something as narrow as 0.5 < u < 0.50001 can be missed. That is why thousands of random
inputs come last. If one of them contradicts its part, the search goes on; if they all
agree, little was missed, and `resolution` says how little. It holds for what else decides
as well, such as a clock.

And if the edges are no thresholds? Those of u * v < c are curves. In a row of noise that
draws two tokens, one winner says something about the other. Both are refused by name.
`Program` talks to code in any language.

This page needs nothing but NumPy, and none of the pages beside it.
"""

import contextlib
import copy
import functools
import itertools
import math
import os
import random
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np

UNIT = 2**53  # draw() is a whole number of units 2^-53, as in NumPy and Python
NEAR, FAR = 2.0**-60, 2.0**100  # exponential noise with which a token wins for sure, or loses
CLOSE = 1e-5  # a race that is won by less may end otherwise in float32, so it is no evidence
ROUNDING = 1e-6  # by which the weights of a choice may change from run to run
N_POINTS = 32  # at which each part is tried; some are known from the part above
N_CORNERS = 8  # of each part, beside them; a power of 2
N_FRESH = 4  # random points at which the weights of a race are tried
N_PAIRS = 8  # of points with different outcomes, which are compared before a cut
N_NUDGES = 8  # of all other values, which show whether a threshold moves
NUDGE = 2.0**-20  # as a part of the way to a corner, or of the noise; float32 can see it
N_AGAIN = 16  # of the first points, at the end
SMALL = 2.0**-60  # parts with less probability are not cut; a million of them have 1e-12
FAINT, LONG = 2.0**-40, 12  # a part with less probability, and more cuts, can be left for later
MANY = 50  # such parts; if there are more, they multiply
WIDE = 2**20  # more values than have outcomes of their own
MAX_NUMBERS = 1_000  # in one run
MAX_REFUSED = 10_000  # errors in one run

SEVERAL = "the outcome depends on several numbers at once, as in u * v < c"
NO_RACE = (
    "one noise decides two draws, which is not computed here, or something that is no race; "
    "argmax(w / e) is one"
)
VALUES = (
    "the outcome, or the weights of a choice, change with the slightest change of a number; "
    "compare it with a limit, or round it"
)
STATE = (
    "the same numbers gave another outcome when run again, so something else decides as well; "
    "another generator, an earlier run, or memory that was never written"
)
ENDLESS = f"a run asked for more than {MAX_NUMBERS:,} numbers; take a loop with a limit"
MULTIPLIES = "the paths of a loop multiply without end; take a loop with a limit"


class NotByThresholds(RuntimeError):
    """The outcomes have no parts that can be measured."""

    def __init__(self, problem):
        super().__init__(f"not by thresholds: {problem}")
        self.problem = problem


class TooManyRuns(RuntimeError):
    """More than max_runs calls of the function, or a loop without end."""


class Stop(BaseException):
    """Ends a run that has caught an error of ours, and goes on."""


class Refusals:
    """Errors of ours that end a run, even if the program catches them."""

    refused = None  # the first one
    n_refused = 0

    def refuse(self, error):
        self.n_refused += 1
        if self.n_refused == MAX_REFUSED:
            end_process(f"{type(error).__name__}: {error}; an except without a name catches this")
        if self.refused:
            raise Stop
        self.refused = error
        raise error


def end_process(line):
    print(line, file=sys.stderr, flush=True)
    os._exit(1)


class Distribution(dict):
    """{outcome: probability}, within a total variation distance `resolution` of the truth."""

    def __init__(self, masses, n_runs, resolution):
        super().__init__({outcome: math.fsum(found) for outcome, found in masses.items()})
        self.n_runs = n_runs
        self.resolution = resolution

    def __repr__(self):
        return f"{super().__repr__()}, but runs may have missed {self.resolution:.2g}"

    def copy(self):
        return copy.copy(self)  # with its resolution

    def __or__(self, other):
        found = self.copy()
        found.update(other)
        return found

    def __ror__(self, other):
        return self | {**other, **self}


def output_distribution(function, n_checks=10_000, max_runs=1_000_000, seed=0):
    """The `Distribution` of function(draw), an int or several, which depends on its numbers alone.

    At the end, n_checks random inputs must agree with it. More of them take longer, and make
    `resolution` smaller. Raises NotByThresholds, or TooManyRuns. A loop in C that asks for
    numbers without end can't be stopped, so it ends the process, with one line.
    """
    return Search(lambda draw: whole_numbers(function(draw)), max_runs, seed).distribution(n_checks)


def bound(n_checks, n_tests=1):
    """The share of wrong inputs that n_checks of them miss with a probability of 1e-9."""
    return min(1, math.log(1e9 * n_tests) / max(1, n_checks))


def first_found(layouts, search, n_runs=0):
    """What search(layout, n_runs) finds with the first layout of random numbers that fits.

    n_runs is how many runs there were before.
    """
    first_problem = None
    for layout in layouts:
        try:
            return search(layout, n_runs)
        except NotByThresholds as error:
            if error.problem == STATE:
                raise
            n_runs = error.n_runs
            first_problem = first_problem or error
    raise first_problem


def whole_numbers(output):
    """An int, or several in lists, tuples and arrays, as a tuple."""
    found = frozen(output)
    return found if isinstance(found, tuple) else (found,)


def frozen(output):
    if hasattr(output, "tolist"):
        output = output.tolist()
    if isinstance(output, list | tuple):
        return tuple(map(frozen, output))
    if not isinstance(output, int):
        raise TypeError(f"an outcome is an int, or several; found {output!r}")
    return output


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


# ---- What a run asks for: its keys. No two of them are equal, for their lengths differ ----


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
        """A little nearer to the corner, by 1 at least. No change is little among few values."""
        if self.n <= WIDE:
            return number
        way = (corner - number) * NUDGE
        return number + (int(way) or int(math.copysign(corner != number, way)))

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
        """With which any token wins, however small its weight is."""
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
        self.asked = []  # the keys, in their order
        self.choices = []  # the weights of each, and the branch that was taken
        self.is_in_c = False  # which goes on after an error

    def __call__(self):
        return self.below(UNIT) / UNIT

    def below(self, n):
        """A whole number below n, each as probable as another."""
        return self.next(Number, n)

    def exponential(self, n, dtype=float):
        if n < 1:
            raise ValueError(f"a row of noise needs at least one entry; found n = {n}")
        return self.next(Noise, int(n), dtype).copy()

    def gumbel(self, n):
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
        i = self.counts[kind, form]
        self.counts[kind, form] += 1
        key = kind(*form, i)
        self.asked.append(key)
        if len(self.asked) > MAX_NUMBERS:
            self.end()
        return self.point[key]

    def end(self):
        """An error. A loop in C goes on after it, and may come to its own end for a while."""
        if not self.is_in_c:
            self.refuse(TooManyRuns(ENDLESS))
        if len(self.asked) > 100 * MAX_NUMBERS:
            end_process(f"TooManyRuns: {ENDLESS} It can't be stopped in C.")


class Row:
    """The weights of a choice. They are equal to others if they differ by rounding alone."""

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
        if isinstance(value, int) and value in self.possible:
            return value
        place = int(np.searchsorted(self.shares.cumsum(), value, side="right"))
        return min(place, self.possible[-1])


@functools.lru_cache(maxsize=9999)  # because many runs draw with the same weights
def row_of(weights):
    return Row(np.frombuffer(weights))


class Record(NamedTuple):
    """What was seen in a run."""

    outcome: tuple
    asked: list
    choices: list

    def row(self, i):
        """The weights of choice i, if there was one."""
        return self.choices[i][0] if i < len(self.choices) else None


class Point(dict):
    """{key: value} of an input. One that is missing is new(key) when it is asked for, and stays.

    It is looked at up to choice number `depth`: what is seen there are the weights of this
    choice and of those before it, and if there is no such choice, the outcome.
    """

    record = None  # as long as it hasn't been run

    def __init__(self, new, depth=0, values=()):
        super().__init__(values)
        self.new = new
        self.depth = depth

    def __missing__(self, key):
        self[key] = self.new(key)
        return self[key]

    def but(self, key, value):
        """With another value. All that it asks for besides is the same in both points."""
        return Point(self.__getitem__, self.depth, {key: value})

    def at(self, depth):
        """The same run, looked at up to another choice."""
        point = Point(self.new, depth, self)
        point.record = self.record
        return point

    def seen(self):
        rows = [row for row, _ in self.record.choices[: self.depth + 1]]
        return rows, None if len(rows) > self.depth else self.record.outcome

    def on_the_way_to(self, other, n):
        """This point with the first n values that the other one asked for."""
        values = {key: other[key] for key in other.numbers()[:n]}
        return Point(self.__getitem__, self.depth, values)

    def numbers(self):
        """The keys of all numbers and noise that were asked for before it."""
        before = itertools.takewhile(lambda key: key != Choice(self.depth), self.record.asked)
        return [key for key in before if not isinstance(key, Choice)]


# ---- Parts ----


class Part:
    """A box of inputs: {key: entry}, where what has no entry is free.

    The entry of a number is (low, high), that of noise (race, winner), and that of a choice
    (fork, branch).
    """

    def __init__(self, box, above=()):
        self.box = box
        self.above = above  # the parts that it is a part of
        self.depth = depth_of(box)
        self.mass = math.prod(key.share(entry) for key, entry in box.items())
        self.split = None
        self.parts = []
        self.point = None  # it stands for the part
        self.points = []  # others that are known to lie in it

    def cut(self, split):
        above = *self.above, self
        boxes = [{**self.box, split.key: entry} for entry in split.entries(self.box)]
        points = [point for part in self.leaves() for point in part.points]
        self.split, self.parts = split, [Part(box, above) for box in boxes]
        for point in points:
            part = self.leaf_of(point)
            if part in self.parts:
                part.points.append(point.at(part.depth))

    def leaves(self):
        todo = [self]
        while todo:
            part = todo.pop()
            todo += part.parts[::-1]
            if part.split is None:
                yield part

    def leaf_of(self, point):
        """The part that a point lies in. None if a race was so close that rounding may decide.

        It is no leaf if the point comes to a choice with other weights.
        """
        part = self
        while part.split is not None:
            if isinstance(part.split, Fork) and point.record.row(part.depth) != part.split.row:
                return part
            side = part.split.side(point)
            if side is None:
                return None
            part = part.parts[side]
        return part

    def is_long(self):
        """Whether it's a path of low probability that is not at its end, as in a loop."""
        return self.mass < FAINT and LONG < len(self.box) < len(self.point.record.asked)

    def n_races(self):
        """How many races divide the parts above it."""
        return sum(isinstance(part.split, Race) for part in self.above)


def depth_of(box):
    """How many choices are fixed."""
    return sum(isinstance(key, Choice) for key in box)


class Fork(NamedTuple):
    """A choice with known weights, which divides a part."""

    key: Choice
    row: Row

    def side(self, point):
        _, branch = point.record.choices[self.key.i]
        return self.row.possible.index(branch) if branch in self.row.possible else None

    def entries(self, box):
        return [(self, branch) for branch in self.row.possible]


class Threshold(NamedTuple):
    """Where a number divides a part."""

    key: Number
    at: int

    def side(self, point):
        return int(point[self.key] >= self.at)

    def entries(self, box):
        low, high = box.get(self.key, (0, self.key.n))
        return (low, self.at), (self.at, high)


class Race(NamedTuple):
    """argmax(weights / noise), which divides a part. The weights were found at a point of it."""

    key: Noise
    weights: np.ndarray
    point: Point

    def side(self, point):
        noise = point[self.key]
        return None if self.is_close(noise) else self.winner(noise)

    def winner(self, noise):
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


class Change(NamedTuple):
    """One value of a point becomes another one, and what is seen changes."""

    n_before: int  # how many other values were changed before
    key: Number | Noise
    before: Point
    after: Point


# ---- The search ----


class Search:
    """Runs the function, and cuts a `Part` until one thing is seen in each of its parts.

    function(draw) returns what can be compared and hashed.
    """

    def __init__(self, function, max_runs, seed=0, n_runs=0):
        self.function = function
        self.max_runs = max_runs
        self.random = random.Random(seed)
        self.n_runs = n_runs
        self.n_tests = 0
        self.first = []  # the points of the first runs
        self.draw = None  # of the run that goes on

    def distribution(self, n_checks):
        root = Part({})
        with self.errors_in_c_noted():
            try:
                self.find(root, n_checks)
            except NotByThresholds as error:
                self.run_first_again()  # something else that decides is the problem, if it exists
                error.n_runs = self.n_runs
                raise
            self.run_first_again()
        masses = defaultdict(list)
        for part in root.leaves():
            masses[part.point.record.outcome].append(part.mass)
        n_races = max(part.n_races() for part in root.leaves())
        resolution = bound(n_checks, self.n_tests) + n_races * CLOSE
        return Distribution(masses, self.n_runs, resolution)

    def find(self, root, n_checks):
        """Look at some points, cut parts, and try random inputs, until these find nothing new."""
        self.choose_point(root)
        root.points = [*self.points({}, n_checks // 10 + N_POINTS)]
        [*map(self.look, root.points)]
        todo = [root]
        while todo:
            self.explore(todo)
            todo = self.contradicted(root, n_checks)

    # ---- Runs ----

    def run(self, point):
        if self.n_runs >= self.max_runs:
            problem = f"{self.max_runs:,} runs are not enough"
            raise TooManyRuns(f"{problem}; take fewer tokens, or allow more runs")
        self.n_runs += 1
        self.draw = draw = Draw(point)
        try:
            outcome = self.function(draw)
        except (Exception, Stop):
            if draw.refused:
                raise draw.refused from None
            raise
        if draw.refused:  # code in C does not notice
            raise draw.refused
        return Record(outcome, draw.asked, draw.choices)

    def run_first_again(self):
        """An error if something else is seen now, or other numbers are asked for.

        The first runs have seen the function as it was.
        """
        for point in self.first:
            if self.run(point) != point.record:
                raise NotByThresholds(STATE)

    def look(self, point):
        if point.record is None:
            point.record = self.run(point)
            self.first += [point][: N_AGAIN - len(self.first)]
        return point.seen()

    def differ(self, x, y):
        return self.look(x) != self.look(y)

    @contextlib.contextmanager
    def errors_in_c_noted(self):
        """An error goes no further than a call from C, and Python would print it there."""

        def note(unraisable):
            if self.draw and unraisable.exc_value is self.draw.refused:
                self.draw.is_in_c = True
            else:
                usual(unraisable)

        usual = sys.unraisablehook
        sys.unraisablehook = note
        try:
            yield
        finally:
            sys.unraisablehook = usual

    # ---- Where to look ----

    def inside(self, box, key):
        """A random value in a box."""
        return key.inside(self.random, box.get(key))

    def point(self, box):
        return Point(functools.partial(self.inside, box), depth_of(box))

    def corners(self, box):
        """Some corners. Whichever two numbers you take, they are low or high in all four ways."""
        masks = itertools.cycle(self.random.sample(range(1, N_CORNERS), N_CORNERS - 1))
        mask_of = defaultdict(lambda: next(masks) + self.random.choice((0, N_CORNERS)))
        for i in range(N_CORNERS):
            new = functools.partial(self.corner, box, mask_of, i + N_CORNERS)
            yield Point(new, depth_of(box))

    def corner(self, box, mask_of, i, key):
        is_high = (i & mask_of[key]).bit_count() % 2
        return key.corner(self.random, box.get(key), is_high)

    def points(self, box, n):
        """Random points, and then corners."""
        yield from (self.point(box) for _ in range(n))
        yield from self.corners(box)

    def nudged(self, box, point, keys):
        """The point with these values a little nearer to a corner."""
        corner = next(self.corners(box))
        values = {key: key.nearer(point[key], corner[key]) for key in keys}
        return Point(point.__getitem__, point.depth, values)

    def explore(self, todo):
        """Cut these parts, and theirs, until one outcome is seen in each."""
        waiting = []
        while todo or waiting:
            is_new = bool(todo)
            part = (todo or waiting).pop()
            self.choose_point(part)
            if is_new and part.is_long():
                waiting.append(part)
                waiting.sort(key=lambda part: -part.mass)  # the last is next to its end
                if len(waiting) > MANY:
                    raise TooManyRuns(MULTIPLIES)
                continue
            cut = self.cut(part)
            if cut is not None:
                todo = [part for part in todo if cut not in part.above]  # others are gone
                waiting = [part for part in waiting if cut not in part.above]
                todo += cut.parts

    def choose_point(self, part):
        if part.point is None:
            part.point = part.points[0] if part.points else self.point(part.box)
            self.look(part.point)

    def cut(self, part):
        """Cut a part where something else is seen, or one above it, or before the next choice.

        Returns which, or None if the same outcome is seen everywhere.
        """
        same, others = self.look_at(part)
        if others:
            return self.divide(part, same, others)
        row = part.point.record.row(part.depth)
        if row is None or part.mass <= SMALL:
            return None
        part.cut(Fork(Choice(part.depth), row))
        return part

    def look_at(self, part):
        """Points where the same is seen as at the point of a part, and points where it isn't."""
        if part.mass <= SMALL or not part.point.numbers():  # then it is certain what is seen
            return [part.point], []
        part.points += self.points(part.box, N_POINTS - len(part.points))
        same, others = [part.point], []
        for point in part.points:
            group = others if self.differ(part.point, point) else same
            group.append(point)
        if len(same) == 1:
            self.look_for_values(part.box, others[:N_PAIRS])
        return same, others

    def look_for_values(self, box, points):
        """An error if the slightest change of each point can be seen."""
        nudged = [self.nudged(box, point, point.numbers()) for point in points]
        if all(map(self.differ, points, nudged)):
            raise NotByThresholds(VALUES)

    def contradicted(self, root, n_checks):
        """Try random inputs. If one contradicts its part, cut there. The parts to look at then."""
        self.n_tests += 1
        for _ in range(n_checks):
            point = self.point({})
            self.look(point)
            part = root.leaf_of(point)
            if part is None:
                continue
            point = point.at(part.depth)
            if self.differ(part.point, point):
                return [*self.divide(part, [part.point], [point]).parts]
        return []

    # ---- Where to cut ----

    def divide(self, part, same, others):
        """Cut a part, or one above it that should have been cut otherwise. Returns which."""
        change = self.earliest_change(same, others)
        points = same[0], others[0], change.before, change.after
        for above in part.above:
            for point in points:
                pair = self.objection(above, point.at(above.depth))
                if pair is not None:
                    above.cut(self.split(above.box, self.first_change(*pair)))
                    return above
        if isinstance(change.key, Noise) and change.key in part.box:
            return self.cut_earlier(part, change)
        part.cut(self.split(part.box, change))
        return part

    def cut_earlier(self, part, change):
        """Where noise would be raced twice, cut first by what comes before it. Returns what.

        An earlier number or race may decide which race it is.
        """
        keys = change.before.numbers()
        earlier = keys[: keys.index(change.key)]
        raced = next(above for above in part.above if above.split.key == change.key)
        for above in part.above[len(raced.above) :]:
            if above.split.key in earlier:
                raced.cut(above.split)
                return raced
        raise NotByThresholds(NO_RACE)

    def objection(self, part, point):
        """Two points which show that a part should have been cut otherwise, or None."""
        if isinstance(part.split, Race):
            return self.contradiction(part.split, point)
        if isinstance(part.split, Fork) and self.differ(part.point, point):
            return part.point, point
        return None

    def earliest_change(self, same, others):
        """The `Change` with the fewest others before it, on the ways between pairs of points."""
        change = None
        for x, y in zip(itertools.cycle(same), others[:N_PAIRS]):
            for start, end in (x, y), (y, x):
                if change is None or self.differ(start, start.on_the_way_to(end, change.n_before)):
                    change = self.first_change(start, end)
        return change

    def first_change(self, x, y):
        """On the way from one point to another one. By bisection, so it may not be the first."""
        keys = y.numbers()
        before, after = x, x.on_the_way_to(y, len(keys))
        low, high = 0, len(keys)
        while high - low > 1:
            middle = (low + high) // 2
            point = x.on_the_way_to(y, middle)
            if self.differ(x, point):
                high, after = middle, point
            else:
                low, before = middle, point
        if not keys or not self.differ(before, after):
            raise NotByThresholds(STATE)
        return Change(low, keys[low], before, after)

    def split(self, box, change):
        """The `Threshold` or `Race` that divides a box in which a change was found."""
        tried = {*box}  # which has no room for a second race of a row
        while isinstance(change.key, Noise):
            if change.key in tried:
                raise NotByThresholds(NO_RACE)
            tried.add(change.key)
            race = self.race(change)
            pair = self.others_weigh(box, race)
            if pair is None:
                return race
            change = self.first_change(*pair)
        return self.threshold(box, change)

    def threshold(self, box, change):
        key, point = change.key, change.after
        low, high = sorted([change.before, change.after], key=lambda point: point[key])

        def is_low(number):
            return not self.differ(low, point.but(key, number))

        _, at = self.bisected(key, low[key], high[key], is_low)
        below, above = point.but(key, at - 1), point.but(key, at)
        if not self.differ(below, above):  # weights that change little by little do that
            raise NotByThresholds(VALUES if above.record.row(above.depth) else STATE)
        start = min(max(at - 2, 0), key.n - 4)
        around = [point.but(key, i) for i in range(start, start + 4)]
        if key.n > WIDE and all(map(self.differ, around, around[1:])):
            raise NotByThresholds(VALUES)
        if self.moves(box, key, below, above):
            raise NotByThresholds(SEVERAL)
        return Threshold(key, at)

    def moves(self, box, key, below, above):
        """Whether a threshold of a number moves as soon as another value does.

        Some directions lead across another threshold. So if it is nowhere with all others
        nudged at once, it's looked for with each alone.
        """

        def is_there(others):
            nudge = self.nudged(box, above, others)
            return self.differ(nudge.but(key, below[key]), nudge.but(key, above[key]))

        def is_seen(others):
            return any(is_there(others) for _ in range(N_NUDGES))

        others = dict.fromkeys([*below.numbers(), *above.numbers()])
        del others[key]
        return not is_seen(others) and not all(is_seen([other]) for other in others)

    def race(self, change):
        weights = Duels(self, change.key, change.after).weights()
        if not weights.any():
            raise NotByThresholds(NO_RACE)
        return Race(change.key, weights, change.after)

    def others_weigh(self, box, race):
        """Two points which show that other values change the weights of a race, or None."""
        for point in self.points(box, N_FRESH):
            self.look(point)
            pair = self.contradiction(race, point)
            if pair is not None:
                return pair
        return None

    def contradiction(self, race, y):
        """Two points with one noise, where a race tells the seen of one but not of the other."""
        noise = y[race.key]
        if race.is_close(noise):
            return None
        sure = race.key.of({race.winner(noise): NEAR})
        there = y, y.but(race.key, sure)
        if not self.differ(*there):
            return None
        x = race.point.but(race.key, noise)
        here = x, x.but(race.key, sure)
        if self.differ(*here):
            raise NotByThresholds(NO_RACE)
        return next(pair for pair in zip(here, there) if self.differ(*pair))

    def bisected(self, key, low, high, is_low):
        """The neighbours between which is_low changes."""
        while low < (middle := key.middle(low, high)) < high:
            if is_low(middle):
                low = middle
            else:
                high = middle
        return low, high


class Duels:
    """Races between two tokens, where all others lose."""

    def __init__(self, search, key, point):
        self.search = search
        self.key = key
        self.point = point
        self.won = [self.seen({token: NEAR}) for token in range(key.n)]

    def seen(self, entries):
        return self.search.look(self.point.but(self.key, self.key.of(entries)))

    def ratio(self, token, rival):
        """w[token] / w[rival]: below it, the noise of the token beats noise 1 of the rival."""

        def is_low(e):
            return self.seen({token: e, rival: 1}) == self.won[token]

        low, _ = self.search.bisected(self.key, NEAR, 1 / NEAR, is_low)
        return low

    def weights(self):
        won = self.won
        rival = int(np.argmax([seen != won[0] for seen in won]))
        # A token without weight shows what another one does, so one of these two has a weight.
        first = 0 if self.seen({0: NEAR, rival: 1}) == won[0] else rival
        weights = np.zeros(len(won))
        for token in range(len(won)):
            if won[token] != won[first]:
                weights[token] = self.ratio(token, first)
        second = int(np.argmax(weights))
        for token in range(len(won)):
            if won[token] == won[first]:  # they can't be told apart, but each from the second
                weights[token] = self.ratio(token, second) * weights[second]
        return weights
