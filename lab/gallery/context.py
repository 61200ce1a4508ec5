"""Rows of the target that have read another text, or that verify another position."""

from functools import partial

import numpy as np

from lab.gallery.names import without
from lab.gallery.setting import decode, plain, target_rows
from lab.gallery.variant import RATIO, V, Variant, edited
from speculative import verify


def own_continuation(setting, x, drafted):
    for _ in drafted:
        x = np.append(x, setting.target_model(x)[-1].argmax())
    return setting.target_model(x, len(drafted) + 1)


def reads_accepted_tokens_twice(setting, x, drafted):
    q = target_rows(setting, x, drafted)
    for i in range(len(drafted)):
        q[i] = setting.target_model([*x, *drafted[:i], *drafted[:i]])[-1]
    return q


def with_rejected(rng, setting, rows, **parts):
    """A `decode` whose rows also know which draft tokens were rejected so far."""
    rejected = []

    def rule(drafted, p, q, rng):
        emitted = verify(drafted, p, q, rng)
        rejected.extend(drafted[len(emitted) - 1 :])
        return emitted

    return decode(rng, setting, rule, rows=partial(rows, rejected=rejected))


def never_rolled_back(setting, x, drafted, rejected=()):
    """The sum of the tokens is a recurrent state."""
    return setting.target_model([*rejected, *x, *drafted], len(drafted) + 1)


def masked_rows(setting, x, drafted):
    """After token B, a grammar forbids A."""
    q = target_rows(setting, x, drafted)
    new = x[len(setting.prompt) :]
    for i, row in enumerate(q):
        if 1 in [*new, *drafted[:i]]:
            q[i] = without(row, 0)
    return q


LATE = ("[*new, *drafted[:i]]", "new")

VARIANTS = [
    V("first-row-for-all", "all verified with the first row",
      (RATIO, "acceptance(p[0, token], q[0, token])")),
    V("row-after", "row off by one",
      ("q[i, token]", "q[i + 1, token]", "residual(p[i], q[i])", "residual(p[i], q[i + 1])")),
    V("own-continuation", "rows of the target's own continuation", own_continuation, of=target_rows,
      looks="after its argmax, in place of the draft tokens"),
    V("context-twice", "accepted tokens twice in the context",
      reads_accepted_tokens_twice, of=target_rows,
      looks="the row that verifies a token has read those before it twice",
      seen="levvius/adaptive-speculative-decoding"),
    V("recurrent", "recurrent state not rolled back", never_rolled_back, of=target_rows,
      decode=with_rejected, looks="it has read the rejected tokens", seen="mlx-lm #846"),
    Variant("late-grammar", "grammar that waits for the next round", edit=LATE, of=masked_rows,
            rows=edited(masked_rows, LATE), own=partial(plain, rows=masked_rows),
            looks="so no draft token turns it on", seen="vLLM #36138"),
]  # fmt: skip
