"""Pictures are files. What they say must be what the code computes and the pages tell."""

import html
import json
import re

import pytest
from support.programs import read

from exercise.grading import graded
from exercise.steps import STEPS
from lab.pair import load_pair
from runs import origins
from terminal.options import PROMPT
from terminal.text import LEGEND

K = 4  # in the demo


def picture(name):
    return read(f"docs/{name}.svg")


def texts(name):
    """The text of each element that has one."""
    elements = re.findall("<text.*?</text>", picture(name), re.DOTALL)
    return [*filter(None, (html.unescape(re.sub("<[^>]*>", "", text)) for text in elements))]


def dots(name):
    """(x, y, title) of each dot."""
    return re.findall(r'cx="(.+?)" cy="(.+?)" r="6"><title>(.+?)<', picture(name))


def test_each_overlap_is_a_bar_with_its_number():
    results = json.loads(read("docs/acceptance.json"))["results"]
    shares = [draft["overlap"] for drafts in results.values() for draft in drafts.values()]
    expected = {(f"{300 * share:.0f}", f"{share:.2f}") for share in shares}
    bar = r'width="(\d+)" height="13" rx="0"/>\n<text [^>]*>(.*?)<'
    assert {*re.findall(bar, picture("overlap"))} == expected


NUMBER = r" \| ([\d.]*)"


def test_each_dot_is_a_price_and_nothing_has_more_tokens_than_are_possible():
    """A new row of the page needs no dot, but a dot needs its row."""
    page = read("docs/exactness.md").split("<!-- prices -->")[1]
    rows = re.findall(rf"^\| (.+?) \| ([\d.]+)[^|]*{3 * NUMBER} \|$", page, re.MULTILINE)
    prices = {name: [float(x or 3) for x in numbers] for name, *numbers in rows}  # 3 is the limit
    assert all(max(tokens, a_coin) <= best for _, tokens, a_coin, best in prices.values())
    assert prices["`verify_block`"] == [0, 1.86, 1.86, 1.86]  # it has all that exact rules can have
    assert len(dots("prices")) > 20
    for x, y, name in dots("prices"):
        distance, tokens, *_ = prices[name]
        assert float(x) == pytest.approx(40 + 190 * (tokens - 1), abs=0.1)
        assert float(y) == pytest.approx(406 - 440 * distance, abs=0.1)


def test_the_grader_says_what_its_picture_shows():
    solutions = [lambda p, q, token, rng: rng.random() < q[token] / p[token], lambda p, q: q]
    lines_of_grader = ["$ python -m exercise"]
    for i, (step, solution) in enumerate(zip(STEPS, solutions), start=1):
        lines, _ = graded(step, solution, "")
        lines_of_grader += [f"{i} {step.function}", *lines]
    lines_of_grader.append(f"3 {STEPS[2].function} not written yet")
    assert "".join("".join(texts("exercise")).split()) == "".join("".join(lines_of_grader).split())


# ---- Two show what a machine took ----


def test_the_readme_and_the_dials_have_the_figures_of_the_terminal():
    shown = " ".join(" ".join(texts("terminal")).split())
    sentence = re.search(r"a round yields (\d.*?)\. The", read("README.md"))[1]
    figures = re.findall(r"\d\.\d+", sentence)
    assert len(figures) >= 5 and all(figure in shown for figure in figures)
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
            spans = re.findall(f'<tspan class="{origin}[^>]*>(.*?)<', picture(name))
            text = html.unescape("".join(spans)).removesuffix(LEGEND[origin])
            assert "".join(text.split()) == "".join(pair.encoder.decode(ids).split())
