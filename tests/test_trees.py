"""Trees of guesses are exact, and on a chain they are the known rules."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import EXACT, Table, assert_same, models, pairs, product_of_conditionals

from enumeration import output_distribution
from lab.block import verify_block
from lab.gallery import draft_model, target_model
from lab.theory import best_acceptance
from lab.trees import Node, balanced, bottom_up, grade, grow, top_down, tree_sampling
from runs import origins, overlap
from sampling import sample
from speculative import propose, speculative_sampling, verify

SHAPES = {
    "a chain of 2": balanced(1, 1),
    "a chain of 3": balanced(1, 1, 1),
    "2 siblings": balanced(2),
    "3 siblings": balanced(3),
    "2, then 1 each": balanced(2, 1),
    "2, then 2 and 0": (balanced(2), ()),
    "2, then 0 and 2": ((), balanced(2)),
}
both_rules = pytest.mark.parametrize("rule", [top_down, bottom_up])
each_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


def depth(shape):
    return max(map(depth, shape)) + 1 if shape else 0


def rounds(drawn, shape, rule):
    """The distribution of what a round emits."""
    draft, target, x = drawn

    def one_round(rng):
        root = Node(children=grow(x, draft, shape, rng))
        grade(x, target, root)
        return rule(root, rng)

    return output_distribution(one_round)


@each_shape
@given(drawn=models(sizes=(4, 3, 2)))
def test_a_round_filled_up_by_plain_sampling_is_a_plain_sample(shape, drawn):
    """So any number of rounds is exact, by step 7 of test_proof.py. And bottom-up accepts no less than top-down."""
    (_, target, x), n, means = drawn, depth(shape) + 1, []
    expected = product_of_conditionals(x, target, n)
    for rule in top_down, bottom_up:
        found, emitted = {}, rounds(drawn, shape, rule)
        for tokens, mass in emitted.items():
            for ids, rest in product_of_conditionals(
                [*x, *tokens], target, n - len(tokens)
            ).items():
                found[ids] = found.get(ids, 0.0) + mass * rest
        assert_same(found, expected)
        assert found.keys() <= expected.keys()
        means.append(sum(mass * len(tokens) for tokens, mass in emitted.items()))
    assert means[1] > means[0] - EXACT


@both_rules
@pytest.mark.parametrize(
    ("eos", "shape"),
    [(2, balanced(2)), (None, balanced(3)), (2, balanced(2, 1)), (None, ((), balanced(1)))],
)
def test_a_text_of_the_gallerys_pair(rule, eos, shape):
    for n in range(3):
        args = [0], draft_model, target_model, n, shape
        decoded = output_distribution(
            lambda rng, args=args: tree_sampling(*args, rng, rule, eos=eos)
        )
        assert_same(decoded, product_of_conditionals([0], target_model, n, eos))


@both_rules
@settings(max_examples=50)
@given(
    drawn=models(sizes=(2,)), shape=st.sampled_from([*SHAPES.values()]), n=st.integers(0, 4),
    eos=st.sampled_from([None, 1]),
)  # fmt: skip
def test_a_text_has_the_distribution_of_the_target(rule, drawn, shape, n, eos):
    draft, target, x = drawn
    decoded = output_distribution(
        lambda rng: tree_sampling(x, draft, target, n, shape, rng, rule, eos=eos)
    )
    assert_same(decoded, product_of_conditionals(x, target, n, eos))


@pytest.mark.parametrize(("rule", "verifier"), [(top_down, verify), (bottom_up, verify_block)])
@given(drawn=models(sizes=(3, 2)))
def test_on_a_chain_the_rules_are_verify_and_verify_block(rule, verifier, drawn):
    draft, target, x = drawn

    def one_round(rng):
        drafted, p = propose(x, draft, 3, rng)
        return verifier(drafted, p, target(np.append(x, drafted), 4), rng)

    assert_same(rounds(drawn, balanced(1, 1, 1), rule), output_distribution(one_round))


def test_a_seeded_chain_is_the_text_of_speculative_sampling():
    rng, emitted = np.random.default_rng(5), []
    draft, target = (Table(rng.dirichlet(np.ones(7), size=20)) for _ in range(2))
    text = tree_sampling(
        [3], draft, target, 50, balanced(*[1] * 4), np.random.default_rng(1), top_down,
        on_round=lambda r: emitted.extend(r.emitted),
    )  # fmt: skip
    assert text.tolist() == [3, *emitted]
    assert (
        text.tolist()
        == speculative_sampling([3], draft, target, 50, 4, np.random.default_rng(1)).tolist()
    )


def test_a_target_may_reuse_its_array():
    rng, array = np.random.default_rng(6), np.empty((3, 7))
    draft, target = (Table(rng.dirichlet(np.ones(7), size=20)) for _ in range(2))

    def reusing(ids, n_rows):
        array[:n_rows] = target(ids, n_rows)
        return array[:n_rows]

    one, other = (
        tree_sampling([3], draft, q, 50, balanced(3, 2), np.random.default_rng(1))
        for q in (target, reusing)
    )
    assert one.tolist() == other.tolist()


@both_rules
def test_a_round_adds_a_token_even_if_rounding_leaves_no_residual(rule):
    p, q = np.array([0.5, 0.5]), np.array([0.5 - 2**-54, 0.5])
    root = Node(children=[Node(0, p)])
    root.q, root.children[0].q = q, q
    assert rule(root, SimpleNamespace(random=lambda: 1 - 2**-53, choice=lambda n, p: 1)) == [1]


def test_models_of_different_vocabularies_are_an_error():
    draft, target = Table([[0.5, 0.5]]), Table([[0.2, 0.3, 0.5]])
    with pytest.raises(ValueError, match=r"lengths \{2, 3\}"):
        tree_sampling([0], draft, target, 3, balanced(2))


def test_a_rule_that_returns_no_path_is_an_error():
    model = Table([[0.5, 0.5]])
    for emitted in [0] * 4, [], None, [2]:
        with pytest.raises(ValueError, match="verify must return 1 to 3 tokens below 2; found"):
            tree_sampling([0], model, model, 3, balanced(1, 1), 0, lambda root, rng: emitted)  # noqa: B023


@both_rules
def test_where_the_tokens_of_a_ragged_tree_come_from(rule):
    """A token is a bonus if no guess is below those that were accepted, however long other branches are."""
    shape, rounds = ((), (((),),)), []
    draft, target = Table([[0.4, 0.3, 0.2, 0.1]]), Table([[0.3, 0.1, 0.1, 0.5]])
    tree_sampling([0], draft, target, 99, shape, 0, rule, on_round=rounds.append)
    kinds = set()
    for r in rounds[:-2]:
        node = r.root
        for token in r.emitted[: r.n_accepted]:
            node = next(child for child in node.children if child.token == token)
        last = "resampled" if node.children else "bonus"
        assert origins(r) == ["accepted"] * r.n_accepted + [last]
        kinds.add((r.n_accepted, last))
    assert {(1, "bonus"), (3, "bonus"), (0, "resampled")} <= kinds


@given(drawn=pairs())
def test_the_bound_is_the_least_over_all_sets_and_no_rule_beats_it(drawn):
    p, q = drawn
    sets = [np.array(inside) for inside in itertools.product([False, True], repeat=len(p))]
    for n in range(1, 4):
        least = min(q[inside].sum() + 1 - p[inside].sum() ** n for inside in sets)
        assert best_acceptance(p, q, n) == pytest.approx(least, abs=EXACT)

        def n_accepted(rng, n=n):  # guesses that are independent
            root = Node(children=[Node(sample(p, rng), p) for _ in range(n)])
            for node in root, *root.children:
                node.q = q
            return len(top_down(root, rng)) - 1

        accepted = output_distribution(n_accepted).get((1,), 0)
        assert accepted < least + EXACT and (
            n > 1 or accepted == pytest.approx(overlap(p, q), abs=EXACT)
        )
    np.testing.assert_array_equal(
        best_acceptance(np.array([p, q]), np.array([q, q]), 2)[0], best_acceptance(p, q, 2)
    )
