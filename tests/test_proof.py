"""The proof that speculative sampling is exact: its output has the target's distribution. Each step is tested.

(These seven steps are not the four steps of a round.)

The proof is in Chen et al. 2023, Theorem 1, and in Leviathan et al. 2023, A.1. The draft's distribution of the next
token is p, and the target's is q. For example, let p = (.5, .3, .2) and q = (.3, .6, .1):

    token                             A     B     C
    step 1   drafted: p              .5    .3    .2
    step 2   acceptance min(1, q/p)  .6     1    .5
             drafted and accepted    .3    .3    .1    = min(p, q)
    step 3   the drafted token is accepted with probability .3 + .3 + .1 = .7, and rejected with .3 = sum max(q - p, 0)
    step 4   max(q - p, 0)            0    .3     0    normalised: (0, 1, 0), the residual
    step 5   accepted, or added      .3  .3+.3   .1    = min(p, q) + max(q - p, 0) = q

The same for any p and q: token t is drafted with probability p(t) (step 1), and accepted with min(1, q(t) / p(t)). The
product is min(p(t), q(t)) (step 2). Let S be sum max(q - p, 0). For each token, min(p, q) + max(q - p, 0) is q, and q
sums to 1. So the drafted token is accepted with probability sum min(p, q) = 1 - S, and rejected with S (step 3). After
a rejection, t is added with probability max(q(t) - p(t), 0) / S. So the probability of a rejection followed by t is
max(q(t) - p(t), 0) (step 4). Both ways together give q(t) (step 5).

Steps 6 and 7 lead from one token to a whole text. From here on, q is the target's row after the text so far.

Step 6. A round emits 1 to K + 1 tokens. Let plain sampling add tokens after it, until there are K + 1. Then each of
these K + 1 tokens is a draw from q, whatever the tokens before it are. To see this, look at one position, and suppose
that we know the tokens before it. There are two cases:

- The round has drafted and accepted all of the known tokens. Then the token at this position is drafted and checked
  with random numbers of its own. So by steps 1 to 5 it is a draw from q. (If nothing more was drafted, because of K or
  because of a stop, it is drawn from q. A stop depends only on the known tokens, so it favours no token here. For block
  verification, this case has a proof of its own: item 2 at the end.)
- The round ended before this position. Then the token at this position is a plain sample, which is a draw from q.

Step 7. Begin with N plain samples. Replace the first K + 1 of them by a round, filled up to K + 1 tokens by plain
sampling. By step 6, the distribution stays the same. After the tokens of the round, all tokens are plain samples now:
first those that fill it up, then the others. A plain sample depends only on the text before it and on new random
numbers. So a second round may begin directly after the first one, wherever that ended. Replace the next K + 1 tokens by
this round in the same way, and so on. For example, let K be 2 and N be 5. P is a plain sample, and R is a token of a
round. The rounds emit two tokens, one token, and two tokens:

    PPPPP  ->  RRPPP  ->  RRRPP  ->  RRRRR

Each round emits at least one token, so after at most N rounds, all N tokens come from rounds. If fewer than K + 1
tokens are left, the round drafts fewer. (If there is an eos, both samplers end the text after the first one, so the
distributions stay equal.) The plain samples after a round are draws from q even if we know everything that happened in
the round, including which tokens were rejected. Such knowledge is all that a schedule can use, because it chooses K
before the next round draws anything. So every schedule is exact. (Test 7a is about plain sampling, and test 7b about
rounds.)

Block verification is exact too, by the same argument with w q in the place of q. (w and h are explained at
`block_probabilities` in speculative.py. You may skip this at first.) Fix the first i drafted tokens. In what follows, w
is w[i], p and q are the rows p[i] and q[i], and all sums are over the next token.

1. The goal w is reached: the round keeps all of the i tokens, and perhaps more, with probability w. The proof is by
   induction, from i = k down. (With a stop, k depends on the drafted tokens. The induction then begins wherever
   drafting stopped.) For i = k, all k tokens are kept with probability h[k], which is w[k]. Now suppose that the goal
   is reached for i + 1.
   - If the next drafted token is t, i + 1 tokens or more are kept with probability w[i+1] = min(1, w q(t) / p(t)).
     t is drawn from p, so on average this is sum p min(1, w q / p) = sum min(p, w q).
   - Let surplus be sum max(w q - p, 0). For each token, min(p, w q) + max(w q - p, 0) is w q. So sum min(p, w q) and
     surplus add up to sum w q. This is w, because q sums to 1. So i + 1 tokens or more are kept with probability
     w - surplus.
   - `verify_block` tries longer prefixes first. So it gets to i with probability 1 - (w - surplus), and then keeps
     exactly i tokens with probability h[i]. (h[i] is a constant here, because it depends on the first i tokens only.)
     h[i] is surplus / (surplus + 1 - w), so exactly i tokens are kept with probability surplus. This and w - surplus
     add up to w, so the goal is reached for i.

   Two cases are special. If surplus is 0 and w is 1, the fraction is 0 / 0. But then the round gets to i with
   probability 0, so h[i] is not used. And a round that gets to i = 0 keeps 0 tokens for certain, so h[0] is not used.
2. If the first i tokens are kept, i < k, the token after them is a draw from q. We show that the probability of
   "they are kept, and token t comes next" is w q(t). It happens in two ways. t is drafted and kept, with probability
   p(t) w[i+1] = min(p(t), w q(t)), by item 1 for i + 1. Or exactly i tokens are kept, with probability surplus, and t
   is drawn from the residual, with probability max(w q(t) - p(t), 0) / surplus. The product is max(w q(t) - p(t), 0),
   and the sum of both ways is w q(t). (After all k tokens, the next one is drawn from the last row of q.) At least i
   tokens are kept with probability w. So given that, token t comes next with probability w q(t) / w, which is q(t). If
   fewer than i tokens are kept, the token at this position is a plain sample. So steps 6 and 7 hold here too.
3. On average, block verification accepts at least as many tokens as `verify`. The reason is that w[i] is never below
   the product of the first i factors min(1, q/p) of `verify`, because min(1, w q/p) >= w min(1, q/p) if w <= 1. And the
   mean number of accepted tokens is the sum of the probabilities that at least 1, 2, ... tokens are kept.

Each test computes the exact probability of each result (see enumeration.py), and compares these probabilities with the
claim of the step. The library Hypothesis makes up p and q. Some rows have zeros, some have a single 1, some pairs are
equal, and some have no token in common. The helpers are explained in support.py.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import EXACT, Table, assert_lossless, both_verifiers, models, pairs, product_of_conditionals

from enumeration import output_distribution, total_variation
from speculative import autoregressive_sampling, propose, verify

BY_HAND = np.array([0.5, 0.3, 0.2]), np.array([0.3, 0.6, 0.1])


def one_draft(p, q):
    """mass[d, n, e]: the probability that a round with K = 1 drafts d, accepts n tokens, and emits e first."""

    def one_round(rng):
        drafted, p_rows = propose(np.array([0]), Table([p]), 1, rng)
        emitted = verify(drafted, p_rows, np.array([q, q]), rng)
        return drafted[0], len(emitted) - 1, emitted[0]

    mass = np.zeros((len(p), 2, len(p)))
    for result, probability in output_distribution(one_round).items():
        mass[result] = probability
    return mass


def equal(a, b):
    return np.abs(a - b).max() < EXACT


def test_the_example_worked_by_hand():
    mass = one_draft(*BY_HAND)
    accepted = [[0.3, 0, 0], [0, 0.3, 0], [0, 0, 0.1]]  # each token is drafted with p and accepted with min(1, q/p)
    rejected = [[0, 0.2, 0], [0, 0, 0], [0, 0.1, 0]]  # A with .5 * .4 and C with .2 * .5; then B is added
    assert equal(mass[:, 1], accepted) and equal(mass[:, 0], rejected)


@given(pairs())
def test_steps_1_to_5_the_token_of_a_round_is_a_draw_from_q(pair):
    p, q = pair
    mass = one_draft(p, q)
    rejected, accepted = mass[:, 0], mass[:, 1]
    assert equal(mass.sum(axis=(1, 2)), p)  # step 1: a token is drafted with probability p
    assert equal(accepted, np.diag(np.minimum(p, q)))  # step 2: it is drafted and accepted with probability min(p, q)
    assert equal(rejected.sum(), np.maximum(q - p, 0).sum())  # step 3: it is rejected with this probability
    assert equal(rejected.sum(axis=0), np.maximum(q - p, 0))  # step 4: a rejection, and then this token
    assert equal(mass.sum(axis=(0, 1)), q)  # step 5: accepted and added tokens together have the distribution q


@both_verifiers
@pytest.mark.parametrize("K", [0, 1, 2, 3])
@given(drawn=models())
def test_step_6_a_round_and_then_plain_sampling_have_the_distribution_of_the_target(verifier, drawn, K):
    draft, target, x = drawn

    def completed_round(rng):
        drafted, p = propose(x, draft, K, rng)
        emitted = verifier(drafted, p, target(np.append(x, drafted), K + 1), rng)
        assert 1 <= len(emitted) <= K + 1
        assert emitted[:-1].tolist() == drafted[: len(emitted) - 1].tolist()  # accepted tokens, and one more
        return autoregressive_sampling(np.append(x, emitted), target, K + 1 - len(emitted), rng)

    outputs = output_distribution(completed_round)
    assert total_variation(outputs, product_of_conditionals(x, target, K + 1)) < EXACT


@given(drawn=models(sizes=[1, 2, 3, 4]), N=st.integers(0, 4), eos=st.sampled_from([None, 0]))
def test_step_7a_autoregressive_sampling_is_the_product_of_the_targets_conditionals(drawn, N, eos):
    _, target, x = drawn
    outputs = output_distribution(lambda rng: autoregressive_sampling(x, target, N, rng, eos=eos))
    assert total_variation(outputs, product_of_conditionals(x, target, N, eos)) < EXACT


@both_verifiers
@pytest.mark.parametrize("N", [1, 2, 3, 4])
@pytest.mark.parametrize("K", [0, 1, 2, 3])
@given(drawn=models())
def test_step_7b_speculative_sampling_has_the_same_distribution(verifier, drawn, N, K):
    assert_lossless(drawn, N, K, verify=verifier)
