"""The pictures in docs/, which `python -m studies.pages.write` draws.

tree.svg is about the README's p and q, round.svg is a round of the bundled pair.
"""

import re
import textwrap
from functools import partial
from html import escape
from itertools import groupby
from math import prod
from pathlib import Path

import numpy as np

from exercise.grading import graded
from exercise.steps import STEPS
from lab.disputes import PAIRS
from lab.pair import load_pair
from lab.theory import improvement
from lab.trace.page import shown
from lab.trace.rounds import Recorder
from runs import in_turns, origins
from speculative import acceptance, residual
from terminal.figures import figures, printed
from terminal.options import PROMPT
from terminal.text import LEGEND

SLOWER = 40  # times slower than in reality, so that one can watch the race
END = 1.5  # seconds: the race begins with its end, and holds it twice as long
K = 4
RACE = 70  # tokens: the demo's text, up to the end of a sentence
WIDE = 48  # characters on a line: a phone makes these pictures smaller, and 11 pixels can be read
STYLE = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
SVG = """<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" \
viewBox="0 0 {width} {height}" width="{width}" height="{height}">
<style>
{style}</style>
<rect class="page" width="100%" height="100%"/>
{parts}
</svg>
"""


def svg(width, height, parts):
    return SVG.format(width=width, height=height, style=STYLE, parts="\n".join(parts))


def picture(width, height):
    """For a function that yields the parts of a picture of this size."""
    return lambda draw: lambda *args: svg(width, height, draw(*args))


def text(x, y, content, kind=""):
    return f'<text x="{x:g}" y="{y:g}" class="{kind}">{content}</text>'


def line(x1, y1, x2, y2, kind=""):
    return f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'


def rect(kind, x, y, width, height, r=0):
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width:.0f}" height="{height}" rx="{r}"/>'


def dot(kind, x, y, title):
    place = f'cx="{x:.1f}" cy="{y:.1f}"'
    return f'<circle class="{kind}" {place} r="6"><title>{title}</title></circle>'


# ---- What the README shows ----

COLUMNS = 32, 100, 222, 290  # of the guess, the verdict, the draw, the token


@picture(450, 222)
def tree():
    """Each emitted probability is the product of what stands on its path, and they add up to q."""
    p, q = PAIRS[0]
    paths = []
    masses = {"A": [], "B": [], "C": []}

    def emit(token, *path):
        """A path: (name, probability) of the guess, the verdict and perhaps the draw."""
        shares = [share for _, share in path]
        masses[token].append(prod(shares))
        labels = [f"{name} {short(share)}" for name, share in path]
        factors = " × ".join(map(short, shares))
        end = f"{token}: {factors} = {short(prod(shares))}"
        paths.append([*labels, *[""] * (3 - len(path)), end])

    for guess in zip("ABC", p, q):
        name, share, wanted = guess
        keep = acceptance(share, wanted)
        emit(name, (name, share), ("accepted", keep))
        for other, left in zip("ABC", residual(p, q)):
            if keep < 1 and left > 0:
                emit(other, (name, share), ("rejected", 1 - keep), (other, left))

    for x, name in zip(COLUMNS, ("p", "min(1, q/p)", "residual", "emitted")):
        yield text(x, 18, name, "soft")
    yield from branches(paths, 8, 108, 48)
    sums = []
    for token, some in masses.items():
        terms = " + ".join(map(short, some))
        total = f" = {short(sum(some))}" if len(some) > 1 else ""
        sums.append(f"{token}: {terms}{total}")
    yield text(32, 208, f"{'; '.join(sums)}. This is q.")


def short(x):
    """1/3, but .2"""
    return str(x) if x.denominator % 3 == 0 else f"{float(x):g}".lstrip("0")


