"""Ways to get speculative sampling wrong, each with its exact distance from the target.

    python -m gallery.write  # writes the tables into docs/exactness.md and docs/drafts.md

Most look right, and some rules that look wrong are exact. Nearly all are small edits of
`verify`, `propose` and other functions of this project: what is right, and what somebody
wrote in its place. GROUPS, below, leads from a heading of docs/exactness.md to the file of
its rules, and lossy.py has those that are wrong on purpose. A rule is three lines:

    entry("from-target", "resamples from the target",
      ("residual(p[i], q[i])", "q[i]"),
      seen="ccs96307/fast-llm-inference")

seen names a repository or, as "vllm-project/vllm#18902", a thread. The page links both.

Every variant decodes texts of three tokens after A, with K = 2. The rows are Fractions,
so the distances are exact, but for three rules with an exp or a Φ.
"""

import fast  # noqa: F401  # before NumPy, so that BLAS leaves the cores to it
from gallery import (
    acceptance,
    blocks,
    bonus,
    context,
    draft,
    ends,
    exact,
    grammar,
    kept,
    noise,
    penalties,
    resampling,
    trees,
    truncation,
)
from gallery.setting import EOS, SETTING, P, Q, Setting, draft_model, target_model  # noqa: F401

GROUPS = {
    "The acceptance": acceptance.VARIANTS,
    "Resampling and the bonus": resampling.VARIANTS + bonus.VARIANTS,
    "Block verification": blocks.VARIANTS,
    "The draft's p": draft.VARIANTS,
    "Rows and their context": context.VARIANTS,
    "Penalties": penalties.VARIANTS,
    "Temperature and truncation": truncation.VARIANTS,
    "Grammars and forced tokens": grammar.VARIANTS,
    "Guesses withdrawn, kept or cut": kept.VARIANTS,
    "Noise and seeds": noise.VARIANTS,
    "The end of the text": ends.VARIANTS,
}
EXACT_GROUPS = {"Another check": exact.CHECKS, "Other guesses": exact.GUESSES}
WRONG = [variant for group in GROUPS.values() for variant in group]
EXACT = [variant for group in EXACT_GROUPS.values() for variant in group]
TREES = trees.VARIANTS
GALLERY = {variant.id: variant for variant in [*WRONG, *EXACT, *TREES]}
