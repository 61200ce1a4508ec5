"""The exact output distribution of code that takes thousands of rows of random numbers at once.

A kernel on a GPU has a row of numbers for each text of its batch, and a launch takes about
as long for one text as for a hundred thousand. values.py runs a sampler once for each bit
of each threshold, and would launch it a hundred thousand times. Here all boxes of numbers
are cut at once, so a bit of all their thresholds is a single launch:

    def launch(case, numbers):
        return my_kernel(drafted[case], p[case], q[case], numbers)

    by_case = distributions(launch, n_cases=len(drafted), n_numbers=K + 1)

launch(case, numbers) gets indices [B] and numbers [B, n_numbers], which are float32, below
1, and multiples of 2^-24, as those of torch.rand. It returns whole numbers [B, m], such as
the tokens of each text, padded with -1. by_case[i] is the `Distribution` of case i.

As in values.py, take two inputs with different outcomes, turn one into the other, number by
number, and cut where the outcome changes. Random inputs come last, and if one contradicts
its box, the search goes on.

The same numbers have to give the same outcome again, wherever in a batch they stand. They
don't where memory was never set, or where a text sees its neighbour's numbers, and that is
an error. So are outcomes without thresholds: u < v, u * v < c, or argmax(w / e) with a
number for each token. values.py has ways for the last two. A kernel that is wrong from row
5,001 of a batch on is right here, where no batch has so many.
"""

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from .refusals import SEVERAL, STATE, NotByThresholds, TooManyRuns
from .resolution import Distribution, bound

BITS = 24
UNIT = 2**BITS  # numbers are whole numbers of units 2^-24, which float32 holds
N_POINTS = 16  # at which each box is tried
N_NUDGES = 4  # of all other numbers, which show whether a threshold moves
NUDGE = 2.0**-13  # as a part of the way to a random point
MAX_MOVING = 50  # thresholds of a case
MAX_BATCH = 2**20


def distributions(launch, n_cases, n_numbers, n_checks=2_000, max_runs=100_000_000, seed=0):
    """[n_cases] the `Distribution` of the outcomes of each case.

    At the end, n_checks random inputs of each case must agree with it. Each row of a batch
    counts as a run. Raises NotByThresholds, or TooManyRuns.
    """
    search = Search(launch, n_cases, max_runs, seed)
    boxes = search.explored(search.whole(n_numbers))
    n_tests = n_cases
    while True:
        contradicted, others = search.contradictions(boxes, n_checks)
        if len(contradicted) == 0:
            break
        halves = search.cut(boxes.take(contradicted), others)
        boxes = joined(boxes.without(contradicted), search.explored(halves))
        n_tests += n_cases
    masses = [defaultdict(list) for _ in range(n_cases)]
    for case, mass, outcome in zip(boxes.case, boxes.mass(), boxes.outcome.tolist()):
        masses[case][tuple(outcome)].append(mass)
    resolution = bound(n_checks, n_tests)
    return [Distribution(case_masses, search.n_runs, resolution) for case_masses in masses]


class Boxes(NamedTuple):
    """Boxes of numbers, in units. Each has a point, which has this outcome."""

    case: np.ndarray  # [n]
    low: np.ndarray  # [n, n_numbers]
    high: np.ndarray  # [n, n_numbers], not in the box
    point: np.ndarray  # [n, n_numbers]
    outcome: np.ndarray  # [n, m]

    def take(self, which):
        """The boxes with these indices, or where a mask is true."""
        return Boxes(*(array[which] for array in self))

    def without(self, which):
        """All boxes but those with these indices."""
        return Boxes(*(np.delete(array, which, axis=0) for array in self))

    def mass(self):
        """[n] the probability of each box."""
        return np.prod((self.high - self.low) / UNIT, axis=1)

    def places(self, points):
        """[n_points] the box of each point, where boxes fill the space."""
        box = np.zeros(len(points), np.int64)
        for i, (low, high) in enumerate(zip(self.low, self.high)):
            box[((low <= points) & (points < high)).all(axis=1)] = i
        return box


def joined(*boxes):
    """Several `Boxes` as one."""
    return Boxes(*map(np.concatenate, zip(*boxes)))


def changed(points, key, number):
    """The points, with another number at the key of each."""
    points = points.copy()
    points[np.arange(len(points)), key] = number
    return points


