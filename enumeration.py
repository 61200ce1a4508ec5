"""The exact output distribution of a sampler, computed by running it down every path.

Comparing histograms misses small bugs and fails on good code. But a sampler that draws
a few tokens from a small vocabulary can take only finitely many paths, and
`output_distribution` takes each of them once. The probability of a path is the product
of the probabilities of its outcomes. Add up the paths that end in the same output, and
you have its probability, exact but for rounding.

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
and all randomness has to come from `rng`. benchmarks/torch_enumeration.py is for code
that draws from PyTorch. The core is `output_distribution`, `take_branch` and
`next_path`; the rest imitates NumPy, with the types that NumPy returns.
"""

import copy
import math
import pickle
import random
from functools import lru_cache

import numpy as np

MAX_CHOICES = 1_000  # along one path; a loop without end gets there within seconds
MAX_BRANCHES = 1_000_000  # of one choice
NUMPY = np.random.default_rng(0)  # raises NumPy's errors
NUMPY_TYPES = np.generic, np.ndarray


class TooManyPaths(RuntimeError):
    """`covered` is the total probability of the paths that were run before."""

    def __init__(self, problem, covered):
        super().__init__(
            f"{problem}; the paths run so far have a total probability of {covered:.6g}. Use a smaller vocabulary or "
            "fewer tokens. A loop that may run for ever cannot be enumerated."
        )
        self.covered = covered


class NotByRng(RuntimeError):
    """Something else than rng decides."""


def output_distribution(function, max_paths=1_000_000):
    """{output: probability} of function(rng), an int or several. Outputs are tuples of int.

    TooManyPaths is raised after max_paths, a million of which take minutes, and
    NotByRng if something else than rng decides: the first path is run again at the end.
    """
    rng, outputs = EveryBranch(), {}
    for _ in range(max_paths):
        output = rng.run(function)
        if not outputs:
            first, script = output, [[*choice] for choice in rng.script]
        mass = math.prod(branches[index][0] for branches, index in rng.script)  # the probability of this path
        outputs[output] = outputs.get(output, 0.0) + mass
        rng.covered += mass
        if not rng.next_path():
            rng.script = script
            again = rng.run(function)
            rng.check_others(f"the same choices led to {first}, and then to {again}" if again != first else "")
            return outputs
    raise TooManyPaths(f"more than max_paths = {max_paths:,} paths", rng.covered)


def other_generators():
    """The state of those that a function might draw from by mistake."""
    return random.getstate(), pickle.dumps(np.random.get_state())


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
    return sum(abs(a.get(output, 0.0) - b.get(output, 0.0)) for output in outputs) / 2


class EveryBranch(np.random.Generator):
    """Stands in for a numpy.random.Generator: choice, integers, multinomial, random, uniform."""

    def __init__(self):
        super().__init__(np.random.PCG64(0))  # so that np.random.default_rng(rng) is rng; it draws nothing
        self.script = []  # for each choice: [branches, index of the branch to take]
        self.n_drawn = 0  # choices made in this run
        self.covered = 0.0  # total probability of the runs before
        self.refused = None  # the last error of ours, in case the program catches it
        self.others = other_generators()

    def run(self, function):
        """One path: the output of function(self)."""
        self.n_drawn = 0
        output = tuple(np.ravel(function(self)).tolist())
        if self.refused:
            raise self.refused
        if self.n_drawn < len(self.script):
            self.check_others("the same choices ended here, but earlier went on")
        return output

    def check_others(self, problem=""):
        """NotByRng if the function drew from another generator, or if there is a problem."""
        if other_generators() != self.others:
            problem = "the function drew from np.random or from random"
        if problem:
            self.refuse(NotByRng(f"{problem}; let rng alone decide"))

    def refuse(self, error):
        self.refused = error
        raise error

    def take_branch(self, branches):
        """Make one choice among [(probability, outcome), ...], and return its outcome."""
        branches = [branch for branch in branches if branch[0] > 0]
        if self.n_drawn == MAX_CHOICES:
            self.refuse(TooManyPaths(f"more than {MAX_CHOICES:,} choices along one path", self.covered))
        if self.n_drawn == len(self.script):
            self.script.append([branches, 0])  # no earlier run came to this choice
        known, index = self.script[self.n_drawn]
        if branches != known:
            self.check_others(f"the same choices led to {branches}, but earlier to {known}")
        self.n_drawn += 1
        return branches[index][1]

    def next_path(self):
        """Move the last choice that can move to its next branch. False if none can."""
        while self.script:
            branches, index = self.script.pop()
            if index + 1 < len(branches):
                self.script.append([branches, index + 1])
                return True
        return False

    def choice(self, a, size=None, replace=True, p=None):
        n = a if np.ndim(a) == 0 else len(a)
        if n > MAX_BRANCHES:
            self.refuse(TooManyPaths(f"a choice among {n:,} items", self.covered))
        if size is not None and not replace:
            self.refuse(TypeError("rng.choice cannot be enumerated with replace=False; draw the items one by one"))
        row = np.asarray(np.ones(n) if p is None else p)
        if p is None or row.dtype.kind != "f" or row.ndim != 1:
            NUMPY.choice(a, p=p)
            branches = shares(row)
        else:
            branches = known_branches(n, row.tobytes(), row.dtype)
        items = range(n) if np.ndim(a) == 0 else np.array(a)
        return several(size, lambda: items[self.take_branch(branches)])

    def integers(self, low, high=None, size=None, *, endpoint=False):
        low, high = (0, low) if high is None else (low, high)
        return np.int64(low) + self.choice(int(high) + bool(endpoint) - int(low), size)

    def multinomial(self, n, pvals, size=None):
        return several(size, lambda: np.bincount(self.choice(len(pvals), n, p=pvals), minlength=len(pvals)))

    def random(self, size=None):
        return several(size, lambda: Uniform(self, size is not None))

    def uniform(self, low=0.0, high=1.0, size=None):
        NUMPY.uniform(low, high)
        size = np.broadcast_shapes(np.shape(low), np.shape(high)) or None if size is None else size
        if size is None:
            return float(low) + (float(high) - float(low)) * self.random()
        return low + np.subtract(high, low, dtype=np.float64) * self.random(size)

    def __reduce_ex__(self, protocol):
        self.refuse(TypeError("a copy of rng would not take all branches; use rng itself"))


