"""The formulas of theory.py equal the sums that they stand for, and give the figures of the papers."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lab import theory
from runs import betas
from speculative import Round

shares = st.one_of(st.sampled_from([0.0, 0.5, 1 - 1e-12, 1.0]), st.floats(0, 1))


@example(alphas=[1 - 1e-12], K=7, c=0.1, v=1.0)  # 1 - alpha^8 would lose most of its digits
@given(
    alphas=st.lists(shares, min_size=1, max_size=3), K=st.integers(0, 40), c=st.floats(0, 2), v=st.floats(1, 3)
)  # fmt: skip
def test_each_formula_is_its_sum(alphas, K, c, v):
    """They take arrays and lists. test_speculative.py compares the same sum with the tokens that are emitted."""
    column, Ks = np.array(alphas)[:, None], np.arange(K + 1)
    tokens = np.array([[sum(alpha**i for i in range(k + 1)) for k in Ks] for alpha in alphas])
    for found, expected in [
        (theory.expected_tokens(column, Ks.tolist()), tokens),
        (theory.improvement(column, Ks.tolist(), c, v, r=0.5), tokens / (Ks * c + v + 0.5)),
        (theory.operations(column, Ks.tolist(), c), (Ks * c + Ks + 1) / tokens),  # Theorem 3.11
        (theory.speedup(tokens / (Ks + 1), Ks.tolist(), c, v), tokens / (Ks * c / v + 1)),
    ]:
        np.testing.assert_allclose(found, expected, rtol=1e-12, strict=True)


def test_tokens_by_position_are_means_over_the_rounds_that_got_there():
    betas = [[0.9, 0.2], [0.9], [0.9, 0.4]]
    assert theory.tokens_by_position(betas, 3).tolist() == pytest.approx([1, 1.9, 2.17, 2.17])  # 1 + .9 + .9 * .3 + 0
    assert theory.tokens_by_position(betas, 0).tolist() == [1]


@pytest.mark.parametrize(
    ("alpha", "K", "operations", "improvement"),
    [(0.6, 2, 1.53, 1.96), (0.7, 3, 1.58, 2.53), (0.8, 2, 1.23, 2.44),
     (0.8, 5, 1.63, 3.69), (0.9, 2, 1.11, 2.71), (0.9, 10, 1.60, 6.86)],
)  # fmt: skip
def test_table_1_of_leviathan_et_al(alpha, K, operations, improvement):
    """The table is for a draft that costs nothing."""
    assert theory.operations(alpha, K, 0) == pytest.approx(operations, abs=0.005)
    assert theory.improvement(alpha, K, 0) == pytest.approx(improvement, abs=0.005)


@given(alpha=shares, c=st.floats(0, 1), K_max=st.integers(0, 12), v=st.lists(st.floats(1, 3), min_size=13, max_size=13))
def test_optimal_K_is_the_best_of_all(alpha, c, K_max, v):
    gains = [sum(alpha**i for i in range(K + 1)) / (K * c + (v[K] if K else 1)) for K in range(K_max + 1)]
    assert gains[theory.optimal_K(alpha, c, np.array(v[: K_max + 1]), K_max)] == pytest.approx(max(gains), rel=1e-12)


def test_optimal_K_grows_up_to_K_max():
    assert theory.optimal_K(1, 0.1) == theory.optimal_K(0.99, 0) == 32
    assert theory.optimal_K(1, 0.1, K_max=5) == 5
    with pytest.raises(TypeError):
        theory.optimal_K(0.9, 0.05, 1.2, 0.06)  # an r in the place of K_max
    assert theory.optimal_K(0.3, 0.1, r=np.array([0, 0.3])).tolist() == [1, 0]
    assert theory.optimal_K([[0], [0.5], [1]], [0.01, 0.6]).tolist() == [[0, 0], [5, 0], [32, 32]]


def test_speedup_gives_the_figures_of_the_blog_post():
    assert theory.speedup(0.8, 4, 1.8, 14.1) == pytest.approx(2.65, abs=0.005)
    assert theory.speedup(0.62, 4, 1.8, 14.1) == pytest.approx(2.05, abs=0.005)


def test_beta_and_alpha():
    p, q = np.array([[0.5, 0.5, 0], [1, 0, 0]]), np.array([[0.25, 0.25, 0.5], [0, 1, 0]])
    assert theory.beta(p, q).tolist() == [0.5, 0]
    assert theory.alpha(p, q) == 0.25


def test_betas_are_those_of_the_verified_positions():
    rng = np.random.default_rng(0)
    # the last round accepted one token, which was an eos
    for k, n_accepted, n_emitted, n_verified in (3, 2, 3, 3), (0, 0, 1, 0), (2, 1, 2, 2), (2, 2, 3, 2), (3, 1, 1, 1):
        p, q = rng.dirichlet(np.ones(4), size=k), rng.dirichlet(np.ones(4), size=k + 1)
        found = betas(Round(np.zeros(k, int), p, q, np.zeros(n_emitted, int), n_accepted))
        assert found.tolist() == [theory.beta(p[i], q[i]) for i in range(n_verified)]
