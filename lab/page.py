"""A page about a run: its text, its time line, and every round. One file of HTML, which needs no other file."""

import codecs
from html import escape
from pathlib import Path

from terminal import LEGEND

HERE = Path(__file__).parent
SHOWN = str.maketrans(" \n\t", "·⏎⇥")  # how white space is written in a token that stands alone
# What is shown for characters that HTML does not allow
PICTURES = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"}
PICTURES |= {0x7F: 0x2421} | dict.fromkeys([*range(0x80, 0xA0), 0xFFFE, 0xFFFF], 0xFFFD)
RULES = {  # by whether it is block verification
    False: "A guess is accepted if a random number is below min(1, q/p). The first one that is not is replaced by a "
    "draw from the residual: max(q - p, 0), normalised.",
    True: "Block verification begins at the last guess. If a random number is below its h, it is accepted with all "
    "guesses before it, and otherwise the guess before it is tried. w is the probability with which a guess and all "
    "before it should be kept, and h is chosen to reach it. What is not kept is replaced by a draw from the residual: "
    "max(w q - p, 0), normalised.",
}
MEANING = {
    "tokens per second": "Decoded tokens, divided by the time that it took to decode them.",
    "speedup": "Tokens per round, divided by the cost of a round.",
    "acceptance rate": "The share of the drafted tokens that is in the text. Guesses that were never looked at count "
    "as misses.",
    "alpha": "The mean probability that a guess is accepted if all guesses before it are.",
    "tokens per round": "Tokens added per pass of the target. The plain loop adds one.",
    "cost of a round": "A plain step is one token of the plain loop. c is a step of the draft, v the target's pass "
    "over K + 1 positions, r is drawing and accepting.",
    "same text": "At temperature 0 both loops decode the same tokens. Above, they draw two samples from one "
    "distribution.",
    "best K": "Each estimate comes from a few rounds, so the largest is usually too high.",
}
PLAY = ' <a href="play.html">Play with a single token.</a>'
ADDED = {"resampled": "drawn from the residual", "bonus": "a bonus: nothing was rejected"}


