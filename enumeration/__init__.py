"""The exact output distribution of a sampler, computed by running it down every path.

Comparing histograms misses small bugs, and fails on good code by chance. But a sampler that draws
a few tokens from a small vocabulary can take only finitely many paths, and
`output_distribution` takes each of them once. The probability of a path is the product
of the probabilities of its branches. Add up the paths that end in the same output, and
you have its probability: exact but for rounding, and exact if the rows are Fractions.

A sampler that uses a random number as a value, as int(n * u) or Gumbel noise do, has too many
paths for that. It runs again with real numbers, and what thousands of runs have shown isn't
exact: up to a `resolution`, something may have been missed. The check then says how much, and
agrees only if you pass a resolution that's enough. With resolution=0 all is exact, or an error.

The sampler doesn't change. It just gets an `EveryBranch` for its generator. There, each
draw is a fork, with a branch for each outcome that is possible. The first run takes
branch 0 at all forks. If a fork of two is followed by a fork of three, it leaves the
beginnings [1], [0, 1] and [0, 2] of other paths, and each of these runs next.

A number from `rng.random()` never has a value, only an interval in which it lies, at
first [0, 1). `u < 0.3` is a fork, True with probability 0.3, and then u lies in
[0, 0.3). Ask `u < 0.2` next, and it is True with probability 0.2 / 0.3.

Anything else that is done with it is noticed, and then the whole function runs again, side
effects too. All numbers have values this time, and values.py finds by bisection where the
output changes. Choices are forks as before.

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

    assert_same_distribution(
        lambda rng: my_speculative_sampling(prompt, draft, target, rng),
        lambda rng: my_sampling(prompt, target, rng),
    )  # with tolerance=1e-6 for rows in float32

Use 2 to 4 tokens, because n draws among V tokens make V^n paths. Let the rows depend on
the text, or a row from the wrong position goes unnoticed, and put zeros into them. A
loop that may run for ever can't be enumerated.

All randomness has to come from `rng`. Other generators are found and refused, and so are
other processes. A clock can't be found, so paths are run twice. Some are run a third time
with values, because C code and `type(u)` can tell a number that has none. Then the function
runs with NumPy's own generator. If the outputs don't fit, that's an error as well. Of many
paths only some hundreds are run again, and up to 30 with values. The function has to forget,
though: a memo that outlives a call gives its first draw again and again, and nobody sees it.

This folder needs nothing but NumPy, so copy it, or `pip install .` at the top of this
repository. This page has the idea, forks.py takes the branches, generator.py imitates
NumPy's generator and uniforms.py its random numbers, watch.py sees what else draws,
compare.py says where two distributions differ, and workers.py shares the paths among
processes. values.py is for what needs real numbers, such as compiled code and other
languages: draws.py has what a run asks for, parts.py the boxes in which those numbers lie,
and search.py finds where to cut them. All of these share refusals.py and resolution.py.
batches.py gives numbers to kernels that take whole batches, and pytorch.py to code that
draws from PyTorch.
"""

from functools import partial

import numpy as np

from .compare import Contradicted, check_real_runs, first_difference, total_variation
from .forks import NotByRng, TooManyPaths, as_output
from .generator import LAYOUTS, EveryBranch, Valued
from .refusals import NotByThresholds
from .search import Search, first_found
from .uniforms import NeedsValues
from .watch import nothing_else_draws
from .workers import sum_by_workers

__all__ = [
    "Contradicted",
    "EveryBranch",
    "NotByRng",
    "TooManyPaths",
    "assert_same_distribution",
    "check_real_runs",
    "first_difference",
    "output_distribution",
    "sum_over_paths",
    "total_variation",
]


RESOLUTION = 0.005  # the default for functions that need real numbers
LOG_OF_ALL_TESTS = 25  # above log(1e9 n) of `resolution.bound` for n <= 70 rounds of random tests


def output_distribution(
    function, max_paths=1_000_000, real_runs=100, executor=None, resolution=RESOLUTION
):
    """{output: probability} of function(rng). Outputs are tuples: (0,) for a token 0.

    Raises TooManyPaths after max_paths, a million of which take minutes, NotByRng if
    something other than rng decides, and Contradicted if real_runs outputs with NumPy's own
    generator hardly fit. Those are left out where they raise a TypeError, as arrays of
    Fractions do. With an executor of concurrent.futures, many processes share the paths.

    If a number is used as a value, as in int(3 * u), the function runs again from the start,
    at most max_paths times. The result is then a `resolution.Distribution`: up to its
    `resolution`, at most the given one, runs may have missed something. With resolution=0 it
    is a TypeError instead.
    """
    if not resolution >= 0:
        raise ValueError(f"resolution must be 0 or more; found {resolution}")
    needs_values = None
    try:
        if executor is None:
            outputs, is_exact = watched_sum(function, max_paths)
        else:
            outputs, is_exact = sum_by_workers(function, max_paths, executor)
    except NeedsValues as error:
        if resolution == 0:
            raise
        needs_values = error
    if needs_values:
        outputs, is_exact = watched_search(function, max_paths, resolution, needs_values)
    generator = np.random.default_rng(0)
    try:
        check_real_runs(outputs, lambda: as_output(function(generator)), real_runs)
    except TypeError:
        if not is_exact:
            raise
    return outputs


