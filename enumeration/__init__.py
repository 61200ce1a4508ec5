"""The exact output distribution of a sampler, computed by running it down every path.

Comparing histograms misses small bugs, and fails on good code by chance. But a sampler that draws
a few tokens from a small vocabulary can take only finitely many paths, and
`output_distribution` takes each of them once. The probability of a path is the product
of the probabilities of its outcomes. Add up the paths that end in the same output, and
you have its probability: exact but for rounding, and exact if the rows are Fractions.

The sampler doesn't change. It just gets an `EveryBranch` for its generator. From run to
run, its draws move on like the digits of a counter. In the first run, each draw has its
first possible outcome. Then the last draw that has an outcome left takes the next one. The
draws before it are repeated, and those after it begin again.

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

    assert_same_distribution(
        lambda rng: my_speculative_sampling(prompt, draft, target, rng),
        lambda rng: my_sampling(prompt, target, rng),
    )  # with tolerance=1e-6 for rows in float32

Use 2 to 4 tokens, because n draws among V tokens make V^n paths. Let the rows depend on
the text, or a row from the wrong position goes unnoticed, and put zeros into them. A
loop that may run for ever can't be enumerated, and all randomness has to come from
`rng`: any other source of it is an error.

This folder needs nothing but NumPy, so copy it, or `pip install .` at the top of this
repository. This page has the idea, forks.py takes the branches, numpys.py imitates
NumPy's generator, others.py sees what else draws, compare.py says where two
distributions differ. values.py is for what needs real numbers: noise such as Gumbel's,
compiled code, other languages. pytorch.py gives them to code that draws from PyTorch.
"""

import math

import numpy as np

from .compare import Contradicted, check_real_runs, first_difference, total_variation
from .forks import REPEATS, Forks, NotByRng, TooManyPaths, as_output
from .numpys import EveryBranch
from .others import nothing_else_draws

__all__ = [
    "Contradicted",
    "EveryBranch",
    "Forks",
    "NotByRng",
    "TooManyPaths",
    "assert_same_distribution",
    "check_real_runs",
    "first_difference",
    "output_distribution",
    "total_variation",
]


def output_distribution(function, max_paths=1_000_000, real_runs=0):
    """{output: probability} of function(rng), an int or several. Outputs are tuples of int.

    TooManyPaths is raised after max_paths, a million of which take minutes. NotByRng is
    raised if another generator was used, or if a path has another output when it is run
    again. With real_runs, the function also runs that often with a usual generator, and
    Contradicted is raised if its outputs do not fit the probabilities.
    """
    rng = EveryBranch()
    with nothing_else_draws(rng) as others:
        outputs, kept = all_paths(function, rng, max_paths)
        others.look()
        rng.run_again(function, kept)
    if not rng.is_exact:
        outputs = {output: float(probability) for output, probability in outputs.items()}
    usual = np.random.default_rng(0)
    check_real_runs(outputs, lambda: as_output(function(usual)), real_runs)
    return outputs


def all_paths(function, rng, max_paths):
    """Run the function once for each path -> {output: probability}, and some of the paths.

    rng.script is the list of choices on a path, and rng.next_path() moves on to the next one.
    Some paths, from all over the tree, are kept as (script, output), to be run again later.
    When there are too many, every second one goes.
    """
    outputs = {}
    kept = []
    step = 1  # every path is kept, later every second one, and so on
    for n in range(max_paths):
        output = rng.run(function)
        probability = math.prod(rng.taken())
        outputs[output] = outputs.get(output, 0) + probability
        rng.covered += probability
        if n % step == 0:
            kept.append(([*rng.script], output))
        if len(kept) > 3 * REPEATS:
            kept = kept[::2]
            step = 2 * step
        if not rng.next_path():
            return outputs, kept
    raise TooManyPaths(f"more than max_paths = {max_paths:,} paths", rng.covered)


def assert_same_distribution(sampler, reference, tolerance=1e-12, name=str, resolution=1.0):
    """Raise an AssertionError that says how far two distributions differ, and where first.

    Both are functions of rng, or {output: probability}. name(token) is what the message
    calls a token. What pytorch.py and values.py have found by random numbers may miss
    something: up to its `resolution` they don't know more. If that is not enough, say
    which resolution is, and the error tells how many random runs would give it.
    """
    if not tolerance >= 0:
        raise ValueError(f"tolerance must be 0 or more; found {tolerance}")
    found = distribution_of(sampler)
    expected = distribution_of(reference)
    distance = total_variation(found, expected)
    if distance > tolerance:
        distance = float(distance)
        shown = f"{distance:.4f}" if distance > 1e-4 else f"{distance:.0e}"
        where = first_difference(found, expected, tolerance, name)
        raise AssertionError(f"wrong by {shown}; {where}")
    check_resolution([found, expected], resolution)


def check_resolution(distributions, resolution):
    """An AssertionError if distributions agree, but a larger difference could have been missed."""
    unsure = [each for each in distributions if getattr(each, "resolution", 0)]
    missed = sum(each.resolution for each in unsure)
    if missed > resolution:
        problem = f"no difference was found, but one of {missed:.2g} could have been missed"
        n_checks = [each.n_checks_for(resolution / len(unsure)) for each in unsure]
        if None in n_checks:
            raise AssertionError(
                f"{problem}, whatever n_checks is; races need {resolution:g} or more"
            )
        raise AssertionError(f"{problem}; n_checks={max(n_checks):,} would see {resolution:g}")


def distribution_of(given):
    return given if isinstance(given, dict) else output_distribution(given)
