"""The checker checked: small cases that one can do by hand, and the errors that keep it from being wrong silently."""

import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import enumeration
from enumeration import TooManyPaths, output_distribution, total_variation


def test_the_example_of_the_docstring():
    assert doctest.testmod(enumeration) == (0, 4)


def test_no_draw_at_all():
    assert output_distribution(lambda rng: np.array([3, 1])) == {(3, 1): 1.0}
    assert output_distribution(lambda rng: []) == {(): 1.0}


def test_one_choice_is_its_p_and_a_zero_is_not_walked():
    assert output_distribution(lambda rng: rng.choice(3, p=[0.25, 0, 0.75])) == {(0,): 0.25, (2,): 0.75}
    assert output_distribution(lambda rng: rng.choice(4)) == {(i,): 0.25 for i in range(4)}


def test_the_sum_of_two_dice():
    dice = output_distribution(lambda rng: rng.choice(6, p=np.full(6, 1 / 6)) + rng.choice(6, p=np.full(6, 1 / 6)) + 2)
    assert dice == pytest.approx({(s,): (6 - abs(s - 7)) / 36 for s in range(2, 13)}, abs=1e-15)


def test_what_is_drawn_may_depend_on_what_was_drawn():
    """An urn with one white and one black ball: the ball that is drawn goes back with another of its colour."""

    def polya(rng, n_draws=3):
        balls = [1, 1]
        for _ in range(n_draws):
            balls[rng.choice(2, p=np.array(balls) / sum(balls))] += 1
        return balls

    assert output_distribution(polya) == pytest.approx({(1 + w, 4 - w): 1 / 4 for w in range(4)}, abs=1e-15)


@pytest.mark.parametrize(
    "compare",
    [
        lambda u: u < 0.25,
        lambda u: u <= 0.25,
        lambda u: 0.25 > u,
        lambda u: np.float64(0.25) > u,
        lambda u: u < np.float32(0.25),
        lambda u: not u > 0.25,
        lambda u: not u >= 0.25,
        lambda u: not 0.25 < u,
    ],
)
def test_every_way_to_compare(compare):
    assert output_distribution(lambda rng: int(compare(rng.random()))) == {(1,): 0.25, (0,): 0.75}


def test_a_coin_is_certain_outside_of_0_and_1():
    for a, always in ((0, 0), (-0.5, 0), (1, 1), (1.5, 1), (np.inf, 1)):
        assert output_distribution(lambda rng, a=a: int(rng.random() < a)) == {(always,): 1.0}


def test_one_number_may_be_compared_more_than_once():
    def invert(rng, cumulated=(0.125, 0.5, 1)):
        u = rng.random()
        return next(i for i, c in enumerate(cumulated) if u < c)

    assert output_distribution(invert) == {(0,): 0.125, (1,): 0.375, (2,): 0.5}
    assert output_distribution(lambda rng: [int((u := rng.random()) < 0.5), int(u < 0.5)]) == {(1, 1): 0.5, (0, 0): 0.5}


def test_two_numbers_are_independent():
    two = output_distribution(lambda rng: [int(rng.random() < 0.5), int(rng.random() < 0.25)])
    assert two == {(1, 1): 0.125, (1, 0): 0.375, (0, 1): 0.125, (0, 0): 0.375}


@given(st.data())
def test_the_total_mass_is_1(data):
    """Of programs drawn as trees: a leaf returns, a node tosses a coin or chooses, and goes on to a child."""
    weights = st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(any)
    coin = st.floats(0, 1)

    def nodes(children):
        return st.tuples(coin, children, children) | weights.flatmap(
            lambda w: st.tuples(st.just(w), *[children for _ in w])
        )

    tree = data.draw(st.recursive(st.integers(0, 3), nodes, max_leaves=30))
    n_runs = 0

    def walk(rng):
        nonlocal n_runs
        n_runs += 1
        node, path = tree, []
        while not isinstance(node, int):
            draw, *children = node
            branch = int(rng.random() < draw) if isinstance(draw, float) else rng.choice(len(draw), p=normalised(draw))
            path.append(branch)
            node = children[branch]
        return [*path, node]

    outputs = output_distribution(walk)
    assert abs(sum(outputs.values()) - 1) < 1e-12
    assert n_runs == len(outputs)  # the output tells the path, so no path was walked twice


def normalised(weights):
    return np.array(weights) / sum(weights)


def test_total_variation():
    assert total_variation({(0,): 0.5, (1,): 0.5}, {(0,): 0.25, (1,): 0.25, (2,): 0.5}) == 0.5
    assert total_variation({(0,): 1.0}, {(1,): 1.0}) == 1
    assert total_variation({(0,): 1.0}, {(0,): 1.0}) == 0


P = np.array([0.125, 0.5, 0, 0.375])
ONE_DRAW = {(i,): p for i, p in enumerate(P) if p > 0}
QUARTER_AND_HALF = {(1, 1): 0.125, (1, 0): 0.125, (0, 1): 0.375, (0, 0): 0.375}
TWO_QUARTERS = {(1, 1): 0.0625, (1, 0): 0.1875, (0, 1): 0.1875, (0, 0): 0.5625}
TWO_DRAWS = {(i, j): p * q for i, p in enumerate(P) for j, q in enumerate(P) if p * q > 0}


