"""What the demo took on this machine: docs/race.svg, docs/terminal.svg, the dials of play.html.

    python -m times.race  # draws and sets them anew

README.md quotes the figures of terminal.svg, and a test compares them.
"""

import re
import textwrap
from functools import partial
from html import escape
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np

from lab.pair import load_pair
from runs import in_turns, origins
from terminal.ending import report
from terminal.figures import figures, printed
from terminal.options import PROMPT, Parser
from terminal.text import LEGEND

DOCS = Path(__file__).parents[1] / "docs"
K = 4
RACE, DEMO = 70, 154  # tokens: up to the end of a sentence, and all that the demo writes
SLOWER = 40  # times slower than in reality, so that one can watch the race
END = 1.5  # seconds: the race begins with its end, and holds it twice as long
WIDE = 48  # characters on a line: a phone makes these pictures smaller, and 11 pixels can be read
SVG = """<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" \
viewBox="0 0 430 {height}" width="430" height="{height}">
<style>
text {{ font: 14px ui-monospace, Menlo, Consolas, monospace; white-space: pre; fill: #1c1e21 }}
.page {{ fill: #fff }} .soft {{ fill: #5c636b }} .bold {{ font-weight: 600 }}
.accepted {{ fill: #1a7f37 }} .resampled {{ fill: #0a6ac2; text-decoration: underline }}
.bonus {{ fill: #8250df }}
@media (prefers-color-scheme: dark) {{
text {{ fill: #e6e8ea }} .page {{ fill: #16181b }} .soft {{ fill: #a0a8b0 }}
.accepted {{ fill: #3fb950 }} .resampled {{ fill: #58a6ff }} .bonus {{ fill: #bc8cff }}
}}
@media (prefers-reduced-motion: no-preference) {{
{rules}
}}
</style>
<rect class="page" width="100%" height="100%"/>
{lines}
</svg>
"""


# ---- What is drawn ----


def measured(N):
    """Both loops of `python main.py --K 4`, for N tokens: of each its `Run`, and its rounds.

    A round is a list of pieces (text, origin); the target alone has no origins.
    """
    pair = load_pair("draft", "target")
    decode = partial(pair.decode, pair.encoder.encode(PROMPT), N)
    loops = {"plain": decode, "speculative": partial(decode, K)}
    rounds = {name: [] for name in loops}

    def noted(name, decode):
        def note(r):
            texts = [pair.encoder.decode([token]) for token in r.emitted]
            kinds = origins(r) if name == "speculative" else [""]
            rounds[name].append([*zip(texts, kinds)])

        return decode(on_round=note)

    for loop in loops.values():  # the first use of the weights is slow
        loop()
    return [*zip(in_turns(loops, noted), rounds.values())]


def race(plain, fast):
    """A moving picture of both loops: still and complete where animations are off.

    It begins with the end, so that nobody meets an empty picture.
    """
    plain_run, _ = plain
    length = SLOWER * plain_run.seconds + 2 * END  # seconds of one showing
    rules = {}

    def appearing(seconds):
        """A class for what appears after so many seconds, for which a rule is added."""
        name = f"t{round(1e6 * seconds)}"
        begin = 100 * SLOWER * seconds / length
        hidden, seen = "{ fill-opacity: 0 }", "{ fill-opacity: 1 }"
        steps = f"0%, {begin:.2f}% {hidden} {begin + 0.01:.2f}%, 100% {seen}"
        style = f"animation: {name} {length:.1f}s {END - length:.1f}s infinite"
        rules[name] = f"@keyframes {name} {{ {steps} }} .{name} {{ {style} }}"
        return name

    lines = []
    for title, (run, rounds) in ("Target alone", plain), ("Draft and target", fast):
        took = f"  {1000 * run.seconds:.0f} ms"
        lines.append([(title, "bold"), (took, f"soft {appearing(run.seconds)}")])
        pieces = [(PROMPT, "soft")]
        for emitted, seconds in zip(rounds, np.cumsum(run.round_seconds)):
            name = appearing(seconds)
            pieces += [(text, f"{origin} {name}") for text, origin in emitted]
        lines += [*wrapped(pieces), []]
    lines += [legend(), [(f"played {SLOWER} times slower", "soft")]]
    return svg(lines, rules.values())


def demo(plain, fast):
    """The second half of what `python main.py --K 4` shows, with the beginning of its text."""
    plain_run, _ = plain
    run, rounds = fast
    title = "Speculative Decode"
    dots = [("...", "soft")]
    lines = [[(f"$ python main.py --K {K}", "bold")], dots, []]
    lines += [[(title, "")], [("-" * len(title), "")]]
    lines += wrapped(sum(rounds[:9], start=[(f"Text = {PROMPT}", "")]))
    lines += [dots, [(f"Time = {run.seconds:.2f}s", "")]]
    lines += [[("Colours: ", ""), *legend()], []]
    for row in printed(figures(plain_run, run, f"K = {K}")).split("\n"):
        row = re.sub(" (?=[c=] )|(?<==) ", "\xa0", row)  # no new line within K c = 0.49
        for part in textwrap.wrap(row, WIDE, subsequent_indent=" " * 18):
            lines.append([(part.replace("\xa0", " "), "")])
    return svg(lines)


def legend():
    pieces = []
    for origin, words in LEGEND.items():
        pieces += [(words, origin), (", ", "")]
    return pieces[:-1]


def with_dials(page, plain, fast):
    """docs/play.html, with its dials as this run has them."""
    guesses, check, rest = fast.cost(plain)
    for id, value in {"alpha": fast.alpha, "c": guesses / K, "v": check, "r": rest}.items():
        page = re.sub(rf'(id="{id}" [^>]*value=")[^"]*', rf"\g<1>{value:.2f}", page)
    return page


# ---- How ----


def wrapped(pieces):
    """Pieces (text, kind) -> lines of at most WIDE characters, each a list of pieces."""
    characters = [(c, kind) for text, kind in pieces for c in text.replace("\n", " ")]
    whole = "".join(c for c, _ in characters)
    lines = []
    end = 0
    for part in textwrap.wrap(whole, WIDE, break_on_hyphens=False):
        begin = whole.index(part, end)
        end = begin + len(part)
        groups = groupby(characters[begin:end], key=itemgetter(1))
        lines.append([("".join(c for c, _ in some), kind) for kind, some in groups])
    return lines


def svg(lines, rules=()):
    """A picture of lines of pieces (text, kind)."""
    shown = []
    for i, pieces in enumerate(lines):
        spans = [f'<tspan class="{kind}">{escape(text)}</tspan>' for text, kind in pieces]
        shown.append(f'<text x="12" y="{24 + 20 * i}">{"".join(spans)}</text>')
    height = 24 + 20 * len(lines)
    return SVG.format(height=height, rules="\n".join(rules), lines="\n".join(shown))


def main():
    Parser(description=__doc__).parse_args()
    short = measured(RACE)
    plain, fast = measured(DEMO)
    page = DOCS / "play.html"
    files = {
        page: with_dials(page.read_text(encoding="utf-8"), plain[0], fast[0]),
        DOCS / "race.svg": race(*short),
        DOCS / "terminal.svg": demo(plain, fast),
    }
    for path, content in files.items():
        path.write_text(content, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    report(main, "python -m times.race")
