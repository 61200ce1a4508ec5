"""What generator.py imitates, beside NumPy's own: 1,000 random calls of each method.

What NumPy's own returns is one of the outputs, with its type, dtype and shape. The probabilities
are those of a formula. And an error of NumPy's is one of the same class here.
"""

import copy
import itertools
import math
import re
from collections import Counter

import numpy as np
import pytest

from enumeration import TooManyPaths, sum_over_paths

N_CALLS = 1000
REFUSED = "cannot be enumerated|call it once for each"
SHAPES = (0,), (1,), (2,), (3,), (1, 2), (3, 2), (0, 2), (2, 0), (2, 2, 1)
DTYPES = "int64", "uint8", "float64", "S1", "U2", "object", "i4,f8"
NO_ARRAYS = [], [[]], (1, 2), (3,), ["a", "", "hello"], "ab", {1, 2}, None, 2.0, True, 0, 1, 3, -1
SIZES = None, None, None, (), 0, 1, 2, (1, 2), (2, 0), [2], -1, 2.0, "2"
ROWS = (0.5, 0.5), (0, 0.25, 0.75), (0.5, 0.25), (1, 0), (1,), (0.75, 0.75), (-0.5, 1.5), 0.5
ENDS = 0, 1, 2, 3, -1, 2.5, True, 2**63 - 1, 2**64, "2"
COUNTS = 0, 1, 1, 2, 2, 3, -1, True, 2.5, (1, 2), "2"
LOWS = 0, 0.25, -1, (0, 0.125), ((0,), (0.125,)), "0"
HIGHS = 1, 2.5, True, (1, 2), ((1, 2, 3),), "1"

# ---- Odd arguments ----


def pick(rng, choices):
    return choices[rng.integers(len(choices))]


def some(rng, **options):
    """About half of them, and one of the values of each."""
    return {name: pick(rng, values) for name, values in options.items() if rng.integers(2)}


def items(rng):
    shape = pick(rng, SHAPES)
    x = np.arange(math.prod(shape)).reshape(shape).astype(pick(rng, DTYPES))
    return pick(rng, [x, x, x.T, x[::-1], x.tolist(), [*x], pick(rng, NO_ARRAYS)])


def rows(rng):
    p = pick(rng, ROWS)
    return pick(rng, [p, np.array(p), np.float32(p)])


def a_shuffle(rng):
    return [items(rng)], some(rng, axis=[0, 0, 1, -1, 5])


def a_choice(rng):
    p = rows(rng)
    options = dict(size=SIZES, p=[p], replace=[False], axis=[0, 0, 0, 1], shuffle=[True, False])
    return [pick(rng, [items(rng), np.size(p)])], some(rng, **options)


def a_multinomial(rng):
    return [pick(rng, COUNTS), rows(rng)], some(rng, size=[None, *SIZES])


def integer_below(rng):
    ends = [pick(rng, ENDS), pick(rng, ENDS)]
    options = some(rng, size=SIZES, dtype=[int, np.int8, np.uint64, bool, "uint8", float])
    return ends[: rng.integers(1, 3)], options


def an_integer(rng):
    ends, options = integer_below(rng)
    return ends, options | some(rng, endpoint=[True])


def a_number(rng):
    return [], some(rng, size=SIZES, dtype=[float, np.float32, "f4", int], out=[None, np.ones(2)])


def an_interval(rng):
    return [pick(rng, LOWS), pick(rng, HIGHS)][: rng.integers(3)], some(rng, size=SIZES)


# ---- Formulas: (probability, what is drawn), ... ----


def shuffle(x, axis=0):
    if not np.ndim(x):
        x, axis = np.arange(x), 0
    x = np.asarray(x)
    n = x.shape[axis]
    for order in itertools.permutations(range(n)):
        yield 1 / math.factorial(n), x.take(np.array(order, int), axis)


def choice(a, size=None, replace=True, p=None, axis=0, shuffle=True):
    a, axis = (np.asarray(a), axis) if np.ndim(a) else (np.arange(a), 0)
    n = a.shape[axis]
    p = np.float64(p) if p is not None else np.ones(n) / max(n, 1)
    for drawn in several(size, range(n)):
        left = [1 - (0 if replace else p[drawn.flat[:i]].sum()) for i in range(drawn.size)]
        if np.all(p[drawn] > 0) and (replace or len({*drawn.flat}) == drawn.size):
            yield math.prod(p[drawn].flat) / math.prod(left), a.take(drawn, axis)


