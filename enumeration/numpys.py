"""NumPy's generator, imitated: choice, integers, multinomial, random, uniform, with the types that NumPy returns.

A random number behaves as a float, but has no value: it can be compared, shifted and
scaled. `isinstance(u, float)` is True, as it is for NumPy's. What is not imitated is
refused by name, and the enumeration ends with that error, even if the program catches it.
"""

import contextlib
import functools
import gc
import math
import operator
import pickle
import random
import types
from decimal import Decimal
from fractions import Fraction
from unittest import mock

import numpy as np

from enumeration import MAX_BRANCHES, Forks, NotByRng, TooManyPaths

NUMPY = np.random.default_rng(0)  # raises NumPy's errors
NUMPY_TYPES = np.generic, np.ndarray


class EveryBranch(Forks, np.random.Generator):
    """Stands in for a numpy.random.Generator."""

    def __init__(self):
        Forks.__init__(self)
        np.random.Generator.__init__(self, np.random.PCG64(0))  # so that default_rng(rng) is rng; it draws nothing

    def choice(self, a, size=None, replace=True, p=None, **others):
        self.refuse_options("choice", others)
        n = a if np.ndim(a) == 0 else len(a)
        if n > MAX_BRANCHES:
            self.refuse(TooManyPaths(f"a choice among {n:,} items", self.covered))
        if size is not None and not replace:
            self.refuse(TypeError("rng.choice cannot be enumerated with replace=False; draw the items one by one"))
        row = np.asarray(np.ones(n) if p is None else p)
        if p is not None and row.dtype.kind in "fO" and row.ndim == 1:
            self.is_exact |= row.dtype == object and isinstance(row[0], Fraction)
            branches = known_branches(n, tuple(map(plain, row.tolist())), row.dtype)
        else:
            NUMPY.choice(a, p=p)
            branches = branches_of(row)
        items = range(n) if np.ndim(a) == 0 else np.array(a)
        return several(size, lambda: items[self.take(branches)])

    def integers(self, low, high=None, size=None, *, endpoint=False, **others):
        self.refuse_options("integers", others)
        low, high = (0, low) if high is None else (low, high)
        return np.int64(low) + self.choice(int(high) + bool(endpoint) - int(low), size)

    def multinomial(self, n, pvals, size=None, **others):
        self.refuse_options("multinomial", others)
        row = np.asarray(pvals)
        if not is_exact(row):
            NUMPY.multinomial(n, pvals)
            row = row.astype(np.float64)
            row[-1] = max(1 - row[:-1].sum(), 0)  # whatever it was, as in NumPy
        return several(size, lambda: np.bincount(self.choice(len(row), n, p=row), minlength=len(row)))

    def random(self, size=None, **others):
        self.refuse_options("random", others)
        return several(size, lambda: Uniform(self, size is not None))

    def uniform(self, low=0.0, high=1.0, size=None):
        NUMPY.uniform(low, high)
        size = np.broadcast_shapes(np.shape(low), np.shape(high)) or None if size is None else size
        if size is None:
            return float(low) + (float(high) - float(low)) * self.random()
        return low + np.subtract(high, low, dtype=np.float64) * self.random(size)

    def refuse_options(self, method, others):
        if others:
            self.refuse(TypeError(f"rng.{method} cannot be enumerated with {', '.join(others)}; leave it out"))

    def __reduce_ex__(self, protocol):
        self.refuse(TypeError("a copy of rng would not take all branches; use rng itself"))


def refused(name):
    def refuse(self):
        self.refuse(TypeError(f"rng.{name} cannot be enumerated; use rng.choice or rng.random() < a"))

    return property(refuse)


for name in {*dir(np.random.Generator)} - {*vars(EveryBranch)}:
    if not name.startswith("_"):
        setattr(EveryBranch, name, refused(name))


def branches_of(row):
    """[(probability, index), ...] of the entries that are possible. Fractions stay what they are."""
    row = row if is_exact(row) else row.astype(np.float64)
    return [(mass, i) for i, mass in enumerate((row / row.sum()).tolist()) if mass > 0]


@functools.lru_cache(maxsize=9999)  # because many paths draw from the same rows
def known_branches(n, row, dtype):
    """`branches_of` a row, or NumPy's error."""
    row = np.array(row, dtype)
    if not is_exact(row):
        NUMPY.choice(n, p=row.tolist() if row.dtype.kind == "O" else row)
    elif len(row) != n or min(row) < 0 or sum(row) != 1:
        raise ValueError(f"{n} probabilities with a sum of 1 are needed; found {row.tolist()}")
    return branches_of(row)


