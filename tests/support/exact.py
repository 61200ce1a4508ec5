"""Distributions that are computed, and compared to the last bit or but for rounding."""

from fractions import Fraction

import numpy as np
import pytest

from enumeration import assert_same_distribution, sum_over_paths, total_variation
from lab.block import verify_block
from speculative import speculative_sampling, verify

EXACT = 1e-12  # tolerance for rounding errors: probabilities are computed, not estimated
GRID = 1e-6  # the same for numbers that are multiples of 2^-24
DISTANCES = {float: [], Fraction: []}  # of all distributions that were compared
both_verifiers = pytest.mark.parametrize("verifier", [verify, verify_block])


def product_of_conditionals(x, model, N, eos=None):
    """The distribution of N decoded tokens by definition, as {ids: probability}.

    The probability of a text is a product over its new tokens: the probability of each in
    the row after all before it.
    """
    if N == 0:
        return {tuple(x): 1}
    distribution = {}
    for token, q in enumerate(np.asarray(model(np.array(x)))[-1].tolist()):
        if q > 0:
            n_left = 0 if token == eos else N - 1
            rest = product_of_conditionals([*x, token], model, n_left, eos)
            distribution |= {ids: q * mass for ids, mass in rest.items()}
    return distribution


def assert_same(distribution, expected):
    """Assert that two distributions are equal, in Fractions exactly.

    pytest's last lines have the largest distance.
    """
    distance = total_variation(distribution, expected)
    is_rounded = any(isinstance(mass, float) for mass in expected.values())
    kind = float if is_rounded else Fraction
    DISTANCES[kind].append(kind(distance))
    assert_same_distribution(distribution, expected, tolerance=0 if kind is Fraction else EXACT)


def assert_lossless(drawn, N, K, eos=None, parts=dict, **options):
    """Assert that speculative sampling has the target's distribution.

    drawn is a draft, a target and a prompt. parts() are options made anew for each text.
    """
    draft, target, x = drawn

    def sampler(rng):
        return speculative_sampling(x, draft, target, N, K, rng, eos=eos, **options, **parts())

    decoded = sum_over_paths(sampler)
    expected = product_of_conditionals(x, target, N, eos)
    assert_same(decoded, expected)
    # No output that the target forbids, however improbable
    assert decoded.keys() <= expected.keys()
