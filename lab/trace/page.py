"""A page about a run: its text, its time line, and every round. It needs no other file."""

import codecs
from html import escape
from pathlib import Path
from string import Template

from terminal.text import LEGEND

SHOWN = str.maketrans(" \n\t", "·⏎⇥")  # for white space in a token that stands alone
# Characters that HTML does not allow: control characters but \t and \n, and two more
FORBIDDEN = [*range(9), *range(11, 32), *range(127, 160), 0xFFFE, 0xFFFF]
PLAY = ' <a href="play.html">Play with one token.</a>'
ADDED = {"resampled": "from the residual", "bonus": "a bonus: nothing was rejected"}


def page(encoder, prompt, plain, fast, rounds, figures, temperature, command, beside_play=False):
    """The page as a text.

    prompt holds ids. plain and fast are `runs.Run`s without and with speculation, rounds
    those that `rounds.Recorder` noted, at least one. figures is what
    `terminal.figures.figures` returns. beside_play says that play.html is in the same folder.
    """
    parts = {"play": PLAY if beside_play else ""}
    parts["css"] = read("page.css")
    parts["js"] = read("page.js")
    parts["command"] = as_html(command, {})
    longest = max(plain.seconds, fast.seconds)
    for name, run in ("plain", plain), ("fast", fast):
        parts[f"{name}_passes"] = len(run.round_seconds)
        parts[f"{name}_seconds"] = f"{run.seconds:.2f}"
        parts[f"{name}_boxes"] = "".join(boxes(run, 1000 / longest, name == "fast"))
    parts["draft_steps"] = len(fast.draft_seconds)
    legend = [f'<span class="{origin}">{meaning}</span>' for origin, meaning in LEGEND.items()]
    parts["legend"] = " ".join(legend)
    parts["prompt"] = as_html(encoder.decode(prompt), {})
    parts["text"] = text(encoder, rounds)
    parts["rounds"] = "".join(card(encoder, i, r) for i, r in enumerate(rounds, start=1))
    parts["speedup"] = f"{figures['speedup'].text}, at temperature {temperature:g}"
    parts["figures"] = "".join(term(label, figure) for label, figure in figures.items())
    return Template(read("page.html")).substitute(parts)


def check_can_be_written(path):
    """OSError if no page can be written there, before anything takes time."""
    beside = Path(f"{path}.part")
    beside.touch()
    beside.unlink()


def write_page(path, content):
    """Write a page beside path, which it then replaces: half of it is never there."""
    beside = Path(f"{path}.part")
    try:
        beside.write_text(content, encoding="utf-8", errors="replace")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def read(name):
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def term(label, figure):
    return f"<dt>{label}</dt><dd><b>{escape(figure.text)}</b> {figure.meaning}</dd>\n"


def as_html(text, marks=SHOWN):
    """A text as HTML, with these marks, and with � for what HTML does not allow."""
    allowed = dict.fromkeys(FORBIDDEN, "\ufffd")
    return escape(text.translate(allowed | marks))


def text(encoder, rounds):
    """The decoded tokens, each a link to its round, and ◦ where it completes no character."""
    characters = codecs.getincrementaldecoder("utf-8")(errors="replace")
    links = []
    for i, r in enumerate(rounds, start=1):
        for token, origin in zip(r.emitted, r.origins):
            piece = as_html(characters.decode(encoder.bytes_of([token])), {}) or "◦"
            links.append(f'<a class="{origin}" href="#round-{i}" data-round="{i}">{piece}</a>')
    return "".join(links)


def alone(encoder, token):
    """A token by itself."""
    return f"<bdi>{as_html(encoder.decode([token]))}</bdi>"


def number(x):
    return f"{x:.3f}" if x >= 0.01 or x == 0 else f"{x:.3g}"


def bar(share, tick=""):
    filled = f'<b style="width:{100 * share:.1f}%"></b>' if share else ""
    return f'<span class="bar">{filled}{tick}</span>'


def card(encoder, i, r):
    """A round: what was guessed, what became of it, and what was added."""
    n_accepted = r.origins.count("accepted")
    head = f"{n_accepted} of {len(r.drafted)} accepted" if r.drafted else "nothing guessed"
    parts = [f'<article id="round-{i}" data-round="{i}" tabindex="0"><h3>Round {i}: {head}</h3>\n']
    if r.drafted:
        names = "guess", "p", "q", "min(1, q/p)", "u", ""
        parts.append(f"<table>{table_row('th', names)}")
        for position, guess in enumerate(r.looked_at):
            parts.append(drafted_row(encoder, guess, position < n_accepted))
        parts.append("</table>\n")
    skipped = [f"<s>{alone(encoder, guess.token)}</s>" for guess in r.drafted[len(r.looked_at) :]]
    if skipped:
        parts.append(f'<p class="skipped">not looked at: {" ".join(skipped)}</p>\n')
    parts.append(added(encoder, r))
    if r.top:
        marks = {r.drafted[n_accepted].token: "rejected", r.emitted[-1]: "resampled"}
        bars = [tops(encoder, name, top, marks) for name, top in r.top.items()]
        parts.append(f'<div class="top">{"".join(bars)}</div>\n')
    return "".join([*parts, "</article>\n"])


def added(encoder, r):
    """What the target added to a round."""
    origin = r.origins[-1]
    if origin == "accepted":
        return "<p>The text ends with this token.</p>\n"
    why = ADDED[origin] if r.drafted else "added by the target"
    return f'<p>+ <b class="{origin}">{alone(encoder, r.emitted[-1])}</b> {why}</p>\n'


def table_row(tag, cells, kind=""):
    content = "".join(f"<{tag}>{cell}</{tag}>" for cell in cells)
    return f"<tr{kind}>{content}</tr>\n"


def drafted_row(encoder, guess, in_text):
    """A guess: probabilities, the random number u, a bar with a tick at u, and the verdict."""
    sign = "&lt;" if guess.is_accepted else "≥"
    verdict = "accepted" if guess.is_accepted else "rejected"
    after = ", after the end" if guess.is_accepted and not in_text else ""
    tick = f'<i style="left:{100 * guess.u:.0f}%"></i>'
    cells = [alone(encoder, guess.token), *map(number, guess.probabilities)]
    cells += [number(guess.acceptance), f"{number(guess.u)} {sign}"]
    cells.append(f"{bar(guess.acceptance, tick)} {verdict}{after}")
    return table_row("td", cells, f' class="{verdict}"')


def tops(encoder, name, top, marks):
    """The most probable tokens of a row, and those in marks, {token: class}."""
    parts = [f"<div><h4>{name}</h4>"]
    for token, share in top:
        kind = marks.get(token, "")
        content = f"{alone(encoder, token)}{bar(share)}{number(share)}"
        parts.append(f'<p class="{kind}">{content}</p>')
    return "".join([*parts, "</div>\n"])


def boxes(run, scale, is_linked):
    """Boxes as wide as what they stand for took, round by round."""
    steps = iter(run.draft_seconds)
    begin = 0.0
    rounds = zip(run.n_drafted, run.round_seconds, run.target_seconds)
    for i, (k, lasted, in_target) in enumerate(rounds, start=1):
        svg = box("rest", scale * begin, scale * lasted)
        x = begin
        for _ in range(k):
            step = next(steps)
            svg += box("draft", scale * x, scale * step)
            x += step
        svg += box("target", scale * x, scale * in_target)
        begin += lasted
        yield f'<g data-round="{i}">{svg}</g>' if is_linked else svg


def box(kind, x, width):
    return f'<rect class="{kind}" x="{x:.2f}" width="{width:.2f}" height="20"/>'
