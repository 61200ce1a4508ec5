"""Pictures are files. What they say must be what the code computes and the pages tell."""

import html
import json
import re
from fractions import Fraction
from math import prod

import numpy as np
import pytest
from support import read

from exercise.grading import graded
from exercise.steps import STEPS
from lab.pair import load_pair
from lab.theory import improvement
from lab.trace.page import as_html
from lab.trace.rounds import Recorder
from runs import origins
from speculative import acceptance, residual
from terminal.options import PROMPT
from terminal.text import LEGEND

P = np.array([2, 5, 3]) * Fraction(1, 10)  # the README's
Q = np.array([3, 2, 5]) * Fraction(1, 10)
K = 4  # in the demo


def picture(name):
    return read(f"docs/{name}.svg")


def texts(name):
    """The text of each element that has one."""
    found = re.findall("<text.*?</text>", picture(name), re.DOTALL)
    return [*filter(None, (html.unescape(re.sub("<[^>]*>", "", text)) for text in found))]


def dots(name):
    """(x, y, title) of each dot."""
    return re.findall(r'cx="(.+?)" cy="(.+?)" r="6"><title>(.+?)<', picture(name))


def decimal(x):
    """.2"""
    return f"{float(x):g}".lstrip("0")


def test_the_paths_of_the_tree_are_those_of_the_rule_and_add_up_to_q():
    masses = dict.fromkeys("ABC", 0)
    factors = set()
    said = "\n".join(texts("tree"))
    for name, path, mass in re.findall("(.): (.+ × .+) = (.+)", said):
        shares = [Fraction(share) for share in path.split(" × ")]
        assert prod(shares) == Fraction(mass)
        masses[name] += prod(shares)
        factors.update(shares)
    assert [*masses.values()] == [*Q]
    keep = acceptance(P[1], Q[1])  # B alone may be rejected
    assert factors == {*P, 1, keep, 1 - keep, *residual(P, Q)} - {0}
    labels = re.findall(r"^\w+ ([\d./]+)$", said, re.MULTILINE)
    assert {*map(Fraction, labels)} == factors
    sums = re.findall(r"(.): [^;]*?(\.\d)[;.] ", said)
    assert [*map("".join, sums)] == [f"{name}{decimal(q)}" for name, q in zip("ABC", Q)]


def test_p_laid_over_q_has_the_heights_and_the_numbers():
    both = np.minimum(P, Q)
    parts = {"accepted": both, "rejected": P - both, "missing": Q - both}
    heights = []
    said = texts("laid_over")
    for i in range(3):
        assert f"p {decimal(P[i])}, q {decimal(Q[i])}" in said
        for word, share in parts.items():
            if share[i]:
                heights.append(280 * float(share[i]))
                assert f"{word} {decimal(share[i])}" in said
    rects = re.findall(r'width="92" height="([\d.]+)"', picture("laid_over"))
    assert [*map(float, rects)] == pytest.approx(heights)
    assert {*map(str, residual(P, Q))} - {"0"} < {*said}
    assert [line.split()[-1] for line in said[-3:]] == [decimal(x.sum()) for x in parts.values()]


def test_the_round_is_one_of_the_bundled_pair():
    """With 2 accepted and 1 rejected, and probabilities that are neither tiny nor 1."""
    pair = load_pair("draft", "target", temperature=1)
    recorder = Recorder(np.random.default_rng(52))
    prompt = pair.encoder.encode(PROMPT)
    pair.decode(prompt, 154, 4, recorder.rng, on_round=recorder)
    r = recorder.rounds[42]

    def name(token):
        return as_html(pair.encoder.decode([token])[:8])

    expected = []
    for d in r.drafted:
        expected.append(name(d.token))
        if d.u is None:
            expected.append("not looked at")
            continue
        expected += [f"{value:.3f}" for value in (*d.probabilities, d.keep, d.u)]
        expected.append("accepted" if d.kept else "rejected")
    expected += map(name, r.emitted)
    assert texts("round")[8:-1] == expected