class Search:
    """Launches the function, and cuts `Boxes` until each has one outcome."""

    def __init__(self, launch, n_cases, max_runs, seed):
        self.launch = launch
        self.n_moving = np.zeros(n_cases, np.int64)
        self.max_runs = max_runs
        self.rng = np.random.default_rng(seed)
        self.n_runs = 0

    # ---- Runs ----

    def run(self, case, points):
        """[n, m] the outcomes at these points."""
        self.n_runs += len(case)
        if self.n_runs > self.max_runs:
            raise TooManyRuns(f"max_runs = {self.max_runs:,} are not enough; take fewer tokens")
        starts = range(0, len(case), MAX_BATCH)
        parts = [slice(start, start + MAX_BATCH) for start in starts]
        return np.concatenate([self.launched(case[part], points[part]) for part in parts])

    def launched(self, case, points):
        """[n, m] the outcomes of one launch, checked."""
        numbers = (points / UNIT).astype(np.float32)
        outcomes = np.asarray(self.launch(case.copy(), numbers))  # which may be written to
        if outcomes.dtype.kind not in "iu":
            raise TypeError(f"launch returns whole numbers [B, m]; found {outcomes.dtype}")
        if len(outcomes) != len(case):
            raise ValueError(f"launch returns B = {len(case)} outcomes; found {len(outcomes)}")
        return outcomes.reshape(len(case), -1)

    def differ(self, boxes, points):
        """[n] whether these points have other outcomes than the points of the boxes."""
        return (self.run(boxes.case, points) != boxes.outcome).any(axis=1)

    # ---- Where to look ----

    def whole(self, n_numbers):
        """A box for each case, which holds all numbers."""
        case = np.arange(len(self.n_moving))
        low = np.zeros((len(case), n_numbers), np.int64)
        high = low + UNIT
        point = self.rng.integers(low, high)
        return Boxes(case, low, high, point, self.run(case, point))

    def corners(self, boxes):
        """[n, n_numbers] a random corner of each box."""
        is_low = self.rng.random(boxes.low.shape) < 0.5
        return np.where(is_low, boxes.low, boxes.high - 1)

    def points(self, boxes):
        """A random point of each box, or a random corner, by turns."""
        points = self.rng.integers(boxes.low, boxes.high)
        points[::2] = self.corners(boxes)[::2]
        return points

    def explored(self, todo):
        """Boxes, cut until each has one outcome."""
        done = [todo.take([])]
        while len(todo.case):
            others, is_mixed = self.others(todo)
            done.append(todo.take(~is_mixed))
            todo = todo.take(is_mixed)
            if len(todo.case):
                todo = self.cut(todo, others[is_mixed])
        return joined(*done)

    def others(self, boxes):
        """A point of each box, one with another outcome if it has any, and whether it has."""
        rows = np.arange(len(boxes.case))
        repeated = boxes.take(np.repeat(rows, N_POINTS))
        points = self.points(repeated)
        differ = self.differ(repeated, points).reshape(-1, N_POINTS)
        first = differ.argmax(axis=1)
        return points[rows * N_POINTS + first], differ.any(axis=1)

    def contradictions(self, boxes, n_checks):
        """Boxes that random inputs contradict, [n], and these inputs, [n, n_numbers]."""
        contradicted_boxes, others = [], []
        for case in np.unique(boxes.case):
            of_case = np.flatnonzero(boxes.case == case)
            points = self.rng.integers(UNIT, size=(n_checks, boxes.low.shape[1]))
            box = of_case[boxes.take(of_case).places(points)]
            differ = self.differ(boxes.take(box), points)
            contradicted, first = np.unique(box[differ], return_index=True)
            contradicted_boxes.append(contradicted)
            others.append(points[differ][first])
        return np.concatenate(contradicted_boxes), np.concatenate(others)

    # ---- Where to cut ----

    def cut(self, boxes, others):
        """Both halves of each box, given a point in each that has another outcome."""
        start, key = self.first_step(boxes, others)
        threshold = self.threshold(boxes, start, key, others)
        below = changed(start, key, threshold - 1)
        above = changed(start, key, threshold)
        self.count_moving(boxes, below, above, key)
        low = changed(boxes.low, key, threshold)
        high = changed(boxes.high, key, threshold)
        left = boxes._replace(high=high, point=below, outcome=self.run(boxes.case, below))
        right = boxes._replace(low=low, point=above, outcome=self.run(boxes.case, above))
        return joined(left, right)

    def first_step(self, boxes, others):
        """The point before the outcome changes, [n, n_numbers], and which number changes it, [n].

        The steps lead from the box's point to the other one, number by number.
        """
        n, n_numbers = others.shape
        is_changed = np.tri(n_numbers + 1, n_numbers, -1, dtype=bool)  # [n_numbers+1, n_numbers]
        steps = np.where(is_changed, others[:, None], boxes.point[:, None])
        repeated = boxes.take(np.repeat(np.arange(n), n_numbers + 1))
        differ = self.differ(repeated, steps.reshape(-1, n_numbers)).reshape(n, -1)
        refuse(f"{STATE}, or another row", boxes, differ[:, 0] | ~differ[:, -1])
        key = differ.argmax(axis=1) - 1
        return steps[np.arange(n), key], key

    def threshold(self, boxes, start, key, others):
        """[n] where to cut, by bisection: the least number of the upper half."""
        rows = np.arange(len(key))
        near, far = start[rows, key], others[rows, key]
        for _ in range(BITS):
            middle = (near + far) // 2
            differ = self.differ(boxes, changed(start, key, middle))
            near = np.where(differ, near, middle)
            far = np.where(differ, middle, far)
        return np.maximum(near, far)

    def count_moving(self, boxes, below, above, key):
        """NotByThresholds if many thresholds of a case move as soon as the other numbers do.

        Each cut would be right, but an edge that is a curve would be cut without end.
        """
        stays = np.zeros(len(key), bool)
        for _ in range(N_NUDGES):  # some directions lead across another threshold
            nudge = changed(self.nudge(boxes, below), key, 0)
            outcomes = [self.run(boxes.case, point + nudge) for point in (below, above)]
            stays |= (outcomes[0] != outcomes[1]).any(axis=1)
        np.add.at(self.n_moving, boxes.case[~stays], 1)
        refuse(SEVERAL, boxes, self.n_moving[boxes.case] > MAX_MOVING)

    def nudge(self, boxes, points):
        """[n, n_numbers] a small part of the way to a random point, 1 unit at least."""
        steps = self.rng.integers(boxes.low, boxes.high) - points
        return np.sign(steps) * np.ceil(abs(steps) * NUDGE).astype(np.int64)


def refuse(problem, boxes, are_refused):
    """NotByThresholds if any of the boxes are refused. It names the first of them."""
    if are_refused.any():
        first = boxes.take(are_refused)
        numbers = np.round(first.point[0] / UNIT, 4).tolist()
        raise NotByThresholds(f"{problem} (case {first.case[0]}, near the numbers {numbers})")
