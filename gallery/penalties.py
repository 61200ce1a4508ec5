"""Penalties on some of the rows, or for other tokens."""

from functools import partial

import numpy as np

from gallery.context import rejected_tokens, with_notes
from gallery.names import HALF
from gallery.setting import plain, target_rows
from gallery.variant import Place, entry
from speculative import max_fn


def penalised(row, tokens):
    """A row in which each time that a token was seen halves its probability."""
    counts = np.bincount(np.array(tokens, dtype=int), minlength=len(row))
    return max_fn(row * [HALF**n for n in counts.tolist()])


def penalised_rows(setting, x, drafted):
    """The rows q of a round, each penalised for the tokens before it."""
    q = target_rows(setting, x, drafted)
    for i, row in enumerate(q):
        q[i] = penalised(row, [*x, *drafted[:i]])
    return q


def counts_rejected_tokens(setting, x, drafted, noted=()):
    q = target_rows(setting, x, drafted)
    for i, row in enumerate(q):
        q[i] = penalised(row, [*x, *noted, *drafted[:i]])
    return q


penalised_text = partial(plain, rows=penalised_rows)


PENALISED = Place(
    penalised_rows, lambda rule: {"rows": rule, "reference": penalised_text, "step": "penalised"}
)
penalty = partial(entry, of=PENALISED)

VARIANTS = [
    penalty("penalty-bonus", "penalty on the bonus only",
            ("enumerate(q)", "[*enumerate(q)][-1:]"),
            seen="defended in sgl-project/sglang#28242"),
    penalty("no-penalty-in-rounds", "no penalty in rounds with guesses",
            ("for i, row in enumerate(q):",
             "if len(drafted): return q\n    for i, row in enumerate(q):"),
            seen="vllm-project/vllm#18902, until NVIDIA/TensorRT-LLM#17701"),
    penalty("penalty-first-token", "penalty before the first token only",
            ("enumerate(q)", "enumerate(q[:1] if len(x) == len(setting.prompt) else [])"),
            seen="found in mlx-node/mlx-node#11"),
    penalty("penalty-all", "penalty of all guesses",
            ("drafted[:i]", "drafted"),
            seen="warned of in huggingface/transformers#48281"),
    penalty("penalty-rejected", "penalty that keeps rejected tokens",
            counts_rejected_tokens, decode=partial(with_notes, rejected_tokens),
            looks="which stay counted", seen="osaurus-ai/vmlx-swift#357"),
    penalty("penalty-last-token", "penalty for the last token in place of the guesses",
            ("*drafted[:i]", "*[x[-1]] * i"),
            seen="in the MTP branch, ml-explore/mlx-lm#1175"),
    penalty("penalty-seed", "penalty that has not seen the last token of the text",
            ("[*x, *drafted[:i]]", "[*x[:-1], *drafted[:i]]"),
            seen="in review in Luce-Org/lucebox#374"),
    penalty("penalty-this-round", "penalty that sees the tokens of this round alone",
            ("[*x, *drafted[:i]]", "[x[-1], *drafted]"),
            looks="even those to come", seen="no_repeat_ngram in facebookresearch/LayerSkip"),
]  # fmt: skip
