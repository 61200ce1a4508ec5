"""Forks, their branches, and how each run takes another path until all have been taken."""

import math
from fractions import Fraction

from .refusals import Refusals, Stop

MAX_FORKS = 10_000  # along one path; a loop without end gets there within seconds
ALL_FORKS, PER_PATH = 1_000_000, 30  # the forks of a call, and how many more each path may add
LONG, LEAST = 100, 1e-100  # a path of more forks, and less probable, is one of a loop without end
MAX_BRANCHES = 1_000_000  # of one fork
REPEATS = 300  # so many of the first paths are run again, and each 300th of the others
FEW = 16  # runs that are made again, at least
ROUNDING = 1e-6  # by which a probability may change from run to run
TOKENS = int, float, Fraction, str, bytes  # what outputs are made of
RETURN = {  # what to return in place of these
    "dict": "sorted(output.items())",
    "set": "sorted(output)",
    "generator": "[*output]",
    "coroutine": "asyncio.run(output)",
    "NoneType": "what was drawn",
}


class TooManyPaths(RuntimeError):
    """The error after too many paths. `covered` is the total probability of those before."""

    def __init__(self, problem, covered):
        super().__init__(
            f"{problem}; the paths run so far have a total probability of {float(covered):.6g}. "
            "Use a smaller vocabulary or fewer tokens, or a larger max_paths. "
            "A loop that may run for ever cannot be enumerated, even if it ends with probability "
            "1; draw at once what it amounts to, as in rng.choice(n, p=row / row.sum())."
        )
        self.problem = problem
        self.covered = covered

    def __reduce__(self):  # so that a worker can send it
        return TooManyPaths, (self.problem, self.covered)


class NotByRng(RuntimeError):
    """Something other than rng decides."""