def branches(paths, x, y, top, depth=0):
    """Lines from (x, y) to the first label of each path, and on to those behind it.

    The ends of the paths stand below each other, the first one at top.
    """
    for label, some in groupby(paths, key=lambda path: path[depth]):
        some = list(some)
        begin = COLUMNS[depth]
        middle = top + 15 * (len(some) - 1)
        is_end = depth == 3
        yield line(x, y, begin - 6 if label else begin, middle)
        yield text(begin, middle + 5, label, "bold" if is_end else "")
        if not is_end:
            yield from branches(some, begin + 9 * len(label), middle, top, depth + 1)
        top += 30 * len(some)


ARROW = """<style>.arrow { marker-end: url(#head) }</style>
<marker id="head" viewBox="0 0 9 8" refX="9" refY="4" markerWidth="9" markerHeight="8"
markerUnits="userSpaceOnUse" orient="auto"><path class="tick" fill="none" d="M0 0 9 4 0 8"/>
</marker>"""


@picture(430, 286)
def laid_over():
    """p laid over q: both hold min(p, q). What p has beyond it is as much as q still lacks."""
    p, q = PAIRS[0]
    low = 162  # where bars stand; a probability of 1 would be 280 pixels high
    heights = {}
    for x, name, one, other in zip((16, 169, 322), "ABC", p, q):
        both = min(one, other)
        for word, kind, begin, end in (
            ("accepted", "box accepted", 0, both),
            ("rejected", "box", both, one),
            ("missing", "box resampled", both, other),
        ):
            if begin < end:
                top = low - 280 * float(end)
                height = 280 * float(end - begin)
                heights[f"{name} {word}"] = middle = top + height / 2
                yield rect(kind, x, top, 92, height)
                yield text(x + 4, middle + 5, f"{word} {short(end - begin)}")
        yield text(x, low + 18, name, "bold")
        yield text(x + 16, low + 18, f"p {short(one)}, q {short(other)}", "soft")
    yield ARROW
    begin = heights["B rejected"]  # the residual puts A or C in its place
    for token, x1, x2, share in zip("AC", (169, 261), (108, 322), residual(p, q)[::2]):
        end = heights[f"{token} missing"]
        yield line(x1, begin, x2, end, "tick arrow")
        yield text((x1 + x2) / 2 - 11, min(begin, end) - 4, short(share), "bold")
    lacks = sum(max(other - one, 0) for one, other in zip(p, q))
    for y, kind, words, share in (
        (214, "box accepted", "min(p, q), guessed and accepted", 1 - lacks),
        (238, "box", "p beyond q, guessed too often: rejected", lacks),
        (262, "box resampled", "q beyond p, missing: resampled", lacks),
    ):
        yield rect(kind, 16, y - 12, 16, 16)
        yield text(40, y + 1, f"{words}, in all {short(share)}")


STEPS_OF_THE_PROOF = (
    (0, "the target alone"),
    (2, "a round emitted two tokens"),
    (3, "the next one emitted one"),
    (5, "the last one emitted two"),
)


@picture(430, 206)
def rounds_of_the_proof():
    """Step 7 of tests/test_proof.py: P of the target alone become R of rounds, with K = 2."""
    for i, (n_done, words) in enumerate(STEPS_OF_THE_PROOF):
        y = 28 + 44 * i
        for place in range(5):
            name, kind = ("R", "box accepted") if place < n_done else ("P", "box")
            yield rect(kind, 12 + 40 * place, y - 18, 34, 26, 4)
            yield text(24 + 40 * place, y, name, "bold")
        end = min(n_done + 3, 5)
        if n_done < end:
            yield line(12 + 40 * n_done, y + 14, 6 + 40 * end, y + 14, "tick")
        yield text(222, y, words)
    yield text(12, 200, "underlined: what the next round replaces", "soft")


