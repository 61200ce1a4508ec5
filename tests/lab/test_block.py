"""lab/block.py: the proof that block verification is exact, and a check of each step.

w and h are those of `block_probabilities`. Fix the first i drafted tokens. Below, w is w[i],
p and q are p[i] and q[i], sums run over the next token, and surplus is sum max(w q - p, 0).

1. The round keeps these i tokens, and perhaps more, with probability w. This is shown from
   i = k down to 0, where k is the number of guesses. All k are kept with probability
   h[k] = w[k]. Suppose that the claim holds for i + 1.
   - If the next guess is t, more than i are kept with probability
     w[i+1] = min(1, w q(t) / p(t)). Averaged over t, that is sum min(p, w q).
   - For every token min(p, w q) + max(w q - p, 0) = w q, and q sums to 1. So more than i
     are kept with probability w - surplus.
   - `verify_block` tries longer prefixes first, so it comes to i with probability
     1 - w + surplus. There it keeps exactly i with probability
     h[i] = surplus / (1 - w + surplus). The product is surplus.
   - Exactly i, or more: surplus + (w - surplus) = w.
   If surplus is 0 and w is 1, h[i] would be 0 / 0, but then the round never comes to i. At
   i = 0 nothing is kept for certain, and h[0] is not used.
2. If the first i < k tokens are kept, the next one is a draw from q. That is, "they are
   kept, then t" has probability w q(t). It happens in two ways. Either t is drafted and
   kept, with probability p(t) w[i+1] = min(p(t), w q(t)). Or exactly i are kept, with
   probability surplus, and t is drawn from the residual, with max(w q(t) - p(t), 0) / surplus.
   The sum is w q(t). So steps 6 and 7 of test_proof.py hold here too, and are tested there.
3. On average it accepts at least as many tokens as `verify`: w[i] is never below the product
   of min(1, q/p) over the first i, because min(1, w q/p) >= w min(1, q/p).
"""

import numpy as np
import pytest
import test_proof
from hypothesis import given, settings
from support.exact import EXACT
from support.models import Table, models

from enumeration import sum_over_paths
from lab.block import block_probabilities, verify_block
from speculative import propose, verify

pytestmark = pytest.mark.exact


@pytest.mark.parametrize("K", [2, 3])
@settings(max_examples=15)
@given(drawn=models(exact=True))
def test_steps_6_and_7_of_test_proof(drawn, K):
    test_proof.assert_round_exact(drawn, K, verify_block)
    test_proof.assert_exact(drawn, K, K - 1, eos=0, rule=verify_block)


# How many tokens it accepts


def n_accepted(rule, draft, target, x, K):
    """The mean number of guesses that a round accepts."""

    def accepted(rng):
        drafted, p = propose(x, draft, K, rng)
        emitted = rule(drafted, p, target(np.append(x, drafted), K + 1), rng)
        return len(emitted) - 1

    return sum(n * mass for (n,), mass in sum_over_paths(accepted).items())


@pytest.mark.parametrize("K", [0, 1, 3])
@given(drawn=models(exact=True))
def test_it_never_accepts_less_on_average(drawn, K):
    by_token = n_accepted(verify, *drawn, K)
    by_block = n_accepted(verify_block, *drawn, K)
    assert by_block >= by_token
    if K < 2:  # with at most one drafted token, the two rules are the same
        assert by_block == by_token


@pytest.mark.parametrize(
    ("p", "q", "by_token", "by_block"),
    [
        ([2 / 3, 1 / 3], [1 / 3, 2 / 3], 10 / 9, 11 / 9),  # Sun et al. 2024
        ([0.2, 0.5, 0.3], [0.3, 0.2, 0.5], 1.19, 1.25),  # lab/block.py
    ],
)
def test_the_examples(p, q, by_token, by_block):
    for rule, expected in (verify, by_token), (verify_block, by_block):
        accepted = n_accepted(rule, Table([p]), Table([q]), np.array([0]), 2)
        assert accepted == pytest.approx(expected, abs=EXACT)


def test_a_tiny_surplus_counts():
    """Exactly one token is kept with probability surplus / (1 - w + surplus), however small."""
    p = np.array([[1, 0], [1, 0]])
    q = np.array([[1, 0], [1, 1e-17], [1, 0]])
    w, h = block_probabilities(np.array([0, 0]), p, q)
    assert w[1] == h[1] == 1
