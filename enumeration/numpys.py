"""NumPy's generator, imitated: choice, integers, multinomial, random, uniform.

Code that draws with Python's random.Random finds its random, uniform and choices here.

A random number has no value. It can be compared, shifted, scaled, and its logarithm can
be taken. What is not imitated is refused by name, and the enumeration ends with that
error, even if the program catches it.
"""

import functools
import math
from fractions import Fraction

import numpy as np

from .forks import MAX_BRANCHES, Forks, TooManyPaths


class EveryBranch(Forks, np.random.Generator):
    """Stands in for a numpy.random.Generator."""

    def __init__(self):
        Forks.__init__(self)
        # So that default_rng(rng) is rng. It draws nothing.
        np.random.Generator.__init__(self, np.random.PCG64(0))

    def choice(self, a, size=None, replace=True, p=None, **others):
        self.refuse_options("choice", others)
        if size is not None and not replace:
            self.refuse_options("choice", ["replace=False"])
        n = len(a) if np.ndim(a) else a
        if p is None or np.ndim(p) != 1:
            numpys_own().choice(a, p=p)
            branches = self.equal_branches(n)
        else:
            branches = self.branches_of(n, p)
        items = np.array(a) if np.ndim(a) else range(n)
        return several(size, lambda: items[self.take(branches)])

    def choices(self, population, weights=None, *, k=1, **others):
        """k items in a list, as of Python's random.Random, where the weights have any sum."""
        self.refuse_options("choices", others)
        n = len(population)
        if weights is None:
            branches = self.equal_branches(n)
        else:
            branches = self.branches_of(n, as_probabilities(weights))
        return [population[self.take(branches)] for _ in range(k)]

    def integers(self, low, high=None, size=None, *, endpoint=False, **others):
        self.refuse_options("integers", others)
        if high is None:
            low, high = 0, low
        self.refuse_arrays("integers", low, high)
        n = int(high) - int(low) + bool(endpoint)
        return np.int64(low) + self.choice(n, size)

    def multinomial(self, n, pvals, size=None, **others):
        self.refuse_options("multinomial", others)
        self.refuse_arrays("multinomial", n, *pvals)
        row = np.asarray(pvals)
        if not is_exact(row):
            numpys_own().multinomial(n, pvals)
            row = row.astype(np.float64)
            row[-1] = max(1 - row[:-1].sum(), 0)  # whatever it was, as in NumPy

        def counts():
            return np.bincount(self.choice(len(row), n, p=row), minlength=len(row))

        return several(size, counts)

    def random(self, size=None, **others):
        self.refuse_options("random", others)
        return several(size, lambda: Uniform(self, is_numpy=size is not None))

    def uniform(self, low=0.0, high=1.0, size=None):
        shape = np.shape(numpys_own().uniform(low, high, size))
        if size is None and shape == ():
            return float(low) + (float(high) - float(low)) * self.random()
        return low + np.subtract(high, low, dtype=np.float64) * self.random(shape)

    def equal_branches(self, n):
        if n > MAX_BRANCHES:
            self.refuse(TooManyPaths(f"a choice among {n:,} items", self.covered))
        return [(1 / n, i) for i in range(n)]

    def branches_of(self, n, p):
        row = np.asarray(p)
        is_list = not isinstance(p, np.ndarray) or row.dtype == object
        branches = known_branches(n, tuple(map(plain, row.tolist())), row.dtype, is_list)
        self.is_exact |= isinstance(branches[0][0], Fraction)
        return branches

    def refuse_options(self, method, others):
        if others:
            problem = f"rng.{method} cannot be enumerated with {', '.join(others)}"
            self.refuse(TypeError(f"{problem}; leave it out"))

    def refuse_arrays(self, method, *numbers):
        if any(map(np.ndim, numbers)):
            problem = f"rng.{method} takes plain numbers here, and found an array"
            self.refuse(TypeError(f"{problem}; call it once for each"))

    def __reduce_ex__(self, protocol):
        self.refuse(TypeError("a copy of rng would not take all branches; use rng itself"))


def refused(name):
    problem = f"rng.{name} cannot be enumerated; use rng.choice or rng.random() < a"
    return property(lambda self: self.refuse(TypeError(problem)))


for name in {*dir(np.random.Generator)} - {*vars(EveryBranch)}:
    if not name.startswith("_"):
        setattr(EveryBranch, name, refused(name))


