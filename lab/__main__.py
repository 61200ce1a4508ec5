"""Decode as main.py does, with every draft, schedule and rule of the lab, and look inside.

examples:
  python -m lab --K auto
  python -m lab --draft ngram
  python -m lab --K 8 --schedule adaptive
  python -m lab --draft ngram --temperature 1 --tree 3,1,1
  python -m lab --temperature 1 --trace trace.html
"""

import math
import os
import re
import shlex
import sys
from functools import partial
from pathlib import Path

import numpy as np
from tqdm import tqdm

from errors import UserError
from lab import theory
from lab.block import verify_block
from lab.drafts import DRAFTS, ORDERS
from lab.measure import best_K, best_K_found
from lab.page import page
from lab.pair import load_pair
from lab.rounds import Recorder
from lab.schedules import SCHEDULES
from lab.trees import balanced, bottom_up, top_down, tree_sampling
from runs import figures, same_text, timed
from sampling import as_model
from speculative import verify
from terminal import options, printed, report, show, such_that
from utils import pair_of, prompt_ids

COLD = 0.02  # the draft's temperature in trees at temperature 0: one-hot rows have no second guess
PILOT = 96  # tokens of the pilot run of --K auto


def main(argv=None):
    args = arguments(argv)
    if args.trace:  # if it cannot be written, say so before anything takes time
        existed = os.path.lexists(args.trace)
        open(args.trace, "a", encoding="utf-8").close()
        if not existed:
            os.remove(args.trace)
    sizes = args.draft_model_size, args.target_model_size
    if args.draft == "model":
        sizes = pair_of(*sizes)
    elif args.target_model_size is None:
        sizes = None, "target"
    pair = load_pair(
        *sizes, draft=args.draft, corpus=args.draft_corpus,
        models_dir=args.models_dir, temperature=args.temperature, top_k=args.top_k, top_p=args.top_p,
        repetition_penalty=args.repetition_penalty, seed=args.seed if args.same_text else None,
    )  # fmt: skip
    encoder, N, is_sample = pair.encoder, args.n_tokens_to_generate, args.temperature > 0 and not args.same_text
    x = prompt_ids(args.prompt, N, encoder, [pair])
    if args.eos and encoder.eos is None:
        raise UserError("--eos: this vocabulary has no token that ends a text")
    shared = {"eos": encoder.eos if args.eos else None, "verify": verify_block if args.verify == "block" else verify}
    found = {}
    if args.K == "auto":
        n, rng = min(N, PILOT), np.random.default_rng(args.seed)
        with tqdm(total=n, desc="Pilot run", unit="token", leave=False, disable=None) as bar:
            args.K, speedups = best_K(pair, x, n, rng=rng, on_round=lambda r: bar.update(len(r.emitted)), **shared)
        if not speedups[1:].any():
            args.K = min(4, N)  # the pilot run was too short to tell
        found = {"best K": best_K_found(args.K, speedups)}
    in_rounds = shared | {"K": args.K, "schedule": args.schedule}
    recorder = Recorder(np.random.default_rng(args.seed), shared["verify"])

    def decode(options, on_round):
        if args.trace and options is in_rounds:
            return pair.decode(x, N, rng=recorder.coins, on_round=lambda r: (recorder(r), on_round(r)), **options)
        return pair.decode(x, N, rng=np.random.default_rng(args.seed), on_round=on_round, **options)

    for each in shared, in_rounds:
        pair.decode(x, min(N, 8), rng=np.random.default_rng(args.seed), **each)  # the first use of the weights is slow
    plain = show("Autoregressive Decode", args.prompt, encoder, N, partial(decode, shared))
    if args.tree:
        return decode_trees(args, pair, x, shared["eos"], plain, is_sample)
    run = show("Speculative Decode", args.prompt, encoder, N, partial(decode, in_rounds))
    tokens = theory.tokens_by_position(run.chances, max(run.n_drafted, default=0))
    is_block = shared["verify"] is verify_block  # no single alpha fits it
    setting = f"K = {args.K}, {args.schedule}"
    found = figures(plain, run, setting, is_sample, tokens if is_block else None) | found
    rates, differ = theory.alphas(run.chances)
    if differ:
        rates = " ".join(f"{rate:.2f}" for rate in rates)
        predicted = f"{run.predicted(tokens):.2f} tokens per round"
        found["alpha by place"] = f"{rates}; these predict {predicted}, for no single alpha fits"
    print(f"\n{printed(found)}", flush=True)
    if args.trace:
        trace = Path(args.trace)
        beside_play = trace.with_name("play.html").exists()
        content = page(encoder, x, plain, run, recorder.rounds, found, args.command, beside_play)
        trace.write_text(content, encoding="utf-8", errors="replace")
        print(f"trace             written to {args.trace}")


