"""Temperatures and truncations on some of the rows, or twice."""

from functools import partial

import numpy as np

from gallery.names import colder, min_p, top_k, top_p
from gallery.setting import plain, target_rows
from gallery.variant import DECODE, RATIO, RESAMPLED, Place, Variant, edited, entry
from speculative import verify


def truncated_rows(change, setting, x, drafted):
    """change(row) is a row at another temperature, or truncated."""
    q = target_rows(setting, x, drafted)
    return np.array([change(row) for row in q])


def truncated_twice(row):
    return top_k(top_p(row))


def all_rows(change):
    """The parts of a variant whose rows are right."""
    rows = partial(truncated_rows, change)
    return {"rows": rows, "reference": partial(plain, rows=rows)}


def truncation(id, name, edit, change, **parts):
    parts |= all_rows(change) | {"edit": edit, "of": truncated_rows}
    parts["rows"] = partial(edited(truncated_rows, edit), change)
    return Variant(id, name, **parts)


TRUNCATED_TWICE = Place(
    truncated_twice,
    lambda rule: all_rows(truncated_twice) | {"rows": partial(truncated_rows, rule)},
)

# ---- XTC, a truncation that flips a coin for each position ----

XTC_BONUS = ("sample(q[-1], rng)", "sample(xtc(q[-1], rng.random()), rng)")
xtc_text = partial(plain, verify=edited(verify, XTC_BONUS))
xtc_rule = partial(entry, reference=xtc_text, step="")

VARIANTS = [
    truncation("temperature-bonus", "temperature or truncation for the bonus alone",
               ("[change(row) for row in q]", "[*q[:-1], change(q[-1])]"), colder,
               looks="here a temperature of 0.5",
               seen="since keras-team/keras-hub#2735; until vllm-project/vllm#10198; "
                    "RightNow-AI/picolm#30; feared in vllm-project/vllm#42744, "
                    "which vllm-project/vllm#42802, open, would fix"),
    truncation("temperature-but-bonus", "temperature or truncation for all but the bonus",
               ("return np.array(",
                "if len(drafted): return np.array([*map(change, q[:-1]), q[-1]])\n"
                "    return np.array("), colder,
               looks="here a temperature of 0.5",
               seen="SafeAILab/EAGLE, until April 2025; hemingkx/Spec-Bench"),
    truncation("no-min-p-in-rounds", "temperature or truncation ignored in rounds with guesses",
               ("return np.array(", "if len(drafted): return q\n    return np.array("), min_p,
               looks="here min-p",
               seen="a logit bias in vllm-project/vllm#38202, and until "
                    "sgl-project/sglang#11555; in code that isn't served yet, "
                    "until ohdearquant/lattice#974"),
    entry("first-argmax", "first token of a text is the argmax",
      ("while len(x)",
       "x = np.append(x, setting.target_model(x)[-1].argmax())\n    while len(x)"), of=DECODE,
      looks="which the pass over the prompt has at hand", seen="fixed in Luce-Org/lucebox#374"),
    xtc_rule("xtc-emitted", "XTC on what is emitted, not on the test",
             (RESAMPLED, "sample(xtc(residual(p[i], q[i]), rng.random()), rng)", *XTC_BONUS),
             seen="until jundot/omlx#3084"),
    xtc_rule("xtc-round", "XTC with one coin for a round",
             ("for i, token in enumerate(drafted):",
              "u = rng.random()\n    q = np.array([xtc(row, u) for row in q])\n"
              "    for i, token in enumerate(drafted):")),
    xtc_rule("xtc-again", "XTC whose coin is flipped again after a rejection",
             (RATIO, "acceptance(p[i, token], xtc(q[i], rng.random())[token])",
              "residual(p[i], q[i])", "residual(p[i], xtc(q[i], rng.random()))", *XTC_BONUS)),
    entry("softmax-again", "softmax of what is a distribution already",
      ("q[i, token]", "softmax(q[i])[token]",
       "residual(p[i], q[i])", "residual(p[i], softmax(q[i]))"),
      seen="until vllm-project/vllm-ascend#6685"),
    entry("other-order", "truncated in another order",
      ("top_k(top_p(row))", "top_p(top_k(row))"), of=TRUNCATED_TWICE,
      looks="while the plain loop has top-p first",
      seen="sgl-project/sglang#36173, closed unmerged; with top-p and temperature, "
           "since vllm-project/tpu-inference#1385"),
    entry("residual-truncated", "residual truncated again",
      ("residual(p[i], q[i])", "top_p(residual(p[i], q[i]))"), **all_rows(top_p), step="",
      looks="although q was truncated already", seen="tyshiwo1/Accelerating-T2I-AR-with-SJD"),
    entry("colder-after-rejection", "temperature twice after a rejection",
      ("residual(p[i], q[i])", "residual(p[i], colder(q[i]))"), **all_rows(colder), step="",
      looks="because logits are divided in place", seen="OptimalScale/LMFlow"),
]  # fmt: skip
