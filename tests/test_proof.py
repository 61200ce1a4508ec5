"""The proof that speculative sampling is lossless, one test for each step: first by hand, then for all p and q.

The proof is in Chen et al. 2023, Theorem 1, and in Leviathan et al. 2023, A.1. p is the draft's distribution of the
next token and q the target's. Take p = (.5, .3, .2) and q = (.3, .6, .1):

    token                             a     b     c
    step 1   drafted, p              .5    .3    .2
             acceptance min(1, q/p)  .6     1    .5
    step 2   drafted and accepted    .3    .3    .1    = min(p, q)
    step 3   some token is accepted: .3 + .3 + .1 = .7, so one is rejected with probability .3
    step 4   residual (q - p)+        0    .3     0    normalised: (0, 1, 0)
    step 5   accepted, or added      .3  .3+.3   .1    = q

Each test below runs the production code on every way its random choices can fall (see enumeration.py), and compares
the probabilities of what happened with those that the step claims. hypothesis draws p and q, with the zeros, the ties
and the certainties that break careless code.
"""

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from support import EXACT, Table, assert_lossless, mass_where, models, pairs, product_of_conditionals

from enumeration import output_distribution, total_variation
from speculative import autoregressive_sampling, max_fn, propose, verify, verify_block

pytestmark = pytest.mark.filterwarnings("error")  # an overflow or 0 / 0 on the way is a mistake
both_verifiers = pytest.mark.parametrize("verifier", [verify, verify_block])
BY_HAND = np.array([0.5, 0.3, 0.2]), np.array([0.3, 0.6, 0.1])


def one_draft(p, q):
    """A round that drafts one token -> {(drafted token, how many were accepted, first emitted token): probability}."""

    def one_round(rng):
        drafted, p_rows = propose(np.array([0]), Table([p]), 1, rng)
        emitted = verify(drafted, p_rows, np.array([q, np.eye(len(q))[0]]), rng)
        return drafted[0], len(emitted) - 1, emitted[0]

    return output_distribution(one_round)


def test_the_example_worked_by_hand():
    expected = {
        (0, 1, 0): 0.3,  # a is drafted with probability .5, and accepted with .6
        (0, 0, 1): 0.2,  # a is rejected with .4, and b is added: the residual is (0, 1, 0)
        (1, 1, 1): 0.3,  # b is drafted with .3, and always accepted
        (2, 1, 2): 0.1,  # c is drafted with .2, and accepted with .5
        (2, 0, 1): 0.1,  # c is rejected with .5, and b is added
    }
    assert one_draft(*BY_HAND) == pytest.approx(expected, abs=EXACT)


@example(BY_HAND)
@given(pairs())
def test_step_1_a_token_is_drafted_with_probability_p(pair):
    p, q = pair
    for x in range(len(q)):
        assert mass_where(one_draft(p, q), lambda drafted, *_, x=x: drafted == x) == pytest.approx(p[x], abs=EXACT)


@example(BY_HAND)
@given(pairs())
def test_step_2_it_is_drafted_and_accepted_with_probability_min_p_q(pair):
    p, q = pair
    for x in range(len(q)):
        accepted = mass_where(one_draft(p, q), lambda drafted, n, token, x=x: n == 1 and drafted == token == x)
        assert accepted == pytest.approx(min(p[x], q[x]), abs=EXACT)  # p(x) min(1, q(x) / p(x))


@example(BY_HAND)
@given(pairs())
def test_step_3_some_token_is_accepted_with_probability_sum_min_p_q(pair):
    p, q = pair
    beta = mass_where(one_draft(p, q), lambda drafted, n, token: n == 1)  # Leviathan et al., Theorem 3.5
    assert beta == pytest.approx(np.minimum(p, q).sum(), abs=EXACT)
    assert beta == pytest.approx(1 - np.abs(p - q).sum() / 2, abs=EXACT)
    assert 1 - beta == pytest.approx(np.maximum(q - p, 0).sum(), abs=EXACT)  # what max_fn divides by in the next step


@example(BY_HAND)
@given(pairs())
def test_step_4_after_a_rejection_the_token_comes_from_the_residual(pair):
    p, q = pair
    assume(np.abs(p - q).sum() > EXACT)
    rejected = mass_where(one_draft(p, q), lambda drafted, n, token: n == 0)
    for x in range(len(q)):
        added = mass_where(one_draft(p, q), lambda drafted, n, token, x=x: n == 0 and token == x)
        assert added / rejected == pytest.approx(max_fn(q - p)[x], abs=EXACT)
        assert added == pytest.approx(max(q[x] - p[x], 0), abs=EXACT)


@example(BY_HAND)
@given(pairs())
def test_step_5_accepted_and_added_make_q(pair):
    p, q = pair
    for x in range(len(q)):
        assert mass_where(one_draft(p, q), lambda drafted, n, token, x=x: token == x) == pytest.approx(q[x], abs=EXACT)


@both_verifiers
@pytest.mark.parametrize("K", [0, 1, 2, 3])
@given(drawn=models())
def test_step_6_a_round_completed_by_the_target_is_the_target(verifier, drawn, K):
    """By induction: after i accepted tokens, steps 1 to 5 hold for the next one, with row i of p and q."""
    draft, target, x = drawn

    def completed_round(rng):
        drafted, p = propose(x, draft, K, rng)
        emitted = verifier(drafted, p, target(np.append(x, drafted), K + 1), rng)
        assert 1 <= len(emitted) <= K + 1
        assert emitted[:-1].tolist() == drafted[: len(emitted) - 1].tolist()  # an accepted prefix and one token more
        return autoregressive_sampling(np.append(x, emitted), target, K + 1 - len(emitted), rng)

    outputs = output_distribution(completed_round)
    assert total_variation(outputs, product_of_conditionals(x, target, K + 1)) < EXACT


@given(drawn=models(sizes=[1, 2, 3, 4]), N=st.integers(0, 4))
def test_step_7a_autoregressive_sampling_is_the_product_of_the_targets_conditionals(drawn, N):
    _, target, x = drawn
    outputs = output_distribution(lambda rng: autoregressive_sampling(x, target, N, rng))
    assert total_variation(outputs, product_of_conditionals(x, target, N)) < EXACT


@both_verifiers
@pytest.mark.parametrize("N", [1, 2, 3, 4])
@pytest.mark.parametrize("K", [0, 1, 2, 3, 4])
@given(drawn=models())
def test_step_7b_speculative_sampling_is_the_same_distribution_q_e_d(verifier, drawn, N, K):
    decoded = assert_lossless(drawn, N, K, verify=verifier)
    x = drawn[-1].tolist()
    assert all(len(ids) == len(x) + N and list(ids[: len(x)]) == x for ids in decoded)  # exactly N new tokens
