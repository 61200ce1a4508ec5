"""The exact output distribution of a random algorithm: run it once for every way that its random choices can fall.

A statistical test of a sampler misses small biases, and now and then it fails for no reason. But a sampler that draws
a few tokens from a small vocabulary can only go finitely many ways. So run it once for each way, multiply the
probabilities of the choices along the way, and add up the ways that lead to the same output. The distribution is then
a computed number, exact to rounding. The sampler is the production code, unmodified. It is only handed `EveryBranch`
instead of a random generator, which replies with the first possible choice, then with the next, and so on.

For example, take a sampler that draws x from p = (1/2, 1/2), accepts it with probability min(1, q(x) / p(x)), and draws
from q = (3/4, 1/4) after a rejection. (It is wrong. The token should come from the residual.)

    rng.choice(2, p=[1/2, 1/2])
    |
    +-- 0 (1/2)   rng.random() < 3/2
    |             +-- True (1)     -> 0         1/2 * 1         = 1/2
    +-- 1 (1/2)   rng.random() < 1/2
                  +-- True (1/2)   -> 1         1/2 * 1/2       = 1/4
                  +-- False (1/2)  rng.choice(2, p=[3/4, 1/4])
                                   +-- 0 (3/4) -> 0   1/2 * 1/2 * 3/4 = 3/16
                                   +-- 1 (1/4) -> 1   1/2 * 1/2 * 1/4 = 1/16

    >>> from enumeration import output_distribution, total_variation
    >>> def wrong(rng, p=(1 / 2, 1 / 2), q=(3 / 4, 1 / 4)):
    ...     x = rng.choice(2, p=p)
    ...     if rng.random() < q[x] / p[x]:
    ...         return x
    ...     return rng.choice(2, p=q)
    >>> output_distribution(wrong)
    {(0,): 0.6875, (1,): 0.3125}
    >>> total_variation(output_distribution(wrong), {(0,): 3 / 4, (1,): 1 / 4})
    0.0625

To check a sampler of your own, let it take all its randomness from an argument, and compare:

    fast = output_distribution(lambda rng: my_speculative_sampling(prompt, draft, target, rng))
    slow = output_distribution(lambda rng: my_sampling(prompt, target, rng))
    assert total_variation(fast, slow) < 1e-12

Use models with 2 to 4 tokens, whose rows depend on the text so far and hold a zero here and there. Whatever can go
wrong goes wrong with 3 tokens already, and the number of ways grows like a power of the vocabulary.

What can be enumerated: `choice`, `random`, `uniform`, `integers` and `multinomial`, with a size or without, as
`EveryBranch` describes them. A uniform number may be compared with other numbers, also elementwise, and looked up with
`np.searchsorted`.

What cannot be enumerated: a loop that may run for ever, such as "draw again until it fits", because it has infinitely
many ways; output that is continuous; and a function that depends on more than its random choices, for example on a
counter that it keeps between calls. For code that draws from PyTorch, see benchmarks/torch_enumeration.py.
"""

import math
import operator

import numpy as np

MAX_CHOICES = 10_000  # along one way


class TooManyPaths(RuntimeError):
    """There are too many ways, or one has no end. `covered` is the probability of those that were walked."""

    def __init__(self, problem, covered):
        super().__init__(
            f"{problem}; the ways walked so far have a probability of {covered:.6g}. Use a smaller vocabulary or fewer "
            "tokens, or raise max_paths. A loop that may run for ever cannot be enumerated."
        )
        self.covered = covered


class EndlessPath(Exception):
    """More choices along one way than MAX_CHOICES."""


def output_distribution(function, max_paths=1_000_000):
    """The exact distribution of what function(rng) returns.

    Parameters
    ----------
    function : callable
        Takes an `EveryBranch` and returns an int, or an array-like of ints. It is called once for each way that its
        random choices can fall.
    max_paths : int
        The most ways to walk.

    Returns
    -------
    dict of tuple of int -> float: each output that can occur, and its probability.

    Raises
    ------
    TooManyPaths
        If there are more ways than max_paths, or if one of them has more than MAX_CHOICES choices.
    RuntimeError
        If the function does not do the same again after the same choices.
    """
    rng, outputs, n_paths = EveryBranch(), {}, 0
    while True:
        try:
            output = tuple(np.ravel(function(rng)).tolist())
        except EndlessPath:
            raise TooManyPaths(f"more than {MAX_CHOICES:,} choices along one way", sum(outputs.values())) from None
        outputs[output] = outputs.get(output, 0.0) + rng.path_probability()
        n_paths += 1
        if not rng.next_path():
            return outputs
        if n_paths == max_paths:
            raise TooManyPaths(f"more than max_paths = {max_paths:,} ways", sum(outputs.values()))


def total_variation(a, b):
    """The largest difference between the probabilities that a and b, `{output: probability}`, give to any event."""
    return sum(abs(a.get(output, 0.0) - b.get(output, 0.0)) for output in {*a, *b}) / 2


