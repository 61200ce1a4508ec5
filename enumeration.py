"""The exact output distribution of a random algorithm, computed by running it once for each path that it can take.

A statistical test of a sampler misses small errors, and it sometimes fails although nothing is wrong. But a sampler
that draws a few tokens from a small vocabulary can take only finitely many paths. A *path* is one sequence of outcomes
of all its random choices. `output_distribution` runs the sampler once for each path. The probability of a path is the
product of the probabilities of its outcomes. The probability of an output is the sum over the paths that lead to it.
The result is exact up to rounding.

The sampler itself does not change. It receives an `EveryBranch` instead of a random generator. In the first run,
`EveryBranch` answers each draw with the first possible outcome. In each later run, the last draw that still has an
outcome to try takes its next one. The draws before it are repeated, and the draws after it begin with their first
outcome again, like the digits of a counter. This continues until all paths have been run. A number from `rng.random()`
gets no value. Instead, each comparison with it is a choice: `rng.random() < 0.3` is True with probability 0.3.

For example, take a sampler that draws x from p = (1/2, 1/2), accepts x with probability min(1, q(x) / p(x)), and draws
from q = (3/4, 1/4) after a rejection. This sampler is wrong, because the token after a rejection should come from the
residual. It has four paths. Each leaf of the tree shows the output of a path, and the probability of the path:

    rng.choice(2, p=[1/2, 1/2])
    |
    +-- 0 (1/2)   rng.random() < 3/2
    |             +-- True (1)     -> 0         1/2 * 1         = 1/2
    +-- 1 (1/2)   rng.random() < 1/2
                  +-- True (1/2)   -> 1         1/2 * 1/2       = 1/4
                  +-- False (1/2)  rng.choice(2, p=[3/4, 1/4])
                                   +-- 0 (3/4) -> 0   1/2 * 1/2 * 3/4 = 3/16
                                   +-- 1 (1/4) -> 1   1/2 * 1/2 * 1/4 = 1/16

The output is 0 with probability 1/2 + 3/16 = 11/16, but q(0) is 12/16. The README runs this sampler with three tokens.

To check a sampler of your own, let it take all its randomness from an argument `rng`, and compare it with plain
sampling:

    fast = output_distribution(lambda rng: my_speculative_sampling(prompt, draft, target, rng))
    slow = output_distribution(lambda rng: my_sampling(prompt, target, rng))
    assert total_variation(fast, slow) < 1e-12

The limit 1e-12 is for rows in float64. In float32, the last bits of a network's rows may depend on which positions a
call computes. So even an exact sampler may be about 1e-7 away, and the limit must be larger.

Use a vocabulary of 2 to 4 tokens, because the number of paths grows fast: n choices among V tokens give V^n paths, and
each check of a drafted token is one more choice between two. Let the rows depend on the text so far, or else a row
from the wrong position goes unnoticed. Include probabilities of 0, to find a sampler that divides 0 by 0.

`EveryBranch` offers `choice`, `random`, `uniform`, `integers` (without a dtype) and `multinomial`, with a size or
without. A uniform number can be compared with plain numbers, also with an array of them. Use operators such as `<` for
it, because functions such as `np.less` and `np.log` raise a TypeError. `np.searchsorted` works for one such number at a
time.

Some functions cannot be enumerated. A loop that may run for ever, such as "draw again until it fits", has infinitely
many paths. Continuous output has infinitely many values. Continuous random numbers that are not uniform, such as Gumbel
noise, are not supported. (A uniform one is, because the probability of each comparison with it is known.) A function
that depends on more than its random choices, for example on another generator or on a counter, does not repeat itself.
If two runs make the same choices and then draw differently, `output_distribution` raises an error. But if all draws
stay the same and only the output changes, it notices nothing, and its result is wrong. For code that draws from
PyTorch, see benchmarks/torch_enumeration.py.

The core of this file is `output_distribution`, with `take_branch` and `next_path` of `EveryBranch`. (A *branch* is one
outcome of a choice, with its probability.) `Uniform.is_below` turns `rng.random() < a` into a choice with two branches.
The rest imitates NumPy, and you may skip it.
"""

import math

import numpy as np

MAX_CHOICES = 1_000  # the most choices along one path; a loop without end gets there within seconds
MAX_BRANCHES = 1_000_000  # the most branches of one choice
NUMPYS_OWN = np.random.default_rng(0)  # raises NumPy's errors, and shows its shapes


class TooManyPaths(RuntimeError):
    """There are too many paths, or one is too long. `covered` is the total probability of the paths that were run."""

    def __init__(self, problem, covered):
        super().__init__(
            f"{problem}; the paths run so far have a total probability of {covered:.6g}. Use a smaller vocabulary or "
            "fewer tokens. A loop that may run for ever cannot be enumerated."
        )
        self.covered = covered


