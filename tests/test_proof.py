"""The proof that speculative sampling is exact, in seven steps, with a test for each.

It follows Chen et al. 2023, Theorem 1, and Leviathan et al. 2023, A.1. The draft's
distribution of the next token is p, the target's is q. For the README's p = (.2, .5, .3)
and q = (.3, .2, .5):

    token                             A     B     C
    step 1   drafted: p              .2    .5    .3
    step 2   acceptance min(1, q/p)   1    .4     1
             drafted and accepted    .2    .2    .3    = min(p, q)
    step 3   rejected, whatever was drafted: 1 - .7    = .3 = sum max(q - p, 0)
    step 4   max(q - p, 0)           .1     0    .2    normalised: (1/3, 0, 2/3), the residual
    step 5   accepted, or added    .2+.1   .2  .3+.2   = min(p, q) + max(q - p, 0) = q

For any p and q: token t is drafted with probability p(t), step 1, and accepted with
min(1, q(t) / p(t)). The product is min(p(t), q(t)), step 2. Let S = sum max(q - p, 0).
Since min(p, q) + max(q - p, 0) = q for every token, and q sums to 1, a guess is accepted
with probability 1 - S and rejected with S, step 3. Then t is added with probability
max(q(t) - p(t), 0) / S, so "rejected, then t" has probability max(q(t) - p(t), 0), step
4. Both ways together give q(t), step 5.

From one token to a whole text. From here on, q is the target's row after the text so far.

Step 6. A round emits 1 to K + 1 tokens. Let plain sampling fill it up to K + 1. Then each
of these K + 1 tokens is a draw from q, whatever came before it. Take one position, and
suppose that we know the tokens before it:

- Either the round has drafted and accepted all of them. Then this position has a guess
  of its own, judged with fresh random numbers, so by steps 1 to 5 it is a draw from q. If
  the round drafts nothing more, because of K or of a stop, it is drawn from q itself. A
  stop depends on the known tokens alone, so it favours no token here.
- Or the round has ended before. Then this position is a plain sample.

Step 7. Begin with N plain samples, P. Replace the first K + 1 by a round, R, filled up by
plain samples. By step 6 the distribution stays the same, and what follows the round's own
tokens is plain again. So the next round can begin right there. With K = 2, and rounds
that happen to emit two tokens, one, and two:

    P P P P P
    R R|P|P P       the round emitted two tokens, and one P fills it up
    R R R|P P|      the next round begins at once; it emitted one, and two P fill it up
    R R R R R       the last round is shorter, because only two tokens were wanted

Each round emits at least one token, so after N rounds at most there is no P left. If
there is an eos, both samplers cut the text after it. Whatever happened in a round, rejected
tokens included, the plain samples after it are draws from q. And what happened is all that a
schedule can know when it chooses K, so every schedule is exact.

Block verification, which you may skip at first. w and h are those of
`lab.block.block_probabilities`. Fix the first i drafted tokens. Below, w is w[i], p and q
are p[i] and q[i], sums run over the next token, and surplus is sum max(w q - p, 0).

1. The round keeps these i tokens, and perhaps more, with probability w. By induction from
   i = k down, or from wherever a stop ended the drafting: all k are kept with probability
   h[k] = w[k]. Suppose that it holds for i + 1.
   - If the next guess is t, more than i are kept with probability
     w[i+1] = min(1, w q(t) / p(t)). On average over t that is sum min(p, w q).
   - As before, min(p, w q) + max(w q - p, 0) = w q, and q sums to 1. So more than i are
     kept with probability w - surplus.
   - `verify_block` tries longer prefixes first, so it comes to i with probability
     1 - w + surplus, and keeps exactly i with h[i] = surplus / (1 - w + surplus). The
     product is surplus. Together with w - surplus that is w.
   If surplus is 0 and w is 1, h[i] would be 0 / 0, but then the round never comes to i. At
   i = 0 the round keeps nothing for certain, and h[0] is not used.
2. If the first i < k tokens are kept, the next one is a draw from q: "they are kept, then
   t" has probability w q(t). It happens in two ways. t is drafted and kept, with
   probability p(t) w[i+1] = min(p(t), w q(t)). Or exactly i are kept, with probability
   surplus, and t is drawn from the residual, with max(w q(t) - p(t), 0) / surplus. The sum
   is w q(t), and divided by w it is q(t). So steps 6 and 7 hold here too.
3. On average it accepts at least as many tokens as `verify`: w[i] is never below the
   product of min(1, q/p) over the first i, because min(1, w q/p) >= w min(1, q/p).

Each test computes exact probabilities, see enumeration/, for p and q that the library
Hypothesis makes up: with zeros, with a single 1, equal, or with no token in common. They are
Fractions, so == means equal.
"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import (
    Table,
    assert_lossless,
    assert_same,
    both_verifiers,
    models,
    pairs,
    product_of_conditionals,
)

from enumeration import output_distribution
from lab.gallery import draft_model, target_model
from speculative import autoregressive_sampling, propose, verify

BY_HAND = np.array([2, 5, 3]) / Fraction(10), np.array([3, 2, 5]) / Fraction(10)


def one_draft(p, q):
    """mass[d, n, e]: the probability that a round with K = 1 drafts d, accepts n tokens, and emits e first."""

    def one_round(rng):
        drafted, p_rows = propose(np.array([0]), Table([p]), 1, rng)
        emitted = verify(drafted, p_rows, np.array([q, q]), rng)
        return drafted[0], len(emitted) - 1, emitted[0]

    mass = np.zeros((len(p), 2, len(p)), dtype=object)
    for result, probability in output_distribution(one_round).items():
        mass[result] = probability
    return mass


def test_the_example_worked_by_hand():
    mass = one_draft(*BY_HAND) * 10
    accepted = [
        [2, 0, 0],
        [0, 2, 0],
        [0, 0, 3],
    ]  # each token is drafted with p and accepted with min(1, q/p)
    rejected = [[0, 0, 0], [1, 0, 2], [0, 0, 0]]  # B with .5 * .6; then A is added, or C
    assert (mass[:, 1] == accepted).all() and (mass[:, 0] == rejected).all()


@given(pairs(exact=True))
def test_steps_1_to_5_the_token_of_a_round_is_a_draw_from_q(pair):
    p, q = pair
    mass = one_draft(p, q)
    rejected, accepted = mass[:, 0], mass[:, 1]
    assert (mass.sum(axis=(1, 2)) == p).all()  # step 1: a token is drafted with probability p
    assert (
        accepted == np.diag(np.minimum(p, q))
    ).all()  # step 2: drafted and accepted with probability min(p, q)
    assert (
        rejected.sum() == np.maximum(q - p, 0).sum()
    )  # step 3: it is rejected with this probability
    assert (
        rejected.sum(axis=0) == np.maximum(q - p, 0)
    ).all()  # step 4: a rejection, and then this token
    assert (
        mass.sum(axis=(0, 1)) == q
    ).all()  # step 5: accepted and added tokens together have the distribution q


@both_verifiers
@pytest.mark.parametrize("K", [0, 1, 2, 3])
@given(drawn=models(exact=True))
def test_step_6_a_round_and_then_plain_sampling_have_the_distribution_of_the_target(
    verifier, drawn, K
):
    draft, target, x = drawn

    def completed_round(rng):
        drafted, p = propose(x, draft, K, rng)
        emitted = verifier(drafted, p, target(np.append(x, drafted), K + 1), rng)
        assert 1 <= len(emitted) <= K + 1
        assert (
            emitted[:-1].tolist() == drafted[: len(emitted) - 1].tolist()
        )  # accepted tokens, and one more
        return autoregressive_sampling(np.append(x, emitted), target, K + 1 - len(emitted), rng)

    outputs = output_distribution(completed_round)
    assert_same(outputs, product_of_conditionals(x, target, K + 1))


@given(
    drawn=models(sizes=[1, 2, 3, 4], exact=True),
    N=st.integers(0, 4),
    eos=st.sampled_from([None, 0]),
)
def test_step_7a_autoregressive_sampling_is_the_product_of_the_targets_conditionals(drawn, N, eos):
    _, target, x = drawn
    outputs = output_distribution(lambda rng: autoregressive_sampling(x, target, N, rng, eos=eos))
    assert_same(outputs, product_of_conditionals(x, target, N, eos))


@both_verifiers
@pytest.mark.parametrize(
    ("N", "K", "eos"),
    [*((N, K, eos) for N in (1, 2, 3) for K in range(N) for eos in (None, 2)), (4, 3, 2)],
)
def test_step_7b_speculative_sampling_has_the_same_distribution(verifier, N, K, eos):
    """For the pair of the gallery, which was chosen so that each mistake there shows."""
    assert_lossless((draft_model, target_model, np.array([0])), N, K, eos, verify=verifier)


@both_verifiers
@settings(max_examples=100)
@given(drawn=models(exact=True), N=st.integers(1, 4), K=st.integers(0, 3))
def test_step_7b_for_any_models(verifier, drawn, N, K):
    assert_lossless(drawn, N, K, verify=verifier)
