"""Draw the pictures in docs/: tree, round, race, terminal, overlap, prices and exercise.svg.

    python -m tools.pictures

tree.svg has every path to the first token of a round, for the README's p and q. round.svg
is a round of the bundled pair at temperature 1. The others show what was measured,
overlap.svg what is in docs/acceptance.json. prices.svg has the dots of docs/settled.md.
"""

import argparse
import json
import re
from html import escape, unescape
from pathlib import Path

import numpy as np

from benchmarks import settled
from exercise.__main__ import STEPS, graded
from lab import gallery
from lab.page import number, shown
from lab.pair import load_pair
from lab.rounds import Recorder
from runs import LEGEND, figures, origins
from speculative import acceptance, residual, verify
from terminal import PROMPT, printed

ROOT = Path(__file__).resolve().parent.parent
STYLE = """<style>
text { font: 14px system-ui, sans-serif; fill: #1c1e21 } .page { fill: #fff } .soft { fill: #5c636b }
.bold { font-weight: 600 } line { stroke: #8a939d }
.box { stroke: #8a939d; fill: none } .box.accepted { fill: #d3f0d9 } .box.corrected { fill: #fbd5d2 }
.box.bonus { fill: #e6d8f8 } .bar { fill: #d5d9de } .keep { fill: #3f9b5b } .short { fill: #d2564c }
.T0 { fill: #3b6fb6 } .T1 { fill: #7d8790 } .T2 { fill: #e08a1e }
.mono { font: 14px ui-monospace, Menlo, Consolas, monospace; white-space: pre } .small { font-size: 13px }
.accepted { fill: #1a7f37 } .corrected { fill: #cf222e; text-decoration: underline } .bonus { fill: #8250df }
.wrong { fill: #cf222e } .rejected + text { text-decoration: line-through } .tick { stroke: #1c1e21; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
.accepted { fill: #3fb950 } .corrected { fill: #ff7b72 } .bonus { fill: #bc8cff } .wrong { fill: #ff7b72 }
text { fill: #e6e8ea } .page { fill: #16181b } .soft { fill: #a0a8b0 } .tick { stroke: #fff }
.box.accepted { fill: #1c4a2a } .box.corrected { fill: #6a2621 } .box.bonus { fill: #47306b } .bar { fill: #3a3f45 }
}
</style>"""
WIDTH, LEFT = 130, 180  # of a column; of the names of the rows


def text(x, y, content, kind=""):
    return f'<text x="{x}" y="{y}" class="{kind}">{content}</text>'


