"""Tables in Markdown of the gallery.

    python -m gallery.write  # writes them into the pages

Everything is computed for the pair of gallery/setting.py, except where another is named.
"""

import difflib
import textwrap

from gallery import EXACT_GROUPS, GALLERY, GROUPS, TREES, WRONG
from gallery.lossy import prices
from gallery.variant import REPOSITORY, Variant, edited_source, replacements
from terminal.table import table

HEADER = ["bug", "code", "where", "distance"]
N_WORST = 4
NOTES = {  # what a reader of a group needs beside its table
    "The acceptance": 'In "u <= ratio", u is one of 0, .1, ... .9, because a real number is '
    "never exactly 0.",
    "Resampling and the bonus": "`without(row, token)` leaves a token out and normalises the rest.",
    "Block verification": "`verify_block`, with w and h, is in [lab/block.py](../lab/block.py).",
    "Rows and their context": "The recurrent state is the sum of all tokens that were read, and it "
    "chooses the row.",
    "Penalties": "The penalty halves a token's probability each time that the token occurs, in "
    "`penalised_rows` of [penalties.py](../gallery/penalties.py).",
    "Temperature and truncation": "`change(row)` sets a temperature or truncates, in "
    "`truncated_rows` of [truncation.py](../gallery/truncation.py). XTC flips a coin: "
    "with tails, it removes all tokens with q ≥ 1/4 but the least probable of them.",
    "Grammars and forced tokens": "The grammar forbids A after a B: see `masked_rows` of "
    "[grammar.py](../gallery/grammar.py).",
    "Guesses withdrawn, kept or cut": "The code is in [kept.py](../gallery/kept.py).",
    "Noise and seeds": "`picked(row, u)` draws a token with a given number u.",
    "The end of the text": 'eos is C, and the stop sequence is "B C".',
}
FAMOUS = {
    "greedy-draft": "transformers, until "
    "[#33534](https://github.com/huggingface/transformers/pull/33534). "
    "The argmax is guessed with probability 1, so `verify` has to divide by 1. It divided by the "
    "draft's p of this token.",
    "from-row-after": "openvino.genai "
    "[#4190](https://github.com/openvinotoolkit/openvino.genai/issues/4190). "
    "That row is for the token that comes after the rejected one.",
    "one-noise": "vLLM, as an option up to release 0.28.0, "
    "[#54282](https://github.com/vllm-project/vllm/pull/54282). "
    "`picked` draws with that number again. It isn't random any more, because we know that it has "
    "picked the rejected guess.",
    "without-it": "EAGLE, until [#20](https://github.com/SafeAILab/EAGLE/issues/20). "
    "`without` sets the rejected token to 0 and leaves the others. The residual also subtracts p "
    "from the others, which makes no difference only if the guess had p = 1.",
}


def distance_text(distance):
    """0.2800 = 7/25, or without the fraction, if it is long. Exact rules have 0."""
    if distance == 0:
        return "0"
    short = f" = {distance}" if len(str(distance)) < 8 else ""
    return f"{float(distance):.4f}{short}"


def four(number):
    return "" if number is None else f"{float(number):.4f}"


def linked(seen):
    """Links for what seen names: a thread, "vllm-project/vllm#1", or a repository, "lab/engine"."""

    def link(match):
        repository, name, number = match.groups()
        if number is None:
            return f"[{repository}](https://github.com/{repository})"
        return f"[{name} #{number}](https://github.com/{repository}/issues/{number})"

    return REPOSITORY.sub(link, seen)


def code(text):
    """Code in a cell of a table, which a line break or a | would end."""
    line = " ".join(text.split())
    return f"`{line}`".replace("|", "\\|")


def replaced(old, new):
    """One place of an edit, in a cell of a table."""
    if not new:
        return f"without {code(old)}"
    first_line, *other_lines = new.split("\n")
    if other_lines and first_line == old:
        return f"after {code(old)}: {code(*other_lines)}"
    if other_lines and other_lines[-1].strip() == old:
        return f"before {code(old)}: {code(first_line)}"
    return f"{code(old)} → {code(new)}"


def change(variant):
    """What is wrong: the right code and the wrong one, or in words where it's no edit."""
    places = "<br>".join(replaced(old, new) for old, new in replacements(variant.edit))
    return ", ".join(filter(None, [places, variant.looks]))


def diff(variant):
    """A diff of an edit, with its red and its green lines."""
    right, wrong = (edited_source(variant.of, edit) for edit in ((), variant.edit))
    _, _, *lines = difflib.unified_diff(right.splitlines(), wrong.splitlines(), n=0)
    lines = [line for line in lines if not line.startswith("@@")]
    dedented = textwrap.dedent("\n".join(line[1:] for line in lines)).split("\n")
    marked = [line[0] + text for line, text in zip(lines, dedented)]
    return "\n".join(["```diff", *marked, "```"])


def as_diff(variant, source):
    """A variant with its name, its distance and a diff."""
    name = ", ".join(filter(None, [f"**{variant.name}**", variant.looks]))
    numbers = f"{name}: wrong by {distance_text(variant.distance)}."
    return f"{numbers} {source}".strip() + "\n\n" + diff(variant)


def line(variant):
    """A row of a table."""
    return [variant.name, change(variant), linked(variant.seen), distance_text(variant.distance)]


def by_distance(variants):
    return sorted(variants, key=lambda variant: -variant.distance)


def of_gallery():
    """The worst as diffs, and then the others by what is wrong."""
    worst = by_distance(WRONG)[:N_WORST]
    texts = ["### The worst"]
    texts += [as_diff(variant, f"Where: {linked(variant.seen)}") for variant in worst]
    for group, variants in GROUPS.items():
        lines = [line(variant) for variant in by_distance(variants) if variant not in worst]
        texts.append(f"### {group}")
        if group in NOTES:
            texts.append(NOTES[group])
        texts.append(table(HEADER, lines, n_left=3))
    return "\n\n".join(texts)


def of_trees():
    """The wrong rules, the worst first, and then the exact ones."""
    lines = [line(variant) for variant in by_distance(TREES) if not variant.exact]
    for variant in TREES:
        if variant.exact:
            name, *cells = line(variant)
            lines.append([f"{name} (exact)", *cells])
    return table(HEADER, lines, n_left=3)


def of_exact_rules():
    """The exact rules, with the tokens that a round adds."""
    header = ["exact rule", "code", "where", "tokens per round"]
    texts = []
    for group, variants in EXACT_GROUPS.items():
        lines = []
        for variant in sorted(variants, key=Variant.tokens_per_round):
            rate = four(variant.tokens_per_round())
            lines.append([variant.name, change(variant), linked(variant.seen), rate])
        texts += [f"### {group}", table(header, lines, n_left=3)]
    return "\n\n".join(texts)


def of_famous():
    """Four diffs for the README, each with who had it and why it is wrong."""
    variants = by_distance(GALLERY[id] for id in FAMOUS)
    return "\n\n".join(as_diff(variant, FAMOUS[variant.id]) for variant in variants)


def of_prices():
    """The table of lossy rules."""
    rows = [[name, distance_text(price), *map(four, rates)] for name, price, *rates in prices()]
    return table(["rule", "distance", "tokens per round", "a coin", "at best"], rows)