def plain(a):
    """A number as it is, but a Fraction without NumPy's integers, which overflow."""
    if type(a) is not Fraction or type(a.numerator) is int is type(a.denominator):
        return a
    return Fraction(int(a.numerator), int(a.denominator))


def is_exact(row):
    """Whether a row holds Fractions alone, or whole numbers beside them."""
    return row.dtype == object and all(isinstance(mass, Fraction | int) for mass in row.ravel())


def several(size, draw):
    """draw(), or an array of such draws."""
    if size is None:
        return draw()
    shape = np.empty(size).shape
    drawn = [draw() for _ in range(math.prod(shape))]
    drawn = np.array(drawn, dtype=None if drawn else int)
    return drawn.reshape((*shape, *drawn.shape[1:]))


# ---- Random numbers ----


def each(method, dtype=object):
    """The same operator of a Uniform, but an array is taken element by element."""

    def applied(self, a):
        if np.ndim(a) == 0:
            return method(self, a)
        number = self.scaled(1, in_array=True)
        return np.frompyfunc(lambda x: method(number, x), 1, 1)(a).astype(dtype)

    return applied


class Uniform:
    """The number shift + scale * u, where u is uniform in an interval, at first [0, 1).

    A comparison narrows the interval to the side that was taken, so that the number can
    be compared again, as in a search through cumulated probabilities. Where NumPy would
    have a np.float64, is_numpy is True, and comparisons give a np.bool_; elsewhere they
    give a bool. The two differ: ~True is -2.
    """

    ndim, shape = 0, ()  # np.ndim and np.shape ask for them

    def __init__(self, rng, is_numpy=False, interval=None, shift=0, scale=1):
        self.rng, self.is_numpy, self.shift, self.scale = rng, is_numpy, shift, scale
        self.interval = interval or [0, 1]  # shared by all numbers with the same u

    @property
    def __class__(self):  # what isinstance sees
        return np.float64 if self.is_numpy else float

    def scaled(self, scale, shift=0, in_array=False):
        """scale * self + shift, still a number with the same u."""
        is_numpy, shift = self.is_numpy or in_array, self.shift * scale + shift
        return Uniform(self.rng, is_numpy, self.interval, shift, self.scale * scale)

    def value_of(self, a):
        """A plain number, which a stands for. Whole numbers, Fractions and Decimals stay exact."""
        if isinstance(a, np.float16) and not self.is_numpy:
            self.refuse("NumPy would round the random number to float16 first; compare it with float(a)")
        if type(a) is Uniform:
            self.refuse("a random number was combined with another one")
        if isinstance(a, Fraction | Decimal):
            self.rng.is_exact = True
            return plain(Fraction(a))
        return int(a) if isinstance(a, int | np.integer) else float(0.0 + a)  # 0.0 + a, because float(".3") is no error

    def is_below(self, a):
        """Whether the number is below a. It never equals a, so <= is the same as <."""
        cut = (self.value_of(a) - self.shift) / as_fraction(self.scale)
        if math.isnan(cut):
            self.rng.refuse(ValueError("a random number was compared with NaN; check the probabilities for 0 / 0"))
        lower, upper = self.interval
        cut = min(max(cut, lower), upper)
        mass = (cut - lower) / as_fraction(upper - lower)
        branches = [(mass, True), (1 - mass, False)]
        u_is_below = self.rng.take([branch for branch in branches if branch[0] > 0])
        self.interval[:] = (lower, cut) if u_is_below else (cut, upper)
        below = u_is_below == (self.scale > 0)
        return np.bool_(below) if self.is_numpy or isinstance(a, NUMPY_TYPES) else below

    __le__ = each(is_below, bool)
    __ge__ = each(lambda self, a: self.is_below(a) ^ True, bool)
    __lt__ = each(lambda self, a: a is not self and self.is_below(a), bool)  # np.searchsorted asks whether u < u
    __gt__ = each(lambda self, a: a is not self and self.is_below(a) ^ True, bool)

    @each
    def __add__(self, a):
        return self.scaled(1, self.value_of(a), isinstance(a, NUMPY_TYPES))

    @each
    def __mul__(self, a):
        scale = self.value_of(a)
        if not math.isfinite(self.scale * scale) or self.scale * scale == 0:
            self.rng.refuse(ValueError(f"a random number was multiplied by {a}; its scale must stay finite and not 0"))
        return self.scaled(scale, in_array=isinstance(a, NUMPY_TYPES))

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self):
        return self * -1

    def __pos__(self):
        return self

    def __sub__(self, a):
        return self + -1 * a

    def __rsub__(self, a):
        return self * -1 + a

    def __truediv__(self, a):
        return self * (1 / as_fraction(a))

    def __repr__(self):
        return f"{self.shift} + {self.scale} * u for some u in {self.interval}"

    def __format__(self, spec):
        return self.refuse() if spec else repr(self)

    def refuse(self, problem="it was used as a value"):
        plain = "a random number stands for all its values here, so compare it with plain numbers, one at a time"
        self.rng.refuse(TypeError(f"{plain}; {problem}"))

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        """NumPy's arithmetic and comparisons, which a NumPy number on the left calls as well."""
        own, swapped = OPERATORS.get(ufunc, (None, None))
        if method != "__call__" or own is None or options:
            return self.refuse(f"np.{ufunc.__name__} was called")
        if inputs[0] is self:
            return own(*inputs)
        return swapped(self, inputs[0])

    def __getattr__(self, name):
        if name.startswith("__"):  # what Python and NumPy ask for
            raise AttributeError(name)
        self.refuse(f".{name} was asked for")


