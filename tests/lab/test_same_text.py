"""`sampling.seeded`: one seed, one text, at any temperature, and drawn from q."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.exact import both_verifiers
from support.models import Table, models

from enumeration import check_real_runs
from sampling import seeded
from speculative import autoregressive_sampling, speculative_sampling


@both_verifiers
@given(
    drawn=models(),
    N=st.integers(0, 12),
    K=st.integers(0, 5),
    seed=st.integers(0, 2**32),
    eos=st.sampled_from([None, 0]),
)
def test_both_loops_write_the_same_text(verifier, drawn, N, K, seed, eos):
    draft, target, x = drawn
    for n in range(4):
        p = seeded(draft, seed + n)
        q = seeded(target, seed + n)
        plain = autoregressive_sampling(x, q, N, eos=eos)
        fast = speculative_sampling(x, p, q, N, K, eos=eos, verify=verifier)
        assert plain.tolist() == fast.tolist()


def test_the_noise_depends_on_seed_and_position_alone_and_is_fresh_at_each():
    uniform = seeded(Table([[1 / 99] * 99]), 5)
    ids = np.arange(40)
    together = uniform(ids, 40)
    assert np.array_equal(together, [uniform(ids[: i + 1])[0] for i in range(40)])
    assert together.sum(axis=-1).tolist() == [1] * 40
    assert len({*together.argmax(axis=-1).tolist()}) > 20


@pytest.mark.parametrize("row", [[0.5, 0.25], [np.nan, 1.0], [1.5, -0.5]])
def test_a_row_that_is_no_distribution_is_an_error(row):
    with pytest.raises(ValueError, match="no negative entry and sum to 1"):
        seeded(Table([row]), 0)([0])


def test_over_many_seeds_the_race_is_a_draw_from_q():
    q = 0.6, 0.0, 0.3, 0.1
    model = Table([q])
    seeds = itertools.count()

    def draw_once():
        (row,) = seeded(model, next(seeds))([0])
        return (int(row.argmax()),)

    check_real_runs({(i,): mass for i, mass in enumerate(q)}, draw_once, 3_000)
