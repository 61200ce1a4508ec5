"""The pages hold what the code computes, and the code that they show is right."""

import html
import json
import re

import pytest
from support import ROOT, read

from exercise.grading import graded
from exercise.steps import STEPS
from gallery import write

PAGES = [
    path
    for folder in ("", "docs", "models", "exercise")
    for path in sorted((ROOT / folder).glob("*.md"))
]
HTML = sorted((ROOT / "docs").glob("*.html"))


@pytest.mark.slow
def test_the_pages_are_what_the_code_computes():
    assert [
        path for path, content in write.files().items() if read(path) != content
    ] == []  # run python -m gallery.write
    shown = [
        name for page in write.PAGES for name in re.findall(r"<!-- (?!end)([\w ]+) -->", read(page))
    ]
    assert sorted(shown) == sorted(write.BLOCKS)


@pytest.mark.parametrize("page", [*PAGES, *HTML], ids=lambda page: page.name)
def test_the_links_lead_somewhere(page):
    link = r'(?:href|src)="(?!https?:)([^"#]+)"' if page in HTML else r"\]\((?!https?:)([^)#]+)"
    links = re.findall(link, read(page))
    assert all((page.parent / link).exists() for link in links), links
    if page in HTML:
        assert {"play.html", "trace.html"} - {page.name} <= {*links}


# ---- Pictures are files. What they show must be what the code and the pages say ----


def words_of(picture):
    text = re.sub(r"<style>.*?</style>|<[^>]*>", " ", read(picture), flags=re.DOTALL)
    return " ".join(html.unescape(text).split())


def test_the_readme_has_the_figures_of_the_terminal():
    sentence = re.search(r"Here a round yields (.*?)\. That", read("README.md"))[1]
    figures = re.findall(r"\d\.\d+", sentence)
    assert len(figures) >= 5
    assert [figure for figure in figures if figure not in words_of("docs/terminal.svg")] == []


def test_the_grader_says_what_its_picture_shows():
    (headline, *lines), _ = graded(STEPS[1], lambda p, q: q, "")
    for line in headline.split(" (")[0], *lines:
        assert " ".join(line.split()) in words_of("docs/exercise.svg")


def test_each_price_is_a_dot():
    rows = re.findall(r"^\| (.+?) \| ([\d.]+)[^|]* \| ([\d.]+) \|$", prices(), re.MULTILINE)
    dots = re.findall(r'cx="(.+?)" cy="(.+?)" r="6"><title>(.+?)<', read("docs/prices.svg"))
    assert len(rows) == len(dots) > 20
    for (name, distance, tokens), (x, y, title) in zip(rows, dots):
        assert name == title
        assert float(x) == pytest.approx(40 + 190 * (float(tokens) - 1), abs=0.1)
        assert float(y) == pytest.approx(406 - 440 * float(distance), abs=0.1)


def prices():
    return read("docs/exactness.md").split("## The price of being lossy")[1]


def test_each_overlap_is_a_bar():
    results = json.loads(read("docs/acceptance.json"))["results"].values()
    shares = [300 * draft["overlap"] for drafts in results for draft in drafts.values()]
    bars = re.findall(r'x="100" y="\d+" width="(\d+)" height="13"', read("docs/overlap.svg"))
    assert sorted(map(int, bars)) == pytest.approx(sorted(shares), abs=0.51)
