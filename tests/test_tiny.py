"""tiny.py agrees with the rest of the project, and takes what readers try."""

import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import EXACT, assert_same, models, product_of_conditionals, read

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
        found = Counter()
        for text, probability in tiny.every_path(loop):
            found[tuple(text)] += probability
        assert_same(sum_over_paths(loop), expected)
        assert total_variation(found, expected) < EXACT


def test_what_it_prints(capsys):
    tiny.main()
    assert capsys.readouterr().out == PRINTED


# ---- What a reader may try ----

RULE = """
def mine(drafted, p, q, rng):
    ratios = q[:-1] / p  # [0, 3] in a round without guesses
    for i, token in enumerate(drafted):
        ratio = q[i][token] / p[i][token]
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
    "u < ratios[i, token]",
    "u < float(min(1, ratio)) + 1e-18",
]


@pytest.mark.parametrize("accepts", EXACT_CONDITIONS)
def test_a_rule_may_compare_as_it_likes(accepts, capsys, monkeypatch):
    shown = result_of(RULE.format(accepts=accepts), capsys, monkeypatch)
    assert re.match(r"mine +wrong by (0 |0\.0000 )", shown)


MISTAKES = {
    "None": ("def mine(*args): pass", "mine returned None; 2 guesses need a list of 1 to 3"),
    "nothing": ("def mine(*args): return []", r"mine returned \[\]; 2 guesses need a list"),
    "too much": ("def mine(*args): return [0] * 4", r"mine returned \[0, 0, 0, 0\]; 2 guesses"),
    "no token": ("def mine(*args): return [3]", r"mine returned \[3\]; 2 guesses need a list"),
    "a row without its sum": (
        "def mine(drafted, p, q, rng): return [rng.choice(3, p=q[0] / 2)]",
        "rng.choice got probabilities",
    ),
    "another generator": (
        "np.random.seed(0)\ndef mine(*args): return [np.random.randint(3)]",
        "the paths don't add up; let rng alone decide",
    ),
    "a number twice": (
        RULE.format(accepts="u < Fraction(1, 2) and u < ratio"),
        "u is compared twice; only python -m exercise can follow that",
    ),
    "a number times p": (
        RULE.format(accepts="u * p[i][token] < q[i][token]"),
        "mine, line 7: TypeError: unsupported operand .* 'Uniform'",
    ),
    "other arguments": (
        "def mine(q, rng): pass",
        r"mine, line \d+: TypeError: mine\(\) takes 2 positional",
    ),
    "draws without end": (
        "def mine(drafted, p, q, rng):\n    while True: rng.choice(3, p=q[0])",
        "100 draws and no end",
    ),
}


@pytest.mark.parametrize(("source", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_broken_rule_is_one_line(source, message, capsys, monkeypatch):
    with pytest.raises(SystemExit, match=f"^tiny.py: {message}"):
        result_of(source, capsys, monkeypatch)


def test_the_readme_shows_its_lines():
    blocks = re.findall(r"```python\n(def .*?)```", read("README.md"), re.DOTALL)
    assert blocks and all(block in read("tiny.py") for block in blocks)
