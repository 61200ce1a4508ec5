"""The pictures in docs/, which `python -m studies.making.write` draws.

tree.svg is about the README's p and q, round.svg is a round of the bundled pair.
"""

import re
from html import escape
from math import prod
from statistics import mean

import numpy as np

from exercise.__main__ import STEPS, graded
from lab.page import number, shown
from lab.pair import load_pair
from lab.rounds import Recorder
from lab.tables import PAIRS
from runs import origins
from speculative import verify
from terminal import LEGEND, PROMPT, figures, printed

SLOWER = 40  # times slower than in reality, so that one can watch the race
STYLE = """<style>
text { font: 14px system-ui, sans-serif; fill: #1c1e21 } .page { fill: #fff } .soft { fill: #5c636b }
.bold { font-weight: 600 } line { stroke: #8a939d }
.box { stroke: #8a939d; fill: none } .box.accepted { fill: #d3f0d9 } .box.resampled { fill: #fbd5d2 }
.box.bonus { fill: #e6d8f8 } .bar { fill: #d5d9de } .keep { fill: #3f9b5b } .short { fill: #d2564c }
.T0 { fill: #3b6fb6 } .T1 { fill: #7d8790 } .T2 { fill: #e08a1e }
.mono { font: 14px ui-monospace, Menlo, Consolas, monospace; white-space: pre } .small { font-size: 13px }
.accepted { fill: #1a7f37 } .resampled { fill: #cf222e; text-decoration: underline } .bonus { fill: #8250df }
.wrong { fill: #cf222e } .rejected + text { text-decoration: line-through } .tick { stroke: #1c1e21; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
.accepted { fill: #3fb950 } .resampled { fill: #ff7b72 } .bonus { fill: #bc8cff } .wrong { fill: #ff7b72 }
text { fill: #e6e8ea } .page { fill: #16181b } .soft { fill: #a0a8b0 } .tick { stroke: #fff }
.box.accepted { fill: #1c4a2a } .box.resampled { fill: #6a2621 } .box.bonus { fill: #47306b } .bar { fill: #3a3f45 }
}
</style>"""


def text(x, y, content, kind=""):
    return f'<text x="{x:g}" y="{y:g}" class="{kind}">{content}</text>'


def line(x1, y1, x2, y2, kind=""):
    return f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'


def rect(kind, x, y, width, height, r=0):
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width:.0f}" height="{height}" rx="{r}"/>'


def svg(width, height, parts):
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    page = f'{STYLE}\n<rect class="page" width="100%" height="100%"/>\n'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n'
        + page
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def tree():
    """Each emitted probability is the product of what stands on its path, and they add up to q."""
    p, q = (row.tolist() for row in PAIRS[0])
    left = [max(b - a, 0) for a, b in zip(p, q)]
    short = lambda x: str(x) if x.denominator % 3 == 0 else f"{float(x):g}".lstrip("0")  # noqa: E731  # 1/3, but .2
    paths, masses, heights = [], [[], [], []], {}
    for guess, a in enumerate(p):
        keep = min(1, q[guess] / a)
        ends = [(guess, "accepted", a, keep)]
        ends += [
            (t, "rejected", a, 1 - keep, x / sum(left))
            for t, x in enumerate(left)
            if x and keep < 1
        ]
        for t, verdict, *shares in ends:
            drawn = f"{'ABC'[t]} {short(shares[2])}" if shares[2:] else ""
            product = f"{'ABC'[t]}: {' × '.join(map(short, shares))} = {short(prod(shares))}"
            path = f"{'ABC'[guess]} {short(a)}", f"{verdict} {short(shares[1])}", drawn, product
            for n in range(5):  # a node is as high as the mean of the ends behind it
                heights.setdefault(path[:n], []).append(48 + 30 * len(paths))
            paths.append(path)
            masses[t].append(prod(shares))
    assert [*map(sum, masses)] == q
    columns, names = (8, 38, 116, 236, 308), ("p", "min(1, q/p)", "residual", "emitted")
    parts = [text(x, 18, name, "soft") for x, name in zip(columns[1:], names)]
    for path in filter(None, heights):
        (begin, y), (end, below) = (
            (columns[len(node)], mean(heights[node])) for node in (path[:-1], path)
        )
        parts.append(
            line(begin + 9 * len("".join(path[-2:-1])), y, end - 6 * bool(path[-1]), below)
        )
        parts.append(text(end, below + 5, path[-1], "bold" * (len(path) == 4)))
    sums = (
        " = ".join(dict.fromkeys([" + ".join(map(short, some)), short(sum(some))]))
        for some in masses
    )
    parts.append(
        text(
            38, 58 + 30 * len(paths), "; ".join(map("{}: {}".format, "ABC", sums)) + ". This is q."
        )
    )
    return svg(480, 72 + 30 * len(paths), parts)


