"""Tokens that a grammar forbids, that are forced, or that come too soon."""

from functools import partial

from gallery.context import last_token, with_notes
from gallery.names import EOS, B, one_hot, without
from gallery.setting import plain, target_rows
from gallery.variant import PROPOSE, Place, entry


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


def constraint(rows):
    """An edit of these rows is wrong where plain sampling obeys them."""
    reference = partial(plain, rows=rows)
    return Place(rows, lambda rule: {"rows": rule, "reference": reference})


MASK, FORCED, LONG = map(constraint, (masked_rows, forced_rows, long_rows))

IN_ROUNDS = ("for i, row in enumerate(q):",
             "if len(drafted): return q\n    for i, row in enumerate(q):")  # fmt: skip

VARIANTS = [
    entry("late-grammar", "grammar that waits for the next round",
      ("[*new, *drafted[:i]]", "new"), of=MASK,
      looks="so a guess can't turn it on", seen="vllm-project/vllm#36138"),
    entry("grammar-bonus", "grammar that forgets the bonus",
      ("enumerate(q)", "enumerate(q[: max(1, len(drafted))])"), of=MASK,
      seen="behind a withdrawn guess, until vllm-project/vllm#44297; "
           "on other rows there, vllm-project/vllm#54442"),
    entry("grammar-withdrawn", "forbidden guess withdrawn",
      ("token = sample(p, rng)",
       "token = sample(p, rng)\n        if token == A and B in x: break"), of=PROPOSE,
      looks="harmless while guesses are greedy", **MASK.parts(masked_rows), step="",
      seen="vllm-project/vllm#14702; with a draw from q in its place, "
           "local-inference-lab/vllm#476"),
    entry("forced", "forced token ignored in rounds with guesses", IN_ROUNDS, of=FORCED,
      looks="here the second token must be B",
      seen="vllm-project/vllm#39573, closed as stale; in its V2 runner, vllm-project/vllm#44510"),
    entry("rounds-for-tokens", "rounds counted in place of tokens",
      ("n + i < 2", "len(noted) < 2"), of=LONG, decode=partial(with_notes, last_token),
      looks="where the first two tokens may not be C", seen="sgl-project/sglang#33643"),
]  # fmt: skip
