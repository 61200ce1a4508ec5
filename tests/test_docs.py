"""The README and the pages of docs hold what the scripts print, and the README's plain loop is that of the code."""

import json
import re

import numpy as np
import pytest
from support import ROOT, Table
from test_broken_variants import table

import main
import speculative
from benchmarks import acceptance
from tools.pictures import tree

RESULTS = json.loads((ROOT / "docs" / "acceptance.json").read_text(encoding="utf-8"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "models" / "README.md"]
README = PAGES[0].read_text(encoding="utf-8")


def test_the_plain_loop_of_the_readme_is_that_of_the_code():
    block = re.search(r"```python\n(def autoregressive_sampling.*?)```", README, re.DOTALL)
    exec(block[1], shown := {"np": np})
    model = Table(np.random.default_rng(0).dirichlet(np.ones(5), size=5))
    loops = shown["autoregressive_sampling"], speculative.autoregressive_sampling
    one, other = (loop([0], model, 50, np.random.default_rng(1)).tolist() for loop in loops)
    assert one == other


def test_the_tables_of_broken_variants():
    lines = table().split("\n")
    assert "\n".join(lines) in (ROOT / "docs" / "exactness.md").read_text(encoding="utf-8")
    shown = README[README.index(lines[0]) :].split("\n\n")[0].split("\n")
    assert set(shown) <= set(lines) and len(shown) == 10
    assert sum("(exact)" in line for line in shown) == 2


def test_the_page_on_acceptance_is_drawn_from_its_results(tmp_path, monkeypatch):
    monkeypatch.setattr(acceptance, "figures", lambda *args: None)  # they need matplotlib
    acceptance.draw(RESULTS, tmp_path)
    page = ROOT / "docs" / "acceptance.md"
    assert (tmp_path / "acceptance.md").read_text(encoding="utf-8") == page.read_text(encoding="utf-8")


def test_the_drafts_of_the_readme_are_those_of_the_results():
    results = RESULTS["results"]
    rows = re.findall(r"^\| (model|ngram|lookup|early-exit:2) \|.*$", README, re.MULTILINE)
    assert len(rows) == 4
    for name in rows:
        greedy, sampled = (results[T]["ways"][f"{name}, K = 4"] for T in ("0", "1"))
        figures = sampled["c"], *(results[T]["alpha"][name] for T in ("0", "1")), greedy["speedup"], sampled["speedup"]
        cells = " | ".join(f"{figure:.2f}" for figure in figures)
        assert re.search(rf"^\| {name} \|.* \| {re.escape(cells)} \|$", README, re.MULTILINE), cells


def test_the_figures_within_sentences_are_those_of_the_results():
    greedy, sampled = (RESULTS["results"][T]["ways"] for T in ("0", "1"))
    assert f"was {greedy['model, K = 3']['speedup']:.1f} times as fast as the target alone at temperature 0" in README
    assert f"and {sampled['model, K = 3']['speedup']:.1f} times as fast at temperature 1" in README
    *vs, last = (f"{sampled[f'model, K = {K}']['v']:.2f}" for K in range(1, 9))
    speed = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
    assert f"at T = 1, v is {', '.join(vs)} and {last} for K = 1 to 8" in speed


def test_the_times_of_the_readme_are_those_of_the_page_on_speed():
    page = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
    times = dict(re.findall(r"^\| ([^|]+) \| ([\d.]+) \|", page.split("**124M**")[1].split("**")[0], re.MULTILINE))
    for line, kind in ("the matrix products alone, with `x @ w`", "x @ w, "), ("a whole pass, with fast/", ""):
        assert f"| {line} | {times[kind + '1 row']} | {times[kind + '5 rows']} |\n" in README


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_links_lead_somewhere(page):
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / link).exists(), link


def test_the_picture_of_a_round_is_what_main_draws(tmp_path):
    main.main(["--temperature", "1", "--seed", "3", "--trace", str(tmp_path / "round.svg")])
    assert (tmp_path / "round.svg").read_text(encoding="utf-8") == (ROOT / "docs/round.svg").read_text(encoding="utf-8")


def test_the_picture_of_the_tree_is_what_the_script_draws():
    assert (ROOT / "docs" / "tree.svg").read_text(encoding="utf-8") == tree()
