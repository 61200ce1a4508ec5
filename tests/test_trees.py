"""Trees of guesses are exact, on a chain they are the known rules, and four famous-looking mistakes are not."""

import itertools
import re
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from support import EXACT, Table, models, pairs, product_of_conditionals, read

from enumeration import output_distribution, total_variation
from lab.block import verify_block
from lab.theory import best_acceptance, beta
from lab.trees import Node, balanced, bottom_up, grade, grow, top_down, tree_sampling
from sampling import sample
from speculative import acceptance, propose, residual, speculative_sampling, verify

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
each_way_to_draw = pytest.mark.parametrize("replace", [False, True], ids=["without replacement", "with replacement"])


def depth(shape):
    return max(map(depth, shape)) + 1 if shape else 0


def rounds(drawn, shape, rule, replace=False):
    """The distribution of what a round emits."""
    draft, target, x = drawn

    def one_round(rng):
        root = Node(children=grow(x, draft, shape, rng, replace))
        grade(x, target, root)
        return rule(root, rng)

    return output_distribution(one_round)


@each_shape
@each_way_to_draw
@given(drawn=models(sizes=(3, 2)))
def test_a_round_filled_up_by_plain_sampling_is_a_plain_sample(shape, replace, drawn):
    """So any number of rounds is exact, by step 7 of test_proof.py. And bottom-up accepts no less than top-down."""
    (_, target, x), n, means = drawn, depth(shape) + 1, []
    expected = product_of_conditionals(x, target, n)
    for rule in top_down, bottom_up:
        found, emitted = {}, rounds(drawn, shape, rule, replace)
        for tokens, mass in emitted.items():
            for ids, rest in product_of_conditionals([*x, *tokens], target, n - len(tokens)).items():
                found[ids] = found.get(ids, 0.0) + mass * rest
        assert total_variation(found, expected) < EXACT and found.keys() <= expected.keys()
        means.append(sum(mass * len(tokens) for tokens, mass in emitted.items()))
    assert means[1] > means[0] - EXACT


@each_shape
@both_rules
@each_way_to_draw
@settings(max_examples=6)
@given(drawn=models(sizes=(3, 2)))
def test_a_text_has_the_distribution_of_the_target(shape, rule, replace, drawn):
    draft, target, x = drawn
    for n in range(depth(shape) + (3 if draft.rows.shape[1] == 2 else 2)):
        decoded = output_distribution(lambda rng: tree_sampling(x, draft, target, n, shape, rng, rule, replace))  # noqa: B023
        assert total_variation(decoded, product_of_conditionals(x, target, n)) < EXACT


@both_rules
@given(drawn=models(sizes=(2,)))
def test_an_eos_ends_the_text(rule, drawn):
    draft, target, x = drawn
    decoded = output_distribution(lambda rng: tree_sampling(x, draft, target, 3, balanced(2, 1), rng, rule, eos=1))
    assert total_variation(decoded, product_of_conditionals(x, target, 3, eos=1)) < EXACT


@pytest.mark.parametrize(("rule", "verifier"), [(top_down, verify), (bottom_up, verify_block)])
@given(drawn=models(sizes=(3, 2)))
def test_on_a_chain_the_rules_are_verify_and_verify_block(rule, verifier, drawn):
    draft, target, x = drawn

    def one_round(rng):
        drafted, p = propose(x, draft, 3, rng)
        return verifier(drafted, p, target(np.append(x, drafted), 4), rng)

    assert total_variation(rounds(drawn, balanced(1, 1, 1), rule), output_distribution(one_round)) < EXACT


def test_a_seeded_chain_is_the_text_of_speculative_sampling():
    rng, emitted = np.random.default_rng(5), []
    draft, target = (Table(rng.dirichlet(np.ones(7), size=20)) for _ in range(2))
    text = tree_sampling(
        [3], draft, target, 50, balanced(*[1] * 4), np.random.default_rng(1), top_down,
        on_round=lambda r: emitted.extend(r.emitted),
    )  # fmt: skip
    assert text.tolist() == [3, *emitted]
    assert text.tolist() == speculative_sampling([3], draft, target, 50, 4, np.random.default_rng(1)).tolist()


def test_a_target_may_reuse_its_array():
    rng, array = np.random.default_rng(6), np.empty((3, 7))
    draft, target = (Table(rng.dirichlet(np.ones(7), size=20)) for _ in range(2))

    def reusing(ids, n_rows):
        array[:n_rows] = target(ids, n_rows)
        return array[:n_rows]

    one, other = (tree_sampling([3], draft, q, 50, balanced(3, 2), np.random.default_rng(1)) for q in (target, reusing))
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


