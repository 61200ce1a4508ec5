"""The formulas equal the sums that they stand for."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.exact import EXACT
from support.models import models

from enumeration import sum_over_paths
from lab import block, theory
from lab.block import verify_block
from lab.pair import CHANCES
from runs import Chances, expected_tokens
from speculative import Round, propose, verify


@example(alpha=1 - 1e-12, K=7)  # 1 - alpha^8 would lose most of its digits
@given(alpha=st.floats(0, 1), K=st.integers(0, 40))
def test_expected_tokens_are_a_sum(alpha, K):
    tokens = [sum(alpha**i for i in range(k + 1)) for k in range(K + 1)]
    np.testing.assert_allclose(expected_tokens(alpha, K), tokens, rtol=1e-12, strict=True)
    speedup = tokens[-1] / (K * 0.1 + 1.2 + 0.5) if K else 1  # a plain step
    assert theory.improvement(alpha, K, c=0.1, v=1.2, r=0.5) == pytest.approx(speedup, rel=1e-12)


# ---- What a rule says of its guesses ----

P = np.array([2 / 3, 1 / 3])  # of Sun et al. 2024
Q = np.array([1 / 3, 2 / 3])


def tokens_by_position(chances, K):
    """1 + a1 + a1 a2 + ..., with the alpha of each position, over the rounds that got there."""
    reached = sum(np.pad(r.p_reached, (0, K - len(r.p_reached))) for r in chances)
    accepted = sum(np.pad(r.p_accepted, (0, K - len(r.p_accepted))) for r in chances)
    means = np.divide(accepted, reached, out=np.zeros(K), where=reached > 0)
    return 1 + np.append(0, np.cumsum(np.cumprod(means)))


def round_of(drafted, p, q, rule, rng):
    emitted = rule(drafted, p, q, rng)
    return Round(drafted, p, q, emitted, len(emitted) - 1)


@pytest.mark.parametrize("rule", [verify, verify_block])
@given(drawn=models(), K=st.integers(0, 3))
def test_chances_predict_the_tokens_of_a_round(drawn, K, rule):
    """The prediction is exact if each round counts as often as it is probable."""
    draft, target, x = drawn
    rounds = {}

    def one_round(rng):
        drafted, p = propose(x, draft, K, rng)
        q = target(np.append(x, drafted), K + 1)
        r = round_of(drafted, np.reshape(p, q[1:].shape), q, rule, rng)
        key = (*drafted.tolist(), len(r.emitted))
        rounds[key] = r
        return key

    chances = []
    n_tokens = 0
    for key, mass in sum_over_paths(one_round).items():
        n_tokens += mass * key[-1]
        reached, kept = CHANCES[rule](rounds[key])
        chances.append(Chances(mass * reached, mass * kept))
    assert tokens_by_position(chances, K)[-1] == pytest.approx(n_tokens, abs=EXACT)


def test_an_accepted_eos_ends_what_block_verification_says():
    drafted = np.array([1, 1, 1])
    r = Round(drafted, np.tile(P, (3, 1)), np.tile(Q, (4, 1)), emitted=drafted[:2], n_accepted=1)
    whole = block.chances_of_verify_block(r).p_accepted.tolist()
    ended = block.chances_of_verify_block(r._replace(n_accepted=2)).p_accepted.tolist()
    assert len(whole) == 3 and ended == whole[:2]
