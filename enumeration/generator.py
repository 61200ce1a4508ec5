"""NumPy's generator, imitated: choice, integers, random, uniform, and what choices make.

A random number of `EveryBranch` has no value. It can be compared, shifted, scaled, and
its logarithm can be taken. A program that does anything else with one is run by `Valued`,
whose numbers all have values, and values.py finds where its output changes.

What is not imitated is refused by name, and the enumeration ends with that error, even if
the program catches it.
"""

import copy
import functools
import math
import operator
from fractions import Fraction

import numpy as np

from .compare import in_python
from .forks import MAX_BRANCHES, Forks, NotByRng, TooManyPaths, as_output

# A number of this type may be shifted by so many times its scale. Rounding, which then
# decides as well, is below 1e-12, and below 1e-6 in float32.
LARGEST_SHIFT = {float: 4096, np.float64: 4096, np.float32: 16}
THIRD_TIME = 30  # paths that are taken with values, at most
WHOLE = int, np.integer
NARROW = 1e-5  # an interval in which rounding in float32 may decide

RULE = "to be exact, compare it with plain numbers, one by one"
EARLIER = "a random number of an earlier run was used; keep none, for each run begins anew"
ADVICE = "cannot be enumerated; use rng.choice or rng.random() < a, or see enumeration/values.py"


class NeedsValues(TypeError):
    """A number was used for more than `EveryBranch` can follow."""

    n_runs = 0  # that there were, when it was raised


def refused(name):
    return property(lambda rng: rng.refuse(TypeError(f"rng.{name} {ADVICE}")))


METHODS = {name: refused(name) for name in dir(np.random.Generator) if name[0] != "_"}
Refusing = type("Refusing", (np.random.Generator,), METHODS)