@picture(450, 240)
def a_round():
    """A round of `python main.py --temperature 1 --seed 52` with 2 accepted and 1 rejected."""
    pair = load_pair("draft", "target", temperature=1)
    recorder = Recorder(np.random.default_rng(52))
    prompt = pair.encoder.encode(PROMPT)
    run = pair.decode(prompt, 154, K, recorder.rng, on_round=recorder)
    i = 42  # whose probabilities are neither tiny nor 1
    n = len(prompt) + sum(run.n_emitted[:i])
    r = recorder.rounds[i]
    before = pair.encoder.decode(run.ids[n - 9 : n]).lstrip()

    def box(x, y, token, kind):
        name = shown(pair.encoder.decode([token])[:8])
        return rect(f"box {kind}", x, y - 16, 66, 22, 4) + text(x + 8, y, name, "bold")

    columns = 84, 140, 196, 290
    yield text(10, 24, "text so far", "soft")
    yield text(92, 24, "… " + shown(before, {ord("\n"): "⏎"}))
    yield text(10, 204, "emitted", "soft")
    yield text(10, 58, "guess", "soft")
    for x, name in zip(columns, ("p", "q", "min(1, q/p)", "random u")):
        yield text(x, 58, name, "soft")
    for y, d in zip((86, 114, 142, 170), r.drafted):
        yield box(10, y, d.token, "accepted" if d.kept else "rejected")
        if d.u is None:
            yield text(84, y, "not looked at", "soft")
            continue
        for x, value in zip(columns, (*d.probabilities, d.keep, d.u)):
            yield text(x, y, f"{value:.3f}")
        yield rect("bar", 338, y - 10, 32, 10)
        yield rect("keep" if d.kept else "T2", 338, y - 10, 32 * d.keep, 10)
        yield line(338 + 32 * d.u, y - 14, 338 + 32 * d.u, y + 4, "tick")
        yield text(376, y, "accepted" if d.kept else "rejected")
    for x, token, origin in zip((84, 158, 232), r.emitted, r.origins):
        yield box(x, 204, token, origin)
    yield text(232, 228, "resampled from the residual", "soft")


@picture(440, 346)
def speedup():
    """Dots: the speedup against K for two alphas, by `lab.theory.improvement`."""
    yield text(10, 18, "speedup", "soft")
    yield text(394, 308, "K", "soft")
    yield text(336, 154, "plain loop", "soft")
    for y, times in (270, 0), (160, 1), (50, 2):
        yield text(10, y + 5, times, "soft")
        yield line(36, y, 420, y)
    for K in 0, 4, 8, 12, 16:
        yield text(44 - 4 * len(str(K)) + 22 * K, 290, K, "soft")
    for kind, alpha, y in ("T0", 0.9, 90), ("T2", 0.6, 234):
        for K in range(1, 17):
            gain = improvement(alpha, K, c=0.1, v=1 + 0.1 * K, r=0.1)
            yield dot(kind, 44 + 22 * K, 270 - 110 * gain, f"K = {K}: {gain:.2f}")
        yield text(300, y, f"alpha = {alpha}", f"{kind} bold")
    yield text(36, 332, "if c = 0.1, v = 1 + 0.1 K and r = 0.1", "soft")


# ---- What other pages show ----


@picture(440, 558)
def overlap(results):
    """Bars: the mean of sum min(p, q) for each draft and temperature of docs/acceptance.json."""
    for x, share in (100, "0"), (250, "0.5"), (400, "1"):
        yield text(x, 20, share, "soft")
        yield line(x, 28, x, 520)
    for j, (T, drafts) in enumerate(results.items()):
        for i, found in enumerate(drafts.values()):
            share = found["overlap"]
            y = 34 + 54 * i + 15 * j
            yield rect(f"T{j}", 100, y, 300 * share, 13)
            yield text(106 + 300 * share, y + 11, f"{share:.2f}", "soft small")
        x = 100 + 90 * j
        yield rect(f"T{j}", x, 532, 14, 14)
        yield text(x + 20, 544, f"T = {T}")
    for i, draft in enumerate(drafts):
        yield text(10, 62 + 54 * i, draft)


