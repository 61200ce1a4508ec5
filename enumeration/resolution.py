"""Distributions that random runs have confirmed, and what these may have missed."""

import copy
import math


class Distribution(dict):
    """{outcome: probability}, within a total variation distance `resolution` of the truth."""

    def __init__(self, masses, n_runs, resolution):
        super().__init__({outcome: math.fsum(parts) for outcome, parts in masses.items()})
        self.n_runs = n_runs
        self.resolution = resolution

    def __repr__(self):
        return f"{super().__repr__()}, but runs may have missed {self.resolution:.2g}"

    def copy(self):
        """A copy, with its resolution."""
        return copy.copy(self)

    def __or__(self, other):
        merged = self.copy()
        merged.update(other)
        return merged

    def __ror__(self, other):
        return self | {**other, **self}


def bound(n_checks, n_tests=1):
    """The share of wrong inputs that n_checks of them miss with a probability of 1e-9."""
    return min(1, math.log(1e9 * n_tests) / max(1, n_checks))