class EveryBranch(Forks, Refusing):
    """Stands in for a numpy.random.Generator."""

    def __init__(self):
        Forks.__init__(self)
        # So that default_rng(rng) is rng. It draws nothing.
        np.random.Generator.__init__(self, np.random.PCG64(0))

    def run(self, function, begin):
        """Take the path that begins so. NeedsValues if an error of the program comes of that."""
        self.intervals = intervals = []
        try:
            return super().run(function, begin)
        except Exception as error:
            self.intervals = []  # for those of this run are of an earlier one now
            if not self.refused and intervals:
                self.compare_with_values(function, self.path[: self.n_forks], intervals, error)
            error.n_runs = self.n_paths + 1
            raise

    def run_again(self, function):
        """And take some a third time with values, which show what C code does with a number."""
        super().run_again(function)
        for path, output, intervals in self.kept[:: len(self.kept) // THIRD_TIME + 1]:
            self.compare_with_values(function, path, intervals, output)

    def compare_with_values(self, function, path, intervals, before):
        """An error if a path with values leads to another output or another kind of error."""
        if any(high - low < NARROW for low, high in intervals):
            return  # rounding may decide
        try:
            now = Valued().run(function, None, Taken(path, intervals))
        except NotByRng:
            raise
        except Exception as error:
            now = error
        is_same = type(now) is type(before) if isinstance(before, Exception) else now == before
        if not is_same:
            problem = f"led to {before!r:.80}, and to {now!r:.80} when it had a value"
            raise NeedsValues(f"a random number {problem}; {RULE}")

    def __getattr__(self, name):
        if hasattr(np.random.RandomState, name):
            name = f"rng.{name} {ADVICE}"
        raise AttributeError(name)  # as a Generator does

    def choice(self, a, size=None, replace=True, p=None, axis=0, shuffle=True):
        n = len(a) if np.ndim(a) else a
        if size is None and axis == 0 and np.ndim(p) == 1 and isinstance(n, WHOLE):
            drawn = self.take(self.branches_of(n, p))
            return np.array(a)[drawn] if np.ndim(a) else drawn
        if size is None and p is None and type(a) is int and a > 0:
            return self.one_of(a)
        has_objects = isinstance(p, np.ndarray) and p.dtype == object
        floats = p.astype(float) if has_objects else p
        found = numpys_own().choice(a, size, replace, floats, axis, shuffle)
        if not replace and not shuffle:
            self.refuse_argument("choice(shuffle=False)")
        items = np.asarray(a)
        n = items.shape[axis] if items.ndim else int(a)
        drawn = several(size, self.draws_of(n, replace, p))
        if items.ndim:
            drawn = items.take(drawn, axis)
        if size is None:
            return drawn
        found[...] = drawn
        return found

    def draws_of(self, n, replace, p):
        """A function that draws an index, another one each time if there's no replacement."""
        if replace and p is None:
            return lambda: self.one_of(n)
        branches = equal_branches(n) if p is None else self.branches_of(n, p)

        def draw():
            nonlocal branches
            drawn = self.take(branches)
            if not replace:
                branches = without(drawn, branches)
            return drawn

        return draw

    def one_of(self, n):
        if n > MAX_BRANCHES:
            self.refuse(TooManyPaths(f"a choice among {n:,} items", self.covered))
        return self.take(equal_branches(n))

    def permutation(self, x, axis=0):
        found = numpys_own().permutation(x, axis)
        if np.ndim(x):
            found[...] = x
            self.shuffle(found, axis)
        else:
            found.sort()
            self.shuffle(found)
        return found

    def shuffle(self, x, axis=0):
        numpys_own().shuffle(copy.copy(x), axis)
        if isinstance(x, np.ndarray):
            order = [*range(x.shape[axis])]
            self.shuffle(order)
            x[...] = x.take(np.array(order, int), axis)
            return
        for i in range(len(x) - 1, 0, -1):
            j = self.choice(i + 1)
            x[i], x[j] = x[j], x[i]

    def multinomial(self, n, pvals, size=None):
        found = numpys_own().multinomial(n, pvals, size)
        if found.ndim > 1:
            self.refuse_argument("multinomial of several rows")
        *p, last = pvals
        rest = max(1 - sum(p), 0)
        p.append(last if abs(rest - last) < 1e-12 else rest)  # NumPy doesn't ask for a sum of 1
        return np.bincount(self.choice(len(p), int(n), p=p), minlength=len(p))

    def integers(self, low, high=None, size=None, dtype=np.int64, endpoint=False):
        found = numpys_own().integers(low, high, size, dtype, endpoint)
        if np.size(found) == 0:
            return found
        if np.ndim(low) or np.ndim(high):
            problem = "rng.integers takes plain numbers here, and found an array"
            self.refuse(TypeError(f"{problem}; call it once for each"))
        if high is None:
            low, high = 0, low
        low = int(low)
        n = int(high) - low + bool(endpoint)
        if size is None:
            return type(found)(low + self.choice(n))
        for place in np.ndindex(found.shape):
            found[place] = low + self.choice(n)
        return found

    def random(self, size=None, dtype=np.float64, out=None):
        """Numbers in float32 are multiples of 2^-24, which is left out of account."""
        if dtype is not np.float64:
            numpys_own().random(dtype=dtype)
        if out is not None:
            self.refuse_argument("random(out=...)")
        if size is None:
            return self.number(0.5)
        like = np.dtype(dtype).type(0.5)
        numbers = several(size, lambda: self.number(like))
        return numbers.view(Uniforms) if numbers.dtype == object else numbers.astype(dtype)

    def number(self, like):
        self.check_is_running()
        number = Uniform(self, like)
        self.intervals.append(number.interval)
        return number

    def standard_exponential(self, size=None, dtype=np.float64, method="zig", out=None):
        numpys_own().standard_exponential(size, dtype, method, copy.copy(out))
        noise = -np.log(self.random(size, dtype, out))
        return noise.item() if size is None else noise

    def exponential(self, scale=1.0, size=None):
        numpys_own().exponential(scale, size)
        return number_or_array(scale) * self.standard_exponential(size_of(size, scale))

    def gumbel(self, loc=0.0, scale=1.0, size=None):
        numpys_own().gumbel(loc, scale, size)
        noise = -np.log(self.standard_exponential(size_of(size, loc, scale)))
        noise = number_or_array(loc) + number_or_array(scale) * noise
        return noise if np.ndim(noise) else noise.item()

    def uniform(self, low=0.0, high=1.0, size=None):
        numpys_own().uniform(low, high, size)
        return self.between(low, high, size)

    def between(self, low=0.0, high=1.0, size=None):
        size = size_of(size, low, high)
        low, high = map(number_or_array, (low, high))
        return low + (high - low) * self.random(size)

    def refuse_argument(self, call):
        self.refuse(TypeError(f"rng.{call} {ADVICE}"))

    def branches_of(self, n, p):
        row = np.asarray(p)
        is_list = not isinstance(p, np.ndarray) or row.dtype == object
        branches = known_branches(n, tuple(map(plain, row.tolist())), row.dtype, is_list)
        self.is_exact |= isinstance(branches[0][0], Fraction)
        return branches

    def __reduce_ex__(self, protocol):
        self.refuse(TypeError("a copy of rng would not take all branches; use rng itself"))


def numpys_own():
    """A generator that raises NumPy's errors, a new one each time, for none may stay and draw."""
    return np.random.default_rng(0)


@functools.lru_cache(maxsize=9)
def equal_branches(n):
    return [(1 / n, i) for i in range(n)]


@functools.lru_cache(maxsize=9999)  # because many paths draw from the same rows
def known_branches(n, p, dtype, is_list):
    """[(probability, index), ...] of the entries that are possible, or NumPy's error.

    NumPy asks less of an array of float32 than of a list of the same numbers.
    """
    row = np.array(p, dtype)
    if row.dtype != object or not all(isinstance(mass, Fraction | int) for mass in p):
        numpys_own().choice(n, p=p if is_list else row)
        row = row.astype(np.float64)
    elif len(p) != n or min(p) < 0 or sum(p) != 1:
        raise ValueError(f"{n} probabilities with a sum of 1 are needed; found {[*p]}")
    row = (row / row.sum()).tolist()
    return [(mass, i) for i, mass in enumerate(row) if mass > 0]


def without(drawn, branches):
    left = [(mass, i) for mass, i in branches if i != drawn]
    total = sum(mass for mass, _ in left)
    return [(mass / total, i) for mass, i in left]


def plain(a):
    """A number as it is, but a Fraction without NumPy's integers, which overflow."""
    if isinstance(a, Fraction):
        return Fraction(int(a.numerator), int(a.denominator))
    return a


def number_or_array(a):
    return np.array(a) if np.ndim(a) else float(a)


def size_of(size, *given):
    """The size that was asked for, or that of the arrays that were given."""
    return np.broadcast_shapes(*map(np.shape, given)) or None if size is None else size


def several(size, draw):
    """draw(), or an array of such draws."""
    if size is None:
        return draw()
    places = np.empty(size)
    drawn = [draw() for _ in range(places.size)]
    return np.array(drawn, dtype=None if drawn else int).reshape(places.shape)


# ---- Random numbers ----


def elementwise(method):
    """An operator of a random number, which also takes an array, and then returns one.

    method(self, value, like) gets a plain number, and what the operator gives where self is
    replaced by self.like.
    """
    usual = getattr(operator, method.__name__)

    def operator_of(self, a, operation=usual):
        if hasattr(a, "__array__"):
            a = np.asarray(a)[()]  # also of a tensor
        if isinstance(a, np.ndarray):
            results = [operator_of(self, x, operation) for x in a.flat]
            if operation(self.like, a).dtype == bool:
                return np.array(results, bool).reshape(a.shape)
            return np.array(results, object).reshape(a.shape).view(Uniforms)
        self.check(a)
        return method(self, self.value_of(a), operation(self.like, a))

    return operator_of


def has_no_value(self, *_):
    self.refuse()


class Uniform:
    """The number shift + scale * u, where u is uniform in an interval, at first [0, 1).

    A comparison narrows the interval to the side that was taken, so that the number can
    be compared again, as in a search through cumulated probabilities. It gives a bool
    where NumPy does, and a np.bool_ where NumPy does, for ~ and + do other things there.

    type(u) is Uniform, and an array of such numbers has the dtype object. Nothing can hide
    that, so a program that asks for it is told by `output_distribution`'s real runs.
    """

    def __init__(self, rng, like):
        self.rng = rng
        self.run = rng.intervals  # of the run that it's from
        self.like = like  # a number of the type that NumPy's would have here
        self.interval = [0, 1]  # shared by all numbers with the same u
        self.shift = 0
        self.scale = 1
        self.inside = None  # the number x if u stands for log(x)

    def scaled(self, like, scale, shift=0):
        """scale * self + shift, still a number with the same u."""
        number = copy.copy(self)
        number.like = like
        number.shift = self.shift * scale + shift
        number.scale = self.scale * scale
        number.check()
        return number

    def check(self, a=0):
        """Refuse to combine it with a if that's no number, or if rounding would decide as well."""
        try:
            kind = type(self.like + a)
        except (TypeError, OverflowError):
            kind = None
        if kind not in LARGEST_SHIFT:
            other = "another one" if kind is Uniform else f"a {type(a).__name__}"
            self.refuse(f"was combined with {other}")
        if not 1e-30 < abs(self.scale) < 1e30:
            self.refuse(f"was multiplied by {self.scale}, not by 1e-30 to 1e30")
        if abs(self.shift) > LARGEST_SHIFT[kind] * abs(self.scale):
            problem = f"was shifted by {self.shift}, and its scale is {self.scale}"
            self.refuse(f"{problem}, so rounding in {kind.__name__} decides as well")

    def value_of(self, a):
        """A plain number. Whole numbers and Fractions stay exact."""
        if isinstance(a, Fraction):
            self.rng.is_exact = True
        return plain(in_python(a))

    def is_below(self, a):
        """Whether the number is below a. It never equals a, so <= is the same as <."""
        limit = (a - self.shift) / Fraction(self.scale)
        if limit != limit:
            problem = "a random number was compared with NaN"
            self.rng.refuse(ValueError(f"{problem}; check the probabilities for 0 / 0"))
        if self.inside is None:
            u_is_below = self.narrow(limit)
        else:
            u_is_below = self.inside.is_below(math.exp(min(limit, 700)))
        return u_is_below == (self.scale > 0)

    def narrow(self, limit):
        """Whether u is below a limit. From now on, u lies on the side that was taken."""
        self.check_run()
        lower, upper = self.interval
        limit = min(max(limit, lower), upper)
        mass = (limit - lower) / Fraction(upper - lower)
        sides = [(mass, True), (1 - mass, False)]
        u_is_below = self.rng.take([side for side in sides if side[0] > 0], limit)
        self.interval[:] = (lower, limit) if u_is_below else (limit, upper)
        return u_is_below

    @elementwise
    def __le__(self, a, like):
        return type(like)(self.is_below(a))

    @elementwise
    def __ge__(self, a, like):
        return type(like)(not self.is_below(a))

    def __lt__(self, a, operation=operator.lt):
        return a is not self and self.__le__(a, operation)  # np.searchsorted asks for u < u

    def __gt__(self, a, operation=operator.gt):
        return a is not self and self.__ge__(a, operation)

    @elementwise
    def __add__(self, a, like):
        return self.scaled(like, 1, a)

    @elementwise
    def __sub__(self, a, like):
        return self.scaled(like, 1, -a)

    @elementwise
    def __mul__(self, a, like):
        return self.scaled(like, a) if a else like

    @elementwise
    def __truediv__(self, a, like):
        return self.scaled(like, Fraction(1) / a if a else math.inf)

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, a, operation=operator.add):
        return (-self).__add__(a, operation)

    def __neg__(self, operation=operator.neg):
        return self.scaled(operation(self.like), -1)

    def log(self, operation=np.log):
        """np.log of the number, which is below a where the number is below exp(a)."""
        ends = [self.shift + self.scale * end for end in self.interval]
        if self.inside is not None or min(ends) < 0:
            self.refuse("was given to np.log")
        number = Uniform(self.rng, operation(self.like))
        number.inside = self
        return number

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        """NumPy's arithmetic and comparisons, which a NumPy number on the left calls, too."""
        names = UFUNCS.get(ufunc.__name__)
        if method != "__call__" or names is None or options:
            self.refuse(f"was given to np.{ufunc.__name__}")
        if inputs[0] is self:
            return getattr(self, names[0])(*inputs[1:], ufunc)
        return getattr(self, names[1])(inputs[0], ufunc)

    def __getattr__(self, name):
        if name.startswith("__") or not hasattr(self.like, name):
            raise AttributeError(name)
        if name == "item":
            return lambda: self.scaled(self.like.item(), 1)
        return self.refuse(f"was asked for .{name}")

    @property
    def __class__(self):
        return type(self.like)  # for isinstance(u, float)

    def refuse(self, problem="was used as a value"):
        self.check_run()
        self.rng.refuse(NeedsValues(f"a random number {problem}; {RULE}"))

    def check_run(self):
        if self.run is not self.rng.intervals:
            self.rng.refused = None  # an error of the run that it's from
            self.rng.refuse(NotByRng(EARLIER))

    __eq__ = __ne__ = __hash__ = __bool__ = __repr__ = __str__ = __format__ = has_no_value
    __float__ = __int__ = __index__ = __complex__ = __pos__ = __abs__ = has_no_value
    __round__ = __trunc__ = __floor__ = __ceil__ = has_no_value
    __pow__ = __mod__ = __divmod__ = __floordiv__ = has_no_value
    __rpow__ = __rmod__ = __rdivmod__ = __rfloordiv__ = __rtruediv__ = has_no_value
    # NumPy calls these for each of an array of numbers.
    exp = exp2 = expm1 = log2 = log10 = log1p = sqrt = cbrt = rint = degrees = radians = (
        has_no_value
    )
    sin = cos = tan = arcsin = arccos = arctan = sinh = cosh = tanh = has_no_value
    arcsinh = arccosh = arctanh = fabs = deg2rad = rad2deg = has_no_value


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
    "log": ("log",),
}