def a_round():
    """A round of `python main.py --temperature 1 --seed 3`: the first that accepts two tokens and rejects one."""
    pair = load_pair("draft", "target", temperature=1)
    encoder, recorder = pair.encoder, Recorder(np.random.default_rng(3), verify)
    run, rounds = (
        pair.decode(encoder.encode(PROMPT), 154, 4, recorder.rng, on_round=recorder),
        recorder.rounds,
    )
    i = next(
        i
        for i, r in enumerate(rounds)
        if r.origins.count("accepted") == 2 and r.origins[-1] == "resampled"
    )
    r, after = rounds[i], sum(len(later.emitted) for later in rounds[i:])
    before = "… " + shown(encoder.decode(run.ids[:-after][-9:]).lstrip(), {ord("\n"): "⏎"})

    def box(x, y, token, kind):
        return rect(f"box {kind}", x, y - 16, 74, 22, 4) + text(
            x + 8, y, shown(encoder.decode([token])[:8]), "bold"
        )

    x, below = (10, 96, 162, 228, 318, 374), 92 + 28 * len(r.drafted)
    parts = [
        text(10, 24, "text so far", "soft"),
        text(x[1], 24, before),
        text(10, below, "emitted", "soft"),
    ]
    parts += [
        text(*place, "soft")
        for place in zip(x, [58] * 5, ["drafted", "p", "q", "min(1, q/p)", "random u"])
    ]
    for i, d in enumerate(r.drafted):
        y, kind = 86 + 28 * i, "keep" if d.kept else "short"
        parts.append(box(10, y, d.token, "accepted" if d.kept else "rejected"))
        if i < len(r.looked_at):
            parts += [
                text(at, y, number(value))
                for at, value in zip(x[1:], [*d.probabilities, d.keep, d.u])
            ]
            parts += [rect("bar", x[5], y - 10, 60, 10), rect(kind, x[5], y - 10, 60 * d.keep, 10)]
            parts.append(line(x[5] + 60 * d.u, y - 14, x[5] + 60 * d.u, y + 4, "tick"))
        else:
            parts.append(text(x[1], y, "not looked at", "soft"))
    parts += [
        box(x[1] + 82 * i, below, *emitted) for i, emitted in enumerate(zip(r.emitted, r.origins))
    ]
    parts.append(text(x[1] + 82 * 2, below + 24, "a draw from the residual", "soft"))
    return svg(450, below + 36, parts)


def measured(n=5):
    """The encoder, and the runs and rounds of `python main.py --K 4`, plain and speculative: the median of n."""
    pair = load_pair("draft", "target")

    def decode(K):
        rounds = []
        x, note = (
            pair.encoder.encode(PROMPT),
            lambda r: rounds.append((r.emitted.tolist(), origins(r))),
        )
        return pair.decode(x, 154, K, on_round=note), rounds

    series = [(decode(None), decode(4)) for _ in range(n)]
    return pair.encoder, *sorted(series, key=lambda both: both[0][0].seconds / both[1][0].seconds)[
        n // 2
    ]


def wrapped(pieces, width):
    """Pieces (text, ...) in lines of at most so many characters, which end between words or where a piece says so."""
    words, lines, column = [], [[]], 0  # a word is one piece or several
    for piece in (
        part
        for text, *rest in pieces
        for part in ((t, *rest) for t in re.split("(\n)", text))
        if part[0]
    ):
        if not words or piece[0][0] in " \n" or words[-1][-1][0] == "\n":
            words.append([])
        words[-1].append(piece)
    for word in words:
        size = sum(len(text) for text, *_ in word)
        if word[0][0] == "\n" or (column + size > width and column):
            lines, column = [*lines, []], 0
        if word[0][0] != "\n":
            column += size
            lines[-1] += (
                word
                if lines[-1] or not lines[1:]
                else [(word[0][0].lstrip(), *word[0][1:]), *word[1:]]
            )
    return lines


def mono(y, pieces, style=lambda *rest: ""):
    """A line of pieces (text, kind, ...)."""
    spans = (
        f'<tspan class="{kind}"{style(*rest)}>{escape(text)}</tspan>'
        for text, kind, *rest in pieces
    )
    return f'<text x="12" y="{y}" class="mono">{"".join(spans)}</text>'


