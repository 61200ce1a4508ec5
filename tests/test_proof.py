"""The proof that speculative sampling is exact, in seven steps, with tests of each.

It follows Chen et al. 2023, Theorem 1, and Leviathan et al. 2023, A.1. The draft's
distribution of the next token is p, the target's is q. For the README's p = (.2, .5, .3)
and q = (.3, .2, .5):

    token                             A     B     C
    step 1   drafted: p              .2    .5    .3
    step 2   acceptance min(1, q/p)   1    .4     1
             drafted and accepted    .2    .2    .3    = min(p, q)
    step 3   rejected, whatever was drafted: 1 - .7    = .3 = sum max(q - p, 0)
    step 4   max(q - p, 0)           .1     0    .2    normalised: (1/3, 0, 2/3), the residual
    step 5   accepted, or resampled .2+.1   .2  .3+.2  = min(p, q) + max(q - p, 0) = q

From here on for any p and q.

Steps 1 and 2. Token t is drafted with probability p(t), and then accepted with probability
min(1, q(t) / p(t)). The product is min(p(t), q(t)).

Step 3. For every token, min(p, q) + max(q - p, 0) = q. Sum this over the tokens: q sums to 1,
so sum min(p, q), the probability that a guess is accepted, is 1 - S, where S is
sum max(q - p, 0). So a guess is rejected with probability S.

Step 4. After a rejection, t is drawn with probability max(q(t) - p(t), 0) / S. So "rejected,
then t" has probability max(q(t) - p(t), 0).

Step 5. Token t is emitted in one of these two ways. Their probabilities sum to q(t).

From one token to a whole text. Now q is the target's distribution after the text so far.

Step 6. A round emits 1 to K + 1 tokens. Complete it: fill it up to K + 1 tokens with plain
samples. Then each token, given those before it, is a draw from q. For at any position, what came
before decides which of three cases holds:

- All guesses before it were accepted, and there is a guess here, too. It is verified with
  fresh random numbers, and by steps 1 to 5 the token is a draw from q.
- All guesses before it were accepted, and there is no guess here. Then the token is the
  bonus, a draw from q.
- The round has ended earlier. Then the token is a plain sample, a draw from q.

It is a draw from q in each case, so it is one.

Step 7. Begin with N plain samples, and turn them into rounds. With N = 5 and K = 2, where rounds
emit two tokens, one, and two, where P is a plain sample, and R a token of a round:

    |P P P P P      five plain samples
    R R|P P P       a round emitted two tokens
    R R R|P P       the next one emitted one
    R R R R R|      the last one is shorter, because only two tokens were wanted

In each line, the K + 1 samples behind the bar are replaced by a completed round. By step 6 the
distribution of the text stays the same. Only its first tokens are the round's. Those that fill
it up are plain samples, so the next round may replace them in turn.

Each round emits at least one token, so after N rounds at most there is no P left. If there
is an eos, both samplers cut the text after it.

Which ways to propose are covered? Step 2 needs a guess that was drawn from the very p that
comes with it. Step 6 needs this: whether a position gets a guess is decided before the guess
is drawn. So a round may stop guessing whenever it likes. Not covered: looking at a guess, and
then taking it back.

The tests compute exact probabilities: sum_over_paths is tiny.py's every_path, grown up. The
library Hypothesis makes up p and q from small whole numbers, zeros among them, as support.py
says. They are Fractions, so == means equal.
"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import assert_same, models, pairs, product_of_conditionals

from enumeration import sum_over_paths
from lab.gallery import draft_model, target_model
from speculative import autoregressive_sampling, propose, speculative_sampling, verify

BY_HAND = np.array([2, 5, 3]) / Fraction(10), np.array([3, 2, 5]) / Fraction(10)


def one_guess(p, q):
    """The probability of each way that a round of one guess can go.

    mass[1, 0, 2]: B was guessed, 0 guesses were accepted, and C was emitted.
    """

    def one_round(rng):
        drafted, p_rows = propose(np.array([0]), lambda ids: [p], 1, rng)
        q_rows = np.array([q, q])  # the second one is for the bonus, which nobody looks at
        emitted = verify(drafted, p_rows, q_rows, rng)
        return drafted[0], len(emitted) - 1, emitted[0]

    mass = np.zeros((len(p), 2, len(p)), dtype=object)
    for result, probability in sum_over_paths(one_round).items():
        mass[result] = probability
    return mass


def test_the_example_worked_by_hand():
    mass = one_guess(*BY_HAND) * 10
    accepted = [[2, 0, 0], [0, 2, 0], [0, 0, 3]]  # drafted with p, and accepted with min(1, q/p)
    rejected = [[0, 0, 0], [1, 0, 2], [0, 0, 0]]  # B with .5 * .6; then A is added, or C
    assert (mass[:, 1] == accepted).all()
    assert (mass[:, 0] == rejected).all()


@given(pairs(exact=True))
def test_steps_1_to_5_the_token_of_a_round_is_a_draw_from_q(pair):
    p, q = pair
    mass = one_guess(p, q)
    rejected, accepted = mass[:, 0], mass[:, 1]
    assert (mass.sum(axis=(1, 2)) == p).all()  # step 1: drafted
    assert (accepted == np.diag(np.minimum(p, q))).all()  # step 2: drafted and accepted
    assert rejected.sum() == np.maximum(q - p, 0).sum()  # step 3: rejected
    assert (rejected.sum(axis=0) == np.maximum(q - p, 0)).all()  # step 4: rejected, then this token
    assert (mass.sum(axis=(0, 1)) == q).all()  # step 5: accepted or added


def assert_round_exact(drawn, K, rule=verify):
    draft, target, x = drawn

    def completed_round(rng):
        drafted, p = propose(x, draft, K, rng)
        emitted = rule(drafted, p, target(np.append(x, drafted), K + 1), rng)
        n_left = K + 1 - len(emitted)
        return autoregressive_sampling(np.append(x, emitted), target, n_left, rng)

    assert_same(sum_over_paths(completed_round), product_of_conditionals(x, target, K + 1))


@pytest.mark.parametrize("K", [0, 1, 2, 3])
@given(drawn=models(exact=True))
def test_step_6_a_completed_round_has_the_distribution_of_the_target(drawn, K):
    assert_round_exact(drawn, K)


@given(
    drawn=models(sizes=[1, 2, 3, 4], exact=True),
    N=st.integers(0, 4),
    eos=st.sampled_from([None, 0]),
)
def test_step_7a_plain_sampling_is_the_product_of_the_targets_conditionals(drawn, N, eos):
    _, target, x = drawn
    found = sum_over_paths(lambda rng: autoregressive_sampling(x, target, N, rng, eos=eos))
    assert_same(found, product_of_conditionals(x, target, N, eos))


def assert_exact(drawn, N, K, eos=None, rule=verify):
    draft, target, x = drawn

    def sampler(rng):
        return speculative_sampling(x, draft, target, N, K, rng, eos=eos, verify=rule)

    assert_same(sum_over_paths(sampler), product_of_conditionals(x, target, N, eos))


@pytest.mark.parametrize("N, K", [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)])
@pytest.mark.parametrize("eos", [None, 2])
def test_step_7b_speculative_sampling_has_the_same_distribution(N, K, eos):
    """For the pair of the gallery, which was chosen so that each mistake there shows."""
    assert_exact((draft_model, target_model, np.array([0])), N, K, eos)


@settings(max_examples=100)
@given(drawn=models(exact=True), N=st.integers(1, 4), K=st.integers(0, 3))
def test_step_7b_for_any_models(drawn, N, K):
    assert_exact(drawn, N, K)