class Uniforms(np.ndarray):
    """An array of random numbers, or what came of them."""

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        """As for any array of objects, whose errors a program could catch, so they are refused."""
        if "out" in options:
            options["out"] = tuple(map(as_objects, options["out"]))
        try:
            found = getattr(ufunc, method)(*map(as_objects, inputs), **options)
        except TypeError:
            for number in filter(is_uniform, self.flat):
                number.refuse(f"was given to np.{ufunc.__name__}")
            raise
        if isinstance(found, np.ndarray) and found.dtype == object:
            return found.view(Uniforms)
        return found

    def tolist(self):
        return self.in_python().tolist()

    def item(self, *place):
        return self.in_python().item(*place)

    def in_python(self):
        """An array whose entries have types of Python, not of NumPy."""
        items = np.frompyfunc(in_python, 1, 1)(np.asarray(self))
        return np.asarray(items, object)

    def __array_function__(self, function, types, args, kwargs):
        if function is np.searchsorted:
            return looked_up(*args, **kwargs)
        return super().__array_function__(function, types, args, kwargs)


def is_uniform(x):
    return type(x) is Uniform


def as_objects(x):
    return np.asarray(x) if isinstance(x, Uniforms) else x


def looked_up(a, v, *args, **options):
    """np.searchsorted, for one number at a time, as it compares them with one another."""
    limits = np.asarray(a)
    places = [np.searchsorted(limits, u, *args, **options) for u in np.ravel(v)]
    return np.array(places, int).reshape(np.shape(v))