def test_the_dots_of_the_speedup_are_those_of_the_theory():
    expected = []
    for alpha in 0.9, 0.6:
        for K in range(1, 17):
            gain = improvement(alpha, K, c=0.1, v=1 + 0.1 * K, r=0.1)
            x, y = 44 + 22 * K, 270 - 110 * gain
            expected.append((f"{x:.1f}", f"{y:.1f}", f"K = {K}: {gain:.2f}"))
    assert dots("speedup") == expected
    caption = "if c = 0.1, v = 1 + 0.1 K and r = 0.1"
    assert {"alpha = 0.9", "alpha = 0.6", caption} <= {*texts("speedup")}


def test_each_overlap_is_a_bar_with_its_number():
    results = json.loads(read("docs/acceptance.json"))["results"]
    expected = []
    for j, drafts in enumerate(results.values()):
        for i, draft in enumerate(drafts.values()):
            share = draft["overlap"]
            y = 34 + 54 * i + 15 * j
            expected.append((f"{y}", f"{300 * share:.0f}", f"{share:.2f}"))
    bar = r'x="100" y="(\d+)" width="(\d+)" height="13" rx="0"/>\n<text [^>]*>(.*?)<'
    assert re.findall(bar, picture("overlap")) == expected
    assert {*drafts, *(f"T = {T}" for T in results)} <= {*texts("overlap")}


def test_each_dot_is_a_price():
    """A new row of the page needs no dot, but a dot needs its row."""
    page = read("docs/exactness.md").split("<!-- prices -->")[1]
    rows = re.findall(r"^\| (.+?) \| ([\d.]+)[^|]* \| ([\d.]+) \|$", page, re.MULTILINE)
    prices = {name: (float(distance), float(tokens)) for name, distance, tokens in rows}
    assert len(dots("prices")) > 20
    for x, y, name in dots("prices"):
        distance, tokens = prices[name]
        assert float(x) == pytest.approx(40 + 190 * (tokens - 1), abs=0.1)
        assert float(y) == pytest.approx(406 - 440 * distance, abs=0.1)


def test_the_grader_says_what_its_picture_shows():
    solutions = [lambda p, q, token, rng: rng.random() < q[token] / p[token], lambda p, q: q]
    said = ["$ python -m exercise"]
    for i, (step, solution) in enumerate(zip(STEPS, solutions), start=1):
        lines, _ = graded(step, solution, "")
        said += [f"{i} {step.function}", *lines]
    said.append(f"3 {STEPS[2].function} not written yet")
    assert "".join("".join(texts("exercise")).split()) == "".join("".join(said).split())


# ---- Two show what a machine took ----


def test_the_readme_and_the_dials_have_the_figures_of_the_terminal():
    shown = " ".join(" ".join(texts("terminal")).split())
    sentence = re.search(r"a round yields (\d.*?)\. The", read("README.md"))[1]
    figures = re.findall(r"\d\.\d+", sentence)
    assert len(figures) >= 5
    assert [figure for figure in figures if figure not in shown] == []
    guesses, v, r = re.search(r"K c = (\S+), pass v = (\S+), rest r = (\S+)", shown).groups()
    alpha = re.search(r"alpha (\S+)", shown)[1]
    dials = dict(re.findall(r'id="(\w+)" [^>]*value="([^"]*)', read("docs/play.html")))
    assert (dials["alpha"], dials["v"], dials["r"]) == (alpha, v, r)
    assert float(dials["c"]) == pytest.approx(float(guesses) / K, abs=0.006)


def test_the_race_and_the_terminal_show_where_the_tokens_of_the_demo_are_from():
    pair = load_pair("draft", "target")
    rounds = []
    pair.decode(pair.encoder.encode(PROMPT), N=70, K=K, on_round=rounds.append)
    for name, shown in ("race", rounds), ("terminal", rounds[:9]):
        drawn = [piece for r in shown for piece in zip(origins(r), r.emitted)]
        for origin in LEGEND:
            ids = [token for kind, token in drawn if kind == origin]
            found = re.findall(f'<tspan class="{origin}[^>]*>(.*?)<', picture(name))
            said = html.unescape("".join(found)).removesuffix(LEGEND[origin])
            assert "".join(said.split()) == "".join(pair.encoder.decode(ids).split())