@pytest.mark.parametrize(
    "draw, expected",
    [
        (lambda rng: rng.choice(4, p=P), ONE_DRAW),
        (lambda rng: rng.choice([5, 6, 7, 8], p=P) - 5, ONE_DRAW),
        (lambda rng: rng.choice(4, size=2, p=P), TWO_DRAWS),
        (lambda rng: rng.choice(4, size=(2, 1), p=P), TWO_DRAWS),
        (lambda rng: np.argmax(rng.multinomial(1, P)), ONE_DRAW),
        (lambda rng: np.argmax(rng.multinomial(1, P, size=2), axis=-1), TWO_DRAWS),
        (lambda rng: rng.multinomial(3, [0.5, 0.5])[0], {(0,): 1 / 8, (1,): 3 / 8, (2,): 3 / 8, (3,): 1 / 8}),
        (lambda rng: rng.integers(2), {(0,): 0.5, (1,): 0.5}),
        (lambda rng: rng.integers(3, 4, size=2, endpoint=True), {(i, j): 1 / 4 for i in (3, 4) for j in (3, 4)}),
        # inverse transform
        (lambda rng: np.searchsorted(np.cumsum(P), rng.random(), side="right"), ONE_DRAW),
        (lambda rng: np.searchsorted(np.cumsum(P), rng.random()), ONE_DRAW),
        (lambda rng: [np.cumsum(P).searchsorted(u) for u in rng.random(2)], TWO_DRAWS),
        (lambda rng: (np.cumsum(P) < rng.random()).sum(), ONE_DRAW),
        (lambda rng: np.argmax(rng.random() < np.cumsum(P)), ONE_DRAW),
        (lambda rng: np.searchsorted(np.cumsum(3 * P), 3 * rng.random()), ONE_DRAW),
        # numbers compared elementwise
        (lambda rng: (rng.random(2) < [0.25, 0.5]).astype(int), QUARTER_AND_HALF),
        (lambda rng: (np.array([0.25, 1]) >= rng.random(2)).astype(int), {(1, 1): 0.25, (0, 1): 0.75}),
        (lambda rng: (rng.uniform(size=(1, 2)) > 0.75).astype(int), TWO_QUARTERS),
        # a number that was calculated with
        (lambda rng: int(rng.uniform(2, 4) < 2.5), {(1,): 0.25, (0,): 0.75}),
        (lambda rng: int(1 - rng.random() < 0.25), {(1,): 0.25, (0,): 0.75}),
        (lambda rng: int(0.25 > -rng.random() / 2 + 0.5), {(1,): 0.5, (0,): 0.5}),
        (lambda rng: [int((u := rng.random()) < 0.5), int(2 * u - 1 < 0)], {(1, 1): 0.5, (0, 0): 0.5}),
    ],
)  # fmt: skip
def test_other_ways_to_draw(draw, expected):
    outputs = output_distribution(draw)
    assert outputs == pytest.approx(expected, abs=1e-15) and all(type(x) is int for output in outputs for x in output)


@pytest.mark.parametrize(
    "misuse",
    [
        lambda rng: float(rng.random()),
        lambda rng: np.log(rng.random()),
        lambda rng: 1 if rng.random() else 0,
        lambda rng: rng.random() == 0.5,
        lambda rng: rng.random(),
        lambda rng: rng.random() ** 2,
        lambda rng: int(4 * rng.random()),
        lambda rng: rng.random() < rng.random(),
    ],
)
def test_a_random_number_has_no_value(misuse):
    with pytest.raises(TypeError):
        output_distribution(misuse)


@pytest.mark.parametrize(
    ("draw", "name"),
    [
        (lambda rng: rng.standard_normal(), "standard_normal"),
        (lambda rng: rng.permutation(3), "permutation"),
        (lambda rng: rng.choice(3, size=2, replace=False), "replace=False"),
    ],
)
def test_what_cannot_be_enumerated_is_named(draw, name):
    with pytest.raises(AttributeError, match=name):
        output_distribution(draw)


def test_a_loop_without_end_is_an_error_with_the_mass_covered():
    def draw_until_it_fits(rng):
        while not rng.random() < 0.5:
            pass
        return 0

    def draw_while_it_fits(rng):
        while rng.random() < 0.5:
            pass
        return 0

    with pytest.raises(TooManyPaths, match=r"more than max_paths = 5 ways.*probability of 0\.96875") as error:
        output_distribution(draw_until_it_fits, max_paths=5)
    assert error.value.covered == 1 - 2**-5
    with pytest.raises(TooManyPaths, match=r"more than 10,000 choices along one way.*probability of 0\. "):
        output_distribution(draw_while_it_fits)
    assert output_distribution(lambda rng: rng.choice(5), max_paths=5) == {(i,): 0.2 for i in range(5)}


@pytest.mark.parametrize("p", [[0.5, 0.6], [1.5, -0.5], [1.0], [np.nan, 1.0]])
def test_what_numpy_refuses_is_refused(p):
    with pytest.raises(ValueError):
        np.random.default_rng(0).choice(2, p=p)
    with pytest.raises(ValueError, match="probabilities"):
        output_distribution(lambda rng: rng.choice(2, p=p))


def test_nan_is_refused():
    with pytest.raises(ValueError, match="NaN"):
        output_distribution(lambda rng: int(rng.random() < np.nan))


def test_a_function_of_more_than_the_generator_is_refused():
    runs = []

    def remembers(rng):
        runs.append(1)
        return int(rng.random() < 1 / (1 + len(runs)))

    with pytest.raises(RuntimeError, match="same choices"):
        output_distribution(remembers)

    def forgets(rng):
        runs.append(1)
        return [rng.choice(2), rng.choice(2)] if len(runs) == 1 else 0

    runs.clear()
    with pytest.raises(RuntimeError, match="same choices"):
        output_distribution(forgets)