class EveryBranch:
    """Stands in for a numpy.random.Generator. Its choices follow a script, which `next_path` advances, depth first."""

    def __init__(self):
        self.script = []  # one [branches, index of the one to take] per choice; branches: [(probability, outcome), ...]
        self.n_drawn = 0

    def choice(self, a, size=None, replace=True, p=None):
        """One of 0 ... a-1, or one element of a, as likely as p says. (Uniform without p; independent with a size.)"""
        items = range(a) if np.ndim(a) == 0 else a
        p = np.full(len(items), 1 / len(items)) if p is None else np.asarray(p, dtype=np.float64)
        if p.shape != (len(items),) or not (p >= 0).all() or abs(p.sum() - 1) > 1e-8:  # (NumPy's own tolerance)
            raise ValueError(f"choice needs {len(items)} probabilities that sum to 1, found {p}")
        if not replace and size is not None and np.prod(size) > 1:
            raise AttributeError("choice(replace=False) of several items cannot be enumerated")
        branches = [(mass, i) for i, mass in enumerate((p / p.sum()).tolist())]
        return self._several(size, lambda: items[self.take_branch(branches)])

    def integers(self, low, high=None, size=None, endpoint=False):
        """A whole number from low up to, but not including, high; or from 0 up to low."""
        low, high = (0, low) if high is None else (low, high)
        return self.choice(range(low, high + bool(endpoint)), size)

    def multinomial(self, n, pvals, size=None):
        """How often each outcome occurred in n draws."""

        def counts():
            drawn = np.zeros(len(pvals), dtype=np.int64)
            for _ in range(n):
                drawn[self.choice(len(pvals), p=pvals)] += 1
            return drawn

        return counts() if size is None else np.array([counts() for _ in range(np.prod(size))]).reshape(size, -1)

    def random(self, size=None):
        """A number uniform in [0, 1). All that can be asked is on which side of another number it lies."""
        return self._several(size, lambda: Uniform(self))

    def uniform(self, low=0.0, high=1.0, size=None):
        """A number uniform in [low, high), as in `random`."""
        return low + (high - low) * self.random(size)

    def __getattr__(self, name):
        raise AttributeError(
            f"rng.{name} cannot be enumerated; only choice, integers, multinomial, random and uniform can"
        )

    def _several(self, size, draw):
        if size is None:
            return draw()
        return np.array([draw() for _ in range(np.prod(size))]).reshape(size)

    def take_branch(self, branches):
        """The outcome of the branch that the script says. branches: [(probability, outcome), ...]"""
        branches = [branch for branch in branches if branch[0] > 0]  # what cannot happen is not walked
        if self.n_drawn == MAX_CHOICES:
            raise EndlessPath
        if self.n_drawn == len(self.script):
            self.script.append([branches, 0])  # a choice that no run came to before: its first branch first
        known, index = self.script[self.n_drawn]
        if branches != known:
            raise RuntimeError(f"run again with the same choices, the function asked for {branches}, not {known}")
        self.n_drawn += 1
        return branches[index][1]

    def path_probability(self):
        return math.prod(branches[index][0] for branches, index in self.script)

    def next_path(self):
        """Move the last choice that can be moved to its next branch. False if all ways have been walked."""
        if self.n_drawn < len(self.script):
            raise RuntimeError("run again with the same choices, the function ended early: it depends on more than rng")
        while self.script and self.script[-1][1] == len(self.script[-1][0]) - 1:
            self.script.pop()
        if self.script:
            self.script[-1][1] += 1
        self.n_drawn = 0
        return bool(self.script)


class Uniform:
    """shift + scale * u for a number u that is uniform in [low, high), at first [0, 1).

    A comparison is a choice, which narrows [low, high) to the side that was taken. So one number may be compared with
    several others, as in a search through cumulated probabilities.
    """

    def __init__(self, rng, shift=0.0, scale=1.0, state=None):
        self.rng, self.shift, self.scale = rng, shift, scale
        self.state = [0.0, 1.0] if state is None else state  # low and high, shared by all that is made of one u

    def is_below(self, a):
        """Whether this number is below a. (That it equals a has probability zero.)"""
        if np.ndim(a):
            return np.array([self.is_below(one) for one in np.ravel(a)], dtype=bool).reshape(np.shape(a))
        if isinstance(a, Uniform):
            if a.state is not self.state or (a.shift, a.scale) != (self.shift, self.scale):
                raise TypeError("two random numbers were compared with each other, which cannot be enumerated")
            return False
        a = (float(a) - self.shift) / self.scale
        if math.isnan(a):
            raise ValueError("a random number was compared with NaN")
        low, high = self.state
        a = min(max(a, low), high)
        below = (a - low) / (high - low)
        u_is_below = self.rng.take_branch([(below, True), (1 - below, False)])
        self.state[:] = (low, a) if u_is_below else (a, high)
        return u_is_below == (self.scale > 0)

    def __lt__(self, a):
        return self.is_below(a)

    def __gt__(self, a):
        return operator.not_(self.is_below(a)) if np.ndim(a) == 0 else ~self.is_below(a)

    __le__, __ge__ = __lt__, __gt__

    def __add__(self, number):
        return Uniform(self.rng, self.shift + float(number), self.scale, self.state)

    def __mul__(self, number):
        if not math.isfinite(float(number)) or float(number) == 0:
            raise ValueError(f"a random number cannot be multiplied by {number} and still be compared")
        return Uniform(self.rng, self.shift * float(number), self.scale * float(number), self.state)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self):
        return self * -1.0

    def __sub__(self, number):
        return self + -number

    def __rsub__(self, number):
        return -self + number

    def __truediv__(self, number):
        return self * (1 / number)

    def __array__(self, dtype=None, copy=None):
        array = np.empty((), dtype=object)  # NumPy then compares elementwise, as np.searchsorted does
        array[()] = self
        return array

    def has_no_value(self, *_):
        raise TypeError("a random number has no value here, because it takes all values; it can only be compared")

    __eq__ = __ne__ = __bool__ = __float__ = __int__ = __hash__ = __rtruediv__ = __pow__ = has_no_value