def shares(row):
    """[(probability, index), ...]"""
    row = row.astype(np.float64)
    return [(mass, i) for i, mass in enumerate((row / row.sum()).tolist())]


@lru_cache(maxsize=9999)  # because many paths draw from the same rows
def known_branches(n, row, dtype):
    """The `shares` of a row, or NumPy's error."""
    row = np.frombuffer(row, dtype)
    NUMPY.choice(n, p=row)
    return shares(row)


def refused(name):
    def refuse(self):
        self.refuse(TypeError(f"rng.{name} cannot be enumerated; use rng.choice or rng.random() < a"))

    return property(refuse)


for name in {*dir(np.random.Generator)} - {*vars(EveryBranch)}:
    if not name.startswith("_"):
        setattr(EveryBranch, name, refused(name))


def several(size, draw):
    """draw(), or an array of such draws."""
    if size is None:
        return draw()
    shape = np.empty(size).shape
    drawn = [draw() for _ in range(math.prod(shape))]
    drawn = np.array(drawn, dtype=None if drawn else int)
    return drawn.reshape((*shape, *drawn.shape[1:]))


def each(operator, dtype=object):
    """The same operator, but an array is taken element by element."""

    def applied(self, a):
        if np.ndim(a) == 0:
            return operator(self, a)
        number = self.scaled(1.0, in_array=True)
        return np.frompyfunc(lambda x: operator(number, x), 1, 1)(a).astype(dtype)

    return applied


class Uniform:
    """The number shift + scale * u, where u is uniform in an interval, at first [0, 1).

    A comparison narrows the interval to the side that was taken, so that the number can
    be compared again, as in a search through cumulated probabilities. Where NumPy would
    have a np.float64, is_numpy is True, and comparisons give a np.bool_; elsewhere they
    give a bool. The two differ: ~True is -2.
    """

    __array_ufunc__ = None  # so that NumPy leaves `np.float64(2) * u` to this class

    def __init__(self, rng, is_numpy=False):
        self.rng, self.is_numpy, self.shift, self.scale = rng, is_numpy, 0.0, 1.0
        self.interval = [0.0, 1.0]  # shared by all numbers with the same u

    def scaled(self, scale, shift=0.0, in_array=False):
        """scale * self + shift, still a number with the same u."""
        other = copy.copy(self)
        other.scale, other.shift = self.scale * scale, self.shift * scale + shift
        other.is_numpy = self.is_numpy or in_array
        return other

    def is_below(self, a):
        """Whether the number is below a. It never equals a, so <= is the same as <."""
        cut = (float(0.0 + a) - self.shift) / self.scale  # 0.0 + a, because float(".3") is no error
        if math.isnan(cut):
            self.rng.refuse(ValueError("a random number was compared with NaN; check the probabilities for 0 / 0"))
        lower, upper = self.interval
        cut = min(max(cut, lower), upper)
        probability = (cut - lower) / (upper - lower)
        u_is_below = self.rng.take_branch([(probability, True), (1 - probability, False)])
        self.interval[:] = (lower, cut) if u_is_below else (cut, upper)
        below = u_is_below == (self.scale > 0)
        return np.bool_(below) if self.is_numpy or isinstance(a, NUMPY_TYPES) else below

    __le__ = each(is_below, bool)
    __ge__ = each(lambda self, a: self.is_below(a) ^ True, bool)
    __lt__ = each(lambda self, a: a is not self and self.is_below(a), bool)  # np.searchsorted asks whether u < u
    __gt__ = each(lambda self, a: a is not self and self.is_below(a) ^ True, bool)

    @each
    def __add__(self, a):
        return self.scaled(1.0, float(0.0 + a), isinstance(a, NUMPY_TYPES))

    @each
    def __mul__(self, a):
        scale = float(0.0 + a)
        if not math.isfinite(self.scale * scale) or self.scale * scale == 0:
            self.rng.refuse(ValueError(f"a random number was multiplied by {a}; its scale must stay finite and not 0"))
        return self.scaled(scale, in_array=isinstance(a, NUMPY_TYPES))

    __radd__, __rmul__ = __add__, __mul__

    def __sub__(self, number):
        return self + -1.0 * number

    def __rsub__(self, number):
        return self * -1.0 + number

    def __truediv__(self, number):
        return self * (1 / number)

    def has_no_value(self, *_):
        problem = "a random number stands for all its values here; compare it with plain numbers, one at a time"
        self.rng.refuse(TypeError(problem))

    __eq__ = __hash__ = __bool__ = __float__ = __int__ = __abs__ = __pow__ = __rtruediv__ = has_no_value
