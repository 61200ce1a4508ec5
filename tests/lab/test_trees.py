"""Trees of guesses are exact, and on a chain they are the known rules."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.exact import assert_same, product_of_conditionals
from support.models import Table, bundled, models, reusing

from enumeration import sum_over_paths
from lab.block import verify_block
from lab.optimum import optimal
from lab.trees import Node, balanced, bottom_up, grow, score, top_down, tree_sampling
from sampling import as_model, seeded
from speculative import autoregressive_sampling, propose, verify

pytestmark = pytest.mark.exact
SHAPES = {
    "2 siblings": balanced(2),
    "3 siblings": balanced(3),
    "2, then 1 each": balanced(2, 1),
    "2, then 2 and 0": (balanced(2), ()),
    "2, then 0 and 2": ((), balanced(2)),
}
all_rules = pytest.mark.parametrize("rule", [top_down, bottom_up, optimal])


def rounds(drawn, shape, rule):
    """The distribution of what a round emits."""
    draft, target, x = drawn

    def one_round(rng):
        root = Node(children=grow(x, draft, shape, rng))
        score(x, target, root)
        return rule(root, rng)

    return sum_over_paths(one_round)


@all_rules
@settings(max_examples=40)
@given(
    drawn=models(sizes=(2,), exact=True),
    shape=st.sampled_from([*SHAPES.values()]),
    n=st.integers(0, 4),
    eos=st.sampled_from([None, 1]),
)
def test_a_text_has_the_distribution_of_the_target(rule, drawn, shape, n, eos):
    draft, target, x = drawn

    def sampler(rng):
        return tree_sampling(x, draft, target, n, shape, rng, rule, eos=eos)

    assert_same(sum_over_paths(sampler), product_of_conditionals(x, target, n, eos))


@pytest.mark.parametrize(
    ("rule", "verifier"), [(top_down, verify), (bottom_up, verify_block), (optimal, verify)]
)
@given(drawn=models(sizes=(3, 2)))
def test_on_a_chain_the_rules_are_verify_and_verify_block(rule, verifier, drawn):
    draft, target, x = drawn

    def one_round(rng):
        drafted, p = propose(x, draft, 3, rng)
        return verifier(drafted, p, target(np.append(x, drafted), 4), rng)

    assert_same(rounds(drawn, balanced(1, 1, 1), rule), sum_over_paths(one_round))


def test_models_may_reuse_their_arrays():
    model = Table(np.random.default_rng(5).dirichlet(np.ones(7), size=20))

    def text(draft, target):
        return tree_sampling([3], draft, target, 50, balanced(3, 2), 1).tolist()

    assert text(reusing(model), reusing(model)) == text(model, model)


@pytest.mark.parametrize("rule", [top_down, bottom_up])
@pytest.mark.parametrize("temperature", [0, 1])
def test_trees_of_a_network_write_the_text_of_the_target_alone(rule, temperature):
    """At temperature 1 the target's text has a seed, and the draft draws as it likes."""
    draft = as_model(bundled("draft"), max(temperature, 0.02))  # at 0, there's no second guess
    target = as_model(bundled("target"), temperature)
    if temperature:
        target = seeded(target, 7)
    x, N, rounds = [5, 6, 7], 20, []
    plain = autoregressive_sampling(x, target, N)
    ids = tree_sampling(x, draft, target, N, balanced(2, 1), 0, rule, on_round=rounds.append)
    assert ids.tolist() == plain.tolist()
    assert sum(r.n_accepted for r in rounds) > 3


@all_rules
def test_a_round_adds_a_token_even_if_rounding_leaves_no_residual(rule):
    p = np.array([0.5, 0.5])
    child = Node(0, p)
    root = Node(children=[child])
    root.q = child.q = np.array([0.5 - 2**-54, 0.5])
    rng = SimpleNamespace(random=lambda: 1 - 2**-53, choice=lambda n, p: 1)
    assert rule(root, rng) == [1]
