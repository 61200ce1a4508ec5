"""The best rule for two guesses is exact and reaches its ceiling."""

from fractions import Fraction
from functools import partial
from itertools import islice

import numpy as np
import pytest
from hypothesis import example, given, settings
from support.models import pairs

from enumeration import sum_over_paths
from lab.optimum import ceiling, largest_flow, optimal, sets
from lab.trees import Node, bottom_up, siblings, top_down
from sampling import sample


def independent(p, rng, n=2):
    return [Node(sample(p, rng), p) for _ in range(n)]


def different(p, rng, n=2, n_sure=0):
    return [*islice(siblings(p, rng, n_sure), n)]


DRAWS = {
    "one": partial(independent, n=1),
    "two, independent": independent,
    "two, without replacement": different,
    "the best, and one drawn": partial(different, n_sure=1),
    "the best two, as EAGLE": partial(different, n_sure=2),
    "three, without replacement": partial(different, n=3),
}


# With any path in place of the shortest, drops of 1/30001 were poured to and fro for ever.
DROPS = np.array([2, 1, 3, 4]) / Fraction(10), np.array([5000, 20000, 1, 5000]) / Fraction(30001)


def accepted(rule, draw, p, q):
    """How often a rule accepts a guess. What it emits must be a draw from q."""

    def one_round(rng):
        root = Node(children=draw(p, rng))
        for node in [root, *root.children]:
            node.q = q
        token, *rest = rule(root, rng)
        return token, len(rest)

    shares = np.zeros((2, len(q)), dtype=q.dtype)  # of tokens that are no guesses, and that are
    for (token, n_guesses), probability in sum_over_paths(one_round).items():
        shares[n_guesses, token] = probability
    assert (shares.sum(axis=0) == q).all()
    return shares[1].sum()


def at_best(draw, p, q):
    """How often the best rule accepts a guess, three times: as a cut, as a flow, and by a run."""
    S = sets(partial(draw, p))
    flow, _ = largest_flow(S, q)
    share = accepted(partial(optimal, S=S), draw, p, q)
    assert share == sum(flow.values()) == ceiling(S, q)
    return share


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
@settings(max_examples=10)
@given(pair=pairs(sizes=(3, 2), exact=True))
@example(pair=DROPS)
def test_no_exact_rule_accepts_more_and_this_one_does(draw, pair):
    best = at_best(draw, *pair)
    assert best >= accepted(bottom_up, draw, *pair) == accepted(top_down, draw, *pair)
