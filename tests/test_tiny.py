"""tiny.py agrees with the rest of the project, and takes what readers try."""

import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.exact import EXACT, assert_same, product_of_conditionals
from support.models import models
from support.programs import read

import tiny
from enumeration import sum_over_paths, total_variation

PRINTED = """\
accept_all       wrong by 0.4400 = 11/25      3.00 tokens per pass
accept_argmax    wrong by 0.1725 = 69/400     1.24 tokens per pass
resample_from_q  wrong by 0.0924 = 231/2500   1.79 tokens per pass
verify           wrong by 0                   1.81 tokens per pass
"""


@settings(max_examples=20)
@given(drawn=models(), N=st.integers(0, 4), K=st.integers(0, 3))
def test_both_loops_have_the_targets_distribution_and_both_checks_agree(drawn, N, K):
    draft, target, x = drawn
    expected = product_of_conditionals(x, target, N)
    for loop in (
        lambda rng: tiny.autoregressive_sampling(x, target, N, rng),
        lambda rng: tiny.speculative_sampling(x, draft, target, N, K, rng, tiny.verify),
    ):
        distribution = Counter()
        for text, probability in tiny.every_path(loop):
            distribution[tuple(text)] += probability
        assert_same(sum_over_paths(loop), expected)
        assert total_variation(distribution, expected) < EXACT


def test_what_it_prints(capsys):
    tiny.main()
    assert capsys.readouterr().out == PRINTED


# ---- What a reader may try ----

RULE = """
def mine(drafted, p, q, rng):
    for i, token in enumerate(drafted):
        ratio = q[i, token] / p[i, token]
        u = rng.random()
        if {accepts}:
            continue
        residual = np.maximum(q[i] - p[i], 0)
        return [*drafted[:i], rng.choice(3, p=residual / residual.sum())]
    return [*drafted, rng.choice(3, p=q[-1])]
"""


def result_of(source, capsys, monkeypatch):
    """What tiny.py prints with one more rule."""
    names = dict(vars(tiny))
    exec(source, names)
    monkeypatch.setattr(tiny, "RULES", [names["mine"]])
    tiny.main()
    return capsys.readouterr().out


EXACT_CONDITIONS = [
    "u <= ratio",
    "not u > ratio",
    "not u >= ratio",
    "ratio >= u",
    "u >= 1 - ratio",  # below 0 where q > p
    "u < float(min(1, ratio)) + 1e-18",
]


@pytest.mark.parametrize("accepts", EXACT_CONDITIONS)
def test_a_rule_may_compare_as_it_likes(accepts, capsys, monkeypatch):
    shown = result_of(RULE.format(accepts=accepts), capsys, monkeypatch)
    assert re.match(r"mine +wrong by (0 |0\.0000 )", shown)


MISTAKES = {
    "def mine(*args): pass": "IndexError: arrays used as indices must be of integer",
    "def mine(*args): return []": "IndexError: arrays used as indices must be of integer",
    "def mine(drafted, p, q, rng): return drafted[:0]": "AssertionError: 100 draws and no end",
    "def mine(*args): return [3]": "IndexError: index 3 is out of bounds",
    "def mine(q, rng): pass": r"TypeError: mine\(\) takes 2 positional",
    "def mine(drafted, p, q, rng): return [rng.choice(3, p=q[0] / 2)]": (
        "AssertionError: rng.choice got probabilities"
    ),
    "other = np.random.default_rng(0)\ndef mine(*args): return [other.integers(3)]": (
        "AssertionError: the paths don't add up; let rng alone decide"
    ),
    RULE.format(accepts="u < 1 / 2 and u < ratio"): "AssertionError: u is compared twice",
    RULE.format(accepts="u * p[i, token] < q[i, token]"): "TypeError: unsupported operand",
}


@pytest.mark.parametrize(("source", "message"), MISTAKES.items())
def test_a_broken_rule_is_one_line(source, message, capsys, monkeypatch):
    with pytest.raises(SystemExit, match=f"^tiny.py: mine: {message}.* --mine tiny.py mine .*$"):
        result_of(source, capsys, monkeypatch)


def test_the_readme_has_one_token_of_its_wrong_rules():
    """All of them but the last, which a reader is asked about."""
    p, q = np.array([[0.2, 0.5, 0.3], [0.3, 0.2, 0.5]])
    *lines, last = re.findall(r"^\| accept .*", read("README.md"), re.MULTILINE)

    def of(rule):
        return sum_over_paths(lambda rng: rule([rng.choice(3, p=p)], [p], [q, q], rng)[:1])

    for rule, line in zip(tiny.RULES[:2], lines, strict=True):
        distribution = of(rule)
        assert [f"{distribution[(token,)]:.2f}"[1:] for token in range(3)] == line.split(" | ")[1:4]
    assert last.split(" | ")[1:4] == ["?"] * 3
    wrong = total_variation(of(tiny.resample_from_q), of(tiny.verify))
    assert wrong == pytest.approx(0.06)  # "Six tokens in a hundred would have to change"


def test_the_readme_shows_its_lines():
    blocks = re.findall(r"```python\n(def .*?)```", read("README.md"), re.DOTALL)
    assert blocks and all(block in read("tiny.py") for block in blocks)