def output_distribution(function, max_paths=1_000_000):
    """Compute the exact distribution of the output of function(rng).

    Parameters
    ----------
    function : callable
        Takes an `EveryBranch` and returns an int, or an array-like of ints. It is called once for each path.
    max_paths : int
        The largest number of paths to run. (A million paths take minutes.)

    Returns
    -------
    dict of tuple of int -> float
        Each output that can occur, and its probability.

    Raises
    ------
    TooManyPaths
        If there are more paths than max_paths, or if one path has more than MAX_CHOICES choices.
    RuntimeError
        If function made the same choices as in an earlier run, and then drew differently, or stopped drawing. Then it
        depends on more than rng.
    """
    rng, outputs = EveryBranch(), {}
    for _ in range(max_paths):
        output = tuple(np.ravel(function(rng)).tolist())
        # the probability of this path: for each choice, the script has its branches, (probability, outcome), and the
        # index of the branch taken
        mass = math.prod(branches[index][0] for branches, index in rng.script)
        outputs[output] = outputs.get(output, 0.0) + mass
        rng.covered += mass
        if not rng.next_path():
            return outputs
    raise TooManyPaths(f"more than max_paths = {max_paths:,} paths", rng.covered)


def total_variation(a, b):
    """The largest difference between the probabilities that two distributions give to the same set of outputs.

    Parameters
    ----------
    a, b : dict of output -> float
        The probability of each output. A missing output has probability 0.

    Returns
    -------
    float
        Half the sum of |a(output) - b(output)|, from 0 (equal) to 1 (no output in common). The set with the largest
        difference has all outputs to which a gives more than b. Both distributions sum to 1, so the positive and the
        negative differences have equal totals. Each total is half the sum.
    """
    outputs = {*a, *b}
    if len({isinstance(output, tuple) for output in outputs}) > 1:
        raise TypeError("some outputs are tuples, and others are not; write (0,) for a single token 0")
    return sum(abs(a.get(output, 0.0) - b.get(output, 0.0)) for output in outputs) / 2


class EveryBranch:
    """Stands in for a numpy.random.Generator. Its choices follow a script, which `next_path` changes.

    A choice has several branches, and each branch is a pair (probability, outcome).
    """

    def __init__(self):
        self.script = []  # for each choice: [branches, index of the branch to take]
        self.n_drawn = 0  # the number of choices that the current run has made
        self.covered = 0.0  # the total probability of the paths that were run before

    def take_branch(self, branches):
        """Make one choice among branches, [(probability, outcome), ...], as the script says. Return its outcome."""
        branches = [branch for branch in branches if branch[0] > 0]  # a branch of probability 0 is never taken
        if self.n_drawn == MAX_CHOICES:
            raise TooManyPaths(f"more than {MAX_CHOICES:,} choices along one path", self.covered)
        if self.n_drawn == len(self.script):
            self.script.append([branches, 0])  # no earlier run came to this choice
        known, index = self.script[self.n_drawn]
        if branches != known:
            raise RuntimeError(
                f"after the same choices, the function drew from {branches} in this run, but from {known} in an "
                "earlier run; let it depend on rng alone"
            )
        self.n_drawn += 1
        return branches[index][1]

    def next_path(self):
        """Take the next branch of the last choice that has one, and drop all later choices. False if none has one."""
        if self.n_drawn < len(self.script):
            raise RuntimeError(
                f"after the same choices, the function made {self.n_drawn} draws in this run, but {len(self.script)} "
                "in an earlier run; let it depend on rng alone"
            )
        self.n_drawn = 0
        while self.script:
            branches, index = self.script.pop()
            if index + 1 < len(branches):
                self.script.append([branches, index + 1])
                return True
        return False

    def choice(self, a, size=None, replace=True, p=None):
        """One of 0 ... a-1, or one element of a, with probabilities p (default: uniform). With a size, that many."""
        n = a if np.ndim(a) == 0 else len(a)
        if n > MAX_BRANCHES:
            raise ValueError(f"found {n:,} items to choose from; at most {MAX_BRANCHES:,} can be enumerated")
        NUMPYS_OWN.choice(a, p=p)  # raises NumPy's errors
        if not replace and size is not None and np.prod(size) > 1:
            raise AttributeError("choice(replace=False) of several items cannot be enumerated; draw them one by one")
        items = range(n) if np.ndim(a) == 0 else np.asarray(a)
        p = np.ones(n) if p is None else np.asarray(p, dtype=np.float64)
        branches = [(mass, i) for i, mass in enumerate((p / p.sum()).tolist())]
        return self._several(size, lambda: items[self.take_branch(branches)])

    def integers(self, low, high=None, size=None, *, endpoint=False):
        """An integer from low to high - 1, or from 0 to low - 1 without high. With endpoint, the bound itself too."""
        low, high = (0, low) if high is None else (low, high)
        if np.ndim(low) or np.ndim(high):
            raise AttributeError("integers with several bounds cannot be enumerated; draw them one by one")
        NUMPYS_OWN.integers(low, high, endpoint=endpoint)  # raises NumPy's errors
        return np.int64(low) + self.choice(int(high) + bool(endpoint) - int(low), size)  # (np.uint8 could overflow)

    def multinomial(self, n, pvals, size=None):
        """The number of times that each outcome occurs in n draws."""
        return self._several(size, lambda: np.bincount(self.choice(len(pvals), n, p=pvals), minlength=len(pvals)))

    def random(self, size=None):
        """A number that is uniform in [0, 1). It can be shifted, scaled and compared with plain numbers."""
        zero = 0.0 if size is None else np.float64(0)  # a single number is a float, and one of an array is a np.float64
        return self._several(size, lambda: Uniform(self, zero))

    def uniform(self, low=0.0, high=1.0, size=None):
        """A number that is uniform in [low, high). It can be shifted, scaled and compared with plain numbers."""
        like = NUMPYS_OWN.uniform(low, high, size)
        if isinstance(like, float):
            return float(low) + (float(high) - float(low)) * self.random()
        return low + np.subtract(high, low, dtype=np.float64) * self.random(like.shape)

    def __getattr__(self, name):
        raise AttributeError(
            f"rng.{name} cannot be enumerated; only choice, integers, multinomial, random and uniform can"
        )

    def _several(self, size, draw):
        """draw(), or an array of draws of this size. (With multinomial, each draw is an array itself.)"""
        if size is None:
            return draw()
        shape = np.empty(size).shape  # ValueError if a size is negative
        drawn = [draw() for _ in range(math.prod(shape))]
        drawn = np.array(drawn, dtype=None if drawn else int)  # (an empty array would be float)
        return drawn.reshape((*shape, *drawn.shape[1:]))

    def __reduce_ex__(self, protocol):
        raise TypeError("a copy of rng would not take all branches; use rng itself")


