"""Penalties, temperatures and truncations on some of the rows, or for other tokens."""

from functools import partial

import numpy as np

from lab.gallery.context import with_rejected
from lab.gallery.names import HALF, colder, min_p, top_k, top_p
from lab.gallery.setting import plain, target_rows
from lab.gallery.variant import Variant, edited
from speculative import max_fn


def penalised(row, seen):
    """A row in which each time that a token was seen halves its probability."""
    counts = np.bincount(np.array(seen, dtype=int), minlength=len(row))
    return max_fn(row * [HALF**n for n in counts.tolist()])


def penalised_rows(setting, x, drafted):
    q = target_rows(setting, x, drafted)
    for i, row in enumerate(q):
        q[i] = penalised(row, [*x, *drafted[:i]])
    return q


def counts_rejected_tokens(setting, x, drafted, rejected=()):
    q = target_rows(setting, x, drafted)
    for i, row in enumerate(q):
        q[i] = penalised(row, [*x, *rejected, *drafted[:i]])
    return q


def truncated_rows(change, setting, x, drafted):
    """change(row) is a row at another temperature, or truncated."""
    q = target_rows(setting, x, drafted)
    return np.array([change(row) for row in q])


def both(row):
    return top_k(top_p(row))


def penalty(id, name, edit=(), seen="", **parts):
    if edit:
        parts |= {"rows": edited(penalised_rows, edit), "edit": edit, "of": penalised_rows}
    own = partial(plain, rows=penalised_rows)
    return Variant(id, name, seen=seen, own=own, step="penalised", **parts)


def truncation(id, name, edit, change, **parts):
    rows = partial(edited(truncated_rows, edit), change)
    own = partial(plain, rows=partial(truncated_rows, change))
    parts |= {"edit": edit, "of": truncated_rows, "rows": rows, "own": own}
    return Variant(id, name, **parts)


OTHER_ORDER = ("top_k(top_p(row))", "top_p(top_k(row))")

VARIANTS = [
    penalty("penalty-bonus", "penalty on the bonus only",
            ("enumerate(q)", "[*enumerate(q)][-1:]"),
            seen="defended in sglang #28242"),
    penalty("no-penalty-in-rounds", "no penalty in rounds with guesses",
            ("for i, row in enumerate(q):",
             "if len(drafted): return q\n    for i, row in enumerate(q):"),
            seen="vLLM #18902"),
    penalty("penalty-first-token", "penalty before the first token only",
            ("enumerate(q)", "enumerate(q[:1] if len(x) == len(setting.prompt) else [])"),
            seen="found in mlx-node #11"),
    penalty("penalty-before", "penalty of the round before",
            ("[*x, *drafted[:i]]", "x"),
            seen="sglang #22049"),
    penalty("penalty-all", "penalty of all draft tokens",
            ("drafted[:i]", "drafted"),
            seen="warned of in transformers #48281"),
    penalty("penalty-rejected", "penalty that keeps rejected tokens",
            rows=counts_rejected_tokens, decode=with_rejected,
            looks="they stay counted", seen="vmlx-swift #357"),
    penalty("penalty-last-token", "penalty for the last token in place of the draft tokens",
            ("*drafted[:i]", "*[x[-1]] * i"),
            seen="in the MTP branch, mlx-lm #1175"),
    truncation("temperature-bonus", "temperature or truncation for the bonus alone",
               ("[change(row) for row in q]", "[*q[:-1], change(q[-1])]"), colder,
               looks="here a temperature of 0.5",
               seen="keras-hub #2735, vLLM #10198, picolm #30, feared in vLLM #42744"),
    truncation("no-min-p-in-rounds", "temperature or truncation ignored in rounds with guesses",
               ("return np.array(", "if len(drafted): return q\n    return np.array("), min_p,
               looks="here min-p",
               seen="vLLM #38202, lattice #974"),
    Variant("other-order", "truncated in another order", edit=OTHER_ORDER, of=both,
            rows=partial(truncated_rows, edited(both, OTHER_ORDER)),
            own=partial(plain, rows=partial(truncated_rows, both)),
            looks="where autoregressive sampling has top-p first", seen="sglang #36173"),
]  # fmt: skip
