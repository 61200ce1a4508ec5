"""The pages hold what the code computes, and the code that they show is right."""

import re

import pytest
from support.programs import ROOT, read

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