def watched_sum(function, max_paths):
    """{output: probability}, and whether there were Fractions. NotByRng if anything else draws."""
    rng = EveryBranch()
    with nothing_else_draws(rng) as watch:
        outputs = rng.run_all(function, max_paths)
        watch.look()  # for generators that were made on the way, and kept
        rng.run_again(function)
    return outputs, rng.is_exact


def watched_search(function, max_paths, resolution, needs_values):
    """The `resolution.Distribution` of runs with values, and whether there were Fractions."""
    rng = Valued()
    n_checks = LOG_OF_ALL_TESTS / resolution  # so that bound(n_checks, 70) < resolution

    def search(layout, n_runs):
        with nothing_else_draws(rng):
            by_thresholds = Search(partial(rng.run, function, layout), max_paths, n_runs=n_runs)
            return by_thresholds.distribution(n_checks), rng.is_exact

    try:
        return first_found(LAYOUTS, search, needs_values.n_runs)
    except NotByThresholds as error:
        raise NotByThresholds(f"{error.problem}; {needs_values}") from None


def sum_over_paths(function, max_paths=1_000_000):
    """`output_distribution` without its checks, for functions that draw from rng alone.

    Use it where you need hundreds of distributions.
    """
    return EveryBranch().run_all(function, max_paths)


def assert_same_distribution(sampler, reference, tolerance=1e-12, name=str, resolution=None):
    """Raise an AssertionError that says how far two distributions differ, and where first.

    Parameters
    ----------
    sampler, reference : function(rng) -> output, or dict {output: probability}
        Functions go through `output_distribution` first.
    tolerance : float
        The largest total variation distance that counts as equal: 1e-12 is for rounding in
        float64, 1e-6 for rows in float32, and 0 for Fractions.
    name : function(token) -> str
        What the message calls a token.
    resolution : float, optional
        Where a function uses a random number as a value, runs may miss a difference up to a
        resolution. This is how much may be missed by both together. None accepts what a given
        dict has, and nothing for functions, so they fail with the value to pass.

    Raises
    ------
    AssertionError
        If the distance is above tolerance, or more than resolution could have been missed.
    ValueError
        If tolerance or resolution is negative or NaN.
    """
    sides = sampler, reference
    if resolution is None:
        may_miss = sum(resolution_of(side) for side in sides)  # a function has 0
        per_side = RESOLUTION
    else:
        may_miss = resolution
        per_side = resolution / 2
    for argument, value in ("tolerance", tolerance), ("resolution", may_miss):
        if not value >= 0:
            raise ValueError(f"{argument} must be 0 or more; found {value}")
    distribution, expected = (distribution_of(side, per_side) for side in sides)
    distance = total_variation(distribution, expected)
    if distance > tolerance:
        distance = float(distance)
        shown = f"{distance:.4f}" if distance > 1e-4 else f"{distance:.0e}"
        difference = first_difference(distribution, expected, tolerance, name)
        raise AssertionError(f"wrong by {shown}; {difference}")
    missed = resolution_of(distribution) + resolution_of(expected)
    if missed > may_miss or missed >= 1:
        problem = f"no difference was found, but one of {missed:.2g} could have been missed"
        raise AssertionError(f"{problem}; {advice(missed, resolution)}")


def advice(missed, resolution):
    """What to do where this much could have been missed, in words."""
    if missed >= 1:
        return "so nothing is known; take a larger n_checks"
    if not resolution:
        return f"pass resolution={1.1 * missed:.2g} if that is enough"
    return f"take n_checks {missed / resolution:.1f} times as large"


def resolution_of(distribution):
    """How much may have been missed: 0 for a plain dict, and for a function."""
    return getattr(distribution, "resolution", 0)


def distribution_of(side, resolution):
    """{output: probability} of a function, or the dict that was given."""
    if isinstance(side, dict):
        return side
    return output_distribution(side, resolution=resolution)
