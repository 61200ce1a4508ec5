"""Temperature, top-k, top-p and the repetition penalty give the rows of their definitions."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from support import EXACT, Table

from sampling import as_model, logits_to_probs, penalised, sample


def naive_probs(logits, temperature, top_k, top_p):
    """One row, computed token by token from the definitions, and how close a sum of probabilities came to top_p."""
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
    return [
        probs[token] / total if token in nucleus else 0.0 for token in range(len(probs))
    ], nearest


MANY_TIES = (
    np.random.default_rng(0).integers(0, 3, 999).tolist()
)  # enough for an unstable sort to reorder them


@example(logits=MANY_TIES, temperature=1, top_k=500, top_p=1)
@given(
    logits=st.lists(st.integers(-3, 3) | st.floats(-30, 30), min_size=1, max_size=8),
    temperature=st.floats(0.05, 20),
    top_k=st.integers(0, 10),
    top_p=st.floats(0.01, 1),
)
def test_logits_to_probs_is_its_definition(logits, temperature, top_k, top_p):
    both = np.array([logits, logits[::-1]])
    for settings in itertools.product([temperature], [0, top_k], [1, top_p]):
        for row, probs in zip(both.tolist(), logits_to_probs(both, *settings)):
            expected, nearest = naive_probs(row, *settings)
            assume(
                settings[2] == 1 or nearest > 1e-9
            )  # otherwise rounding decides whether top_p was reached
            assert probs == pytest.approx(expected, abs=EXACT)
            assert (probs > 0).tolist() == [e > 0 for e in expected]
            assert probs.sum() == pytest.approx(1, abs=1e-15 * (1 + len(logits)))
        assert logits_to_probs(both.astype(np.float32), *settings).dtype == np.float64
    assert both.tolist() == [logits, logits[::-1]]  # the logits of the caller are not overwritten


@pytest.mark.parametrize(
    "settings", [dict(temperature=0), dict(top_k=2), dict(top_p=0.9), dict(top_k=2, top_p=0.9)]
)
def test_a_nan_does_not_become_a_row_that_can_be_drawn_from(settings):
    for bad in [np.nan, 1.0, 2.0], [np.inf, 1.0, 2.0], [-np.inf] * 3:
        with pytest.raises(ValueError, match="the largest logit of a row must be finite"):
            logits_to_probs(np.array([[0.0, 1.0, 2.0], bad]), **settings)


def test_the_token_that_crosses_top_p_is_kept():
    logits = np.log(
        [[0.125, 0.5, 0.25, 0.125]]
    )  # powers of two, so that sums have no rounding errors

    def keep(top_p, top_k=0):
        return np.flatnonzero(logits_to_probs(logits, top_k=top_k, top_p=top_p)).tolist()

    assert keep(1e-300) == keep(0.5) == [1]
    assert keep(0.51) == keep(0.75) == [1, 2]
    assert (
        keep(0.76) == keep(0.875) == [0, 1, 2]
    )  # 0 and 3 are equally likely, and 0 is the lower id
    assert keep(0.876) == keep(1) == [0, 1, 2, 3]
    assert (
        keep(1, top_k=1) == [1]
        and keep(1, top_k=3) == [0, 1, 2]
        and keep(0.876, top_k=-1) == [0, 1, 2, 3]
    )
    assert keep(0.66, top_k=2) == [1]  # after top_k, token 1 has a probability of 2/3
    assert keep(0.67, top_k=2) == [1, 2]


def test_a_top_k_that_cuts_nothing_does_not_change_top_p():
    """The sum of twenty times 1/20 is a little above 1."""
    logits = np.where(np.arange(50) < 20, 0, -np.inf)[None]
    for top_k in (0, 20, 49, 50, 51):
        assert np.count_nonzero(logits_to_probs(logits, top_k=top_k, top_p=0.1)) == 2


def test_extreme_temperatures():
    logits = np.array([[-300.0, 700.0, 700.0, 699.999], [0.0, -1e30, 1e30, 3.0]])
    greedy = logits_to_probs(logits, temperature=0)
    assert greedy.tolist() == [[0, 1, 0, 0], [0, 0, 1, 0]] and greedy.dtype == np.float64
    for cold in (1e-6, 1e-300, 5e-324):  # only temperature 0 breaks a tie
        assert logits_to_probs(logits, temperature=cold).tolist() == [
            [0, 0.5, 0.5, 0],
            [0, 0, 1, 0],
        ]
    assert logits_to_probs(logits[:1], temperature=1e6) == pytest.approx(
        np.full((1, 4), 0.25), abs=1e-3
    )
    assert logits_to_probs([[0.0, -np.inf]]).tolist() == [[1, 0]]  # -inf forbids a token


def test_a_certain_token_needs_no_random_number():
    assert sample(np.array([0.0, 1.0, 0.0]), rng=None) == 1


def test_as_model_passes_everything_on():
    network = Table([[0.0, 1.0, 2.0, 3.0], [3.0, 2.0, 0.0, 1.0]])
    for penalty in 0.5, 1.5:
        model = as_model(
            network, 2, 3, 0.8, penalty
        )  # each of these four settings changes the rows
        logits = penalised(network([0, 1, 2], 3), [0, 1, 2], penalty)
        assert np.array_equal(model([0, 1, 2], 3), logits_to_probs(logits, 2, 3, 0.8))
        assert model([0, 1]).shape == (1, 4)


@pytest.mark.parametrize(
    ("temperature", "top_p"), [(-1, 1), (np.inf, 1), (np.nan, 1), (1, 0), (0, 1.1)]
)
def test_settings_out_of_bounds(temperature, top_p):
    wrong = f"{top_p=}" if 0 <= temperature < np.inf else f"{temperature=}"
    with pytest.raises(ValueError, match=f"found {wrong}, but"):
        logits_to_probs([[0.0, 1.0]], temperature, top_p=top_p)


# The repetition penalty


@pytest.mark.parametrize("penalty", [-1, 0, np.nan])
def test_a_penalty_out_of_bounds(penalty):
    with pytest.raises(ValueError, match=f"found penalty={penalty}, but"):
        penalised(np.zeros((1, 2)), [0], penalty)


@given(
    ids=st.lists(st.integers(0, 3), min_size=1, max_size=8),
    table=st.lists(
        st.lists(st.sampled_from([-3, -0.5, 0, 0.5, 2]), min_size=4, max_size=4),
        min_size=8,
        max_size=8,
    ),
    penalty=st.sampled_from([0.5, 1.0, 1.3, 2.0]),
)
def test_a_row_is_penalised_for_its_own_prefix(ids, table, penalty):
    for n_rows in range(1, len(ids) + 1):
        logits = np.array(table[:n_rows], dtype=np.float32)
        rows = penalised(logits, ids, penalty)
        assert rows.dtype == np.float32
        assert np.array_equal(
            logits, table[:n_rows]
        )  # the logits of the caller are not overwritten
        factors = np.where(logits > 0, 1 / penalty, penalty)
        for i, factor in enumerate(factors):
            prefix = ids[: len(ids) - n_rows + 1 + i]
            factor[[token for token in range(4) if token not in prefix]] = 1
        np.testing.assert_allclose(rows, logits * factors, rtol=1e-6)
