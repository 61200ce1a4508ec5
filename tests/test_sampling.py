"""Temperature, top-k, top-p and the repetition penalty give the rows of their definitions."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from support.exact import EXACT
from support.models import Table

from lab.wrappers import penalised
from sampling import as_model, logits_to_probs, sample


def naive_probs(logits, temperature, top_k, top_p):
    """One row, token by token from the definitions, and how close a sum came to top_p."""
    scale = [np.exp((logit - max(logits)) / temperature) for logit in logits]
    order = sorted(range(len(scale)), key=lambda token: (-scale[token], token))
    kept = order[: top_k or None]
    total = sum(scale[token] for token in kept)
    nucleus = []
    reached = 0.0
    nearest = np.inf
    for token in kept:
        if reached < top_p or top_p == 1:
            nucleus.append(token)
            reached += scale[token] / total
            nearest = min(nearest, abs(reached - top_p))
    probs = np.zeros(len(scale))
    for token in nucleus:
        probs[token] = scale[token]
    return probs / probs.sum(), nearest


# Enough of them for an unstable sort to reorder them
MANY_TIES = np.random.default_rng(0).integers(0, 3, 999).tolist()


@example(logits=MANY_TIES, temperature=1, top_k=500, top_p=1)
@given(
    logits=st.lists(st.integers(-3, 3) | st.floats(-30, 30), min_size=1, max_size=8),
    temperature=st.floats(0.05, 20),
    top_k=st.integers(0, 10),
    top_p=st.floats(0.01, 1),
)
def test_logits_to_probs_is_its_definition(logits, temperature, top_k, top_p):
    rows = np.array([logits, logits[::-1]])
    rows_before = rows.copy()
    for settings in itertools.product([temperature], [0, top_k], [1, top_p]):
        for row, probs in zip(rows.tolist(), logits_to_probs(rows, *settings)):
            expected, nearest = naive_probs(row, *settings)
            # Otherwise rounding decides whether top_p was reached.
            assume(settings[2] == 1 or nearest > 1e-9)
            assert probs == pytest.approx(expected, abs=EXACT)
            assert (probs > 0).tolist() == (expected > 0).tolist()
            assert probs.sum() == pytest.approx(1, abs=1e-15 * (1 + len(logits)))
        assert logits_to_probs(rows.astype(np.float32), *settings).dtype == np.float64
    assert np.array_equal(rows, rows_before)


@pytest.mark.parametrize("settings", [dict(temperature=0), dict(top_k=2, top_p=0.9)])
@pytest.mark.parametrize("bad", [[np.nan, 1.0, 2.0], [np.inf, 1.0, 2.0], [-np.inf] * 3])
def test_a_nan_does_not_become_a_row_that_can_be_drawn_from(settings, bad):
    with pytest.raises(ValueError, match="the largest logit of a row must be finite"):
        logits_to_probs(np.array([[0.0, 1.0, 2.0], bad]), **settings)


@pytest.mark.parametrize(
    ("top_p", "top_k", "kept"),
    [
        (1e-300, 0, [1]),
        (0.5, 0, [1]),
        (0.51, 0, [1, 2]),
        (0.875, 0, [0, 1, 2]),  # 0 and 3 are equally likely, and 0 is the lower id
        (0.876, 0, [0, 1, 2, 3]),
        (1, 3, [0, 1, 2]),
        (0.876, -1, [0, 1, 2, 3]),
        (0.66, 2, [1]),  # after top_k, token 1 has a probability of 2/3
        (0.67, 2, [1, 2]),
    ],
)
def test_the_token_that_crosses_top_p_is_kept(top_p, top_k, kept):
    probs = [[0.125, 0.5, 0.25, 0.125]]  # powers of two, so that sums have no rounding errors
    row = logits_to_probs(np.log(probs), top_k=top_k, top_p=top_p)[0]
    assert np.flatnonzero(row).tolist() == kept


@pytest.mark.parametrize("top_k", [0, 20, 51])
def test_a_top_k_that_cuts_nothing_does_not_change_top_p(top_k):
    """The sum of twenty times 1/20 is a little above 1."""
    logits = np.where(np.arange(50) < 20, 0, -np.inf)[None]
    assert np.count_nonzero(logits_to_probs(logits, top_k=top_k, top_p=0.1)) == 2


def test_extreme_temperatures():
    logits = np.array([[-300.0, 700.0, 700.0, 699.999], [0.0, -1e30, 1e30, 3.0]])
    assert logits_to_probs(logits, temperature=0).tolist() == [[0, 1, 0, 0], [0, 0, 1, 0]]
    for cold in 1e-6, 5e-324:  # only temperature 0 breaks a tie
        probs = logits_to_probs(logits, temperature=cold)
        assert probs.tolist() == [[0, 0.5, 0.5, 0], [0, 0, 1, 0]]
    assert logits_to_probs([[0.0, -np.inf]]).tolist() == [[1, 0]]  # -inf forbids a token


def test_a_certain_token_needs_no_random_number():
    assert sample(np.array([0.0, 1.0, 0.0]), rng=None) == 1


@pytest.mark.parametrize(
    ("logits", "settings", "message"),
    [
        ([[0.0, 1.0]], dict(temperature=-1), "found temperature=-1"),
        ([[0.0, 1.0]], dict(temperature=np.inf), "found temperature=inf"),
        ([[0.0, 1.0]], dict(temperature=np.nan), "found temperature=nan"),
        ([[0.0, 1.0]], dict(top_p=0), "found top_p=0"),
        ([[0.0, 1.0]], dict(temperature=0, top_p=1.1), "found top_p=1.1"),
        ([0.0, 1.0], dict(top_k=1), r"logits are \[n_rows, n_vocab\]; found \[2\]"),
    ],
)
def test_what_has_no_meaning_is_refused(logits, settings, message):
    with pytest.raises(ValueError, match=message):
        logits_to_probs(logits, **settings)


def test_as_model_passes_everything_on_but_confidence_is_at_temperature_1():
    network = Table(np.random.default_rng(0).normal(size=(9, 5)))
    model = as_model(network, 2, 3, 0.5)  # each of these settings changes the rows
    logits = network([0, 1, 2], 3)
    assert np.array_equal(model([0, 1, 2], 3), logits_to_probs(logits, 2, 3, 0.5))
    probs = logits_to_probs(logits)
    assert [model.confidence(1), model.confidence(2, row=0)] == [probs[-1, 1], probs[0, 2]]


# The repetition penalty


@pytest.mark.parametrize("penalty", [0.5, 1.3])
def test_a_row_is_penalised_for_its_own_prefix(penalty):
    logits = np.array([[-3, 0.5, 2, 2], [1, -1, 2, -2], [2, 3, 4, 5]], dtype=np.float32)
    rows = penalised(lambda ids, n_rows: logits, penalty)([1, 1, 3, 0], 3)
    a = np.float32(penalty)
    expected = [[-3, 0.5 / a, 2, 2], [1, -a, 2, -2 * a], [2 / a, 3 / a, 4, 5 / a]]
    np.testing.assert_allclose(rows, expected, rtol=1e-6)
    assert logits[1].tolist() == [1, -1, 2, -2]  # those of the caller are not overwritten
