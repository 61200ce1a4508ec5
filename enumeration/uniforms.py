"""Random numbers without a value, for `generator.EveryBranch`: what can be done with one.

It can be compared, shifted and scaled, and its logarithm can be taken. Anything else is
`NeedsValues`.
"""

import copy
import math
import operator
from fractions import Fraction

import numpy as np

from .compare import in_python
from .forks import NotByRng

# A number of this type may be shifted by so many times its scale. Rounding, which then
# decides as well, is below 1e-12, and below 1e-6 in float32.
LARGEST_SHIFT = {float: 4096, np.float64: 4096, np.float32: 16}

RULE = "to be exact, compare it with plain numbers, one by one"
EARLIER = "a random number of an earlier run was used; keep none, because each run begins anew"


class NeedsValues(TypeError):
    """A number was used for more than `EveryBranch` can follow."""

    n_runs = 0  # before it was raised


def plain(a):
    """A number as it is, but a Fraction without NumPy's integers, which overflow."""
    if isinstance(a, Fraction):
        return Fraction(int(a.numerator), int(a.denominator))
    return a


def elementwise(method):
    """An operator of a random number, which also takes an array, and then returns one.

    method(self, value, like) gets a plain number, and what the operator gives where self is
    replaced by self.like.
    """
    original = getattr(operator, method.__name__)

    def operator_of(self, a, operation=original):
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
    """Refuse an operation that needs the number's value."""
    self.refuse()


class Uniform:
    """The number shift + scale * u, where u is uniform in an interval, at first [0, 1).

    A comparison narrows the interval to the side that was taken, so that the number can
    be compared again, as in a search through cumulated probabilities. The result has the type
    that NumPy's own number would give, bool or np.bool_: ~True is -2, and ~np.True_ is False.

    type(u) is Uniform, and an array of such numbers has the dtype object. Nothing can hide
    that, so a program that asks for it is told by `output_distribution`'s real runs.
    """

    def __init__(self, rng, like):
        self.rng = rng
        self.run = rng.intervals  # a list that stands for the run that it's from
        self.like = like  # a number of the type that NumPy's would have here
        self.interval = [0, 1]  # shared by all numbers with the same u
        self.shift = 0
        self.scale = 1
        self.log_of = None  # the `Uniform` x, if this number is log(x)

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
            partner = "another one" if kind is Uniform else f"a {type(a).__name__}"
            self.refuse(f"was combined with {partner}")
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
        self.rng.is_flipped = self.scale < 0
        if self.log_of is None:
            u_is_below = self.narrow(limit)
        else:
            u_is_below = self.log_of.is_below(math.exp(min(limit, 700)))
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
        if self.log_of is not None or min(ends) < 0:
            self.refuse("was given to np.log")
        number = Uniform(self.rng, operation(self.like))
        number.log_of = self
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

    def __deepcopy__(self, memo):
        return self  # as any number does

    def refuse(self, problem="was used as a value"):
        """NeedsValues: something was done that needs the number's value."""
        self.check_run()
        self.rng.refuse(NeedsValues(f"a random number {problem}; {RULE}"))

    def check_run(self):
        """NotByRng if the number was drawn in an earlier run."""
        if self.run is not self.rng.intervals:
            self.rng.refused = None  # it was an error of the earlier run
            self.rng.refuse(NotByRng(EARLIER))

    __eq__ = __ne__ = __hash__ = __bool__ = __repr__ = __str__ = __format__ = has_no_value
    __float__ = __int__ = __index__ = __complex__ = __pos__ = __abs__ = has_no_value
    __round__ = __trunc__ = __floor__ = __ceil__ = has_no_value
    __pow__ = __mod__ = __divmod__ = __floordiv__ = has_no_value
    __rpow__ = __rmod__ = __rdivmod__ = __rfloordiv__ = __rtruediv__ = has_no_value
    # NumPy calls these methods for each number in an array.
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
        """NumPy's operation on an array of objects. Its errors end the run, even if caught."""
        if "out" in options:
            options["out"] = tuple(map(as_objects, options["out"]))
        try:
            result = getattr(ufunc, method)(*map(as_objects, inputs), **options)
        except TypeError:
            for number in filter(is_uniform, self.flat):
                number.refuse(f"was given to np.{ufunc.__name__}")
            raise
        if isinstance(result, np.ndarray) and result.dtype == object:
            return result.view(Uniforms)
        return result

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
    """Whether x is a number without a value, whatever isinstance says."""
    return type(x) is Uniform


def as_objects(x):
    """A plain array of the same objects."""
    return np.asarray(x) if isinstance(x, Uniforms) else x


def looked_up(a, v, *args, **options):
    """np.searchsorted for one number at a time, because it compares several with one another."""
    limits = np.asarray(a)
    places = [np.searchsorted(limits, u, *args, **options) for u in np.ravel(v)]
    return np.array(places, int).reshape(np.shape(v))