class Uniform:
    """The number shift + scale * u, where u is uniform in an interval [lower, upper), at first [0, 1).

    A comparison is a choice with two branches. It narrows the interval to the side that was taken. Therefore the same
    number can be compared several times, for example in a search through cumulated probabilities.
    """

    __array_ufunc__ = None  # so that NumPy leaves `np.float64(2) * u` to this class

    def __init__(self, rng, shift=0.0, scale=1.0, state=None):
        self.rng, self.shift, self.scale = rng, shift, scale  # shift is a np.float64 if NumPy would give such a number
        self.state = [0.0, 1.0] if state is None else state  # [lower, upper], shared by all numbers with the same u

    def is_below(self, a):
        """Whether this number is below a. The probability that it equals a is 0, so `<=` gives the same as `<`."""
        if np.ndim(a):
            return each(self.is_below, a, dtype=bool)
        cut = (float(a) - float(self.shift)) / float(self.scale)
        if math.isnan(cut):
            raise ValueError("a random number was compared with NaN; check the probabilities for 0 / 0")
        lower, upper = self.state
        cut = min(max(cut, lower), upper)
        probability = (cut - lower) / (upper - lower)
        u_is_below = self.rng.take_branch([(probability, True), (1 - probability, False)])
        self.state[:] = (lower, cut) if u_is_below else (cut, upper)
        below = u_is_below == (self.scale > 0)  # with a negative scale, a smaller u makes this number larger
        # As in NumPy, a NumPy number gives a np.bool_. A caller may write ~ before it, and ~True is -2.
        return np.bool_(below) if isinstance(self.shift < a, np.bool_) else below

    __le__ = is_below

    def __ge__(self, a):
        return self.is_below(a) ^ True  # (`not` has another type, and needs a single number)

    def __lt__(self, a):
        return a is not self and self <= a  # (np.searchsorted compares it with itself, too)

    def __gt__(self, a):
        return a is not self and self >= a

    def __add__(self, number):
        if np.ndim(number):
            return each(self.__add__, number)
        return Uniform(self.rng, self.shift + number, self.scale, self.state)

    def __mul__(self, number):
        if np.ndim(number):
            return each(self.__mul__, number)
        scale = self.scale * number
        if not math.isfinite(scale) or scale == 0:
            raise ValueError(f"a random number was multiplied by {number}; its scale must stay finite and other than 0")
        return Uniform(self.rng, self.shift * number, scale, self.state)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self):
        return self * -1.0

    def __sub__(self, number):
        return self + -1.0 * number  # (-number would be wrong for unsigned integers: -np.uint8(1) is 255)

    def __rsub__(self, number):
        return -self + number

    def __truediv__(self, number):
        return self * (1 / number)

    def has_no_value(self, *_):
        raise TypeError(
            "a random number was used as a value, but it stands for all values; compare each random number with plain "
            "numbers only, and give np.searchsorted one at a time"
        )

    __eq__ = __bool__ = __float__ = __int__ = __hash__ = __rtruediv__ = __pow__ = has_no_value


def each(compute, numbers, dtype=object):
    """compute(number) for each of the numbers, as an array of the same shape."""
    return np.array([compute(number) for number in np.ravel(numbers)], dtype=dtype).reshape(np.shape(numbers))
