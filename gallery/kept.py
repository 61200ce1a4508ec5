"""Guesses that are withdrawn, kept for the next round, or cut off."""

from functools import partial

import numpy as np

from gallery.names import HALF
from gallery.setting import decode
from gallery.variant import PROPOSE, Place, edited, entry
from speculative import propose, verify

# ---- A coin for each guess, tossed when it is drawn, and used by `verify` ----

stops_after = edited(propose, ("rows = []", "rows = []\n    rng.u = []", "rows.append(p)",
                                "rows.append(p)\n        rng.u.append(rng.random())\n"
                                "        if rng.u[-1] > HALF: break"))  # fmt: skip

# ---- Guesses after a rejected one begin the next round ----


def kept_first(kept, x, draft_model, k_max, rng):
    """`propose`, which begins with guesses [(token, p), ...]."""
    n = len(x)
    rows = []
    for token, p in kept[:k_max]:
        rows.append(p)
        x = np.append(x, token)
    new, p = propose(x, draft_model, k_max - len(rows), rng)
    return np.append(x[n:], new), np.array([*rows, *p])


def left(token, p, q, rng):
    """What becomes of a guess after a rejected one. q is the target's row at its position."""
    return token, p


def keeping(kept_first=kept_first, left=left):
    """A `decode` that keeps guesses."""

    def text(rng, setting, **parts):
        kept = []

        def rule(drafted, p, q, rng):
            tokens = verify(drafted, p, q, rng)
            after_rejected = slice(len(tokens), len(drafted))
            kept[:] = [
                left(*guess, rng)
                for guess in zip(drafted[after_rejected], p[after_rejected], q[after_rejected])
            ]
            return tokens

        return decode(rng, setting, rule, partial(kept_first, kept))

    return text


# ---- A round that is cut ----


def as_the_shortest(drafted, p, q, rng):
    """A batch keeps as many guesses as its worst sequence: in half of the rounds, none."""
    tokens = verify(drafted, p, q, rng)
    if len(tokens) > 1 and rng.random() < HALF:
        return tokens[:1]
    return tokens


LEFT = Place(left, lambda rule: {"decode": keeping(left=rule)})
KEPT_FIRST = Place(kept_first, lambda rule: {"decode": keeping(rule)})
SHORTEST = Place(as_the_shortest, lambda rule: {"verify": rule})

VARIANTS = [
    entry("withdraws-unsure", "withdraws an unsure guess",
      ("token = sample(p, rng)", "token = sample(p, rng)\n        if p[token] < UNSURE: break"),
      of=PROPOSE, looks="with UNSURE = 0.4"),
    entry("kept-new-row", "guess kept for the next round, with the row of its new context",
      ("rows.append(p)", "rows.append(draft_model(x)[-1])"), of=KEPT_FIRST),
    entry("batch-anew", "batch cut to its shortest, and drawn anew",
      ("return tokens[:1]", "return [sample(q[0], rng)]"), of=SHORTEST,
      looks="where the guess at the cut had been accepted"),
]  # fmt: skip
