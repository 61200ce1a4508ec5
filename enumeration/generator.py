"""NumPy's generator, imitated: choice, integers, random, uniform, and what choices make.

A random number of `EveryBranch` has no value. It can be compared, shifted, scaled, and
its logarithm can be taken. A program that does anything else with one is run by `Valued`,
whose numbers all have values, and values.py finds where its output changes.

What is not imitated is refused by name, and the enumeration ends with that error, even if
the program catches it.
"""

import copy
import functools
from fractions import Fraction

import numpy as np

from .forks import MAX_BRANCHES, Forks, NotByRng, TooManyPaths, as_output
from .uniforms import RULE, NeedsValues, Uniform, Uniforms, plain

THIRD_TIME = 30  # paths that are taken with values, at most
WHOLE = int, np.integer
NARROW = 1e-5  # an interval in which rounding in float32 may decide

ADVICE = "cannot be enumerated; use rng.choice or rng.random() < a, or see enumeration/values.py"


def refused(name):
    """A property that refuses this method by its name."""
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
        """Take the path that begins so. NeedsValues if it fails because a number has no value."""
        self.intervals = intervals = []
        try:
            return super().run(function, begin)
        except Exception as error:
            self.intervals = []  # because this run's numbers are an earlier one's from here on
            if not self.refused and intervals:
                self.compare_with_values(function, self.path[: self.n_forks], intervals, error)
            error.n_runs = self.n_paths + 1
            raise

    def run_again(self, function):
        """Take the paths again, and some a third time with values, which C code may ask for."""
        super().run_again(function)
        for path, output, intervals in self.kept[:: len(self.kept) // THIRD_TIME + 1]:
            self.compare_with_values(function, path, intervals, output)

    def compare_with_values(self, function, path, intervals, before):
        """NeedsValues if a path with values leads to another output or another kind of error."""
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
        result = numpys_generator().choice(a, size, replace, floats, axis, shuffle)
        if not replace and not shuffle:
            self.refuse_argument("choice(shuffle=False)")
        items = np.asarray(a)
        n = items.shape[axis] if items.ndim else int(a)
        drawn = several(size, self.draws_of(n, replace, p))
        if items.ndim:
            drawn = items.take(drawn, axis)
        if size is None:
            return drawn
        result[...] = drawn
        return result

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
        """A whole number below n, by a fork with n equal branches."""
        if n > MAX_BRANCHES:
            self.refuse(TooManyPaths(f"a choice among {n:,} items", self.covered))
        return self.take(equal_branches(n))

    def permutation(self, x, axis=0):
        result = numpys_generator().permutation(x, axis)
        if np.ndim(x):
            result[...] = x
            self.shuffle(result, axis)
        else:
            result.sort()
            self.shuffle(result)
        return result

    def shuffle(self, x, axis=0):
        numpys_generator().shuffle(copy.copy(x), axis)
        if isinstance(x, np.ndarray):
            order = [*range(x.shape[axis])]
            self.shuffle(order)
            x[...] = x.take(np.array(order, int), axis)
            return
        for i in range(len(x) - 1, 0, -1):
            j = self.choice(i + 1)
            x[i], x[j] = x[j], x[i]

    def multinomial(self, n, pvals, size=None):
        result = numpys_generator().multinomial(n, pvals, size)
        if result.ndim > 1:
            self.refuse_argument("multinomial of several rows")
        *p, last = pvals
        rest = max(1 - sum(p), 0)
        p.append(last if abs(rest - last) < 1e-12 else rest)  # NumPy doesn't ask for a sum of 1
        return np.bincount(self.choice(len(p), int(n), p=p), minlength=len(p))

    def integers(self, low, high=None, size=None, dtype=np.int64, endpoint=False):
        result = numpys_generator().integers(low, high, size, dtype, endpoint)
        if np.size(result) == 0:
            return result
        if np.ndim(low) or np.ndim(high):
            problem = "rng.integers takes plain numbers here, and found an array"
            self.refuse(TypeError(f"{problem}; call it once for each"))
        if high is None:
            low, high = 0, low
        low = int(low)
        n = int(high) - low + bool(endpoint)
        if size is None:
            return type(result)(low + self.choice(n))
        for place in np.ndindex(result.shape):
            result[place] = low + self.choice(n)
        return result

    def random(self, size=None, dtype=np.float64, out=None):
        """Numbers without values. In float32, NumPy's are multiples of 2^-24: this is ignored."""
        if dtype is not np.float64:
            numpys_generator().random(dtype=dtype)
        if out is not None:
            self.refuse_argument("random(out=...)")
        if size is None:
            return self.number(0.5)
        like = np.dtype(dtype).type(0.5)
        numbers = several(size, lambda: self.number(like))
        return numbers.view(Uniforms) if numbers.dtype == object else numbers.astype(dtype)

    def number(self, like):
        """A random number without a value, of the type of `like`."""
        self.check_is_running()
        number = Uniform(self, like)
        self.intervals.append(number.interval)
        return number

    def standard_exponential(self, size=None, dtype=np.float64, method="zig", out=None):
        numpys_generator().standard_exponential(size, dtype, method, copy.copy(out))
        noise = -np.log(self.random(size, dtype, out))
        return noise.item() if size is None else noise

    def exponential(self, scale=1.0, size=None):
        numpys_generator().exponential(scale, size)
        return number_or_array(scale) * self.standard_exponential(size_of(size, scale))

    def gumbel(self, loc=0.0, scale=1.0, size=None):
        numpys_generator().gumbel(loc, scale, size)
        noise = -np.log(self.standard_exponential(size_of(size, loc, scale)))
        noise = number_or_array(loc) + number_or_array(scale) * noise
        return noise if np.ndim(noise) else noise.item()

    def uniform(self, low=0.0, high=1.0, size=None):
        numpys_generator().uniform(low, high, size)
        return self.between(low, high, size)

    def between(self, low=0.0, high=1.0, size=None):
        """`uniform`, without NumPy's check of the arguments."""
        size = size_of(size, low, high)
        low, high = map(number_or_array, (low, high))
        return low + (high - low) * self.random(size)

    def refuse_argument(self, call):
        """TypeError for a call that is not imitated."""
        self.refuse(TypeError(f"rng.{call} {ADVICE}"))

    def branches_of(self, n, p):
        """[(probability, index), ...] of a row p, checked as NumPy does."""
        row = np.asarray(p)
        is_list = not isinstance(p, np.ndarray) or row.dtype == object
        branches = known_branches(n, tuple(map(plain, row.tolist())), row.dtype, is_list)
        self.is_exact |= isinstance(branches[0][0], Fraction)
        return branches

    def __reduce_ex__(self, protocol):
        self.refuse(TypeError("a copy of rng would not take all branches; use rng itself"))


def numpys_generator():
    """A generator that raises NumPy's errors, a new one each time, so that none is left to draw."""
    return np.random.default_rng(0)


@functools.lru_cache(maxsize=9)
def equal_branches(n):
    """[(1 / n, 0), ... (1 / n, n - 1)]"""
    return [(1 / n, i) for i in range(n)]


@functools.lru_cache(maxsize=9999)  # because many paths draw from the same rows
def known_branches(n, p, dtype, is_list):
    """[(probability, index), ...] of the entries that are possible, or NumPy's error.

    NumPy asks less of an array of float32 than of a list of the same numbers.
    """
    row = np.array(p, dtype)
    if row.dtype != object or not all(isinstance(mass, Fraction | int) for mass in p):
        numpys_generator().choice(n, p=p if is_list else row)
        row = row.astype(np.float64)
    elif len(p) != n or min(p) < 0 or sum(p) != 1:
        raise ValueError(f"{n} probabilities with a sum of 1 are needed; found {[*p]}")
    row = (row / row.sum()).tolist()
    return [(mass, i) for i, mass in enumerate(row) if mass > 0]


def without(drawn, branches):
    """The branches without one of them, normalised."""
    remaining = [(mass, i) for mass, i in branches if i != drawn]
    total = sum(mass for mass, _ in remaining)
    return [(mass / total, i) for mass, i in remaining]


def number_or_array(a):
    """A float, or the array that was given."""
    return np.array(a) if np.ndim(a) else float(a)


def size_of(size, *arguments):
    """The size that was asked for, or that of the arrays that were given."""
    return np.broadcast_shapes(*map(np.shape, arguments)) or None if size is None else size


def several(size, draw):
    """draw(), or an array of such draws."""
    if size is None:
        return draw()
    empty = np.empty(size)
    drawn = [draw() for _ in range(empty.size)]
    return np.array(drawn, dtype=None if drawn else int).reshape(empty.shape)


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
        """The output of function(self), with the numbers of a `draws.Draw` in a layout."""
        self.layout, self.draw = layout, draw
        self.is_over = False
        try:
            return as_output(function(self))
        finally:
            self.is_over = True

    def refuse(self, error):
        self.draw.refuse(error)

    def once(self, request, make):
        """What make() draws. In pytorch.py it's kept, and given again in the same state."""
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
        """A number that NumPy could have drawn, except 0, which has no logarithm."""
        steps = 2 ** (np.finfo(like).nmant + 1)
        whole = self.once(steps, lambda: self.draw.below(steps))
        return type(like)(max(whole, 1) / steps)


class Taken:
    """The draws of a path that was taken. Each number is the middle of its interval."""

    def __init__(self, path, intervals):
        self.choices = [i for branches, i in path if not isinstance(branches[0][1], bool)]
        self.numbers = [float(low + high) / 2 for low, high in intervals]

    def choice(self, weights):
        return self.next_of(self.choices)

    def below(self, n):
        return int(self.next_of(self.numbers) * n)

    def next_of(self, values):
        """The next value. EOFError if the program draws more often than before."""
        if not values:
            raise EOFError("a further draw")
        return values.pop(0)

    def refuse(self, error):
        raise error
