"""Write every block of the pages that is computed, and every picture.

Run it after a change of the gallery:

    python -m studies.making.write         # all but the two pictures of a timed run
    python -m studies.making.write --race  # these as well: race.svg and terminal.svg

A block stands between <!-- name --> and <!-- end -->. What was measured comes from
docs/acceptance.json.
"""

import argparse
import json
import re
from pathlib import Path

from lab import gallery, tables
from studies.audit.__main__ import table as audit_table
from studies.making import pictures
from studies.times.acceptance import DRAFTS, SHOWN, TEMPERATURES

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md",
    "docs/exactness.md",
    "docs/drafts.md",
    "docs/play.html",
    "studies/audit/README.md",
)


def measured():
    return json.loads((ROOT / "docs" / "acceptance.json").read_text(encoding="utf-8"))


def of_drafts():
    by_T, results = [f"{T:g}" for T in TEMPERATURES], measured()["results"]
    header = [
        "draft",
        *(f"overlap, T = {T}" for T in by_T),
        "c",
        *(f"speedup, T = {T}" for T in by_T),
    ]
    rows = [
        [name, *(results[T][name]["overlap"] for T in by_T), f"{results['1'][name]['c']:.3f}",
         *(results[T][name]["speedup"] for T in by_T)]
        for name in DRAFTS
    ]  # fmt: skip
    return tables.table(header, rows)


def of_siblings():
    rows = []
    for name, found in measured()["trees"].items():
        rows.append([name, *found["siblings"]])
        if found["bound"]:
            rows.append(["at best, if independent", *found["bound"]])
    return tables.table(["one of n siblings is accepted", *(f"n = {n}" for n in SHOWN)], rows)


def of_trees():
    header = [
        "draft",
        "chain",
        "two chains",
        "best tree",
        "best, top-down",
        "its nodes at depth 1, 2, ...",
    ]
    rows = [
        [name, *found["tokens"], " ".join(map(str, found["best"]))]
        for name, found in measured()["trees"].items()
    ]
    return tables.table(header, rows)


def rules_of_play():
    """What docs/play.html takes from the gallery, for the rules of its menu."""
    play = (ROOT / "docs" / "play.html").read_text(encoding="utf-8")
    menu = re.search(r"const MENU = \{(.*?)\n\};", play, re.DOTALL)[1]
    found = {}
    for id in re.findall(r'^  "([^"]+)":', menu, re.MULTILINE):
        if id != "yours":
            variant = gallery.GALLERY[id]
            formula = dict(zip(("accept", "replace"), variant.formula))
            found[id] = {"name": variant.name, "seen": variant.seen, **formula}
    lines = [f'  "{id}": {json.dumps(rule, ensure_ascii=False)},' for id, rule in found.items()]
    return "\n".join(["const GALLERY = {", *lines, "};"])


BLOCKS = {
    "famous": tables.of_famous,
    "gallery": tables.of_gallery,
    "trees": tables.of_trees,
    "exact": tables.of_exact_rules,
    "disputes": tables.of_disputes,
    "prices": tables.of_prices,
    "drafts": of_drafts,
    "siblings": of_siblings,
    "trees measured": of_trees,
    "audit": lambda: audit_table(
        json.loads((ROOT / "studies" / "audit" / "audit.json").read_text(encoding="utf-8"))
    ),
    "rules": rules_of_play,
}
PICTURES = {
    "tree": pictures.tree,
    "round": pictures.a_round,
    "overlap": lambda: pictures.overlap(measured()["results"]),
    "prices": lambda: pictures.prices(tables.prices()),
    "exercise": pictures.grader,
}


def page(text):
    """The page with its blocks as they should be."""

    block = r"(<!-- (?!end)([\w ]+) -->\n).*?(\n[^\n]*<!-- end -->)"
    return re.sub(
        block, lambda found: found[1] + BLOCKS[found[2]]() + found[3], text, flags=re.DOTALL
    )


def files():
    """{path: what should be in it}"""
    pages = {name: page((ROOT / name).read_text(encoding="utf-8")) for name in PAGES}
    return pages | {f"docs/{name}.svg": draw() for name, draw in PICTURES.items()}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--race", action="store_true", help="draw what a timed run on this machine looked like, too"
    )
    args = parser.parse_args()
    found = files()
    if args.race:
        runs = pictures.measured()
        found |= {"docs/race.svg": pictures.race(*runs), "docs/terminal.svg": pictures.demo(*runs)}
    for path, content in found.items():
        (ROOT / path).write_text(content, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