# ---- Random numbers with values ----


LAYOUTS = (  # how a row of numbers is made of exponential noise, whose largest or least may win
    None,
    lambda noise: np.exp(-noise),
    lambda noise: -np.expm1(-noise),
)


class Valued(EveryBranch):
    """Stands in for a generator in the runs of values.py."""

    layout = None

    def run(self, function, layout, draw):
        self.layout, self.draw = layout, draw
        self.is_over = False
        try:
            return as_output(function(self))
        finally:
            self.is_over = True

    def refuse(self, error):
        self.draw.refuse(error)

    def once(self, what, make):
        self.check_is_running()
        return make()

    def take(self, branches):
        weights, outcomes = zip(*branches)
        return outcomes[self.once(weights, lambda: self.draw.choice(weights))]

    def random(self, size=None, dtype=np.float64, out=None):
        numbers = np.empty(size or (1,), dtype)
        n = numbers.shape[-1]
        if self.layout is None or n < 2 or out is not None:
            return super().random(size, dtype, out)
        for row in numbers.reshape(-1, n):
            row[:] = self.layout(self.draw.exponential(n))
        kind = np.finfo(dtype)
        return numbers.clip(kind.tiny, 1 - kind.epsneg)

    def number(self, like):
        """One that NumPy could have drawn, but not 0, which is as good as never, for its log."""
        steps = 2 ** (np.finfo(like).nmant + 1)
        whole = self.once(steps, lambda: self.draw.below(steps))
        return type(like)(max(whole, 1) / steps)


class Taken:
    """The draws of a path that was taken, whose numbers are in the middle of where they lie."""

    def __init__(self, path, intervals):
        self.choices = [i for branches, i in path if not isinstance(branches[0][1], bool)]
        self.numbers = [float(low + high) / 2 for low, high in intervals]

    def choice(self, weights):
        return self.next_of(self.choices)

    def below(self, n):
        return int(self.next_of(self.numbers) * n)

    def next_of(self, values):
        if not values:
            raise EOFError("a further draw")
        return values.pop(0)

    def refuse(self, error):
        raise error
