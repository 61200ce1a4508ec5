"""The proof that speculative sampling is exact, in seven steps, with tests of each.

It follows Chen et al. 2023, Theorem 1, and Leviathan et al. 2023, A.1. p is the draft's
distribution of the next token, q the target's.

Steps 1 to 5 are about one token. The README has them, in "Why it is exact":

1. Token t is guessed with probability p(t).
2. Guessed and accepted: p(t) min(1, q(t) / p(t)) = min(p(t), q(t)).
3. For each token min(p, q) + max(q - p, 0) = q, and q sums to 1. So a guess is rejected with
   probability S = 1 - sum min(p, q) = sum max(q - p, 0).
4. Rejected, and resampled as t: S max(q(t) - p(t), 0) / S = max(q(t) - p(t), 0).
5. Emitted, by 2 or by 4: min(p(t), q(t)) + max(q(t) - p(t), 0) = q(t).

From one token to a whole text. Now q is the target's distribution after the text so far.

Step 6. A round emits 1 to K + 1 tokens. Rounds of different lengths are awkward to compare, so
fill them up: where one emits fewer, imagine that the target goes on alone until there are
K + 1. The code doesn't draw these extra tokens. A completed round has the same distribution as
K + 1 tokens of the target alone. To see that, look at any of its positions. What happened
before decides where its token comes from:

- The round still goes on, and there is a guess. Whether the guesses before it are accepted
  doesn't depend on the random number that drew this one. So even given that they were, it is a
  draw from p, and by steps 1 to 5 the token is a draw from q.
- The round still goes on, and the guesses are used up. The token is the bonus, a draw from q.
- The round has ended. The token is the target's own, a draw from q.

In all three the token is a draw from q, whatever came before it.

Step 7. Here is a text of five tokens, with K = 2. P, plain, is a token that the target alone
has drawn, and R one that a round has emitted. The rounds emit two tokens, one, and two:

    [P P P] P P      the target alone
    [R R P] P P      a round emitted two tokens, and P completes it
    R R [P P P]      the same text, and where the next round goes
    R R [R P P]      it emitted one
    R R R [P P]      and where the last round goes
    R R R [R R]      it emitted the two that were left

A completed round takes the place of the P's in brackets. By step 6 both have the same
distribution. The target draws the P's to their right as before, each after all that stands to
its left. So the text keeps its distribution. The P that completed a round is a draw of the target
after all that stands to its left, like every P. So the code need not draw it at all: the next
round begins at its place, and what it emits there has the same distribution. Near the end there
is less room: two P's are left, so the code makes one guess, and a completed round has two tokens.

Each round emits at least one token, so after at most N rounds all tokens are R's. That is the
text of `speculative_sampling`. If there is an eos, both samplers cut the text after it.

Which ways to guess are covered? Step 2 needs the very p that the guess was drawn from. You may
stop guessing whenever you like, but keep each guess that you have drawn. Say you take back every
B: then only A and C are left, and they are not draws from p.

The tests compute exact probabilities: sum_over_paths runs a function down every path. The
library Hypothesis makes up p and q from small whole numbers, zeros among them, as
support/models.py says. They are Fractions, so == means equal.

Next: tiny.py, from top to bottom. It's the algorithm, and then the check.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.exact import assert_same, product_of_conditionals
from support.models import models, pairs

from enumeration import sum_over_paths
from gallery import draft_model, target_model
from speculative import autoregressive_sampling, propose, speculative_sampling, verify

pytestmark = pytest.mark.exact


@given(pairs(exact=True))
def test_steps_1_to_5_the_token_of_a_round_is_a_draw_from_q(pair):
    p, q = pair

    def one_round(rng):
        [guess], p_rows = propose(np.array([0]), lambda ids: [p], 1, rng)
        emitted = verify(np.array([guess]), p_rows, np.array([q, q]), rng)
        return guess, len(emitted) == 2, emitted[0]  # accepted, if there is a bonus

    guessed, accepted, resampled = [np.zeros(len(p), dtype=object) for _ in range(3)]
    for (guess, is_accepted, token), probability in sum_over_paths(one_round).items():
        assert token == guess or not is_accepted
        guessed[guess] += probability
        emitted_so = accepted if is_accepted else resampled
        emitted_so[token] += probability
    assert (guessed == p).all()  # step 1
    assert (accepted == np.minimum(p, q)).all()  # step 2
    assert resampled.sum() == np.maximum(q - p, 0).sum()  # step 3
    assert (resampled == np.maximum(q - p, 0)).all()  # step 4
    assert (accepted + resampled == q).all()  # step 5


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
    texts = sum_over_paths(lambda rng: autoregressive_sampling(x, target, N, rng, eos=eos))
    assert_same(texts, product_of_conditionals(x, target, N, eos))


def assert_exact(drawn, N, K, eos=None, rule=verify):
    draft, target, x = drawn

    def sampler(rng):
        return speculative_sampling(x, draft, target, N, K, rng, eos=eos, verify=rule)

    assert_same(sum_over_paths(sampler), product_of_conditionals(x, target, N, eos))


@pytest.mark.parametrize("N, K", [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)])
@pytest.mark.parametrize("eos", [None, 2])
def test_step_7b_speculative_sampling_has_the_same_distribution(N, K, eos):
    """The pair of the gallery, which was chosen so that each mistake there shows."""
    assert_exact((draft_model, target_model, np.array([0])), N, K, eos)


@settings(max_examples=100)
@given(drawn=models(exact=True), N=st.integers(1, 4), K=st.integers(0, 3))
def test_step_7b_for_any_models(drawn, N, K):
    assert_exact(drawn, N, K)
