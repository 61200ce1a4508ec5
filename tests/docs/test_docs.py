"""The pages hold what the code computes, and the code that they show is right."""

import re

import pytest
from support import ROOT, read

from studies.pages import write

PAGES = [
    path
    for folder in ("", "docs", "models", "exercise", "studies/audit")
    for path in sorted((ROOT / folder).glob("*.md"))
]
HTML = sorted((ROOT / "docs").glob("*.html"))


@pytest.mark.slow
def test_the_pages_and_the_pictures_are_what_the_code_computes():
    assert [
        path for path, content in write.files().items() if read(path) != content
    ] == []  # run python -m studies.pages.write
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


def test_the_readme_has_the_figures_of_the_terminal():
    sentence = re.search(r"`main.py` prints all of them\. (.*?)\. That", read("README.md"))[1]
    figures = re.findall(r"\d\.\d+", sentence)
    shown = re.sub(r"<[^>]*>", "", read("docs/terminal.svg"))
    assert len(figures) >= 5
    assert [figure for figure in figures if figure not in shown] == []


def test_no_error_of_the_audit_shows_a_path_of_the_computer_that_ran_it():
    assert not re.search(r'"error": "[^"]*[/\\]', read("studies/audit/audit.json"))