def svg(width, height, parts):
    """A picture of the parts, which are elements of SVG."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">\n'
        + STYLE + '\n<rect class="page" width="100%" height="100%"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )  # fmt: skip


# ---- All paths to the first token ----

P, Q, TOKENS = gallery.P[0], gallery.Q[0], "ABC"
COLUMNS = 10, 150, 370, 560  # where the root, the drafted tokens, the verdicts and the emitted tokens are


def branches():
    """Yield every path to the first token of a round.

    A path is (drafted token, its probability, verdict, its probability, emitted token, its probability).
    """
    for token in range(3):
        keep = acceptance(P[token], Q[token])
        yield token, P[token], "accepted", keep, token, 1.0
        if keep < 1:
            for other, probability in enumerate(residual(P, Q)):
                if probability > 0:
                    yield token, P[token], "rejected", 1 - keep, other, probability


def tree():
    paths, parts, total = list(branches()), [], np.zeros(3)
    for x, name in zip(COLUMNS, ["", "drafted from p", "min(1, q/p)", "emitted"], strict=True):
        parts.append(text(x, 18, name, "soft"))
    y_of = [50 + 34 * i for i in range(len(paths))]
    middle = sum(y_of) / len(paths)
    parts.append(text(COLUMNS[0], middle + 5, "first token"))
    for token in range(3):
        own = [y_of[i] for i, path in enumerate(paths) if path[0] == token]
        y = sum(own) / len(own)
        parts.append(f'<line x1="90" y1="{middle}" x2="{COLUMNS[1] - 8}" y2="{y}"/>')
        parts.append(text(COLUMNS[1], y + 5, f"{TOKENS[token]}, {P[token]:.1f}", "bold"))
        for y_leaf in own:
            parts.append(f'<line x1="{COLUMNS[1] + 50}" y1="{y}" x2="{COLUMNS[2] - 8}" y2="{y_leaf}"/>')
    for i, (_, p, verdict, keep, emitted, residual_mass) in enumerate(paths):
        mass, y = p * keep * residual_mass, y_of[i] + 5
        total[emitted] += mass
        parts.append(text(COLUMNS[2], y, f"{verdict}, {keep:.1f}"))
        parts.append(f'<line x1="{COLUMNS[2] + 110}" y1="{y - 5}" x2="{COLUMNS[3] - 8}" y2="{y - 5}"/>')
        parts.append(text(COLUMNS[3], y, f"{TOKENS[emitted]}, {mass:.2f}", "bold"))
    assert np.allclose(total, Q)
    sums = "; ".join(f"{TOKENS[i]}: {total[i]:.1f}" for i in range(3))
    parts.append(text(COLUMNS[0], 50 + 34 * len(paths) + 12, f"Sums of the emitted: {sums}. These are q."))
    return svg(660, 50 + 34 * len(paths) + 24, parts)


# ---- A round ----


def a_round():
    """A round of `python main.py --temperature 1 --seed 3`: the first that accepts two tokens and rejects one."""
    pair = load_pair("draft", "target", temperature=1)
    encoder, recorder = pair.encoder, Recorder(np.random.default_rng(3), verify)
    run, rounds = pair.decode(encoder.encode(PROMPT), 154, 4, recorder.coins, on_round=recorder), recorder.rounds
    i, r = next((i, r) for i, r in enumerate(rounds) if r.origins.count("accepted") >= 2 and "corrected" in r.origins)
    after = sum(len(later.emitted) for later in rounds[i:])
    before = "… " + shown(encoder.decode(run.ids[:-after][-14:]).lstrip(), {ord("\n"): "⏎"})
    names = ["drafted", "p, of the draft", "q, of the target", "min(1, q / p)", "number drawn"]
    names += ["drawn < min(1, q / p)?", "emitted"]
    parts = [text(10, 24, "text so far", "soft"), text(LEFT, 24, before)]
    parts += [text(10, 62 + 24 * i, escape(name), "soft") for i, name in enumerate(names)]
    below = 62 + 24 * (len(names) - 2)  # the row of bars; the emitted tokens are in the row after it
    for i, d in enumerate(r.drafted):
        x = LEFT + WIDTH * i
        parts.append(box(encoder, x, 62, d.token, "accepted" if d.kept else "rejected"))
        if i < len(r.looked_at):
            numbers = [*d.probabilities, d.keep, d.coin]
            parts += [text(x, 86 + 24 * j, number(value)) for j, value in enumerate(numbers)]
            for kind, width in ("bar", 100), ("keep" if d.kept else "short", 100 * d.keep):
                parts.append(f'<rect class="{kind}" x="{x}" y="{below - 11}" width="{width:.0f}" height="10"/>')
            if d.coin is not None:
                tick = round(x + 100 * d.coin)
                parts.append(f'<line class="tick" x1="{tick}" x2="{tick}" y1="{below - 15}" y2="{below + 3}"/>')
        else:
            parts.append(text(x, 86, "not looked at", "soft"))
    for i, (token, origin) in enumerate(zip(r.emitted, r.origins)):
        x = LEFT + WIDTH * i
        parts.append(box(encoder, x, below + 24, token, origin))
        if origin != "accepted":
            source = "residual" if origin == "corrected" else "target"
            parts.append(text(x, below + 48, f"a draw from the {source}", "soft"))
    return svg(LEFT + max(WIDTH * (len(r.drafted) + 1) + 60, 9 * len(unescape(before))), below + 60, parts)


def box(encoder, x, y, token, kind):
    """A token in a box."""
    rect = f'<rect class="box {kind}" x="{x}" y="{y - 16}" width="{WIDTH - 8}" height="22" rx="4"/>'
    return rect + text(x + 8, y, shown(encoder.decode([token])[:14]), "bold")


# ---- Both loops, as they were measured ----

SLOWER = 40  # times slower than in reality, so that one can watch it


def measured(n=5):
    """The encoder, and the runs and rounds of `python main.py --K 4`, plain and speculative: the median of n."""
    pair, series = load_pair("draft", "target"), []
    x = pair.encoder.encode(PROMPT)
    for _ in range(n):
        both = []
        for K in None, 4:
            rounds = []
            note = lambda r, rounds=rounds: rounds.append((r.emitted.tolist(), origins(r)))  # noqa: E731
            both.append((pair.decode(x, 154, K, on_round=note), rounds))
        series.append(both)
    return pair.encoder, *sorted(series, key=lambda both: both[0][0].seconds / both[1][0].seconds)[n // 2]


def wrapped(pieces, width):
    """Pieces (text, ...) in lines of at most so many characters, which end between words or where a piece says so."""
    words, lines, column = [], [[]], 0  # a word is one piece or several
    for piece in (part for text, *rest in pieces for part in ((t, *rest) for t in re.split("(\n)", text)) if part[0]):
        if not words or piece[0][0] in " \n" or words[-1][-1][0] == "\n":
            words.append([])
        words[-1].append(piece)
    for word in words:
        size = sum(len(text) for text, *_ in word)
        if word[0][0] == "\n" or (column + size > width and column):
            lines.append([])
            column = 0
        if word[0][0] != "\n":
            column += size
            lines[-1] += word
    return lines


def race(encoder, plain, fast):
    """A moving picture of both loops: still and complete where animations are off."""
    length = SLOWER * plain[0].seconds + 3  # seconds of one showing
    rules, parts, y = {}, [], 24
    for title, (run, rounds) in ("Target alone", plain), ("Draft and target", fast):
        pieces, end = [(PROMPT, "soft", 0.0)], run.seconds
        for (ids, where), seconds in zip(rounds, np.cumsum(run.lasted)):
            for id, origin in zip(ids, where):
                kind = origin if run.steps else ""
                pieces.append((encoder.decode([id]).replace("\n", " "), kind, seconds))
        parts.append(f'<text x="12" y="{y}"><tspan class="bold">{title}</tspan>')
        parts.append(f'<tspan class="soft" {at(end, length, rules)}>  {1000 * end:.0f} ms</tspan></text>')
        for line in wrapped(pieces, 88):
            y += 22
            spans = "".join(
                f'<tspan class="{kind}" {at(seconds, length, rules)}>{escape(text)}</tspan>'
                for text, kind, seconds in trimmed(line)
            )
            parts.append(f'<text x="12" y="{y}" class="mono">{spans}</text>')
        y += 36
    legend = ", ".join(f'<tspan class="{origin}">{meaning}</tspan>' for origin, meaning in LEGEND.items())
    note = f'<tspan class="soft">; {SLOWER} times slower than it was</tspan>'
    parts.append(f'<text x="12" y="{y}" class="small">{legend}{note}</text>')
    moving = "@media (prefers-reduced-motion: no-preference) {\n" + "\n".join(rules.values()) + "\n}"
    return svg(780, y + 16, [f"<style>{moving}</style>", *parts])


def trimmed(line):
    """A line without the space that it begins with."""
    return [(line[0][0].lstrip(), *line[0][1:]), *line[1:]] if line else line


def at(seconds, length, rules):
    """The class of what appears after so many seconds, for which a rule is added."""
    if seconds == 0:
        return ""
    begin, name = 100 * SLOWER * seconds / length, f"t{round(1e6 * seconds)}"
    hidden, seen = "{ fill-opacity: 0 }", "{ fill-opacity: 1 }"
    rules[name] = f"@keyframes {name} {{ 0%, {begin:.2f}% {hidden} {begin + 0.01:.2f}%, 100% {seen} }}"
    return f'style="animation: {name} {length:.1f}s infinite"'


# ---- Measured ----


def overlap(results):
    """Bars: the mean of sum min(p, q) for each draft, at each temperature of docs/acceptance.json."""
    drafts, height, parts = list(results["1"]), 15, []
    for share in 0, 0.5, 1:
        parts.append(text(120 + 400 * share, 20, f"{share:g}", "soft"))
        parts.append(f'<line x1="{120 + 400 * share}" x2="{120 + 400 * share}" y1="28" y2="{34 + 54 * len(drafts)}"/>')
    for i, draft in enumerate(drafts):
        parts.append(text(10, 62 + 54 * i, draft))
        for j, T in enumerate(results):
            share, y = results[T][draft]["overlap"], 34 + 54 * i + height * j
            parts.append(f'<rect class="T{j}" x="120" y="{y}" width="{400 * share:.0f}" height="{height - 2}"/>')
            parts.append(text(f"{126 + 400 * share:.0f}", y + 11, f"{share:.2f}", "soft small"))
    for j, T in enumerate(results):
        parts.append(f'<rect class="T{j}" x="{120 + 110 * j}" y="{46 + 54 * len(drafts)}" width="14" height="14"/>')
        parts.append(text(140 + 110 * j, 58 + 54 * len(drafts), f"T = {T}"))
    return svg(580, 72 + 54 * len(drafts), parts)


def prices(found):
    """Dots: what a rule adds per round, and how far it is from the target, as in docs/settled.md."""
    left, top, wide, high, parts = 50, 30, 480, 320, []
    for share in 0, 0.5, 1:
        y = top + high * (1 - share)
        parts.append(f'<line x1="{left}" x2="{left + wide}" y1="{y:g}" y2="{y:g}"/>')
        parts.append(text(10, y + 5, f"{share:g}", "soft"))
    for tokens in 1, 2, 3:
        x = left + wide * (tokens - 1) / 2
        parts.append(f'<line x1="{x:g}" x2="{x:g}" y1="{top}" y2="{top + high}"/>')
        parts.append(text(x - 4, top + high + 20, tokens, "soft"))
    parts.append(
        text(10, 18, "distance", "soft") + text(left + wide - 120, top + high + 40, "tokens per round", "soft")
    )
    kinds = {
        "`v": ("keep", "exact"),
        "le": ("T0", "leniency"),
        "ty": ("T1", "typical acceptance"),
        "re": ("T2", "relaxed"),
    }
    for name, far, tokens in found:
        place = f'cx="{left + wide * (tokens - 1) / 2:.1f}" cy="{top + high * (1 - far):.1f}"'
        parts.append(f'<circle class="{kinds[name[:2]][0]}" {place} r="6"><title>{name}</title></circle>')
    for i, (kind, meaning) in enumerate(kinds.values()):
        parts.append(f'<circle class="{kind}" cx="{left + wide + 30}" cy="{60 + 26 * i}" r="6"/>')
        parts.append(text(left + wide + 44, 65 + 26 * i, meaning))
    return svg(left + wide + 190, top + high + 52, parts)


# ---- A terminal ----


def terminal(lines):
    """Lines of (text, kind) as on a terminal. Long texts are wrapped between words."""
    pieces = [wrapped(line, 100) if line else [[]] for line in lines]
    wide = [trimmed(piece) if n else piece for some in pieces for n, piece in enumerate(some)]
    parts, n = [], max(sum(len(text) for text, _ in line) for line in wide)
    for i, line in enumerate(wide):
        spans = "".join(f'<tspan class="{kind}">{escape(text)}</tspan>' for text, kind in line)
        parts.append(f'<text x="12" y="{24 + 20 * i}" class="mono">{spans}</text>')
    return svg(int(8.45 * n) + 24, 20 * len(parts) + 24, parts)


def demo(encoder, plain, fast):
    """The second half of what `python main.py --K 4` shows."""
    text = [("Text = " + PROMPT, "")]
    for ids, where in fast[1]:
        text += [(encoder.decode([id]), origin) for id, origin in zip(ids, where)]
    legend = [piece for origin, words in LEGEND.items() for piece in ((", ", ""), (words, origin))][1:]
    title = "Speculative Decode"
    lines = [[("$ python main.py --K 4", "bold")], [("...", "soft")], [], [(title, "")], [("-" * len(title), "")], text]
    lines += [[(f"Time = {fast[0].seconds:.2f}s", "")], [("Colours: ", ""), *legend], []]
    lines += [[(line, "")] for line in printed(figures(plain[0], fast[0], "K = 4")).split("\n")]
    return terminal(lines)


def grader():
    """`python -m exercise`, for a solution of two steps, one of which is wrong."""
    solutions = [lambda p, q, token, rng: rng.random() < q[token] / p[token], lambda p, q: q]
    lines = [[("$ python -m exercise", "bold")]]
    for i, step in enumerate(STEPS[:3]):
        found, is_exact = graded(step, solutions[i], "") if i < 2 else (["not written yet"], None)
        kind = {True: "accepted", False: "wrong", None: ""}[is_exact]
        lines.append([(f"{i + 1} {step.function:10}", ""), (found[0], kind)])
        lines += [[("    " + line, "")] for line in found[1:]]
    return terminal(lines)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    (ROOT / "docs" / "tree.svg").write_text(tree(), encoding="utf-8")
    (ROOT / "docs" / "round.svg").write_text(a_round(), encoding="utf-8")
    results = json.loads((ROOT / "docs" / "acceptance.json").read_text(encoding="utf-8"))["results"]
    (ROOT / "docs" / "overlap.svg").write_text(overlap(results), encoding="utf-8")
    (ROOT / "docs" / "prices.svg").write_text(prices(settled.prices()), encoding="utf-8")
    (ROOT / "docs" / "exercise.svg").write_text(grader(), encoding="utf-8")
    runs = measured()
    (ROOT / "docs" / "race.svg").write_text(race(*runs), encoding="utf-8")
    (ROOT / "docs" / "terminal.svg").write_text(demo(*runs), encoding="utf-8")
