"""Write every block of the pages that is computed. Run it after a change of the gallery:

    python -m gallery.write

A block stands between <!-- name --> and <!-- end -->.
"""

import json
import re
from pathlib import Path

from gallery import GALLERY, blind, tables
from terminal.ending import report
from terminal.options import Parser

ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    "README.md",
    "docs/exactness.md",
    "docs/drafts.md",
    "docs/questions.md",
    "docs/play.html",
)
MENU = (  # of docs/play.html
    "verify", "same-draw", "q-or-another", "from-target", "without-it", "greedy-draft",
    "one-noise", "one-hot-redrawn", "argmax-replaces", "accept-q-max", "accept-all",
    "argmax", "from-draft", "absolute", "accept-above", "upside-down", "lenient",
)  # fmt: skip


def read(path):
    """The text of a page."""
    return (ROOT / path).read_text(encoding="utf-8")


def menu():
    """The rules that docs/play.html offers."""
    lines = ["const MENU = {"]
    for id in MENU:
        variant = GALLERY[id]
        formula = dict(zip(("accept", "replace"), variant.formula))
        rule = {"name": variant.name, "seen": variant.seen_in_words, **formula}
        lines.append(f'  "{id}": {json.dumps(rule, ensure_ascii=False)},')
    return "\n".join([*lines, "};"])


BLOCKS = {
    "famous": tables.of_famous,
    "gallery": tables.of_gallery,
    "trees": tables.of_trees,
    "exact": tables.of_exact_rules,
    "prices": tables.of_prices,
    "rules": menu,
    "blind": blind.questions,
}


def page(text):
    """The page with its blocks as they should be."""
    block = r"(<!-- (?!end)([\w ]+) -->\n).*?(\n[^\n]*<!-- end -->)"

    def written(match):
        begin, name, end = match.groups()
        return begin + BLOCKS[name]() + end

    return re.sub(block, written, text, flags=re.DOTALL)


def files():
    """{path: what should be in it}"""
    return {path: page(read(path)) for path in PAGES}


def main():
    Parser(description=__doc__).parse_args()
    for path, content in files().items():
        (ROOT / path).write_text(content, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    report(main, "python -m gallery.write")