class Forks(Refusals):
    """Each draw is a fork in the path of a program, with branches [(probability, outcome), ...].

    A path begins with some forks at which it is known which branch to take, and takes branch 0
    at those that follow. Each of their other branches is the beginning of another path.
    """

    is_over = False  # whether its last run has ended
    is_flipped = False  # whether a program compares 1 - u, for example; for those who show forks

    def __init__(self):
        self.path = []  # for each fork: (its branches, which one to take)
        self.n_forks = 0  # of this run, so far
        self.is_exact = False  # whether it was given Fractions
        self.n_paths = 0
        self.n_all_forks = 0  # of all paths
        self.covered = 0  # the total probability of all paths
        self.intervals = []  # in which the random numbers of this run lie
        self.kept = []  # some paths, with their outputs and intervals

    def take(self, branches, limit=None):
        """Go on from a fork: the outcome of a branch. All of them are possible.

        limit is what a random number is compared with, for those who show the forks.
        """
        self.check_is_running()
        if self.n_forks == MAX_FORKS:
            problem = f"more than {MAX_FORKS:,} forks along one path"
            self.refuse(TooManyPaths(problem, self.covered))
        if self.n_forks == len(self.path):
            self.path.append((branches, 0))  # no earlier run came to this fork
        known, i = self.path[self.n_forks]
        if branches is not known and branches != known:
            self.compare(branches, known)
        self.n_forks += 1
        return known[i][1]

    def check_is_running(self):
        """NotByRng if the run has ended that this generator belongs to."""
        if self.is_over:
            advice = "draw from the rng that is passed, each time"
            raise NotByRng(f"the generator of an earlier run was used; {advice}")

    def others(self, n):
        """The beginnings of paths that leave this one after n forks, or later."""
        for i in range(n, len(self.path)):
            branches, _ = self.path[i]
            for branch in range(len(branches) - 1, 0, -1):  # the last one is taken first
                yield (*self.path[:i], (branches, branch))

    def probabilities(self):
        """The probabilities of the branches that this run has taken."""
        return [branches[i][0] for branches, i in self.path[: self.n_forks]]

    def run(self, function, begin):
        """Take the path that begins so: the output of function(self)."""
        self.path = [*begin]
        self.n_forks = 0
        self.is_over = False
        try:
            output = as_output(function(self))
        except (Exception, Stop):
            if not self.refused:
                raise
        finally:
            self.is_over = True
        if self.refused:  # whatever the program did then
            raise self.refused
        if self.n_forks < len(self.path):
            self.differ("the end", "another fork", 1)
            self.n_forks = len(self.path)  # so that all probabilities still have a sum of 1
        return output

    def add(self, function, begin, outputs):
        """Add the path that begins so to {output: probability}. Returns how others begin."""
        output = self.run(function, begin)
        probability = math.prod(self.probabilities())
        outputs[output] = outputs.get(output, 0) + probability
        self.covered += probability
        if self.n_forks > LONG and probability < LEAST:
            problem = f"a path with {self.n_forks} forks and a probability below {LEAST}"
            raise TooManyPaths(problem, self.covered)
        if self.n_paths < REPEATS or self.n_paths % REPEATS == 0:
            self.kept.append(([*self.path], output, self.intervals))
        self.n_paths += 1
        self.n_all_forks += self.n_forks
        return self.others(len(begin))

    def run_all(self, function, max_paths, begin=()):
        """Take each path that begins so -> {output: probability}"""
        outputs = {}
        todo = [begin]
        while todo:
            self.check_numbers(max_paths)
            todo += self.add(function, todo.pop(), outputs)
        return outputs if self.is_exact else in_floats(outputs)

    def check_numbers(self, max_paths):
        """TooManyPaths after max_paths, or if there are so many forks that a loop has no end."""
        if max_paths is None or not max_paths > 0:
            raise ValueError(f"max_paths must be 1 or more; found {max_paths}")
        if self.n_paths >= max_paths:
            raise TooManyPaths(f"more than max_paths = {max_paths:,} paths", self.covered)
        if self.n_all_forks > max(max_paths, ALL_FORKS) + PER_PATH * self.n_paths:
            problem = f"{self.n_all_forks:,} forks along {self.n_paths:,} paths"
            raise TooManyPaths(f"{problem}, where max_paths = {max_paths:,}", self.covered)

    def run_again(self, function):
        """Take the paths that were kept again, the last one first."""
        n_times = math.ceil(FEW / len(self.kept))
        for path, output, _ in self.kept[::-1] * n_times:
            now = self.run(function, path)
            if now != output:
                self.differ(now, output)
            if len(self.path) > len(path):
                self.differ("another fork", "the end", 1)

    def compare(self, branches, known):
        """NotByRng unless the branches of a fork are those of an earlier run, up to rounding."""
        now = {outcome: mass for mass, outcome in branches}
        before = {outcome: mass for mass, outcome in known}
        for outcome in {*now, *before}:
            change = abs(now.get(outcome, 0) - before.get(outcome, 0))
            self.differ(branches, known, change)

    def tolerance(self):
        """How much the next probability may differ from run to run.

        A cache adds up in another order each time, which changes rows a little. What comes
        after a rejection of probability 0.001 is divided by 0.001, and so is its rounding.
        """
        return 0 if self.is_exact else ROUNDING / min(self.probabilities(), default=1)

    def differ(self, now, before, change=math.inf):
        """NotByRng unless rounding may change a probability so much from run to run."""
        if change > self.tolerance():
            problem = f"the same path led to {now}, and earlier to {before}"
            self.refuse(NotByRng(f"{problem}; something other than rng decides as well"))


def in_floats(outputs):
    """{output: probability} with floats, where no Fraction was given."""
    return {output: float(probability) for output, probability in outputs.items()}


def as_output(returned):
    """What a function returns, as a tuple: 5 and [5] as (5,), [[1], [2]] as ((1,), (2,))."""
    output = as_tuples(returned)
    return output if isinstance(output, tuple) else (output,)


def as_tuples(returned):
    """Lists, arrays and ranges as tuples of ints, floats or strings. TypeError for other things."""
    if hasattr(returned, "tolist"):  # of an array, or of a number of NumPy
        returned = returned.tolist()
    if isinstance(returned, list | tuple | range):
        return tuple(map(as_tuples, returned))
    if isinstance(returned, TOKENS) and returned == returned:
        return returned
    kind = type(returned).__name__
    advice = f"; return {RETURN[kind]}" if kind in RETURN else ""
    problem = f"an output is an int or a string, or a list of outputs; found {returned!r:.80}"
    raise TypeError(f"{problem}{advice}")