KINDS = {  # the colour of a rule, by how its name begins
    "`verify": "keep", "leniency": "T0", "cascade": "short", "typical": "T1", "relaxed": "T2",
    "accepted": "bar", "FLy": "tick", "EARS": "box accepted", "top": "soft", "own": "box bonus",
    "two": "box",
}  # fmt: skip
NAMES = {  # of a dot of each colour, and how far from the dot it stands
    "`verify`": ("exact", -50, 0), "leniency, λ = 0.3": ("leniency", -16, 24),
    "cascade, α = 0.5": ("cascade", -66, 2), "typical, ε = 0.3, δ = 0.55": ("typical", 12, 5),
    "relaxed, N = 2, δ = 0.1": ("relaxed", 12, 5), "FLy, θ = 0.3, W = 1": ("FLy", 12, 8),
    "accepted at rates of 0.8 and 0.6": ("fixed rates", -86, -4), "EARS, τ = 0.3": ("EARS", 12, 8),
    "top-p 0.8, all of it accepted": ("all of top-p", -38, -12),
    "own draw, or q at least 0.5": ("own draw", 12, 5), "two drafts agree": ("two drafts", -80, 5),
}  # fmt: skip


@picture(440, 460)
def prices(found):
    """Dots: what a rule adds per round, and how far it is from the target. See exactness.md."""
    yield text(10, 18, "wrong by", "soft")
    yield text(300, 446, "tokens per round", "soft")
    for x, y, share, tokens in (40, 406, 0, 1), (230, 230, ".4", 2), (420, 54, ".8", 3):
        yield text(10, y + 5, share, "soft")
        yield text(x - 4, 426, tokens, "soft")
        yield line(40, y, 420, y)
        yield line(x, 30, x, 406)
    for name, far, tokens in found:
        kind = KINDS[re.match("`?[A-Za-z]+", name)[0]]
        x = 40 + 190 * float(tokens - 1)
        y = 406 - 440 * float(far)
        yield dot(kind, x, y, name)
        if name in NAMES:
            word, dx, dy = NAMES[name]
            yield text(x + dx, y + dy, word)


# ---- What a terminal shows ----


def measured(N=154):
    """Both loops of `python main.py --K 4`, for N tokens: a Run of the median turn, and its rounds.

    A round is a list of pieces (text, origin).
    """
    pair = load_pair("draft", "target")
    prompt = pair.encoder.encode(PROMPT)
    rounds = {"plain": [], "speculative": []}

    def noted(name, decode):
        def note(r):
            texts = [pair.encoder.decode([token]) for token in r.emitted]
            rounds[name].append([*zip(texts, origins(r))])

        return decode(on_round=note)

    decode = partial(pair.decode, prompt, N)
    loops = dict(zip(rounds, (decode, partial(decode, K))))
    for loop in loops.values():  # the first use of the weights is slow
        loop()
    return [*zip(in_turns(loops, noted), rounds.values())]


def wrapped(pieces, width):
    """Pieces (text, ...) -> lines of at most so many characters, each a list of pieces."""
    whole = "".join(text for text, *_ in pieces)
    lines = []
    end = 0
    for paragraph in whole.split("\n"):
        for part in textwrap.wrap(paragraph, width, break_on_hyphens=False) or [""]:
            begin = whole.index(part, end)
            end = begin + len(part)
            lines.append(between(pieces, begin, end))
    return lines


def between(pieces, begin, end):
    """What stands between two characters."""
    found = []
    for text, *rest in pieces:
        part = text[max(begin, 0) : max(end, 0)]
        if part:
            found.append((part, *rest))
        begin -= len(text)
        end -= len(text)
    return found


def mono(y, pieces):
    """A line of pieces (text, kind), or (text, kind, more attributes)."""
    spans = ""
    for text, kind, *more in pieces:
        spans += f'<tspan class="{kind}"{"".join(more)}>{escape(text)}</tspan>'
    return f'<text x="12" y="{y}" class="mono">{spans}</text>'


