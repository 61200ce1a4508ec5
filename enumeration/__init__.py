"""The exact output distribution of a sampler, computed by running it down every path.

Comparing histograms misses small bugs and fails on good code. But a sampler that draws
a few tokens from a small vocabulary can take only finitely many paths, and
`output_distribution` takes each of them once. The probability of a path is the product
of the probabilities of its outcomes. Add up the paths that end in the same output, and
you have its probability: exact but for rounding, and exact if the rows are Fractions.

The sampler doesn't change. It just gets an `EveryBranch` for its generator. In the
first run, each draw has its first possible outcome. In each later run, the last draw
that has an outcome left takes the next one, the draws before it are repeated, and those
after it begin again, like the digits of a counter.

A number from `rng.random()` never has a value, only an interval in which it lies, at
first [0, 1). `u < 0.3` is a choice, True with probability 0.3, and then u lies in
[0, 0.3). Ask `u < 0.2` next, and it is True with probability 0.2 / 0.3.

Take a sampler that draws x from p = (1/2, 1/2), accepts x with probability
min(1, q(x) / p(x)), and draws from q = (3/4, 1/4) after a rejection. It has four paths:

    rng.choice(2, p=[1/2, 1/2])
    |
    +-- 0 (1/2)   rng.random() < 3/2
    |             +-- True (1)     -> 0         1/2 * 1         = 1/2
    +-- 1 (1/2)   rng.random() < 1/2
                  +-- True (1/2)   -> 1         1/2 * 1/2       = 1/4
                  +-- False (1/2)  rng.choice(2, p=[3/4, 1/4])
                                   +-- 0 (3/4) -> 0   1/2 * 1/2 * 3/4 = 3/16
                                   +-- 1 (1/4) -> 1   1/2 * 1/2 * 1/4 = 1/16

It returns 0 with probability 1/2 + 3/16 = 11/16, but q(0) is 12/16. This sampler is
wrong: after a rejection, the token should come from the residual. To check yours:

    fast = output_distribution(lambda rng: my_speculative_sampling(prompt, draft, target, rng))
    slow = output_distribution(lambda rng: my_sampling(prompt, target, rng))
    assert total_variation(fast, slow) < 1e-12  # for rows in float32, about 1e-6

Use 2 to 4 tokens, because n draws among V tokens make V^n paths. Let the rows depend on
the text, or a row from the wrong position goes unnoticed, and put zeros into them. A
loop that may run for ever and continuous noise such as Gumbel's can't be enumerated,
and all randomness has to come from `rng`: what decides beside it is an error.

This folder needs nothing but NumPy, so copy it. This page has the idea, numpys.py
imitates NumPy's generator, and pytorch.py is for code that draws from PyTorch.
"""

import itertools
import math

import numpy as np

MAX_CHOICES = 1_000  # along one path; a loop without end gets there within seconds
MAX_BRANCHES = 1_000_000  # of one choice
REPEATS = 1_000  # paths that are run again, at most


class TooManyPaths(RuntimeError):
    """`covered` is the total probability of the paths that were run before."""

    def __init__(self, problem, covered):
        super().__init__(
            f"{problem}; the paths run so far have a total probability of {float(covered):.6g}. Use a smaller "
            "vocabulary or fewer tokens. A loop that may run for ever cannot be enumerated."
        )
        self.covered = covered


class NotByRng(RuntimeError):
    """Something else than rng decides."""


def output_distribution(function, max_paths=1_000_000):
    """{output: probability} of function(rng), an int or several. Outputs are tuples of int.

    TooManyPaths is raised after max_paths, a million of which take minutes, and
    NotByRng if something else than rng decides: other generators, or what differs when
    paths from all over the tree are run again.
    """
    from enumeration.numpys import EveryBranch, nothing_else_draws  # which need this page

    rng, outputs, kept, step = EveryBranch(), {}, [], 1
    with nothing_else_draws(function, rng):
        for n in range(max_paths):
            output = rng.run(function)
            mass = math.prod(branches[i][0] for branches, i in rng.script)  # the probability of this path
            outputs[output] = outputs.get(output, 0) + mass
            rng.covered += mass
            if n % step == 0:
                kept.append((output, [*rng.script]))
            if len(kept) > 3 * REPEATS:
                kept, step = kept[::2], 2 * step
            if not rng.next_path():
                rng.run_again(function, kept)
                break
        else:
            raise TooManyPaths(f"more than max_paths = {max_paths:,} paths", rng.covered)
    return outputs if rng.is_exact else {output: float(mass) for output, mass in outputs.items()}


def total_variation(a, b):
    """Half the sum of |a - b| over two {output: probability}: 0 if equal, at most 1.

    No set of outputs differs by more in probability. The worst set holds every output
    to which a gives more than b does.
    """
    outputs = {*a, *b}
    if len({isinstance(output, tuple) for output in outputs}) > 1:
        raise TypeError("some outputs are tuples, and others are not; write (0,) for a single token 0")
    lengths = [{len(output) for output in some if isinstance(output, tuple)} for some in (a, b)]
    if all(lengths) and not lengths[0] & lengths[1]:
        one, other = (" or ".join(map(str, sorted(some))) for some in lengths)
        raise ValueError(f"outputs of {one} tokens are compared with outputs of {other}; is the prompt in one of them?")
    return sum(abs(a.get(output, 0) - b.get(output, 0)) for output in outputs) / 2


class Forks:
    """Choices, of which each run takes other branches, until all have been taken."""

    def __init__(self):
        self.script = []  # for each choice: [branches, index of the branch to take]
        self.n_taken = 0  # choices made in this run
        self.is_exact = False  # whether it was given Fractions
        self.covered = 0  # total probability of the runs before
        self.refused = None  # the last error of ours, in case the program catches it

    def take(self, branches):
        """Make one choice among [(probability, outcome), ...], all of them possible, and return its outcome."""
        if self.n_taken == MAX_CHOICES:
            self.refuse(TooManyPaths(f"more than {MAX_CHOICES:,} choices along one path", self.covered))
        if self.n_taken == len(self.script):
            self.script.append((branches, 0))  # no earlier run came to this choice
        known, i = self.script[self.n_taken]
        if branches is not known and branches != known:
            self.refuse(NotByRng(f"let rng alone decide: the same choices led to {branches}, earlier to {known}"))
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

    def run(self, function):
        """One path: the output of function(self)."""
        self.n_taken = 0
        output = tuple(np.ravel(function(self)).tolist())
        if self.refused:
            raise self.refused
        if self.n_taken < len(self.script):
            self.refuse(NotByRng("let rng alone decide: the same choices ended here, earlier they went on"))
        return output

    def run_again(self, function, kept):
        """Run a third of the paths again, the last ones first, but at least 16 times, in more than one order."""
        few = itertools.islice(itertools.cycle(kept[::-1] + kept[::2]), 16)
        for output, script in kept[::-3] if len(kept) > 48 else few:
            self.script = script
            if (found := self.run(function)) != output:
                self.refuse(NotByRng(f"let rng alone decide: the same choices led to {output}, then to {found}"))

    def refuse(self, error):
        self.refused = error
        raise error
