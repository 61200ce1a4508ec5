"""`sampling.seeded`: one seed, one text, at any temperature, with and without speculation, and drawn from q."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import Table, both_verifiers, bundled, models, pairs, printed_by, texts_of

import lab.__main__ as lab_main
import main
from lab.pair import LabPair
from lab.schedules import SCHEDULES
from sampling import as_model, seeded
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
    for more in range(10):
        p, q = seeded(draft, seed + more), seeded(target, seed + more)
        plain = autoregressive_sampling(x, q, N, eos=eos)
        fast = speculative_sampling(x, p, q, N, K, eos=eos, verify=verifier)
        assert plain.tolist() == fast.tolist()
        for n in range(len(x), len(plain)):  # no token that the target forbids
            assert target.row(plain[:n].tolist())[plain[n]] > 0


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_bundled_pair_with_every_schedule(schedule):
    settings = dict(temperature=1, top_k=50, top_p=0.95, repetition_penalty=1.2)
    both = LabPair(bundled("draft"), bundled("target"), seed=3, **settings)
    plain, fast = both.decode([5, 6, 7], 40), both.decode([5, 6, 7], 40, K=5, schedule=schedule)
    assert plain.ids.tolist() == fast.ids.tolist()
    if schedule in (
        "target-confidence",
        "draft-confidence",
    ):  # it looks at the rows before the race
        assert 0 < sum(fast.n_drafted) < 5 * len(fast.n_drafted) - 5


def test_on_the_command_line():
    options = "--temperature", 1, "--same_text", "--n_tokens_to_generate", 30
    one = printed_by(main, *options)
    other = printed_by(lab_main, *options, "--draft", "ngram", "--verify", "block")
    assert len({*texts_of(one), *texts_of(other)}) == 1
    assert "same text         yes" in one and "same text         yes" in other
    assert texts_of(printed_by(main, *options, "--seed", 124))[0] != texts_of(one)[0]


def test_the_noise_depends_on_seed_and_position_alone():
    model = as_model(bundled("target"), 1)
    ids, q = np.arange(40), seeded(model, 5)
    together = q(ids, 40)
    assert np.array_equal(together, [q(ids[: i + 1])[0] for i in range(40)])
    assert np.array_equal(together.sum(axis=-1), np.ones(40))
    other = seeded(lambda ids, n_rows=1: np.full((n_rows, 99), 1 / 99), 5)(
        np.zeros(50, dtype=int), 50
    )
    assert len({*other.argmax(axis=-1).tolist()}) > 25  # fresh noise at every position


def test_a_row_that_is_no_distribution_is_an_error():
    for row in [0.5, 0.25], [np.nan, 1.0], [1.5, -0.5]:
        with pytest.raises(ValueError, match="no negative entry and sum to 1"):
            seeded(Table([row]), 0)([0])


# ---- The distribution: an integral over the noise, on a grid ----


class Grid:
    """Stands in for numpy.random.default_rng: its noise goes through the quantiles of Exp(1), in all combinations."""

    def __init__(self, n, n_vocab):
        quantiles = -np.log1p(-(np.arange(n) + 0.5) / n)
        self.points = np.array(list(itertools.product(quantiles, repeat=n_vocab)))

    def __call__(self, key):
        self.at = key[1] - 1  # the position
        return self

    def exponential(self, size):
        return self.points[self.at]


def draws(rows, grid, monkeypatch):
    """The tokens that the race draws from one row, for each point of the grid."""
    monkeypatch.setattr(np.random, "default_rng", grid)
    n = len(grid.points)
    winners = seeded(lambda ids, n_rows=1: np.tile(rows, (n_rows, 1)), 0)(
        np.zeros(n, dtype=int), n
    ).argmax(axis=-1)
    monkeypatch.undo()
    return winners


@pytest.mark.parametrize(("q", "n"), [((0.3, 0.7), 120), ((0.0, 1.0), 20), ((0.6, 0.3, 0.1), 24)])
def test_the_race_is_a_draw_from_q(q, n, monkeypatch):
    winners = draws(q, Grid(n, len(q)), monkeypatch)
    np.testing.assert_allclose(np.bincount(winners, minlength=len(q)) / len(winners), q, atol=1 / n)


@given(pair=pairs(sizes=[2, 3]))
def test_the_acceptance_is_at_least_its_bound(pair):
    """Token t wins both races with probability 1 / sum over s of max(p_s / p_t, q_s / q_t), an integral by hand."""
    p, q = pair
    with pytest.MonkeyPatch.context() as monkeypatch:
        grid = Grid(60 if len(p) == 2 else 16, len(p))
        same = np.mean(draws(p, grid, monkeypatch) == draws(q, grid, monkeypatch))
    both = np.flatnonzero((p > 0) & (q > 0))
    exact = sum(1 / np.maximum(p / p[t], q / q[t]).sum() for t in both)
    distance = np.abs(p - q).sum() / 2
    assert (
        same == pytest.approx(exact, abs=0.12) and exact >= (1 - distance) / (1 + distance) - 1e-12
    )
