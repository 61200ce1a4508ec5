"""From logits to rows: temperature, top-k and top-p against their definitions; the repetition penalty, row by row."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support import EXACT, Table

from enumeration import output_distribution, total_variation
from sampling import logits_to_probs, penalised, sampler
from speculative import autoregressive_sampling, speculative_sampling, verify, verify_block

pytestmark = pytest.mark.filterwarnings("error")


def naive_probs(logits, temperature, top_k, top_p):
    """One row, by the definitions, token by token."""
    scale = [np.exp((logit - max(logits)) / temperature) for logit in logits]
    probs = [s / sum(scale) for s in scale]
    order = sorted(range(len(probs)), key=lambda token: (-probs[token], token))
    kept = order[:top_k] if top_k else order
    mass = sum(probs[token] for token in kept)
    nucleus, reached, nearest = [], 0.0, np.inf
    for token in kept:
        nucleus.append(token)
        reached += probs[token] / mass
        nearest = min(nearest, abs(reached - top_p))
        if reached >= top_p < 1:
            break
    total = sum(probs[token] for token in nucleus)
    return [probs[token] / total if token in nucleus else 0.0 for token in range(len(probs))], nearest


@given(
    logits=st.lists(st.integers(-3, 3) | st.floats(-30, 30), min_size=1, max_size=8),
    temperature=st.floats(0.05, 20),
    top_k=st.integers(0, 10),
    top_p=st.floats(0.01, 1),
)
def test_logits_to_probs_is_its_definition(logits, temperature, top_k, top_p):
    for settings in itertools.product([temperature], [0, top_k], [1, top_p]):
        expected, nearest = naive_probs(logits, *settings)
        assume(settings[2] == 1 or nearest > 1e-9)  # where rounding decides which side of top_p a token is on
        probs = logits_to_probs(np.array([logits, logits[::-1]]), *settings)
        assert probs[0] == pytest.approx(expected, abs=EXACT)
        assert (probs[0] > 0).tolist() == [e > 0 for e in expected]
        assert probs.sum(axis=-1) == pytest.approx(1, abs=1e-15 * (1 + len(logits)))


def test_rows_are_independent_and_the_logits_are_left_alone():
    logits = np.random.default_rng(0).normal(size=(4, 9))
    before = logits.copy()
    for settings in ({}, {"temperature": 0}, {"temperature": 0.7, "top_k": 5, "top_p": 0.8}):
        together = logits_to_probs(logits, **settings)
        assert np.array_equal(together, np.concatenate([logits_to_probs(row[None], **settings) for row in logits]))
        assert np.array_equal(logits, before)
        assert together.shape == (4, 9) and together.dtype == np.float64
        assert logits_to_probs(logits.astype(np.float32), **settings).dtype == np.float64


def test_the_token_that_crosses_top_p_is_kept():
    logits = np.log([[0.125, 0.5, 0.25, 0.125]])  # powers of two: these are exact

    def keep(top_p, top_k=0):
        return np.flatnonzero(logits_to_probs(logits, top_k=top_k, top_p=top_p)).tolist()

    assert keep(0.5) == [1]  # reached: nothing more
    assert keep(0.51) == [1, 2]
    assert keep(0.75) == [1, 2]
    assert keep(0.76) == [0, 1, 2]  # of the two equal ones the lower id
    assert keep(0.875) == [0, 1, 2]
    assert keep(0.876) == keep(1) == [0, 1, 2, 3]
    assert keep(1e-300) == [1]
    assert keep(0.66, top_k=2) == [1]  # after top_k the first has 2/3 of the mass
    assert keep(0.67, top_k=2) == [1, 2]


def test_ties_go_to_the_lower_ids():
    logits = np.array([[1.0, 3.0, 3.0, 3.0, 0.0]])
    assert logits_to_probs(logits, temperature=0).tolist() == [[0, 1, 0, 0, 0]]
    assert logits_to_probs(logits, top_k=2).tolist() == [[0, 0.5, 0.5, 0, 0]]
    assert logits_to_probs(logits, top_p=0.1).tolist() == [[0, 1, 0, 0, 0]]
    many = np.random.default_rng(0).integers(0, 2, size=(1, 999))  # as many as an unstable sort would shuffle
    assert np.flatnonzero(logits_to_probs(many, top_k=9)).tolist() == np.flatnonzero(many)[:9].tolist()


def test_extreme_temperatures():
    logits = np.array([[-300.0, 700.0, 700.0, 699.999], [0.0, -1e30, 1e30, 3.0]])
    assert logits_to_probs(logits, temperature=0).tolist() == [[0, 1, 0, 0], [0, 0, 1, 0]]
    for cold in (1e-6, 1e-300, 5e-324):  # a tie stays one, at any temperature but 0
        assert logits_to_probs(logits, temperature=cold).tolist() == [[0, 0.5, 0.5, 0], [0, 0, 1, 0]]
    assert logits_to_probs(logits[:1], temperature=1e6) == pytest.approx(np.full((1, 4), 0.25), abs=1e-3)
    assert logits_to_probs([[0.0, -np.inf]]).tolist() == [[1, 0]]  # a token that was forbidden


def test_sampler_passes_everything_on():
    network = Table([[1.0, 2.0, 3.0], [3.0, 2.0, 0.0]])
    model = sampler(network, 0.5, 2, 0.9)
    assert np.array_equal(model([0, 1, 2], 3), logits_to_probs(network([0, 1, 2], 3), 0.5, 2, 0.9))
    assert model([0, 1]).shape == (1, 3)


# The repetition penalty

logit_rows = st.lists(st.integers(-3, 3), min_size=4, max_size=4)


@given(
    ids=st.lists(st.integers(0, 3), min_size=1, max_size=8),
    table=st.lists(logit_rows, min_size=8, max_size=8),
    penalty=st.sampled_from([0.5, 1.0, 1.3, 2.0]),
)
def test_a_row_is_penalised_for_its_own_prefix(ids, table, penalty):
    for n_rows in range(1, len(ids) + 1):
        logits = np.array(table[:n_rows], dtype=np.float32)
        rows = penalised(logits, ids, penalty)
        assert rows.dtype == np.float32 and rows.shape == logits.shape
        for i in range(n_rows):
            prefix = ids[: len(ids) - n_rows + 1 + i]
            for token, (before, after) in enumerate(zip(logits[i], rows[i], strict=True)):
                expected = before if token not in prefix else before / penalty if before > 0 else before * penalty
                assert after == pytest.approx(expected)
        assert np.array_equal(logits, np.array(table[:n_rows], dtype=np.float32))  # a network may keep its own


@pytest.mark.parametrize("verifier", [verify, verify_block])
@given(
    logits=st.lists(
        st.tuples(logit_rows.map(lambda r: r[:3]), logit_rows.map(lambda r: r[:3])), min_size=1, max_size=3
    ),
    penalties=st.tuples(*[st.sampled_from([1.0, 1.5, 3.0])] * 2),
    temperature=st.sampled_from([0, 1]),
    K=st.integers(1, 3),
)
def test_lossless_with_a_penalty(verifier, logits, penalties, temperature, K):
    """A target whose every row depends on all tokens before it, drafted ones among them."""
    draft, target = (
        sampler(Table(table), temperature, repetition_penalty=penalty)
        for table, penalty in zip(zip(*logits, strict=True), penalties, strict=True)
    )
    decoded = output_distribution(lambda rng: speculative_sampling([0], draft, target, 3, K, rng, verify=verifier))
    plain = output_distribution(lambda rng: autoregressive_sampling([0], target, 3, rng))
    assert total_variation(decoded, plain) < 1e-12


def test_it_repeats_less():
    network = Table([[2.0, 1.5, -1.0]])
    assert autoregressive_sampling([0], sampler(network, 0), 4).tolist() == [0] * 5
    penal = sampler(network, 0, repetition_penalty=2.0)
    assert autoregressive_sampling([2], penal, 3).tolist() == [2, 0, 1, 0]  # 2, then 1.5 before 1, then 1 before 0.75
