"""The formulas equal the sums that they stand for, and give the figures of the papers."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lab import theory
from runs import beta, betas, expected_tokens
from speculative import Round


@example(alpha=1 - 1e-12, K=7, c=0.1, v=1.0)  # 1 - alpha^8 would lose most of its digits
@given(alpha=st.floats(0, 1), K=st.integers(0, 40), c=st.floats(0, 2), v=st.floats(1, 3))
def test_each_formula_is_its_sum(alpha, K, c, v):
    """test_speculative.py compares the same sum with the tokens that are emitted."""
    tokens = [sum(alpha**i for i in range(k + 1)) for k in range(K + 1)]
    np.testing.assert_allclose(expected_tokens(alpha, K), tokens, rtol=1e-12, strict=True)
    assert theory.improvement(alpha, K, c, v, r=0.5) == pytest.approx(tokens[-1] / (K * c + v + 0.5), rel=1e-12)


def test_tokens_by_position_are_means_over_the_rounds_that_got_there():
    betas = [[0.9, 0.2], [0.9], [0.9, 0.4]]
    assert theory.tokens_by_position(betas, 3).tolist() == pytest.approx([1, 1.9, 2.17, 2.17])  # 1 + .9 + .9 * .3 + 0
    assert theory.tokens_by_position(betas, 0).tolist() == [1]


def test_places_with_one_alpha_are_told_from_those_with_several():
    rng, K = np.random.default_rng(0), 8
    alphas = np.array([0.3, *[0.8] * (K - 1)])

    def rounds(alphas):
        kept = rng.random((100, K)) < alphas  # as with one-hot rows, whose betas are 0 or 1
        return [row[: [*row, False].index(False) + 1].astype(float) for row in kept]

    found, differ = theory.alphas(rounds(alphas))
    assert differ and np.allclose(found, alphas[: len(found)], atol=0.2)
    assert [theory.alphas(rounds(0.6))[1] for _ in range(50)] == [False] * 50
    assert theory.alphas([np.zeros(0)]) == ([], False)


@pytest.mark.parametrize(
    ("alpha", "K", "improvement"),
    [(0.6, 2, 1.96), (0.7, 3, 2.53), (0.8, 2, 2.44), (0.8, 5, 3.69), (0.9, 2, 2.71), (0.9, 10, 6.86)],
)
def test_table_1_of_leviathan_et_al(alpha, K, improvement):
    """The table is for a draft that costs nothing."""
    assert theory.improvement(alpha, K, 0) == pytest.approx(improvement, abs=0.005)


def test_betas_are_those_of_the_verified_positions():
    rng = np.random.default_rng(0)
    # the last round accepted one token, which was an eos
    for k, n_accepted, n_emitted, n_verified in (3, 2, 3, 3), (0, 0, 1, 0), (2, 1, 2, 2), (2, 2, 3, 2), (3, 1, 1, 1):
        p, q = rng.dirichlet(np.ones(4), size=k), rng.dirichlet(np.ones(4), size=k + 1)
        found = betas(Round(np.zeros(k, int), p, q, np.zeros(n_emitted, int), n_accepted))
        assert found.tolist() == [beta(p[i], q[i]) for i in range(n_verified)]
