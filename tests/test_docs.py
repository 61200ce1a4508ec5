"""The README and the pages of docs hold what the scripts print, and the code that they show is right."""

import json
import re
from fractions import Fraction

import numpy as np
import pytest
from support import ROOT, read

from benchmarks import acceptance, audit, settled
from lab import gallery
from tools.pictures import a_round, grader, overlap, prices, tree

RESULTS, AUDIT = json.loads(read("docs/acceptance.json")), json.loads(read("docs/audit.json"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "models" / "README.md"]
HTML = sorted((ROOT / "docs").glob("*.html"))
README = read("README.md")


def test_the_rows_of_the_gallery_in_the_readme():
    distances = {variant.name: gallery.rounded(variant.distance()) for variant in gallery.VARIANTS}
    shown = re.findall(r"^\| ([^|]+) \| [^|]+ \| (0\.\d{4}) \|$", README, re.MULTILINE)
    assert len(shown) == 4 and all(distances[name] == distance for name, distance in shown)


def test_the_table_on_acceptance_is_that_of_its_results():
    assert acceptance.shown(RESULTS["results"]) in read("docs/acceptance.md")


@pytest.mark.parametrize("page", [*PAGES, *HTML], ids=lambda page: page.name)
def test_the_links_lead_somewhere(page):
    links = re.findall(r'href="([^"#]+)"' if page in HTML else r"\]\((?!https?:)([^)#]+)", read(page))
    assert all((page.parent / link).exists() for link in links), links
    if page in HTML:
        assert {"play.html", "trace.html"} - {page.name} <= {*links}


def test_the_pictures_are_what_the_code_draws():
    assert a_round() == read("docs/round.svg") and tree() == read("docs/tree.svg")
    assert overlap(RESULTS["results"]) == read("docs/overlap.svg")
    assert prices(settled.prices()) == read("docs/prices.svg") and grader() == read("docs/exercise.svg")


def test_each_leaf_of_the_tree_is_the_product_of_its_path_and_all_add_up_to_q():
    picture, sums = read("docs/tree.svg"), [0, 0, 0]
    for token, factors, mass in re.findall(r">([ABC]): ([^<=]* × [^<]*) = ([.\d]+)<", picture):
        assert np.isclose(np.prod([float(Fraction(factor)) for factor in factors.split(" × ")]), float(mass))
        sums["ABC".index(token)] += float(mass)
    assert np.allclose(sums, gallery.Q[0])
    for label in "A .2", "B .5", "C .3", "accepted .4", "rejected .6", "A 1/3", "C 2/3":
        assert picture.count(f">{label}<") == 1


def test_the_tables_of_settled_disputes():
    assert all(table in read("docs/settled.md") for table in settled.shown())


def test_the_table_of_the_audit_is_that_of_its_results():
    page, header = read("docs/audit.md").strip(), audit.table([]).splitlines()[0]
    assert [block for block in page.split("\n\n") if block.startswith(header)] == [audit.table(AUDIT)]
    # an error message could show a path of the computer that ran the audit
    assert not [row["error"] for row in AUDIT if re.search(r"[/\\]", row.get("error", ""))]


def test_the_check_of_a_sampler_prints_what_the_page_says(capsys):
    page = read("docs/your_models.md")
    pair, _, check = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(pair, names := {})
    capsys.readouterr()
    exec(check, names)
    assert capsys.readouterr().out == re.search(r"```text\n(.*?)```", page, re.DOTALL)[1]