def several(size, numbers):
    """All arrays of this size."""
    shape = () if size is None else np.empty(size).shape
    for drawn in itertools.product(numbers, repeat=math.prod(shape)):
        yield np.array(drawn, object if drawn else int).astype(int).reshape(shape)


def integers(low, high=None, size=None, dtype=int, endpoint=False):
    low, high = (0, low) if high is None else (low, high)
    n = int(high) - int(low) + endpoint
    for drawn in several(size, range(n)):
        numbers = np.array([int(low) + i for i in drawn.flat], object)
        yield n**-drawn.size, numbers.astype(dtype).reshape(drawn.shape)


def multinomial(n, pvals, size=None):
    p = [*pvals[:-1], 1 - sum(pvals[:-1])]
    for counts in itertools.product(range(int(n) + 1), repeat=len(p)):
        ways = math.factorial(int(n)) / math.prod(map(math.factorial, counts))
        if sum(counts) == int(n):
            yield ways * math.prod(share**i for share, i in zip(p, counts)), np.array(counts)


def in_first_quarter(low=0.0, high=1.0, size=None, **_):
    shape = np.broadcast_shapes(np.shape(low), np.shape(high)) if size is None else size
    for drawn in several(shape, [1, 0]):
        yield math.prod(0.25 if x else 0.75 for x in drawn.flat), drawn.astype(bool)


def in_the_unit_interval(size=None, **_):
    return in_first_quarter(size=size)


# ---- Both, side by side ----


CALLS = {
    "permutation": (a_shuffle, shuffle),
    "shuffle": (a_shuffle, shuffle),
    "choice": (a_choice, choice),
    "multinomial": (a_multinomial, multinomial),
    "integers": (an_integer, integers),
    "random": (a_number, in_the_unit_interval),
    "uniform": (an_interval, in_first_quarter),
}


def as_text(x):
    return repr(np.asarray(x).tolist())


def called(generator, name, args, options):
    """The type of what is drawn, and what that is, as texts."""
    given = copy.deepcopy(args)
    found = getattr(generator, name)(*given, **options)
    if name == "shuffle":
        found = given[0]
    if name == "uniform":
        low, high = map(np.asarray, [*args, *[0, 1][len(args) :]])
        found = found < low + (high - low) / 4
    elif "rand" in name and "int" not in name and np.size(found):
        found = found < 0.25
    kind = type(found).__name__
    if isinstance(found, np.ndarray):
        kind += f"{found.dtype, found.shape}"
    return kind, as_text(found)


def compare(call, law, numpys, imitation):
    """Whether a call was served, and not refused, neither by NumPy's own nor by its imitation."""
    try:
        real = {called(numpys(seed), *call) for seed in range(3)}
    except Exception as error:
        with pytest.raises(Exception) as ours:
            sum_over_paths(lambda rng: called(imitation(rng), *call))
        assert ours.type is type(error) or re.search(REFUSED, str(ours.value))
        return False
    try:
        outputs = sum_over_paths(lambda rng: called(imitation(rng), *call))
    except (TypeError, TooManyPaths) as error:
        assert re.search(REFUSED, str(error))
        return False
    assert real <= {*outputs}
    _, args, options = call
    expected = Counter()
    for mass, drawn in law(*args, **options):
        expected[as_text(drawn)] += mass
    masses = {text: mass for (_, text), mass in outputs.items()}
    assert {text: masses.get(text, 0) for text in expected | masses} == pytest.approx(expected)
    return True


def compare_calls(name, make, law, numpys, imitation=lambda rng: rng):
    rng = np.random.default_rng(0)
    served = 0
    for _ in range(N_CALLS):
        call = name, *make(rng)
        try:
            served += compare(call, law, numpys, imitation)
        except BaseException:
            print(call)
            raise
    assert served > N_CALLS / 10


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("name", CALLS)
def test_a_call_does_what_it_does_in_numpy(name):
    compare_calls(name, *CALLS[name], np.random.default_rng)