def numpys_own():
    """A generator that raises NumPy's errors, a new one each time, for none may stay and draw."""
    return np.random.default_rng(0)


@functools.lru_cache(maxsize=9999)  # because many paths draw from the same rows
def known_branches(n, p, dtype, is_list):
    """[(probability, index), ...] of the entries that are possible, or NumPy's error.

    NumPy asks less of an array of float32 than of a list of the same numbers.
    """
    row = np.array(p, dtype)
    if not is_exact(row):
        numpys_own().choice(n, p=p if is_list else row)
        row = row.astype(np.float64)
    elif len(p) != n or min(p) < 0 or sum(p) != 1:
        raise ValueError(f"{n} probabilities with a sum of 1 are needed; found {[*p]}")
    row = (row / row.sum()).tolist()
    return [(mass, i) for i, mass in enumerate(row) if mass > 0]


def plain(a):
    """A number as it is, but a Fraction without NumPy's integers, which overflow."""
    if isinstance(a, Fraction) and {type(a.numerator), type(a.denominator)} != {int}:
        return Fraction(int(a.numerator), int(a.denominator))
    return a


def as_probabilities(weights):
    row = np.asarray(weights)
    if not 0 < row.sum() < np.inf:
        raise ValueError(f"weights with a finite sum above 0 are needed; found {[*weights]}")
    return row / row.sum()


def is_exact(row):
    """Whether a row holds Fractions alone, or whole numbers beside them."""
    return row.dtype == object and all(isinstance(mass, Fraction | int) for mass in row)


def several(size, draw):
    """draw(), or an array of such draws."""
    if size is None:
        return draw()
    shape = np.empty(size).shape
    drawn = [draw() for _ in range(math.prod(shape))]
    drawn = np.array(drawn, dtype=None if drawn else int)
    return drawn.reshape((*shape, *drawn.shape[1:]))


# ---- Random numbers ----


def elementwise(dtype):
    """An operator of a random number, which also takes an array, and then returns one."""

    def decorate(method):
        def operator(self, a):
            shape = getattr(a, "shape", ())
            if shape == ():
                return method(self, a)
            number = self.scaled(1, is_numpy=True)
            results = [method(number, x) for x in np.ravel(a)]
            return np.array(results, dtype).reshape(shape)

        return operator

    return decorate


