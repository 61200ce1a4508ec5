"""Wrong ways to resample a rejected token."""

import numpy as np

from gallery.names import without
from gallery.setting import decode
from gallery.variant import ACCEPTED, DECODE, RESAMPLED, V, edited
from sampling import sample
from speculative import max_fn, propose, residual, verify

ACCEPT = "min(1, q / p)"  # as docs/play.html has it


greedy_draft = edited(propose, ("sample(p, rng)", "p.argmax()",
                                "rows.append(p)", "rows.append(one_hot(p))"))  # fmt: skip


def lacks_the_last_token(x, draft_model, k_max, rng):
    def small_draft(ids, n_rows=1):
        return [without(row, len(row) - 1) for row in draft_model(ids, n_rows)]

    return propose(x, small_draft, k_max, rng)


def changes_a_row_in_place(rng, setting, **parts):
    """The residual is computed in a row of a model that computes each row once, and keeps it."""
    kept = setting.Q.copy()
    indices = []

    def rows(setting, x, drafted):
        indices[:] = setting.index([*x, *drafted])[len(x) - 1 :]
        return kept[indices]

    def rule(drafted, p, q, rng):
        emitted = verify(drafted, p, q, rng)
        i = len(emitted) - 1
        if i < len(drafted):
            kept[indices[i]] = residual(p[i], q[i])
        return emitted

    return decode(rng, setting, rule, rows=rows)


def guesses_again(drafted, p, q, rng):
    """Nothing is added after a rejection.

    Rounds that add nothing go on until the first guess of one is accepted: a draw from min(p, q).
    """
    accepted = verify(drafted, p, q, rng)
    if len(accepted) > len(drafted):
        return accepted
    if len(accepted) > 1:
        return accepted[:-1]
    return [sample(max_fn(np.minimum(p[0], q[0])), rng)]


VARIANTS = [
    V("from-target", "resamples from the target",
      ("residual(p[i], q[i])", "q[i]"),
      seen="ccs96307/fast-llm-inference", formula=(ACCEPT, "q")),
    V("from-draft", "resamples from the draft",
      ("residual(p[i], q[i])", "p[i]"), formula=(ACCEPT, "p")),
    V("from-row-after", "resamples from the row after",
      ("residual(p[i], q[i])", "q[i + 1]"),
      seen="openvinotoolkit/openvino.genai#4190"),
    V("without-it", "removes the rejected token from q",
      ("residual(p[i], q[i])", "without(q[i], token)"),
      looks="right only with a greedy draft", seen="until SafeAILab/EAGLE#20"),
    V("absolute", "absolute residual",
      ("residual(p[i], q[i])", "max_fn(abs(q[i] - p[i]))"), formula=(ACCEPT, "abs(q - p)")),
    V("softmax", "softmax of the residual",
      ("residual(p[i], q[i])", "softmax(np.maximum(q[i] - p[i], 0))"),
      seen="unreleased, until huggingface/transformers#28508"),
    V("shared-residual", "resamples from shared tokens alone",
      ("residual(p[i], q[i])", "shared_residual(p[i], q[i])"), propose=lacks_the_last_token,
      looks="where the draft lacks one of the target's", seen="taiyoo/speculative-decoding"),
    V("argmax-replaces", "argmax of the residual",
      (RESAMPLED, "residual(p[i], q[i]).argmax()"),
      seen="vllm-project/vllm-ascend#4443"),
    V("target-argmax", "argmax of the target after a rejection",
      (RESAMPLED, "q[i].argmax()"),
      looks="on this pair the same as the argmax of the residual",
      seen="until July 2026, youngharold/tightwad"),
    V("one-hot-redrawn", "one-hot draft, drawn again after a miss",
      (ACCEPTED, "sample(q[i], rng) == token", "residual(p[i], q[i])", "q[i]"),
      propose=greedy_draft, seen="romsto/Speculative-Decoding", formula=("q", "q")),
    V("in-place", "changes a row in place", changes_a_row_in_place, of=DECODE,
      looks="the residual is computed in a row that the model keeps",
      seen="a kind of vllm-project/vllm#16952"),
    V("guesses-again", "nothing after a rejection", guesses_again,
      looks="and the next round guesses there again"),
    V("keeps-rejected", "keeps the rejected token",
      ("drafted[:i]", "drafted[:i + 1]")),
]  # fmt: skip
