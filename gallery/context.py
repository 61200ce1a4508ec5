"""Rows of the target that have read another text, or that verify another position."""

from functools import partial

import numpy as np

from gallery.setting import decode, target_rows
from gallery.variant import RATIO, ROWS, entry
from speculative import verify


def from_the_beginning(setting, x, drafted):
    """The rows from the beginning of the text, so that row k of the text is for guess k."""
    q = setting.target_model(np.append(x, drafted), len(x) + len(drafted))
    return np.array([*q[: len(drafted)], q[-1]])


def with_notes(of_round, rng, setting, rows, **parts):
    """A `decode` whose rows get noted=..., all that of_round(drafted, emitted) has returned."""
    noted = []

    def rule(drafted, p, q, rng):
        emitted = verify(drafted, p, q, rng)
        noted.extend(of_round(drafted, emitted))
        return emitted

    return decode(rng, setting, rule, rows=partial(rows, noted=noted))


def rejected_tokens(drafted, emitted):
    return drafted[len(emitted) - 1 :]


def accepted_tokens(drafted, emitted):
    return emitted[:-1]


def last_token(drafted, emitted):
    return emitted[-1:]


def never_rolled_back(setting, x, drafted, noted=()):
    """The rows of a recurrent state, the sum of the tokens, that has read rejected ones, too."""
    return setting.target_model([*noted, *x, *drafted], len(drafted) + 1)


def lacks_accepted_tokens(setting, x, drafted, noted=()):
    """The rows of a state that lacks accepted guesses in a round without guesses."""
    if len(drafted):
        return target_rows(setting, x, drafted)
    return never_rolled_back(setting, x, drafted, noted=[-token for token in noted])


VARIANTS = [
    entry("first-row-for-all", "all verified with the first row",
      (RATIO, "acceptance(p[0, token], q[0, token])")),
    entry("row-after", "row off by one",
      ("q[i, token]", "q[i + 1, token]", "residual(p[i], q[i])", "residual(p[i], q[i + 1])")),
    entry("from-beginning", "rows counted from the beginning of the text", from_the_beginning,
      of=ROWS, looks="so the first row verifies the first guess, and so on",
      seen="openvinotoolkit/openvino_notebooks, at commit 612d3e0"),
    entry("recurrent", "recurrent state not rolled back", never_rolled_back, of=ROWS,
      decode=partial(with_notes, rejected_tokens), looks="so it has read the rejected tokens",
      seen="ml-explore/mlx-lm#846, vllm-project/tpu-inference#3178"),
    entry("lacks-accepted", "recurrent state that lacks accepted guesses", lacks_accepted_tokens,
      of=ROWS, decode=partial(with_notes, accepted_tokens), looks="in rounds without guesses",
      seen="vllm-project/vllm#52942"),
]  # fmt: skip
