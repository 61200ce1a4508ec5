"""Wrong ways to resample a rejected token."""

from gallery.names import without
from gallery.variant import ACCEPTED, RATIO, RESAMPLED, edited, entry
from speculative import propose

ACCEPT = "min(1, q / p)"  # as docs/play.html has it


greedy_draft = edited(propose, ("sample(p, rng)", "p.argmax()",
                                "rows.append(p)", "rows.append(one_hot(p))"))  # fmt: skip


def lacks_the_last_token(x, draft_model, k_max, rng):
    def small_draft(ids, n_rows=1):
        return [without(row, len(row) - 1) for row in draft_model(ids, n_rows)]

    return propose(x, small_draft, k_max, rng)


top_k_draft = edited(propose, ("sample(p, rng)", "sample(top_k(p), rng)"))


VARIANTS = [
    entry("from-target", "resamples from the target",
      ("residual(p[i], q[i])", "q[i]"),
      seen="ccs96307/fast-llm-inference", formula=(ACCEPT, "q")),
    entry("from-draft", "resamples from the draft",
      ("residual(p[i], q[i])", "p[i]"), formula=(ACCEPT, "p")),
    entry("from-row-after", "resamples from the row after",
      ("residual(p[i], q[i])", "q[i + 1]"),
      seen="openvinotoolkit/openvino.genai#4190; openvinotoolkit/openvino.genai#4490, open, "
           "would fix it"),
    entry("without-it", "removes the rejected token from q",
      ("residual(p[i], q[i])", "without(q[i], token)"),
      looks="right only with a greedy draft", seen="until SafeAILab/EAGLE#20"),
    entry("absolute", "absolute residual",
      ("residual(p[i], q[i])", "max_fn(abs(q[i] - p[i]))"), formula=(ACCEPT, "abs(q - p)")),
    entry("softmax", "softmax of the residual",
      ("residual(p[i], q[i])", "softmax(np.maximum(q[i] - p[i], 0))"),
      seen="unreleased, until huggingface/transformers#28508"),
    entry("shared-residual", "resamples from shared tokens alone",
      ("residual(p[i], q[i])", "shared_residual(p[i], q[i])"), propose=lacks_the_last_token,
      looks="where the draft lacks one of the target's", seen="taiyoo/speculative-decoding"),
    entry("whole-residual", "top-k draft, and the residual of all of p",
      (RATIO, "acceptance(top_k(p[i])[token], q[i, token])"), propose=top_k_draft,
      looks="where guesses are drawn from top_k(p[i])",
      seen="Yahtze/speculative-decoding"),
    entry("argmax-replaces", "argmax of the residual",
      (RESAMPLED, "residual(p[i], q[i]).argmax()"),
      seen="vllm-project/vllm-ascend#4443"),
    entry("target-argmax", "argmax of the target after a rejection",
      (RESAMPLED, "q[i].argmax()"),
      looks="on this pair the same as the argmax of the residual",
      seen="until July 2026, youngharold/tightwad"),
    entry("one-hot-redrawn", "one-hot draft, drawn again after a miss",
      (ACCEPTED, "sample(q[i], rng) == token", "residual(p[i], q[i])", "q[i]"),
      propose=greedy_draft, seen="romsto/Speculative-Decoding", formula=("q", "q")),
    entry("place-as-token", "a token's place in the sorted row, read as the token",
      (RESAMPLED, "sample(-np.sort(-residual(p[i], q[i])), rng)",
       "sample(q[-1], rng)", "sample(-np.sort(-q[-1]), rng)"),
      looks="so a greedy request writes A every time",
      seen="for greedy requests among others, vllm-project/vllm-ascend#16430"),
    entry("from-last-row", "resamples from the last row",
      ("residual(p[i], q[i])", "q[-1]"),
      seen="jordanmacintyre/specdecode; feared in tenstorrent/tt-xla#5542"),
    entry("keeps-rejected", "keeps the rejected token",
      ("drafted[:i]", "drafted[:i + 1]")),
]  # fmt: skip
