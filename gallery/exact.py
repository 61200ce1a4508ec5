"""What looks wrong, and is exact."""

from functools import partial

from gallery.acceptance import tests_all_before_it_looks
from gallery.draft import from_marginals
from gallery.grammar import MASK
from gallery.kept import LEFT, as_the_shortest, stops_after
from gallery.noise import keeps_its_numbers, keeps_u
from gallery.truncation import XTC_BONUS, xtc_text
from gallery.variant import ACCEPTED, DECODE, PROPOSE, RATIO, RESAMPLED, entry
from lab.block import verify_block

X = partial(entry, exact=True)


CHECKS = [
    X("q-or-another", "accept with probability q, resample another token",
      (RATIO, "q[i, token]", "residual(p[i], q[i])", "without(q[i], token)"),
      seen="penta2himajin/qwisp#18, for sure guesses"),
    X("same-draw", "accept if the target draws the same",
      (ACCEPTED, "(own := sample(q[i], rng)) == token", RESAMPLED, "own"),
      seen="lablup/mlxcel#992"),
    X("same-noise", "accept if the same noise picks it from q",
      (ACCEPTED, "(own := picked(q[i], rng.u[i])) == token", RESAMPLED, "own"),
      propose=keeps_its_numbers, seen="Daliri et al. 2024"),
    X("xtc", "XTC with a coin for each position",
      (RATIO, "acceptance(p[i, token], (row := xtc(q[i], rng.random()))[token])",
       "residual(p[i], q[i])", "residual(p[i], row)", *XTC_BONUS), reference=xtc_text,
      looks="which the draft may share"),
    X("mask-on-target", "a mask on the target alone", of=MASK,
      looks="so the draft may guess forbidden tokens"),
    X("no-bonus", "no bonus at all",
      ("return np.append(drafted, sample(",
       "return drafted if len(drafted) else np.append(drafted, sample("),
      seen="until vllm-project/vllm#5765"),
    X("batch", "batch cut to its shortest", as_the_shortest,
      looks="but the guess at the cut stays", seen="considered in huggingface/transformers#32165"),
    X("u-kept", "each position keeps its u", keeps_u(tests_all_before_it_looks), of=DECODE,
      looks="also for later rounds; guesses behind a rejected one are tested, too",
      seen="vLLM, which tests fewer"),
    X("verify", "`verify`", looks="token by token",
      seen="Chen et al. 2023, Leviathan et al. 2023", formula=("min(1, q / p)", "max(q - p, 0)")),
    X("verify-block", "`verify_block`", verify_block, looks="block verification",
      seen="Sun et al. 2024"),
]  # fmt: skip

GUESSES = [
    X("one-hot-p", "a drawn token, reported as one-hot",
      ("rows.append(p)", "rows.append(one_hot(p, token))"), of=PROPOSE,
      seen="until vllm-project/vllm#40269"),
    X("withdraws-one-hot", "an unsure guess withdrawn, the others reported as one-hot",
      ("token = sample(p, rng)", "token = sample(p, rng)\n        if p[token] < UNSURE: break",
       "rows.append(p)", "rows.append(one_hot(p, token))"), of=PROPOSE,
      looks="with UNSURE = 0.4",
      seen="ggml-org/llama.cpp#22506, vllm-project/vllm#14702"),
    X("own-marginals", "drawn from marginals, with their own p", from_marginals, of=PROPOSE,
      looks="so no guess depends on another", seen="z-lab/dflash"),
    X("stops-behind", "stops behind an unsure token",
      ("rows.append(p)", "rows.append(p)\n        if p[token] < UNSURE: break"), of=PROPOSE,
      looks="with UNSURE = 0.4",
      seen="ggml-org/llama.cpp#22673, ggml-org/llama.cpp#25908"),
    X("stops-by-u", "stops behind a guess by its u",
      ("rng.random()", "rng.u[i]"), propose=stops_after,
      looks="where drafting stopped behind the first rng.u[i] above 1/2",
      seen="dilab-zju/self-speculative-decoding"),
    X("kept", "guess behind a rejected one kept", of=LEFT,
      looks="so the next round begins with it and with the p that drew it"),
    X("jacobi", "guess behind a rejected one drawn again from its row of the target",
      ("return token, p", "return sample(q, rng), q"), of=LEFT,
      seen="tyshiwo1/Accelerating-T2I-AR-with-SJD"),
]  # fmt: skip