def page(encoder, prompt, plain, fast, rounds, figures, command, beside_play=False):
    """The page as a text.

    prompt holds ids. plain and fast are `runs.Run`s without and with speculation, rounds
    those of fast that `rounds.Recorder` kept, at least one. figures is what `terminal.figures` returns.
    beside_play says that play.html is in the same folder.
    """
    rows = "".join(
        f"<dt>{name}</dt><dd><b>{escape(value)}</b> {MEANING.get(name, '')}</dd>\n"
        for name, value in figures.items()
    )
    legend = " ".join(
        f'<span class="{origin}">{meaning}</span>' for origin, meaning in LEGEND.items()
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>Speculative sampling, round by round</title>
<style>
{(HERE / "page.css").read_text(encoding="utf-8")}</style>
</head>
<body>
<header>
<h1>Speculative sampling, round by round</h1>
<p class="command">{shown(command, {})}</p>
<p>In each round, the draft guesses some tokens, and one pass of the target checks all of them.
Point at a token, or use Tab, ← or →, to select its round.</p>
<p>p is the probability that the draft gives a token, and q the probability that the target gives it.
{RULES[rounds[0].is_block]}{PLAY * beside_play}</p>
</header>
<section class="time" aria-label="Time line">
{timeline(plain, fast)}
</section>
<main>
<section class="text" aria-label="Text">
<p class="legend">{legend}</p>
<p class="tokens" dir="auto"><span class="prompt">{shown(encoder.decode(prompt), {})}</span>{text(encoder, rounds)}</p>
</section>
<section class="rounds" aria-label="Rounds">
{"".join(card(encoder, i, r) for i, r in enumerate(rounds, start=1))}</section>
</main>
<section class="figures" aria-label="Figures">
<h2>The figures</h2>
<dl>
{rows}</dl>
</section>
<aside id="peek" hidden=""></aside>
<script>
{(HERE / "page.js").read_text(encoding="utf-8")}</script>
</body>
</html>
"""


def shown(text, marks=SHOWN):
    """A text as HTML, with these marks, and with other characters for those that HTML does not allow."""
    return escape(text.translate(PICTURES | marks))


def text(encoder, rounds):
    """The decoded tokens, each a link to its round. A token that completes no character is shown as ◦."""
    characters, links = codecs.getincrementaldecoder("utf-8")(errors="replace"), []
    for i, r in enumerate(rounds, start=1):
        for token, origin in zip(r.emitted, r.origins):
            piece = shown(characters.decode(encoder.bytes_of([token])), {}) or "◦"
            links.append(f'<a class="{origin}" href="#round-{i}" data-round="{i}">{piece}</a>')
    return "".join(links)


def alone(encoder, token):
    """A token by itself."""
    return f"<bdi>{shown(encoder.decode([token]))}</bdi>"


def number(x):
    if x is None:
        return "–"
    return f"{x:.3f}" if x >= 0.01 or x == 0 else f"{x:.3g}"


def bar(share, tick=""):
    return f'<span class="bar"><b style="width:{100 * share:.0f}%"></b>{tick}</span>'


def card(encoder, i, r):
    """A round: what was drafted, what became of it, and what was added."""
    n_accepted = r.origins.count("accepted")
    head = f"{n_accepted} of {len(r.drafted)} accepted" if r.drafted else "nothing drafted"
    parts = [f'<article id="round-{i}" data-round="{i}" tabindex="0"><h3>Round {i}: {head}</h3>\n']
    if looked_at := r.looked_at:
        names = [
            "drafted",
            "p",
            "q",
            *(["w", "h"] if r.is_block else ["min(1, q/p)"]),
            "random u",
            "",
        ]
        parts.append(f"<table><tr>{''.join(f'<th>{name}</th>' for name in names)}</tr>\n")
        parts += [drafted_row(encoder, d, place < n_accepted) for place, d in enumerate(looked_at)]
        parts.append("</table>\n")
    if skipped := r.drafted[len(looked_at) :]:
        tokens = " ".join(f"<s>{alone(encoder, d.token)}</s>" for d in skipped)
        parts.append(f'<p class="skipped">not looked at: {tokens}</p>\n')
    if (origin := r.origins[-1]) != "accepted":
        why = ADDED[origin] if r.drafted else "added by the target"
        parts.append(f'<p>+ <b class="{origin}">{alone(encoder, r.emitted[-1])}</b> {why}</p>\n')
    else:
        parts.append("<p>The text ends with this token.</p>\n")
    if r.top:
        marks = {r.drafted[n_accepted].token: "rejected", r.emitted[-1]: "resampled"}
        bars = "".join(
            f"<div><h4>{name}</h4>{tops(encoder, top, marks)}</div>\n"
            for name, top in r.top.items()
        )
        parts.append(f'<div class="top">{bars}</div>\n')
    return "".join([*parts, "</article>\n"])


def drafted_row(encoder, d, in_text):
    """One drafted token: probabilities, a bar for `keep` with a tick at the random number u, and the verdict."""
    u, tick = number(d.u), ""
    if d.u is not None:
        u += " &lt;" if d.u < d.keep else " ≥"
        tick = f'<i style="left:{100 * d.u:.0f}%"></i>'
    verdict = "accepted" if d.kept else "rejected"
    after = ", after the end" if d.kept and not in_text else ""
    numbers = map(number, [*d.probabilities, d.keep])
    share = "" if d.keep is None else bar(d.keep, tick)
    cells = [alone(encoder, d.token), *numbers, u, f"{share} {verdict}{after}"]
    return f'<tr class="{verdict}">{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>\n'


def tops(encoder, top, marks):
    """The most probable tokens of a row, and those in marks, {token: class}."""
    return "".join(
        f'<p class="{marks.get(token, "")}">{alone(encoder, token)}{bar(share)}{number(share)}</p>'
        for token, share in top
    )


def timeline(plain, fast):
    """Both loops, to one scale of time: each pass is a box as wide as the time that it took."""
    longest = max(plain.seconds, fast.seconds)

    def strip(name, boxes):
        return f'<svg viewBox="0 0 1000 20" preserveAspectRatio="none" role="img" aria-label="{name}">{boxes}</svg>\n'

    def box(kind, begin, seconds):
        x, width = 1000 * begin / longest, 1000 * seconds / longest
        return f'<rect class="{kind}" x="{x:.2f}" width="{width:.2f}" height="20"/>'

    def rounds(run):
        begin, steps = 0.0, iter(run.draft_seconds)
        for k, lasted, seconds in zip(run.n_drafted, run.round_seconds, run.target_seconds):
            now, boxes = begin, box("rest", begin, lasted)
            for kind, taken in [*(("draft", next(steps)) for _ in range(k)), ("target", seconds)]:
                boxes += box(kind, now, taken)
                now += taken
            yield boxes
            begin += lasted

    groups = (f'<g data-round="{i}">{boxes}</g>' for i, boxes in enumerate(rounds(fast), start=1))
    return f"""<p>Token by token: {len(plain.round_seconds)} passes of the target, {plain.seconds:.2f} s</p>
{strip("token by token", "".join(rounds(plain)))}<p>In rounds: {len(fast.round_seconds)} passes of the target and \
{len(fast.draft_seconds)} steps of the draft, {fast.seconds:.2f} s</p>
{strip("in rounds", "".join(groups))}<p class="legend"><span class="target">pass of the target</span>
<span class="draft">step of the draft</span> <span class="rest">drawing and accepting</span></p>"""
