"""The best rule for two guesses is exact and reaches its ceiling. Its numbers are in drafts.md."""

import re
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import EXACT, pairs, read

from enumeration import sum_over_paths
from gallery.setting import P, Q
from lab.optimum import all_different, ceiling, independent, optimal, poured, sets
from lab.trees import Node, bottom_up, top_down
from runs import overlap

one_sure = partial(all_different, n_sure=1)
both_sure = partial(all_different, n_sure=2)


def accepted(rule, draw, p, q):
    """How often a rule accepts a guess. What it emits must be a draw from q."""

    def one_round(rng):
        root = Node(children=draw(p, rng))
        for node in [root, *root.children]:
            node.q = q
        token, *rest = rule(root, rng)
        return token, len(rest)

    shares = np.zeros((2, len(q)), dtype=q.dtype)
    for (token, n_accepted), probability in sum_over_paths(one_round).items():
        shares[n_accepted, token] = probability
    assert (shares.sum(axis=0) == q).all()
    return shares[1].sum()


def at_best(draw, p, q):
    """The same of the best rule, three times: as a cut, as a flow, and by running it."""
    S = sets(partial(draw, p))
    flow, _ = poured(S, q)
    found = accepted(partial(optimal, S=S), draw, p, q)
    assert found == sum(flow.values()) == ceiling(S, q)
    return found


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("draw", [independent, all_different, one_sure, both_sure])
@settings(max_examples=10)
@given(pair=pairs(sizes=(3, 2), exact=True))
def test_no_exact_rule_accepts_more_and_this_one_does(draw, n, pair):
    draw = partial(draw, n=n)
    best = at_best(draw, *pair)
    assert best >= accepted(bottom_up, draw, *pair)


@given(pair=pairs(sizes=(7,)), draw=st.sampled_from([independent, all_different]))
def test_in_floats(pair, draw):
    p, q = pair
    S = sets(partial(draw, p))
    flow, room = poured(S, q)
    assert sum(flow.values()) == pytest.approx(ceiling(S, q), abs=EXACT)
    assert (room >= 0).all()


# ---- The table of docs/drafts.md ----


def by_own_draws(draw, p, q):
    """The target draws for itself, and accepts a guess that is the same."""
    S = sets(partial(draw, p))
    return sum(probability * q[[*guesses]].sum() for guesses, probability in S.items())


def k_seq(draw, p, q):
    """SpecTr tests each of two guesses with min(1, q / (ρ p)). The smallest exact ρ is 2 - kept."""
    p, q = p.astype(float), q.astype(float)
    kept = 0
    for _ in range(100):
        kept = overlap(p, q / (2 - kept))
    return 1 - (1 - kept) ** 2


DRAWS = {
    "one": partial(independent, n=1),
    "two, independent": independent,
    "two, without replacement": all_different,
    "the best, and one drawn": one_sure,
    "the best two, as EAGLE": both_sure,
}
RULES = {
    "`verify`": partial(accepted, top_down),
    "the target's own draw": by_own_draws,
    "K-SEQ, with the best ρ": k_seq,
    "`top_down`": partial(accepted, top_down),
    "`bottom_up`": partial(accepted, bottom_up),
    "`optimal`": at_best,
}


def test_the_page_has_these_numbers():
    _, section = read("docs/drafts.md").split("\n## The best of two guesses\n")
    _, *rows = re.findall(r"^\| (\w.+?) \| (.+?) \| (.+) \|$", section, re.MULTILINE)
    assert len(rows) == 10
    for guesses, rule, cells in rows:
        found = [RULES[rule](DRAWS[guesses], *pair) for pair in zip(P, Q)]
        assert cells.split(" | ") == [f"{float(share):.4f}" for share in found]