def decode_trees(args, pair, x, eos, plain, is_sample):
    """Decode with a tree of guesses in each round, and say how many tokens a round added."""
    cuts = args.top_k, args.top_p, args.repetition_penalty
    draft = pair.draft_model if args.temperature else as_model(pair.networks[0], COLD, *cuts)
    rule, N = bottom_up if args.verify == "block" else top_down, args.n_tokens_to_generate

    def loop(draft, target, on_round):
        rng = np.random.default_rng(args.seed)
        return tree_sampling(x, draft, target, N, balanced(*args.tree), rng, rule, eos=eos, on_round=on_round)

    def decode(on_round):  # without an alpha, for a tree has several guesses at a place
        return timed(loop, x, draft, pair.target_model, pair.networks, on_round, chances=None)

    run = show("Speculative Decode", args.prompt, pair.encoder, N, decode)
    if not run.n_new:
        return print("\nnothing was decoded")
    print(f"\ntokens per round  {run.tokens_per_round:.2f}, with up to {n_guesses(args.tree)} guesses, {rule.__name__}")
    print(f"same text         {same_text(plain.ids, run.ids, is_sample)}")


def arguments(argv=None):
    """The options, checked. Those that do not fit together are a UserError."""
    parser = options(__doc__, None)
    parser.prog = "python -m lab"
    add = parser.add_argument_group("the lab").add_argument
    # fmt: off
    add("--K",
        type=such_that(str, lambda text: re.fullmatch("auto|[0-9]{1,99}", text), "a whole number from 0 up, or auto"),
        help="how many tokens to draft per round, at most; auto: the best of 0 to 8 by a short pilot run, "
        "whose times the seed does not fix (default: 4)")
    add("--draft", default="model", metavar="DRAFT",
        type=such_that(str, lambda name: name in DRAFTS or re.fullmatch("early-exit:[0-9]{1,4}", name),
                       f"one of {', '.join(DRAFTS)}, early-exit:1, early-exit:2, ..."),
        help="what guesses. model: the model of --draft_model_size. unigram, bigram, ngram: counts of 1, 2 and 3 "
        "tokens in a row. online: such counts in the text so far. lookup: copies from the text so far. early-exit:L: "
        "the target's first L layers (default: %(default)s)")
    add("--draft_corpus", metavar="FILE",
        help="the text that --draft unigram, bigram or ngram learns from; the bundled pair has counts of its own")
    add("--schedule", choices=SCHEDULES, default="fixed",
        help="how many tokens to draft in each round. fixed: always K. target-confidence: K if the target was sure of "
        "the last token, otherwise none. draft-confidence: up to K, but stop after a token that the draft is not sure "
        "of. heuristic: 2 more after a round that accepted all tokens, otherwise 1 fewer. adaptive: the best by "
        "measured acceptance and times, which the seed does not fix (default: %(default)s)")
    add("--tree", metavar="N,N,...",
        type=such_that(tree_of, lambda counts: n_guesses(counts) < 100, "a tree like 2,1,1, of at most 99 guesses"),
        help="guess a tree instead of K tokens: 2,1,1 is two guesses at the next token, each with one guess below, and "
        "one below that. It tells the tokens per round; what would make it fast, tree attention, is left out")
    add("--verify", choices=("token", "block"), default="token",
        help="accept drafted tokens one by one (Chen et al. 2023), or as a block (Sun et al. 2024) "
        "(default: %(default)s)")
    add("--repetition_penalty", type=such_that(float, lambda r: 0.01 <= r <= 100, "a number from 0.01 to 100"),
        default=1.0, metavar="r", help="above 1, tokens that have occurred become less likely (default: %(default)s)")
    add("--eos", action="store_true", help="stop after the token that ends a text")
    add("--trace", type=such_that(str, lambda path: path.endswith(".html"), "the name of a .html file"), metavar="FILE",
        help="write a page that shows every round of the speculative run")
    # fmt: on
    args = parser.parse_args(argv)
    if args.draft_corpus is not None and args.draft not in ORDERS:
        raise UserError(f"--draft_corpus needs --draft {' or '.join(ORDERS)}, but --draft is {args.draft}")
    if args.draft_model_size is not None and args.draft != "model":
        raise UserError(f"--draft_model_size needs --draft model, but --draft is {args.draft}")
    if args.draft == "lookup" and args.schedule == "draft-confidence":
        raise UserError("--draft lookup stops by itself where it finds no copy; choose another --schedule")
    if args.tree and (args.trace or args.K or args.schedule != "fixed"):
        raise UserError("--tree does not go together with --trace, --schedule or --K")
    if args.trace and args.n_tokens_to_generate == 0:
        raise UserError("--trace needs a round to show, so --n_tokens_to_generate must be above 0")
    args.command = shlex.join(["python", "-m", "lab", *(sys.argv[1:] if argv is None else argv)])
    if args.K != "auto":
        args.K = min(int(args.K or 4), args.n_tokens_to_generate)  # a larger K would make no difference
    return args


def tree_of(text):
    """2,1,1 -> [2, 1, 1]"""
    if not re.fullmatch("[1-9][0-9]?(,[1-9][0-9]?)*", text):
        raise ValueError("it is no tree")
    return [int(count) for count in text.split(",")]


def n_guesses(counts):
    """How many nodes a tree with so many children at each depth has."""
    return sum(math.prod(counts[: i + 1]) for i in range(len(counts)))


if __name__ == "__main__":
    report(main, "python -m lab")
