"""The search for thresholds and races: parts are cut until one thing is seen in each of them."""

import contextlib
import functools
import itertools
import math
import random
import sys
from collections import defaultdict

import numpy as np

from . import parts
from .draws import NEAR, WIDE, Choice, Draw, Noise, Point, Record
from .parts import Change, Fork, Part, Race, Threshold, depth_of
from .refusals import SEVERAL, STATE, NotByThresholds, Stop, TooManyRuns
from .resolution import Distribution, bound

N_POINTS = 32  # at which each part is tried; some are known from the part above
N_CORNERS = 8  # at which each part is tried, too; a power of 2
N_FRESH = 4  # random points at which the weights of a race are tried
N_PAIRS = 8  # of points with different outcomes, which are compared before a cut
N_NUDGES = 8  # of all other values, which show whether a threshold moves
N_AGAIN = 16  # of the first points, which are run again at the end
SMALL = 2.0**-60  # parts with less probability are not cut; a million of them have 1e-12
MANY = 50  # long paths that may wait; if there are more, they multiply

NO_RACE = (
    "one noise decides two draws, which is not computed here, or something that is no race; "
    "argmax(w / e) is one"
)
VALUES = (
    "the outcome, or the weights of a choice, change with the slightest change of a number; "
    "compare it with a limit, or round it"
)
MULTIPLIES = "the paths of a loop multiply without end; take a loop with a limit"


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
        self.first_points = []
        self.draw = None  # that of the current run

    def distribution(self, n_checks):
        """The `Distribution`, after n_checks random inputs have agreed with it."""
        if n_checks > self.max_runs:
            problem = f"this resolution takes {n_checks:,.0f} random runs"
            raise TooManyRuns(f"{problem}, and only {self.max_runs:,} are allowed")
        n_checks = math.ceil(n_checks)
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
        resolution = bound(n_checks, self.n_tests) + n_races * parts.CLOSE
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
        """The `Record` of one call of the function, with the values of a point."""
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
        return Record(outcome, draw.keys, draw.choices)

    def run_first_again(self):
        """NotByThresholds if the first points now show something else, or ask for other numbers.

        Their runs have seen the function as it was at the beginning.
        """
        for point in self.first_points:
            if self.run(point) != point.record:
                raise NotByThresholds(STATE)

    def look(self, point):
        """What is seen at a point, which is run once."""
        if point.record is None:
            point.record = self.run(point)
            self.first_points += [point][: N_AGAIN - len(self.first_points)]
        return point.seen()

    def differ(self, x, y):
        """Whether two points show different things."""
        return self.look(x) != self.look(y)

    @contextlib.contextmanager
    def errors_in_c_noted(self):
        """Note the errors that a call from C doesn't pass on, which Python would print."""

        def note(unraisable):
            if self.draw and unraisable.exc_value is self.draw.refused:
                self.draw.is_in_c = True
            else:
                original(unraisable)

        original = sys.unraisablehook
        sys.unraisablehook = note
        try:
            yield
        finally:
            sys.unraisablehook = original

    # ---- Where to look ----

    def inside(self, box, key):
        """A random value in a box."""
        return key.inside(self.random, box.get(key))

    def point(self, box):
        """A random point in a box."""
        return Point(functools.partial(self.inside, box), depth_of(box))

    def corners(self, box):
        """Some corners. Whichever two numbers you take, they are low or high in all four ways."""
        masks = itertools.cycle(self.random.sample(range(1, N_CORNERS), N_CORNERS - 1))
        mask_of = defaultdict(lambda: next(masks) + self.random.choice((0, N_CORNERS)))
        for i in range(N_CORNERS):
            new = functools.partial(self.corner, box, mask_of, i + N_CORNERS)
            yield Point(new, depth_of(box))

    def corner(self, box, mask_of, i, key):
        """The value of a key at corner number i of a box."""
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
                waiting.sort(key=lambda part: -part.mass)  # the last one is nearest to its end
                if len(waiting) > MANY:
                    raise TooManyRuns(MULTIPLIES)
                continue
            cut = self.cut(part)
            if cut is not None:
                todo = [part for part in todo if cut not in part.above]  # its old parts are gone
                waiting = [part for part in waiting if cut not in part.above]
                todo += cut.parts

    def choose_point(self, part):
        """Give the part a point of its own, if it has none."""
        if part.point is None:
            part.point = part.points[0] if part.points else self.point(part.box)
            self.look(part.point)

    def cut(self, part):
        """Cut a part where something else is seen, or one above it, or before the next choice.

        Returns the part that was cut, or None if the same outcome is seen everywhere.
        """
        alike, others = self.look_at(part)
        if others:
            return self.divide(part, alike, others)
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
        alike, others = [part.point], []
        for point in part.points:
            group = others if self.differ(part.point, point) else alike
            group.append(point)
        if len(alike) == 1:
            self.look_for_values(part.box, others[:N_POINTS])
        return alike, others

    def look_for_values(self, box, points):
        """NotByThresholds if the slightest change of a quarter of the points can be seen."""
        nudged = [self.nudged(box, point, point.numbers()) for point in points]
        if 4 * sum(map(self.differ, points, nudged)) > len(points):
            raise NotByThresholds(VALUES)

    def contradicted(self, root, n_checks):
        """Try random inputs. If one contradicts its part, cut there. Returns the new parts."""
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

    def divide(self, part, alike, others):
        """Cut a part, or one above it that should have been cut otherwise. Returns that part."""
        change = self.earliest_change(alike, others)
        points = alike[0], others[0], change.before, change.after
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
        """Where noise would be raced twice, cut first by what comes before it. Returns that part.

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

    def earliest_change(self, alike, others):
        """The `Change` with the fewest others before it, on the ways between pairs of points."""
        change = None
        for x, y in zip(itertools.cycle(alike), others[:N_PAIRS]):
            for start, end in (x, y), (y, x):
                if change is None or self.differ(start, start.on_the_way_to(end, change.n_before)):
                    change = self.first_change(start, end)
        return change

    def first_change(self, x, y):
        """A `Change` on the way from x to y. Bisection finds it, so it may not be the first."""
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
        """The `Threshold` at which a change happens. NotByThresholds if it moves."""
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

        Some directions lead across another threshold. So if the edge is gone with all other
        values nudged at once, it's looked for with each of them nudged alone.
        """

        def is_edge_once(others):
            nudge = self.nudged(box, above, others)
            return self.differ(nudge.but(key, below[key]), nudge.but(key, above[key]))

        def is_edge(others):
            return any(is_edge_once(others) for _ in range(N_NUDGES))

        others = dict.fromkeys([*below.numbers(), *above.numbers()])
        del others[key]
        return not is_edge(others) and not all(is_edge([other]) for other in others)

    def race(self, change):
        """The `Race` of the noise that makes a change. Duels tell its weights."""
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
        """Two points with the same noise, where a race is right about one and not the other."""
        noise = y[race.key]
        if race.is_close(noise):
            return None
        sure = race.key.of({race.winner(noise): NEAR})
        at_y = y, y.but(race.key, sure)
        if not self.differ(*at_y):
            return None
        x = race.point.but(race.key, noise)
        at_x = x, x.but(race.key, sure)
        if self.differ(*at_x):
            raise NotByThresholds(NO_RACE)
        return next(pair for pair in zip(at_x, at_y) if self.differ(*pair))

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
        """What is seen where only these tokens, {token: noise}, can win."""
        return self.search.look(self.point.but(self.key, self.key.of(entries)))

    def ratio(self, token, rival):
        """w[token] / w[rival]: below it, the noise of the token beats noise 1 of the rival."""

        def is_low(e):
            return self.seen({token: e, rival: 1}) == self.won[token]

        low, _ = self.search.bisected(self.key, NEAR, 1 / NEAR, is_low)
        return low

    def weights(self):
        """float [n], in proportion to the probabilities that the tokens win."""
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
            if won[token] == won[first]:  # the first shows the same, but the second doesn't
                weights[token] = self.ratio(token, second) * weights[second]
        return weights
