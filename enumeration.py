"""The exact output distribution of a random algorithm: a random generator that takes every branch.

A statistical test of a sampler misses small biases and fails now and then for no reason. But a sampler that draws a
few tokens from a small vocabulary can only go finitely many ways. So run it once for each way, multiply the
probabilities met along it, add up what leads to the same output, and the distribution is a computed number, exact to
rounding. The algorithm under test is the production code, unmodified: it is only handed another generator.

    >>> from enumeration import output_distribution
    >>> def first_success(rng, tries=3):
    ...     for i in range(tries):
    ...         if rng.random() < 0.25:
    ...             return [i]
    ...     return [rng.choice(2, p=[0.5, 0.5]), tries]
    >>> output_distribution(first_success)
    {(0,): 0.25, (1,): 0.1875, (2,): 0.140625, (0, 3): 0.2109375, (1, 3): 0.2109375}

To check a speculative sampler of your own, let it take all its randomness from an argument, and compare:

    fast = output_distribution(lambda rng: my_speculative_sampling(prompt, draft, target, rng))
    slow = output_distribution(lambda rng: my_sampling(prompt, target, rng))
    assert total_variation(fast, slow) < 1e-12

Take models of 2 to 4 tokens whose rows depend on the prefix, and hold a zero here and there: the number of ways grows
like a power of the vocabulary, and whatever can go wrong does so with 3 tokens already. What is enumerated must be a
pure function of the generator (a cache is fine, a counter that steers it is not) and must end on every way: a loop
of the kind "draw again until it fits" has infinitely many.

`rng.choice(n, p=p)` and `rng.random() < a` are all that is offered. A sampler that needs more (shuffles, normals, a
vector of uniforms, torch.multinomial) is written in terms of these two first.
"""

import math

import numpy as np


def output_distribution(function):
    """The exact distribution of what function(rng) returns.

    Parameters
    ----------
    function : callable
        Takes a generator, see `EveryBranch`, and returns an int or an array-like of ints. Called once for each way
        that the draws can fall, the impossible ones excluded.

    Returns
    -------
    dict of tuple of int -> float: each output that can occur, and its probability.
    """
    rng, outputs = EveryBranch(), {}
    while True:
        output = tuple(np.ravel(function(rng)).tolist())
        outputs[output] = outputs.get(output, 0.0) + rng.path_probability()
        if not rng.next_path():
            return outputs


def total_variation(a, b):
    """The largest difference between the probabilities that a and b, `{output: probability}`, give to any event."""
    return sum(abs(a.get(output, 0.0) - b.get(output, 0.0)) for output in {*a, *b}) / 2


class EveryBranch:
    """Stands in for a numpy.random.Generator: its draws follow a script, which `next_path` moves on, depth first."""

    def __init__(self):
        self.script = []  # one [branches, index of the one to take] per draw; branches: [(probability, outcome), ...]
        self.n_drawn = 0

    def choice(self, n, p=None):
        """One of 0 ... n-1, as likely as p [n] says (uniform without it)."""
        p = np.full(n, 1 / n) if p is None else np.asarray(p, dtype=np.float64)
        if p.shape != (n,) or not (p >= 0).all() or abs(p.sum() - 1) > 1e-8:  # the tolerance of NumPy's own choice
            raise ValueError(f"choice(n, p=p) needs n = {n} probabilities that sum to 1, found {p}")
        return self.take_branch([(mass, outcome) for outcome, mass in enumerate((p / p.sum()).tolist())])

    def random(self):
        """A number uniform in [0, 1), of which all that can be asked is on which side of another it lies."""
        return Coin(self)

    def __getattr__(self, name):
        raise AttributeError(f"only choice(n, p=p) and random() < a can be enumerated; rng.{name} was asked for")

    def take_branch(self, branches):
        branches = [branch for branch in branches if branch[0] > 0]  # what cannot happen is not walked
        if self.n_drawn == len(self.script):
            self.script.append([branches, 0])  # a draw that no run came to before: its first branch first
        known, index = self.script[self.n_drawn]
        if branches != known:
            raise RuntimeError(f"run again with the same draws, the function asked for {branches} instead of {known}")
        self.n_drawn += 1
        return branches[index][1]

    def path_probability(self):
        return math.prod(branches[index][0] for branches, index in self.script)

    def next_path(self):
        """Move the last draw that can be moved to its next branch. False when all paths are walked."""
        if self.n_drawn < len(self.script):
            raise RuntimeError("run again with the same draws, the function ended early: it is not a function of rng")
        while self.script and self.script[-1][1] == len(self.script[-1][0]) - 1:
            self.script.pop()
        if self.script:
            self.script[-1][1] += 1
        self.n_drawn = 0
        return bool(self.script)


class Coin:
    """Uniform in [low, high), which is [0, 1) at first; a comparison is a draw, and narrows it to what is still open.

    So one number may be held against several others, as in a search through cumulated probabilities.
    """

    __array_ufunc__ = None  # let `np.float64(a) > coin` come to Coin.__lt__
    __hash__ = None

    def __init__(self, rng):
        self.rng, self.low, self.high = rng, 0.0, 1.0

    def __lt__(self, a):
        a = float(a)
        if math.isnan(a):
            raise ValueError("rng.random() was compared with NaN")
        a = min(max(a, self.low), self.high)
        below = (a - self.low) / (self.high - self.low)
        is_below = self.rng.take_branch([(below, True), (1 - below, False)])
        self.low, self.high = (self.low, a) if is_below else (a, self.high)
        return is_below

    def __gt__(self, a):
        return not self < a

    __le__, __ge__ = __lt__, __gt__  # to hit a exactly has probability zero

    def has_no_value(self, *_):
        raise TypeError("rng.random() has no value here, it takes all of them: compare it, as in `rng.random() < a`")

    __eq__ = __ne__ = __bool__ = __float__ = __int__ = __neg__ = __array__ = has_no_value
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = has_no_value
