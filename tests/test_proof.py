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

Step 6. A round emits 1 to K + 1 tokens. To complete it, let plain sampling add what is missing
to K + 1. Then, given the tokens before it, each token of a completed round has the distribution
q. Look at one position, and let the tokens before it be known. There are three cases:

- The tokens before it are accepted guesses, and there is a guess here, too. It is verified
  with fresh random numbers. By steps 1 to 5 the token is a draw from q.
- The tokens before it are accepted guesses, and there is no guess here. Then the token is the
  bonus, a draw from q.
- The round has ended earlier. Then the token is a plain sample, a draw from q.

Step 7. Begin with a text of N plain samples. Replace the first K + 1 of them by a completed
round. By step 6 the distribution of the text stays the same. What follows the round's own
tokens is plain again, so the next round can begin right there.

An example with N = 5 and K = 2, where the rounds emit two tokens, one, and two. P is a plain
sample, and R a token of a round. The first bar shows where the round's own tokens end. The
second bar shows where the completed round ends, three tokens after it began:

    P P P P P       five plain samples
    R R|P|P P       a round emitted two tokens, R R, and one P completes it
    R R R|P P|      the next round begins at once; it emitted one R, and two P complete it
    R R R R R       the last round is shorter, because only two tokens were wanted

Each round emits at least one token, so after N rounds at most there is no P left. If there
is an eos, both samplers cut the text after it.

Which ways to propose are covered? Step 2 needs a guess that was drawn from the very p that
comes with it. Step 6 needs this: whether a position gets a guess is decided before the guess
is drawn. So K may change from round to round, and a round may stop guessing when it likes; all
schedules of lab/schedules.py are covered, and test_speculative.py runs them. Not covered:
looking at a guess, and then taking it back.

The tests compute exact probabilities, see enumeration/. The library Hypothesis makes up p and q
from small whole numbers, zeros among them. They are Fractions, so == means equal.
"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import assert_same

from enumeration import sum_over_paths
from lab.gallery import draft_model, target_model
from speculative import autoregressive_sampling, propose, speculative_sampling, verify

BY_HAND = np.array([2, 5, 3]) / Fraction(10), np.array([3, 2, 5]) / Fraction(10)


def rows(n_vocab):  # how Hypothesis makes up a distribution
    weights = st.lists(st.integers(0, 4), min_size=n_vocab, max_size=n_vocab).filter(any)
    return weights.map(lambda w: np.array(w) / Fraction(sum(w)))


def pairs(n_vocab):  # p and q: independent, or equal
    return st.tuples(rows(n_vocab), rows(n_vocab)) | rows(n_vocab).map(lambda row: (row, row))


def by_sum(table):
    """A model whose row is chosen by the sum of all tokens before, so that each of them counts."""

    def model(ids, n_rows=1):
        sums = np.cumsum(ids)[-n_rows:]
        return table[sums % len(table)]

    return model


@st.composite
def models(draw, sizes=(1, 2, 3)):  # a draft, a target, and a prompt
    n_vocab = draw(st.sampled_from(sizes))
    drawn = draw(st.lists(pairs(n_vocab), min_size=2, max_size=4))
    p, q = zip(*drawn)  # the rows of the draft, and those of the target
    prompt = draw(st.lists(st.integers(0, n_vocab - 1), min_size=1, max_size=3))
    return by_sum(np.array(p)), by_sum(np.array(q)), np.array(prompt)


def product_of_conditionals(x, target, N, eos=None):
    """The distribution of N tokens after x by definition: the product of the target's rows."""
    if N == 0:
        return {tuple(x.tolist()): 1}
    found = {}
    for token, mass in enumerate(target(x)[-1]):
        if mass > 0:
            n_left = 0 if token == eos else N - 1
            rest = product_of_conditionals(np.append(x, token), target, n_left, eos)
            for text, mass_of_rest in rest.items():
                found[text] = mass * mass_of_rest
    return found


def one_draft(p, q):
    """The probability of each way that a round of one guess can go.

    mass[1, 0, 2] is that of "B was guessed, none was accepted, and C was emitted".
    """

    def one_round(rng):
        drafted, p_rows = propose(np.array([0]), by_sum(np.array([p])), 1, rng)
        q_rows = np.array([q, q])  # the second one is for the bonus, which nobody looks at
        emitted = verify(drafted, p_rows, q_rows, rng)
        return drafted[0], len(emitted) - 1, emitted[0]

    mass = np.zeros((len(p), 2, len(p)), dtype=object)
    for result, probability in sum_over_paths(one_round).items():
        mass[result] = probability
    return mass


def test_the_example_worked_by_hand():
    mass = one_draft(*BY_HAND) * 10
    accepted = [[2, 0, 0], [0, 2, 0], [0, 0, 3]]  # drafted with p, and accepted with min(1, q/p)
    rejected = [[0, 0, 0], [1, 0, 2], [0, 0, 0]]  # B with .5 * .6; then A is added, or C
    assert (mass[:, 1] == accepted).all()
    assert (mass[:, 0] == rejected).all()


@given(st.integers(1, 4).flatmap(pairs))
def test_steps_1_to_5_the_token_of_a_round_is_a_draw_from_q(pair):
    p, q = pair
    mass = one_draft(p, q)
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
@given(drawn=models())
def test_step_6_a_completed_round_has_the_distribution_of_the_target(drawn, K):
    assert_round_exact(drawn, K)


@given(drawn=models(sizes=[1, 2, 3, 4]), N=st.integers(0, 4), eos=st.sampled_from([None, 0]))
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
@given(drawn=models(), N=st.integers(1, 4), K=st.integers(0, 3))
def test_step_7b_for_any_models(drawn, N, K):
    assert_exact(drawn, N, K)