def race(encoder, plain, fast):
    """A moving picture of both loops: still and complete where animations are off."""
    length = SLOWER * plain[0].seconds + 3  # seconds of one showing
    rules, parts, y = {}, [], 24

    def at(seconds):
        """The style of what appears after so many seconds, for which a rule is added."""
        begin, name = 100 * SLOWER * seconds / length, f"t{round(1e6 * seconds)}"
        hidden, seen = "{ fill-opacity: 0 }", "{ fill-opacity: 1 }"
        rules[name] = (
            f"@keyframes {name} {{ 0%, {begin:.2f}% {hidden} {begin + 0.01:.2f}%, 100% {seen} }}"
        )
        return f' style="animation: {name} {length:.1f}s infinite"'

    for title, (run, rounds) in ("Target alone", plain), ("Draft and target", fast):
        pieces, end = [(PROMPT, "soft", 0.0)], run.seconds
        for (ids, where), seconds in zip(rounds, np.cumsum(run.round_seconds)):
            for id, origin in zip(ids, where):
                pieces.append(
                    (
                        encoder.decode([id]).replace("\n", " "),
                        origin if run.draft_seconds else "",
                        seconds,
                    )
                )
        parts.append(f'<text x="12" y="{y}"><tspan class="bold">{title}</tspan>')
        parts.append(f'<tspan class="soft"{at(end)}>  {1000 * end:.0f} ms</tspan></text>')
        for some in wrapped(pieces, 88):
            y += 22
            parts.append(mono(y, some, lambda seconds: at(seconds) if seconds else " "))
        y += 36
    legend = ", ".join(
        f'<tspan class="{origin}">{meaning}</tspan>' for origin, meaning in LEGEND.items()
    )
    note = f'<tspan class="soft">; {SLOWER} times slower than it was</tspan>'
    parts.append(f'<text x="12" y="{y}" class="small">{legend}{note}</text>')
    moving = (
        "@media (prefers-reduced-motion: no-preference) {\n" + "\n".join(rules.values()) + "\n}"
    )
    return svg(780, y + 16, [f"<style>{moving}</style>", *parts])


def overlap(results):
    """Bars: the mean of sum min(p, q) for each draft, at each temperature of docs/acceptance.json."""
    drafts, parts = list(results["1"]), []
    end = 34 + 54 * len(drafts)
    for x, share in (100, "0"), (250, "0.5"), (400, "1"):
        parts += [text(x, 20, share, "soft"), line(x, 28, x, end)]
    for j, T in enumerate(results):
        for i, draft in enumerate(drafts):
            share, y = results[T][draft]["overlap"], 34 + 54 * i + 15 * j
            parts.append(rect(f"T{j}", 100, y, 300 * share, 13))
            parts.append(text(106 + 300 * share, y + 11, f"{share:.2f}", "soft small"))
        parts += [
            rect(f"T{j}", 100 + 90 * j, end + 12, 14, 14),
            text(120 + 90 * j, end + 24, f"T = {T}"),
        ]
    parts += [text(10, 62 + 54 * i, draft) for i, draft in enumerate(drafts)]
    return svg(440, end + 38, parts)


def prices(found):
    """Dots: what a rule adds per round, and how far it is from the target."""
    parts = [text(10, 18, "distance", "soft"), text(300, 370, "tokens per round", "soft")]
    for x, y, share, tokens in (40, 330, 0, 1), (230, 180, 0.5, 2), (420, 30, 1, 3):
        parts += [text(10, y + 5, f"{share:g}", "soft"), text(x - 4, 350, tokens, "soft")]
        parts += [line(40, y, 420, y), line(x, 30, x, 330)]
    kinds = {
        "`verify": ("keep", "exact"),
        "leniency": ("T0", "leniency"),
        "cascade": ("short", "cascade"),
        "typical": ("T1", "typical"),
        "relaxed": ("T2", "relaxed"),
        "accepted": ("bar", "fixed rates"),
        "FLy": ("tick", "FLy"),
        "Entropy": ("bonus", "Entropy Verify"),
    }
    for name, far, tokens in found:
        kind, _ = kinds[re.match("`?[A-Za-z]+", name)[0]]
        place = f'cx="{40 + 190 * float(tokens - 1):.1f}" cy="{330 - 300 * float(far):.1f}"'
        parts.append(f'<circle class="{kind}" {place} r="6"><title>{name}</title></circle>')
    for i, (kind, meaning) in enumerate(kinds.values()):
        x = (36, 150, 290)[i % 3]
        y = 395 + 24 * (i // 3)
        parts += [f'<circle class="{kind}" cx="{x}" cy="{y}" r="6"/>', text(x + 12, y + 5, meaning)]
    return svg(440, 462, parts)


def terminal(lines, columns=100):
    """Lines of (text, kind) as on a terminal with so many columns. Long texts are wrapped between words."""
    wide = [some for pieces in lines for some in wrapped(pieces, columns)]
    n = max(sum(len(text) for text, _ in some) for some in wide)
    return svg(
        int(8.45 * n) + 24,
        20 * len(wide) + 24,
        [mono(24 + 20 * i, some) for i, some in enumerate(wide)],
    )


def demo(encoder, plain, fast):
    """The second half of what `python main.py --K 4` shows."""
    text = [("Text = " + PROMPT, "")]
    for ids, where in fast[1]:
        text += [(encoder.decode([id]), origin) for id, origin in zip(ids, where)]
    legend = [piece for origin, words in LEGEND.items() for piece in ((", ", ""), (words, origin))][
        1:
    ]
    title = "Speculative Decode"
    lines = [
        [("$ python main.py --K 4", "bold")],
        [("...", "soft")],
        [],
        [(title, "")],
        [("-" * len(title), "")],
        text,
    ]
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
        lines.append(
            [
                (f"{i + 1} {step.function:10}", ""),
                *((word, kind) for word in re.findall(" *[^ ]+", found[0])),
            ]
        )
        lines += [
            [(word, "") for word in re.findall(" *[^ ]+", "    " + line)] for line in found[1:]
        ]
    return terminal(lines, 48)
