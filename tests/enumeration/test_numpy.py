"""What generator.py imitates, beside NumPy's own: 200 random calls of each method.

NumPy's own outputs fit the distribution, with their types, dtypes and shapes. The probabilities
of choices are those of a formula. And an error of NumPy's is one of the same class here.
"""

import itertools
import math
import re

import numpy as np
import pytest

from enumeration import TooManyPaths, check_real_runs, sum_over_paths

N_CALLS = 200
REFUSED = "cannot be enumerated|call it once for each"

# ---- Odd arguments, as they are written in a call ----

ITEMS = (
    "0", "1", "3", "-1", "np.int8(2)", "2.0", "None", "'ab'", "{1, 2}", "np.array(2)",
    "[]", "[[]]", "(1, 2)", "(3,)", "range(3)", "['a', '', 'hello']", "[[1, 2], [3, 4], [5, 6]]",
    "[*np.arange(6).reshape(3, 2)]", "np.zeros((0, 1))", "np.zeros((1, 0), np.uint8)",
    "np.arange(6).reshape(3, 2)", "np.arange(6).reshape(2, 3).T", "np.arange(4.0).reshape(2, 2, 1)",
    "np.arange(3)[::-1]", "np.array(['a', '', 'hello'])", "np.array([None, 'a', 2])",
    "np.arange(3).astype('i4,f8')", "np.arange(3).astype('S1')", "np.arange(3, dtype=np.float32)",
)  # fmt: skip
SIZES = "None", "()", "0", "1", "2", "(1, 2)", "(2, 0)", "[2]", "-1", "2.0", "'2'"
ROWS = (
    "(0.5, 0.5)", "[0, 0.25, 0.75]", "(0.5, 0.25)", "(1, 0)", "(1,)", "[0.75, 0.75]", "0.5",
    "(-0.5, 1.5)", "np.float32([0.2, 0.3, 0.5])", "np.array([0.5, 0.0, 0.5])", "np.array([1, 0])",
)  # fmt: skip
COUNTS = "0", "1", "2", "3", "-1", "True", "2.5", "(1, 2)", "'2'"
LOWS = "0", "1", "-1", "2.5", "True", "'2'", "np.uint8(3)", "2**63 - 1"
HIGHS = "0", "1", "3", "2.5", "'2'", "4", "2**63 + 1", "2**64"
DTYPES = "int", "np.int8", "np.uint64", "bool", "'uint8'", "float", "np.float32"
FLAGS = "True", "False"
EDGES = "0", "-1", "(0, 0.125)", "'0'"
AXES = "0", "0", "1", "-1"
CALLS = {
    "permutation": {"x": ITEMS, "axis": AXES},
    "shuffle": {"x": ITEMS, "axis": AXES},
    "choice": {
        "a": ITEMS, "size": SIZES, "p": ROWS, "replace": FLAGS, "axis": AXES, "shuffle": FLAGS,
    },
    "multinomial": {"n": COUNTS, "pvals": ROWS, "size": SIZES},
    "integers": {"low": LOWS, "high": HIGHS, "size": SIZES, "dtype": DTYPES, "endpoint": FLAGS},
    "random": {"size": SIZES, "dtype": DTYPES, "out": ("None", "np.ones(2)")},
    "exponential": {"scale": ("2", "0.5", "(1, 2)", "[]", "-1", "'1'"), "size": SIZES},
    "standard_exponential": {"size": SIZES, "dtype": DTYPES, "method": ("'inv'", "'zig'", "1")},
    "uniform": {"low": EDGES, "high": ("1", "(1, 2)", "-2"), "size": SIZES},
}  # fmt: skip
REQUIRED = "x", "a", "n", "pvals", "low"

# ---- Formulas: the probabilities of all outcomes ----


def shuffle(x, axis=0):
    n = np.shape(x)[axis] if np.ndim(x) else max(x, 0)
    return [1 / math.factorial(n)] * math.factorial(n)


def choice(a, size=None, replace=True, p=None, axis=0, shuffle=True):
    n = np.shape(a)[axis] if np.ndim(a) else int(a)
    p = [1 / (n or 1)] * n if p is None else p
    for drawn in itertools.product(range(n), repeat=number(size)):
        before = [0 if replace else sum(p[j] for j in drawn[:i]) for i in range(len(drawn))]
        if replace or len({*drawn}) == len(drawn):
            yield math.prod(p[j] / (1 - gone) if p[j] else 0 for j, gone in zip(drawn, before))


def number(size):
    return 1 if size is None else np.empty(size).size


def multinomial(n, pvals, size=None):
    p = [*pvals[:-1], 1 - sum(pvals[:-1])]
    for counts in itertools.product(range(int(n) + 1), repeat=len(p)):
        ways = math.factorial(int(n)) / math.prod(map(math.factorial, counts))
        if sum(counts) == int(n):
            yield ways * math.prod(share**i for share, i in zip(p, counts))


def integers(low, high=None, size=None, dtype=int, endpoint=False):
    low, high = (0, low) if high is None else (low, high)
    n, k = int(high) - int(low) + endpoint, number(size)
    return [n**-k] * n**k


PROBABILITIES = {
    "permutation": shuffle,
    "shuffle": shuffle,
    "choice": choice,
    "multinomial": multinomial,
}
PROBABILITIES |= {"integers": integers, "randint": integers}
OF_NUMBERS = "uniform", "random", "exponential", "standard_exponential"

# ---- Both, side by side ----


def evaluated(texts):
    return {name: eval(text) for name, text in texts.items()}


def drawn(generator, name, texts):
    """What is drawn, or whether it's below .25, as a text, and its type."""
    args = evaluated(texts)
    output = getattr(generator, name)(**args)
    if name == "shuffle":
        output = args["x"]
    is_empty = isinstance(output, np.ndarray) and output.size == 0
    if name in OF_NUMBERS and not is_empty:
        output = output < 0.25
    kind = str(type(output))
    if isinstance(output, np.ndarray):
        kind += f"{output.dtype, output.shape}"
    return kind, repr(np.asarray(output).tolist())


def is_served(name, texts, generator, imitation):
    """Whether a call was not refused, neither by NumPy's own nor by its imitation."""

    def imitated(rng):
        return drawn(imitation(rng), name, texts)

    try:
        drawn(generator, name, texts)
    except Exception as error:
        with pytest.raises(Exception) as caught:
            sum_over_paths(imitated)
        assert caught.type is type(error) or re.search(REFUSED, str(caught.value))
        return False
    try:
        outputs = sum_over_paths(imitated)
    except (TypeError, TooManyPaths) as error:
        assert re.search(REFUSED, str(error))
        return False
    check_real_runs(outputs, lambda: drawn(generator, name, texts), 10)
    if name in PROBABILITIES:
        expected = [mass for mass in PROBABILITIES[name](**evaluated(texts)) if mass > 0]
        assert sorted(outputs.values()) == pytest.approx(sorted(expected), abs=1e-7)
    return True


def compare_calls(name, options, generator, imitation=lambda rng: rng):
    rng = np.random.default_rng(0)
    n_served = 0
    for _ in range(N_CALLS):
        chosen = [option for option in options if option in REQUIRED or rng.integers(2)]
        texts = {option: str(rng.choice(options[option])) for option in chosen}
        try:
            n_served += is_served(name, texts, generator, imitation)
        except BaseException:
            print(name, texts)
            raise
    assert n_served > N_CALLS / 10


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("name", CALLS)
def test_a_call_does_what_it_does_in_numpy(name):
    compare_calls(name, CALLS[name], np.random.default_rng(0))