class Uniform:
    """The number shift + scale * u, where u is uniform in an interval, at first [0, 1).

    A comparison narrows the interval to the side that was taken, so that the number can
    be compared again, as in a search through cumulated probabilities. It gives a bool
    where NumPy does, and a np.bool_ where NumPy does, for ~ and + do other things there.
    """

    ndim, shape = 0, ()  # np.ndim and np.shape ask for them

    def __init__(self, rng, is_numpy=False):
        self.rng = rng
        self.is_numpy = is_numpy  # whether NumPy would have a np.float64
        self.interval = [0, 1]  # shared by all numbers with the same u
        self.shift = 0
        self.scale = 1
        self.inside = None  # the number x if u stands for log(x)

    def scaled(self, scale, shift=0, is_numpy=False):
        """scale * self + shift, still a number with the same u."""
        number = Uniform(self.rng, self.is_numpy or is_numpy)
        number.interval = self.interval
        number.shift = self.shift * scale + shift
        number.scale = self.scale * scale
        number.inside = self.inside
        if not 0 < abs(number.scale) < math.inf:
            problem = f"a random number was multiplied by {scale}"
            self.rng.refuse(ValueError(f"{problem}; its scale must stay finite and not 0"))
        return number

    def value_of(self, a):
        """A plain number that a stands for. Whole numbers and Fractions stay exact."""
        if type(a) is Uniform:
            self.refuse("was combined with another one")
        if "float16" in str(getattr(a, "dtype", "")):
            self.refuse("was combined with a float16 a, not with float(a)")
        if hasattr(a, "item"):
            a = a.item()
        if isinstance(a, Fraction):
            self.rng.is_exact = True
            return plain(a)
        if isinstance(a, int):
            return int(a)
        if isinstance(a, float | np.longdouble):
            return float(a)
        self.refuse(f"was combined with a {type(a).__name__}")

    def is_below(self, a):
        """Whether the number is below a. It never equals a, so <= is the same as <."""
        limit = (self.value_of(a) - self.shift) / Fraction(self.scale)
        if limit != limit:
            problem = "a random number was compared with NaN"
            self.rng.refuse(ValueError(f"{problem}; check the probabilities for 0 / 0"))
        if self.inside is None:
            u_is_below = self.narrow(limit)
        else:
            u_is_below = self.inside.is_below(math.exp(min(limit, 700)))
        is_below = bool(u_is_below) == (self.scale > 0)
        return np.bool_(is_below) if self.is_numpy or hasattr(a, "dtype") else is_below

    def narrow(self, limit):
        """Whether u is below a limit. From now on, u lies on the side that was taken."""
        lower, upper = self.interval
        limit = min(max(limit, lower), upper)
        mass = (limit - lower) / Fraction(upper - lower)
        sides = [(mass, True), (1 - mass, False)]
        u_is_below = self.rng.take([side for side in sides if side[0] > 0])
        if lower < limit < upper:
            self.interval[:] = (lower, limit) if u_is_below else (limit, upper)
        return u_is_below

    __le__ = elementwise(bool)(is_below)

    @elementwise(bool)
    def __ge__(self, a):
        return self.is_below(a) ^ True  # not, of the same type

    @elementwise(bool)
    def __lt__(self, a):
        return a is not self and self.is_below(a)  # np.searchsorted asks whether u < u

    @elementwise(bool)
    def __gt__(self, a):
        return a is not self and self.is_below(a) ^ True

    @elementwise(object)
    def __add__(self, a):
        return self.scaled(1, self.value_of(a), hasattr(a, "dtype"))

    @elementwise(object)
    def __sub__(self, a):
        return self.scaled(1, -self.value_of(a), hasattr(a, "dtype"))

    @elementwise(object)
    def __mul__(self, a):
        return self.scaled(self.value_of(a), is_numpy=hasattr(a, "dtype"))

    @elementwise(object)
    def __truediv__(self, a):
        divisor = self.value_of(a)
        scale = Fraction(1) / divisor if divisor else math.inf
        return self.scaled(scale, is_numpy=hasattr(a, "dtype"))

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, a):
        return -self + a

    def __neg__(self):
        return self.scaled(-1)

    def __pos__(self):
        return self

    def log(self):
        """np.log of the number, which is below a where the number is below exp(a)."""
        ends = [self.shift + self.scale * end for end in self.interval]
        if self.inside is not None or min(ends) < 0:
            self.refuse("was given to np.log")
        number = Uniform(self.rng, is_numpy=True)
        number.inside = self
        return number

    def __repr__(self):
        return f"{self.shift} + {self.scale} * u for some u in {self.interval}"

    def __format__(self, spec):
        return self.refuse() if spec else repr(self)

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        """NumPy's arithmetic and comparisons, which a NumPy number on the left calls, too."""
        names = UFUNCS.get(ufunc.__name__)
        if method != "__call__" or names is None or options:
            self.refuse(f"was given to np.{ufunc.__name__}")
        number = self.scaled(1, is_numpy=True)
        if inputs[0] is self:
            return getattr(number, names[0])(*inputs[1:])
        return getattr(number, names[1])(inputs[0])

    def __getattr__(self, name):
        if name.startswith("__"):  # what Python and NumPy ask for
            raise AttributeError(name)
        self.refuse(f"was asked for .{name}")

    @property
    def __class__(self):
        self.refuse("was asked for its type")

    def refuse(self, problem="was used as a value"):
        rule = "it stands for all its values here, so compare it with plain numbers, one by one"
        way_out = "enumeration/values.py runs code that needs values"
        self.rng.refuse(TypeError(f"a random number {problem}; {rule}; {way_out}"))


def has_no_value(self, *_):
    self.refuse()


VALUES = "eq ne hash bool float int index complex abs round trunc floor ceil"
OTHERS = "pow rpow mod rmod divmod rdivmod floordiv rfloordiv rtruediv"
for name in f"{VALUES} {OTHERS}".split():
    setattr(Uniform, f"__{name}__", has_no_value)

UFUNCS = {  # the methods for ufunc(u, a) and ufunc(a, u)
    "add": ("__add__", "__radd__"),
    "subtract": ("__sub__", "__rsub__"),
    "multiply": ("__mul__", "__rmul__"),
    "divide": ("__truediv__", "__rtruediv__"),
    "less": ("__lt__", "__gt__"),
    "less_equal": ("__le__", "__ge__"),
    "greater": ("__gt__", "__lt__"),
    "greater_equal": ("__ge__", "__le__"),
    "negative": ("__neg__",),
    "positive": ("__pos__",),
    "log": ("log",),
}
