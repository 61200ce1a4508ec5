"""The repetition penalty: each row by its own prefix, one by one, and then as part of a lossless target."""

import numpy as np
import pytest
from enumeration import output_distribution, total_variation
from hypothesis import given
from hypothesis import strategies as st
from test_speculative import Table

from speculative import autoregressive_sampling, penalised, sampler, speculative_sampling, verify, verify_block

pytestmark = pytest.mark.filterwarnings("error")
ids_of_four = st.lists(st.integers(0, 3), min_size=1, max_size=8)
logit_rows = st.lists(st.integers(-3, 3), min_size=4, max_size=4)


@given(
    ids=ids_of_four, table=st.lists(logit_rows, min_size=8, max_size=8), penalty=st.sampled_from([0.5, 1.0, 1.3, 2.0])
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