def race(plain, fast):
    """A moving picture of both loops: still and complete where animations are off.

    It begins with the end, so that nobody meets an empty picture.
    """
    length = SLOWER * plain[0].seconds + 2 * END  # seconds of one showing
    rules = {}
    parts = []
    y = 24

    def at(seconds):
        """The style of what appears after so many seconds, for which a rule is added."""
        name = f"t{round(1e6 * seconds)}"
        begin = 100 * SLOWER * seconds / length
        hidden, seen = "{ fill-opacity: 0 }", "{ fill-opacity: 1 }"
        steps = f"0%, {begin:.2f}% {hidden} {begin + 0.01:.2f}%, 100% {seen}"
        rules[name] = f"@keyframes {name} {{ {steps} }}"
        return f' style="animation: {name} {length:.1f}s {END - length:.1f}s infinite"'

    for title, (run, rounds) in ("Target alone", plain), ("Draft and target", fast):
        took = f'<tspan class="soft"{at(run.seconds)}>  {1000 * run.seconds:.0f} ms</tspan>'
        parts.append(f'<text x="12" y="{y}"><tspan class="bold">{title}</tspan>\n{took}</text>')
        pieces = [(PROMPT, "soft", " ")]
        for some, seconds in zip(rounds, np.cumsum(run.round_seconds)):
            for piece, origin in some:
                kind = origin if run.draft_seconds else ""
                pieces.append((piece.replace("\n", " "), kind, at(seconds)))
        for some in wrapped(pieces, WIDE):
            y += 20
            parts.append(mono(y, some))
        y += 36
    meanings = [f'<tspan class="{kind}">{meaning}</tspan>' for kind, meaning in LEGEND.items()]
    parts.append(f'<text x="12" y="{y}" class="small">{", ".join(meanings)}</text>')
    y += 20
    parts.append(text(12, y, f"played {SLOWER} times slower", "soft small"))
    moving = "\n".join(["@media (prefers-reduced-motion: no-preference) {", *rules.values(), "}"])
    return svg(430, y + 16, [f"<style>{moving}</style>", *parts])


def terminal(lines, n_columns=WIDE):
    """Lines of pieces (text, kind) as on a terminal."""
    wide = [some for pieces in lines for some in wrapped(pieces, n_columns)]
    n = max(sum(len(text) for text, _ in some) for some in wide)
    parts = [mono(24 + 20 * i, some) for i, some in enumerate(wide)]
    return svg(int(8.45 * n) + 24, 20 * len(wide) + 24, parts)


ELLIPSIS = [("...", "soft")]
HEAD = [
    [("$ python main.py --K 4", "bold")],
    ELLIPSIS,
    [],
    [("Speculative Decode", "")],
    [("------------------", "")],
]


def demo(plain, fast):
    """The second half of what `python main.py --K 4` shows, with the beginning of its text."""
    run, rounds = fast
    written = sum(rounds[:9], start=[("Text = " + PROMPT, "")])
    time = [(f"Time = {run.seconds:.2f}s", "")]
    legend = [("Colours: ", "")]
    for origin, words in LEGEND.items():
        legend += [(words, origin), (", ", "")]
    lines = [*HEAD, written, ELLIPSIS, time, legend[:-1], []]
    for row in printed(figures(plain[0], run, "K = 4")).split("\n"):
        row = re.sub(" (?=[c=] )|(?<==) ", "\xa0", row)  # no new line within K c = 0.49
        for part in textwrap.wrap(row, WIDE, subsequent_indent=" " * 18):
            lines.append([(part.replace("\xa0", " "), "")])
    return terminal(lines)


def grader():
    """`python -m exercise`, for a solution of two steps, one of which is wrong."""
    solutions = [lambda p, q, token, rng: rng.random() < q[token] / p[token], lambda p, q: q]
    found = [graded(step, solution, "") for step, solution in zip(STEPS, solutions)]
    found.append((["not written yet"], None))
    kinds = {True: "accepted", False: "wrong", None: ""}
    lines = [[("$ python -m exercise", "bold")]]
    for i, (step, (answer, is_exact)) in enumerate(zip(STEPS, found), start=1):
        verdict, *more = answer
        name = f"{i} {step.function:10}"
        for part in textwrap.wrap(verdict, 40, break_on_hyphens=False):
            lines.append([(name, ""), (part, kinds[is_exact])])
            name = " " * len(name)
        lines += [[(f"    {line}", "")] for line in more]
    return terminal(lines, 52)
