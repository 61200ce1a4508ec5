"""Boxes of inputs, and what divides them: a fork, a threshold or a race."""

import math
from typing import NamedTuple

import numpy as np

from .draws import Choice, Noise, Number, Point, Row

CLOSE = 1e-5  # a race that is won by less may end otherwise in float32, so it is no evidence
FAINT, LONG = 2.0**-40, 12  # a part with less probability, and more cuts, can be left for later


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
        self.point = None  # the one that stands for the part
        self.points = []  # more points that are known to lie in the part

    def cut(self, split):
        """Divide the part. Points that are known go to the parts in which they lie."""
        above = *self.above, self
        boxes = [{**self.box, split.key: entry} for entry in split.entries(self.box)]
        points = [point for part in self.leaves() for point in part.points]
        self.split, self.parts = split, [Part(box, above) for box in boxes]
        for point in points:
            part = self.leaf_of(point)
            if part in self.parts:
                part.points.append(point.at(part.depth))

    def leaves(self):
        """The parts that are not divided, within this one."""
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
        return self.mass < FAINT and LONG < len(self.box) < len(self.point.record.keys)

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
        """The token that this noise lets win."""
        return int(np.argmax(self.weights / noise))

    def entries(self, box):
        return [(self, winner) for winner in range(len(self.weights))]

    def won_by(self, winner, noise):
        """Turn noise into noise with which this token wins: the others start when it arrives."""
        arrival = noise[winner] / self.weights.sum()
        noise[winner] = 0
        return noise + self.weights * arrival

    def is_close(self, noise):
        """Whether the second token arrives so soon that rounding may decide."""
        *_, second, best = [0, *np.sort(self.weights / noise)]
        return second > best * (1 - CLOSE)


class Change(NamedTuple):
    """One value of a point becomes another one, and what is seen changes."""

    n_before: int  # how many other values were changed before
    key: Number | Noise
    before: Point
    after: Point
