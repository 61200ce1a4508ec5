"""Wrong ways to accept guesses."""

import math
from fractions import Fraction
from functools import partial
from types import SimpleNamespace

import numpy as np

from gallery.names import top_k
from gallery.setting import decode
from gallery.truncation import truncated_rows
from gallery.variant import ACCEPTED, RATIO, RESAMPLED, VERIFY, Place, Variant, edited, entry
from sampling import sample
from speculative import acceptance, residual, verify

REPLACED = "max(q - p, 0)"  # as docs/play.html has it


class OnAGrid:
    """A random number, one of 0, .1, ... .9, so that < and <= are not the same."""

    def __init__(self, rng):
        self.rng = rng

    def __lt__(self, a):
        return self.is_among(math.ceil(10 * a))

    def __le__(self, a):
        return self.is_among(math.floor(10 * a) + 1)

    def is_among(self, n):
        """Whether it is one of the first n."""
        return self.rng.random() < Fraction(n, 10)


def on_a_grid(rule):
    def tests(drafted, p, q, rng):
        grid = SimpleNamespace(random=lambda: OnAGrid(rng), choice=rng.choice)
        return rule(drafted, p, q, grid)

    return tests


def tests_all_before_it_looks(drafted, p, q, rng):
    passed = []
    for i, token in enumerate(drafted):
        passed.append(rng.random() < acceptance(p[i, token], q[i, token]))
    i = [*passed, False].index(False)
    row = residual(p[i], q[i]) if i < len(drafted) else q[i]
    return np.append(drafted[:i], sample(row, rng))


TESTS_ALL = Place(tests_all_before_it_looks, VERIFY.parts)
AT_MOST = ("rng.random() <", "rng.random() <=")
with_zeros = partial(truncated_rows, top_k)  # all but the two most probable tokens have q = 0

VARIANTS = [
    entry("accept-above", "accepts where q >= p",
      (ACCEPTED, "q[i, token] >= p[i, token]"), formula=("q >= p", REPLACED),
      looks="a threshold of 1 in place of u", seen="an option of NVIDIA/TensorRT-LLM"),
    entry("logits-compared", "accepts unless the draft's logit is larger",
      (ACCEPTED, "q[i, token] >= p[i, token]", "residual(p[i], q[i])", "q[i]"),
      looks="if both logits are normalised", seen="modular/modular, RejectionSampler"),
    entry("accept-q", "accepts with probability q",
      (RATIO, "q[i, token]")),
    entry("accept-q-max", "accepts with q / max q",
      (RATIO, "q[i, token] / q[i].max()", "residual(p[i], q[i])", "q[i]"),
      seen="1bit-MONSTER/1bit-MONSTER#637"),
    entry("accept-argmax", "accepts only the argmax",
      (ACCEPTED, "token == q[i].argmax()", "residual(p[i], q[i])", "q[i]"),
      seen="claimed in lablup/mlxcel#902; for its classic path taken back in lablup/mlxcel#992"),
    entry("upside-down", "ratio upside down",
      (RATIO, "acceptance(q[i, token], p[i, token])"),
      looks="if one takes Leviathan's p, the target, for Chen's, the draft",
      formula=("min(1, p / q)", REPLACED)),
    entry("lenient", "lenient acceptance",
      ("p[i, token]", "λ * p[i, token]"), looks="with λ = 0.8",
      seen="Leviathan et al. 2023, appendix A.5", formula=("min(1, q / (λ * p))", REPLACED)),
    entry("accept-all", "accepts everything",
      (ACCEPTED, "True"),
      looks="or a rejected guess is emitted all the same, in shorter rounds, because p is NaN",
      seen="huggingface/transformers#28508, vllm-project/vllm-ascend#13730; "
           "NaN, vllm-project/vllm#41834", formula=("1", REPLACED)),
    entry("first-unchecked", "first guess not verified",
      ("rng.random() <", "i == 0 or rng.random() <"),
      seen="until ohdearquant/lattice#258"),
    entry("first-alone", "only the first guess verified",
      ("rng.random() <", "i > 0 or rng.random() <"),
      looks="because `rejected.all()` of the rejected indices is meant to say that there are none, "
            "and is false only if 0 is one of them",
      seen="wtlow003/speculative-sampling"),
    Variant("u-at-most", "u <= ratio", edit=AT_MOST, looks="where u may be 0",
            seen="sgl-project/sglang#35771, whose fix is not merged; "
                 "until EricLBuehler/mistral.rs#2366; youssofal/MTPLX; "
                 "in a draw and not in a test, sizzlecar/ferrum-infer-rs",
            verify=on_a_grid(edited(verify, AT_MOST)), rows=with_zeros,
            reference=partial(decode, verify=on_a_grid(verify), rows=with_zeros)),
    entry("argmax", "argmax in place of draws",
      (ACCEPTED, "token == q[i].argmax()", RESAMPLED, "q[i].argmax()",
       "sample(q[-1], rng)", "q[-1].argmax()"),
      seen="until Pushkinist/rMLX#519; on NPUs, until sgl-project/sglang#32495; on ROCm, "
           "sgl-project/sglang#39253, open, though chains with rejection sampling are right "
           "since sgl-project/sglang#37134; except for the bonus, ROCm/ATOM#2318; if no "
           "temperature was set, until NVIDIA/TensorRT-LLM#19390"),
    entry("u-zero", "u is always 0, called greedy",
      ("rng.random()", "0", "sample(q[-1], rng)", "picked(q[-1], 0)"),
      looks="if the caller gives no generator", seen="zerfoo/zerfoo"),
    entry("normal", "a normal random number in place of u",
      (RATIO, "Φ(q[i, token] / p[i, token])"),
      looks="by `randn` in place of `rand`; Φ is the normal distribution function",
      seen="shrivastava95/specdec-minimal"),
    entry("passed", "keeps as many guesses as passed",
      ("[*passed, False].index(False)", "sum(passed)"), of=TESTS_ALL,
      looks="not only those before the first that failed",
      seen="as a count alone, in vllm-project/vllm#2658"),
    entry("passed-stay", "keeps every guess that passed",
      ("drafted[:i]", "drafted[passed]"), of=TESTS_ALL,
      looks="even behind one that failed", seen="jayeshthk/SpS-SpecDec"),
    entry("continues", "continues after a rejection",
      (f"return np.append(drafted[:i], {RESAMPLED})", f"drafted[i] = {RESAMPLED}")),
]  # fmt: skip
