"""The formulas equal the sums that they stand for."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support import EXACT, models

from enumeration import sum_over_paths
from lab import block, theory
from lab.block import verify_block
from lab.pair import CHANCES
from runs import Chances, Run, expected_tokens
from speculative import Round, propose, verify


@example(alpha=1 - 1e-12, K=7)  # 1 - alpha^8 would lose most of its digits
@given(alpha=st.floats(0, 1), K=st.integers(0, 40))
def test_expected_tokens_are_a_sum(alpha, K):
    tokens = [sum(alpha**i for i in range(k + 1)) for k in range(K + 1)]
    np.testing.assert_allclose(expected_tokens(alpha, K), tokens, rtol=1e-12, strict=True)
    speedup = tokens[-1] / (K * 0.1 + 1.2 + 0.5) if K else 1  # a plain step
    assert theory.improvement(alpha, K, c=0.1, v=1.2, r=0.5) == pytest.approx(speedup, rel=1e-12)


def looked_at(betas):
    """The chances of guesses that were looked at, because all before them were kept."""
    return Chances(np.ones(len(betas)), np.array(betas))


@pytest.mark.parametrize(("n_deviations", "differ"), [(1.7, False), (1.8, True)])
def test_places_with_one_alpha_are_told_from_those_with_several(n_deviations, differ):
    """The squares of their deviations may add up to three times the number of places."""
    away = n_deviations * np.sqrt(0.6 * 0.4 / 100)
    rounds = [looked_at([0.6 + away, 0.6 - away])] * 100
    found, is_told = theory.alphas([*rounds, looked_at([])])
    assert found == pytest.approx([0.6 + away, 0.6 - away])
    assert is_told == differ
    assert theory.alphas([looked_at([])]) == ([], False)


# ---- What a rule says of its guesses ----

P = np.array([2 / 3, 1 / 3])  # of Sun et al. 2024
Q = np.array([1 / 3, 2 / 3])
TOKENS = np.array([1, 5 / 3, 20 / 9, 8 / 3, 247 / 81])  # of 0 to 4 guesses


def round_of(drafted, p, q, rule, rng):
    emitted = rule(drafted, p, q, rng)
    return Round(drafted, p, q, emitted, len(emitted) - 1)


@pytest.mark.parametrize("rule", [verify, verify_block])
@given(drawn=models(), K=st.integers(0, 3))
def test_chances_predict_the_tokens_of_a_round(drawn, K, rule):
    """Exactly, if each round counts as often as it is probable."""
    draft, target, x = drawn
    rounds = {}

    def one_round(rng):
        drafted, p = propose(x, draft, K, rng)
        q = target(np.append(x, drafted), K + 1)
        r = round_of(drafted, np.reshape(p, q[1:].shape), q, rule, rng)
        key = (*drafted.tolist(), len(r.emitted))
        rounds[key] = r
        return key

    found = []
    n_tokens = 0
    for key, mass in sum_over_paths(one_round).items():
        n_tokens += mass * key[-1]
        reached, kept = CHANCES[rule](rounds[key])
        found.append(Chances(mass * reached, mass * kept))
    assert theory.tokens_by_position(found, K)[-1] == pytest.approx(n_tokens, abs=EXACT)


def all_rounds():
    """A round of block verification for each draft. The first token is drafted twice as often."""
    rng = np.random.default_rng(0)
    p = np.tile(P, (4, 1))
    q = np.tile(Q, (5, 1))
    drafts = itertools.product([0, 0, 1], repeat=4)
    return [round_of(np.array(drafted), p, q, verify_block, rng) for drafted in drafts]


def test_block_verification_has_no_single_alpha():
    run = Run(chances_of=block.chances_of_verify_block)
    for r in all_rounds():
        run.add(r, seconds=1.0)
    tokens = theory.tokens_by_position(run.chances, 4)
    assert tokens == pytest.approx(TOKENS)
    assert run.predicted(tokens) == pytest.approx(TOKENS[4])
    assert run.alpha == pytest.approx((TOKENS[4] - 1) / TOKENS[3])  # kept by those behind kept ones
    alphas, _ = theory.alphas(run.chances)
    assert alphas == pytest.approx([2 / 3, 5 / 6, 4 / 5, 31 / 36])


def test_an_accepted_eos_ends_what_block_verification_says():
    drafted = np.array([1, 1, 1])
    rows = np.tile(P, (3, 1)), np.tile(Q, (4, 1))
    whole = block.chances_of_verify_block(Round(drafted, *rows, emitted=drafted[:2], n_accepted=1))
    ended = block.chances_of_verify_block(Round(drafted, *rows, emitted=drafted[:2], n_accepted=2))
    assert len(whole.p_accepted) == 3
    assert ended.p_accepted.tolist() == whole.p_accepted[:2].tolist()
