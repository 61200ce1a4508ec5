"""The formulas against the sums they stand for, the papers' own figures, and what the algorithm really does."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import Table, pairs

import theory
from enumeration import output_distribution
from speculative import Round, propose, verify

pytestmark = pytest.mark.filterwarnings("error")
shares = st.one_of(st.sampled_from([0.0, 0.5, 1 - 1e-12, 1.0]), st.floats(0, 1))


@given(alpha=shares, K=st.integers(0, 40))
def test_expected_tokens_is_the_geometric_sum(alpha, K):
    assert theory.expected_tokens(alpha, K) == pytest.approx(sum(alpha**i for i in range(K + 1)), rel=1e-12)


@given(pair=pairs(sizes=[3]), K=st.integers(0, 2), c=st.floats(0.01, 2), v=st.floats(1, 3))
def test_improvement_is_tokens_over_costs_of_a_round(pair, K, c, v):
    """By enumeration: what rounds emit on average, and the model calls that they make for it."""
    p, q = pair
    draft, target, x = Table([p]), Table([q]), np.array([0])

    def one_round(rng):
        drafted, rows = propose(x, draft, K, rng)
        return len(verify(drafted, rows, target(np.append(x, drafted), K + 1), rng))

    tokens = sum(n * mass for (n,), mass in output_distribution(one_round).items())
    alpha = theory.alpha(p, q)
    assert theory.improvement(alpha, K, c, v) == pytest.approx(tokens / (K * c + v), rel=1e-11)


@given(alphas=st.lists(shares, max_size=6))
def test_tokens_by_position_is_the_sum_of_products(alphas):
    sums = [1 + sum(np.prod(alphas[:i]) for i in range(1, K + 1)) for K in range(len(alphas) + 1)]
    np.testing.assert_allclose(theory.tokens_by_position(alphas), sums, rtol=1e-12)


def test_tokens_by_position_needs_no_independence():
    """In easy rounds beta is 1, and in hard rounds 0. So if the first token is accepted, the second is too."""
    assert theory.tokens_by_position([0.5, 1.0])[-1] == 0.5 * 3 + 0.5 * 1
    alpha = (1 + 1 + 0) / 3  # the verified positions of an easy and of a hard round
    assert theory.expected_tokens(alpha, 2) > 2.1


def test_a_prompt_gets_no_faster():
    assert theory.with_prompt(2.0, 100, 0, 0) == 2
    assert theory.with_prompt(2.0, 100, 10, 15) == 110 / 65


@pytest.mark.parametrize(
    ("alpha", "K", "operations", "improvement"),
    [
        (0.6, 2, 1.53, 1.96),
        (0.7, 3, 1.58, 2.53),
        (0.8, 2, 1.23, 2.44),
        (0.8, 5, 1.63, 3.69),
        (0.9, 2, 1.11, 2.71),
        (0.9, 10, 1.60, 6.86),
    ],
)
def test_table_1_of_leviathan_et_al(alpha, K, operations, improvement):
    """Where the draft costs nothing."""
    assert theory.operations(alpha, K, 0) == pytest.approx(operations, abs=0.005)
    assert theory.improvement(alpha, K, 0) == pytest.approx(improvement, abs=0.005)


@given(alpha=shares, K=st.integers(0, 20), c_hat=st.floats(0, 1))
def test_operations_theorem_3_11(alpha, K, c_hat):
    sum_of_powers = sum(alpha**i for i in range(K + 1))
    assert theory.operations(alpha, K, c_hat) == pytest.approx((K * c_hat + K + 1) / sum_of_powers, rel=1e-12)


@given(alpha=shares, c=st.floats(0, 1), K_max=st.integers(0, 12), v=st.lists(st.floats(1, 3), min_size=13, max_size=13))
def test_optimal_K_is_the_best_of_all(alpha, c, K_max, v):
    gains = [sum(alpha**i for i in range(K + 1)) / (K * c + (v[K] if K else 1)) for K in range(K_max + 1)]
    assert gains[theory.optimal_K(alpha, c, np.array(v[: K_max + 1]), K_max)] == pytest.approx(max(gains), rel=1e-12)


@pytest.mark.parametrize("alpha", [0, 0.3, 0.31, 0.7])
def test_no_draft_is_best_unless_alpha_is_above_c(alpha):
    assert theory.optimal_K(alpha, 0.3) == 0 if alpha <= 0.3 else theory.optimal_K(alpha, 0.3) > 0
    assert theory.optimal_K(alpha, 0.05, v=2.0) == (0 if alpha < 0.7 else 7)  # where the pass costs twice as much


def test_optimal_K_grows_up_to_K_max():
    assert theory.optimal_K(1, 0.1) == theory.optimal_K(0.99, 0) == 32
    assert theory.optimal_K(1, 0.1, K_max=5) == 5


def test_the_blog_posts_figures():
    assert theory.speedup(0.8, 4, 1.8, 14.1) == pytest.approx(2.65, abs=0.005)
    assert theory.speedup(0.62, 4, 1.8, 14.1) == pytest.approx(2.05, abs=0.005)
    r = theory.expected_tokens(0.7, 4) / 5
    assert theory.speedup(r, 4, 1.8, 14.1) == pytest.approx(theory.improvement(0.7, 4, 1.8 / 14.1), rel=1e-12)


def test_beta_and_alpha():
    p, q = np.array([[0.5, 0.5, 0], [1, 0, 0]]), np.array([[0.25, 0.25, 0.5], [0, 1, 0]])
    assert theory.beta(p, q).tolist() == [0.5, 0]
    assert theory.alpha(p, q) == 0.25


def test_arrays_give_arrays():
    alphas, Ks = np.array([0, 0.5, 1])[:, None], np.arange(4)
    for formula in [
        theory.expected_tokens,
        lambda a, K: theory.improvement(a, K, 0.1, 1.2),
        lambda a, K: theory.operations(a, K, 0.1),
        lambda r, K: theory.speedup(r, K, 1, 9),
    ]:
        np.testing.assert_allclose(
            formula(alphas, Ks), [[formula(a, K) for K in range(4)] for a in (0, 0.5, 1)], rtol=1e-14
        )
    assert theory.optimal_K(alphas, np.array([0.01, 0.6])).tolist() == [[0, 0], [5, 0], [32, 32]]


def test_betas_are_those_of_the_verified_positions():
    """Two of three drafted tokens accepted: three verified positions. One of two: two. None drafted: none."""
    rng = np.random.default_rng(0)

    def one_round(k, n_emitted):
        p, q = rng.dirichlet(np.ones(4), size=k), rng.dirichlet(np.ones(4), size=k + 1)
        return Round(np.zeros(k, int), p if k else np.array([]), q, np.zeros(n_emitted, int), n_emitted - 1)

    rounds = [one_round(3, 3), one_round(0, 1), one_round(2, 2), one_round(2, 3)]
    expected = [theory.beta(r.p[i], r.q[i]) for r, n in zip(rounds, (3, 0, 2, 2), strict=True) for i in range(n)]
    assert theory.betas(rounds).tolist() == expected