def as_fraction(a):
    """A whole number as a Fraction, so that dividing by it is exact."""
    return Fraction(a) if isinstance(a, int) and not isinstance(a, bool) else a


def has_no_value(self, *_):
    self.refuse()


for name in "eq ne hash bool float int index abs pow rpow mod rmod divmod rdivmod floordiv rfloordiv rtruediv".split():
    setattr(Uniform, f"__{name}__", has_no_value)
for name in "round trunc floor ceil complex".split():
    setattr(Uniform, f"__{name}__", has_no_value)

OPERATORS = {  # how u ufunc a is computed, and a ufunc u
    np.add: (operator.add, Uniform.__radd__), np.subtract: (operator.sub, Uniform.__rsub__),
    np.multiply: (operator.mul, Uniform.__rmul__), np.divide: (operator.truediv, has_no_value),
    np.less: (operator.lt, Uniform.__gt__), np.less_equal: (operator.le, Uniform.__ge__),
    np.greater: (operator.gt, Uniform.__lt__), np.greater_equal: (operator.ge, Uniform.__le__),
    np.negative: (operator.neg, None), np.positive: (operator.pos, None),
    np.equal: (has_no_value, has_no_value), np.not_equal: (has_no_value, has_no_value),
}  # fmt: skip


# ---- Nothing else draws ----


@contextlib.contextmanager
def nothing_else_draws(function, rng):
    """Within the `with` statement, generators without a seed cannot be made; at its end, others must be as before."""

    def refuse(*_):
        rng.refuse(NotByRng("the function makes a generator of its own, without a seed; let rng alone decide"))

    def seed(self, a=None, *args, **options):
        python_seed(self, a, *args, **options)
        if a is None:  # it may be made, as by an import, but not used
            others.append(self)
            before.append(state_of(self))

    python_seed, others = random.Random.seed, [random, np.random, *generators_of(function)]
    before = [*map(state_of, others)]
    with (
        mock.patch.object(np.random.bit_generator, "randbits", refuse, create=True),
        mock.patch.object(random, "_urandom", refuse),
        mock.patch.object(random.Random, "seed", seed),
    ):
        yield
    if before != [*map(state_of, others)]:
        raise NotByRng("the function drew from another generator, such as np.random; let rng alone decide")


def state_of(generator):
    """The state of a generator, or of one of the modules that are used like one."""
    if isinstance(generator, np.random.Generator):
        return pickle.dumps(generator.bit_generator.state)
    return pickle.dumps(generator.get_state()) if hasattr(generator, "get_state") else generator.getstate()


def generators_of(function, limit=1000):
    """The generators that a function can reach: in its closure, its globals, its arguments, and what these hold."""
    found, seen, todo = [], set(), [function]
    while todo and len(seen) < limit:
        thing = todo.pop()
        if id(thing) in seen or isinstance(thing, type | types.ModuleType | EveryBranch):
            continue
        seen.add(id(thing))
        if isinstance(thing, np.random.Generator | np.random.RandomState | random.Random):
            found.append(thing)
        elif isinstance(thing, types.FunctionType):
            codes = [thing.__code__, *(c for c in thing.__code__.co_consts if isinstance(c, types.CodeType))]
            names = {name for code in codes for name in code.co_names} & thing.__globals__.keys()
            todo += [*(thing.__globals__[name] for name in names), thing.__closure__, thing.__defaults__]
        else:
            todo += gc.get_referents(thing)
    return found