@given(drawn=pairs())
def test_the_bound_is_the_least_over_all_sets_and_no_rule_beats_it(drawn):
    p, q = drawn
    sets = [np.array(inside) for inside in itertools.product([False, True], repeat=len(p))]
    for n in range(1, 4):
        least = min(q[inside].sum() + 1 - p[inside].sum() ** n for inside in sets)
        assert best_acceptance(p, q, n) == pytest.approx(least, abs=EXACT)
        emitted = rounds((Table([p]), Table([q]), [0]), balanced(n), top_down, replace=True)
        accepted = sum(mass for tokens, mass in emitted.items() if len(tokens) == 2)
        assert accepted < least + EXACT and (n > 1 or accepted == pytest.approx(beta(p, q), abs=EXACT))
    np.testing.assert_array_equal(best_acceptance(np.array([p, q]), np.array([q, q]), 2)[0], best_acceptance(p, q, 2))


# ---- Rules that look right, and their distances, as in test_broken_variants.py ----

# The rows after token t. Two tokens are left in each residual, or a second sibling would have no choice.
P = np.array([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6]])
Q = np.array([[0.3, 0.4, 0.3], [0.4, 0.2, 0.4], [0.4, 0.4, 0.2]])
PROMPT, N, SHAPE = [0], 3, balanced(2, 1)


def draft_model(ids, n_rows=1):
    return P[ids[-n_rows:]]


def target_model(ids, n_rows=1):
    return Q[ids[-n_rows:]]


def judges_all_siblings_by_the_first_p(node, rng):
    for child in node.children:
        child.p = node.children[0].p
    r = node.q
    for child in node.children:
        if rng.random() < acceptance(child.p[child.token], r[child.token]):
            return [child.token, *judges_all_siblings_by_the_first_p(child, rng)]
        r = residual(child.p, r)
    return [sample(r, rng)]


def leaves_q_as_it_is_between_siblings(node, rng):
    r = node.q
    for child in node.children:
        if rng.random() < acceptance(child.p[child.token], node.q[child.token]):
            return [child.token, *leaves_q_as_it_is_between_siblings(child, rng)]
        r = residual(child.p, node.q)
    return [sample(r, rng)]


def divides_the_norms_to_get_w(node, rng, w=1.0):
    r = node.q
    for child in node.children:
        kept = divides_the_norms_to_get_w(child, rng, acceptance(child.p[child.token], w * r[child.token]))
        if kept is not None:
            return [child.token, *kept]
        surplus, left = np.maximum(w * r - child.p, 0).sum(), 1 - child.p[child.token]
        r, w = (residual(child.p, w * r) if surplus > 0 else node.q), acceptance(left, surplus)
    is_root = node.token is None  # here w may be below 1 even there, but a round must add a token
    return [sample(r, rng)] if is_root or rng.random() < w else None


def judges_the_best_of_its_siblings(node, rng):
    best = sorted(node.children, key=lambda child: node.q[child.token] / child.p[child.token])[-1:]
    for child in best:
        if rng.random() < acceptance(child.p[child.token], node.q[child.token]):
            return [child.token, *judges_the_best_of_its_siblings(child, rng)]
        return [sample(residual(child.p, node.q), rng)]
    return [sample(node.q, rng)]


VARIANTS = {
    "all siblings judged by the first p": judges_all_siblings_by_the_first_p,
    "q left as it is between siblings": leaves_q_as_it_is_between_siblings,
    "w from the ratio of two norms": divides_the_norms_to_get_w,
    "the best of the siblings judged": judges_the_best_of_its_siblings,
    "`top_down` (exact)": top_down,
    "`bottom_up` (exact)": bottom_up,
}
STATED = dict(re.findall(r"^\| (.+?) \| .+ \| (\d\.\d{4}|< 1e-15) \|$", read("docs/trees.md"), re.MULTILINE))


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_is_as_far_off_as_the_page_says(name):
    plain = product_of_conditionals(PROMPT, target_model, N)
    decoded = output_distribution(
        lambda rng: tree_sampling(PROMPT, draft_model, target_model, N, SHAPE, rng, VARIANTS[name])
    )
    distance = total_variation(decoded, plain)
    assert STATED[name] == (f"{distance:.4f}" if distance > 1e-15 else "< 1e-15")
    assert set(STATED) == set(VARIANTS)
