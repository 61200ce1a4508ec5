"""Tokens that a grammar forbids, that are forced, or that come too soon."""

from functools import partial

from lab.gallery.context import last_token, with_notes
from lab.gallery.names import EOS, B, one_hot, without
from lab.gallery.setting import plain, target_rows
from lab.gallery.variant import V, Variant, edited
from speculative import propose


def masked_rows(setting, x, drafted):
    """After token B, a grammar forbids A."""
    q = target_rows(setting, x, drafted)
    new = x[len(setting.prompt) :]
    for i, row in enumerate(q):
        if B in [*new, *drafted[:i]]:
            q[i] = without(row, 0)
    return q


def forced_rows(setting, x, drafted):
    """The second new token must be B, as where thinking has to end."""
    q = target_rows(setting, x, drafted)
    n = len(x) - len(setting.prompt)
    for i, row in enumerate(q):
        if n + i == 1:
            q[i] = one_hot(row, B)
    return q


def long_rows(setting, x, drafted, noted=()):
    """The first two new tokens may not be C. noted has an entry for each round so far."""
    q = target_rows(setting, x, drafted)
    n = len(x) - len(setting.prompt)
    for i, row in enumerate(q):
        if n + i < 2:
            q[i] = without(row, EOS)
    return q


masked_text = partial(plain, rows=masked_rows)


def constraint(id, name, of, edit, **parts):
    """The edit changes the rows that the function `of` gives."""
    parts |= {"of": of, "edit": edit, "rows": edited(of, edit), "own": partial(plain, rows=of)}
    return Variant(id, name, **parts)


IN_ROUNDS = ("for i, row in enumerate(q):",
             "if len(drafted): return q\n    for i, row in enumerate(q):")  # fmt: skip

VARIANTS = [
    constraint("late-grammar", "grammar that waits for the next round", masked_rows,
               ("[*new, *drafted[:i]]", "new"),
               looks="so no draft token turns it on", seen="vLLM #36138"),
    constraint("grammar-bonus", "grammar that forgets the bonus", masked_rows,
               ("enumerate(q)", "enumerate(q[: max(1, len(drafted))])"),
               seen="behind a withdrawn guess, until vLLM #44297"),
    V("grammar-withdrawn", "forbidden draft token withdrawn",
      ("token = sample(p, rng)",
       "token = sample(p, rng)\n        if token == A and B in x: break"), of=propose,
      looks="harmless while guesses are greedy", rows=masked_rows, own=masked_text, step="",
      seen="vLLM #14702; resampled from the target in local-inference-lab #476"),
    constraint("forced", "forced token ignored in rounds with guesses", forced_rows, IN_ROUNDS,
               looks="here the second token must be B", seen="vLLM #39573"),
    constraint("rounds-for-tokens", "rounds counted in place of tokens", long_rows,
               ("n + i < 2", "len(noted) < 2"), decode=partial(with_notes, last_token),
               looks="where C is forbidden for two tokens", seen="sglang #33643"),
]  # fmt: skip
