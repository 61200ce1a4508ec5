"""Choices, and how each run takes other branches of them until all have been taken."""

import math

import numpy as np

MAX_CHOICES = 1_000  # along one path; a loop without end gets there within seconds
MAX_BRANCHES = 1_000_000  # of one choice
REPEATS = 1_000  # paths that are run again, at most
ROUNDING = 1e-6  # by which a probability may change from run to run
IMPROBABLE = 1e-12


class TooManyPaths(RuntimeError):
    """`covered` is the total probability of the paths that were run before."""

    def __init__(self, problem, covered):
        super().__init__(
            f"{problem}; the paths run so far have a total probability of {float(covered):.6g}. "
            "Use a smaller vocabulary or fewer tokens. "
            "A loop that may run for ever cannot be enumerated."
        )
        self.covered = covered


class NotByRng(RuntimeError):
    """Something else than rng decides."""


class Forks:
    """Choices, of which each run takes other branches, until all have been taken."""

    def __init__(self):
        self.script = []  # for each choice: (branches, index of the branch to take)
        self.n_taken = 0  # choices made in this run
        self.is_exact = False  # whether it was given Fractions
        self.covered = 0  # total probability of the runs before
        self.refused = None  # the last error of ours, in case the program catches it

    def take(self, branches):
        """Make one choice among [(probability, outcome), ...], all of them possible."""
        if self.n_taken == MAX_CHOICES:
            problem = f"more than {MAX_CHOICES:,} choices along one path"
            self.refuse(TooManyPaths(problem, self.covered))
        if self.n_taken == len(self.script):
            self.script.append((branches, 0))  # no earlier run came to this choice
        known, i = self.script[self.n_taken]
        if branches is not known and branches != known:
            self.compare(branches, known)
        self.n_taken += 1
        return known[i][1]

    def next_path(self):
        """Move the last choice that can move to its next branch. False if none can."""
        while self.script:
            branches, i = self.script.pop()
            if i + 1 < len(branches):
                self.script.append((branches, i + 1))
                return True
        return False

    def taken(self):
        """The probabilities of the branches that were taken in this run."""
        return [branches[i][0] for branches, i in self.script[: self.n_taken]]

    def run(self, function):
        """One path: the output of function(self)."""
        self.n_taken = 0
        try:
            output = as_output(function(self))
        except Exception as error:
            self.add_note(error)
            raise
        if self.refused:
            raise self.refused
        if self.n_taken < len(self.script):
            self.differ("the end", "another choice")
        return output

    def run_again(self, function, kept):
        """Run a third of the paths, (script, output) each, again, but at least 16.

        The first path is run once more, for only the first run sees a program as it was.
        """
        n = max(16, len(kept) // 3)
        again = (kept[::-3] + kept[::-1] * 16)[:n]
        for script, output in [*again, kept[0]]:
            self.script = script
            found = self.run(function)
            if found != output:
                self.differ(found, output)

    def compare(self, branches, known):
        """An error, unless the branches of a choice are, but for rounding, those known."""
        now = {outcome: mass for mass, outcome in branches}
        before = {outcome: mass for mass, outcome in known}
        for outcome in {*now, *before}:
            change = abs(now.get(outcome, 0) - before.get(outcome, 0))
            if change > self.tolerance():
                self.differ(branches, known)

    def tolerance(self):
        """How much the next probability may differ from run to run.

        A cache adds up in another order each time. After a rejection of probability
        0.001, what it rounds is a thousand times as much of the residual.
        """
        return 0 if self.is_exact else ROUNDING / min(self.taken(), default=1)

    def differ(self, found, before):
        """Something differs from run to run: an error, unless only rounding leads here."""
        if self.tolerance() < 1:
            problem = f"the same choices led to {found}, earlier to {before}"
            self.refuse(NotByRng(f"let rng alone decide: {problem}"))

    def add_note(self, error):
        """Say how improbable the path is on which a program failed."""
        probability = float(math.prod(self.taken()))
        if probability < IMPROBABLE and not self.is_exact and hasattr(error, "add_note"):
            error.add_note(f"on a path of probability {probability:.1e}, which rounding opens")

    def refuse(self, error):
        self.refused = error
        raise error


def as_output(found):
    """What a function returns, an int or several, as a tuple."""
    return tuple(np.ravel(found).tolist())
