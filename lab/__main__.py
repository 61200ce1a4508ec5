"""Decode as main.py does, with every draft, schedule and rule of the lab, and look inside.

examples:
  python -m lab --draft ngram
  python -m lab --K 8 --schedule heuristic
  python -m lab --temperature 1 --trace trace.html
"""

import re
import shlex
import sys
from functools import partial
from pathlib import Path

import numpy as np

from checkpoint import UserError
from lab.block import verify_block
from lab.drafts import DRAFTS, ORDERS
from lab.pair import load_pair
from lab.schedules import SCHEDULES
from lab.trace.page import check_can_be_written, page, write_page
from lab.trace.rounds import Recorder
from runs import in_turns
from speculative import verify
from terminal.ending import report
from terminal.figures import figures, printed, why_texts_differ
from terminal.options import add_option, checked_type, options
from terminal.text import show
from utils import pair_of, prompt_ids

RULES = {"token": verify, "block": verify_block}  # of --verify


def main(argv=None):
    args = arguments(argv)
    if args.trace:
        check_can_be_written(args.trace)
    pair = load(args)
    encoder = pair.encoder
    N = args.n_tokens_to_generate
    x = prompt_ids(args.prompt, N, encoder, [pair])
    eos = eos_of(encoder) if args.eos else None
    rule = RULES[args.verify]
    decode = partial(pair.decode, x, rng=args.seed, eos=eos)
    options = {"K": args.K, "schedule": args.schedule, "verify": rule}
    for loop_options in {}, options:  # the first use of the weights is slow
        decode(min(N, 8), **loop_options)
    plain = partial(decode, N)
    speculative = partial(decode, N, **options)
    recorder = Recorder(np.random.default_rng(args.seed))
    if args.trace:
        speculative = partial(recorded, speculative, recorder)

    loops = {"Autoregressive Decode": plain, "Speculative Decode": speculative}
    slow, fast = in_turns(loops, partial(show, args.prompt, encoder))
    rows = all_figures(args, slow, fast)
    print(f"\n{printed(rows)}", flush=True)
    if args.trace:
        beside_play = Path(args.trace).with_name("play.html").exists()
        settings = args.temperature, args.command, beside_play
        content = page(encoder, x, slow, fast, recorder.rounds, rows, *settings)
        write_page(args.trace, content)
        print(f"trace             written to {args.trace}")


def load(args):
    """The `LabPair` that the options ask for."""
    names = args.draft_model_size, args.target_model_size
    if args.draft == "model":
        names = pair_of(*names)
    elif args.target_model_size is None:
        names = None, "target"
    return load_pair(
        *names,
        draft=args.draft,
        corpus=args.draft_corpus,
        models_dir=args.models_dir,
        temperature=args.temperature,
        seed=args.seed if args.same_text else None,
        top_k=args.top_k,
        top_p=args.top_p,
        repetition_penalty=args.repetition_penalty,
    )


def eos_of(encoder):
    """The ids that end a text. UserError if the model names none."""
    if not encoder.eos:
        raise UserError("--eos: the files of this model name no token that ends a text")
    return encoder.eos


def recorded(decode, recorder, on_round=None):
    """decode(rng, on_round), with each round recorded in the turn that is shown."""
    if on_round is None:
        return decode()  # the same again

    def record_and_show(r):
        recorder(r)
        on_round(r)

    return decode(rng=recorder.rng, on_round=record_and_show)


def all_figures(args, slow, fast):
    """The figures of main.py, but block verification's alpha depends on the place in a round."""
    rows = figures(slow, fast, f"K = {args.K}, {args.schedule}", why_texts_differ(args))
    if args.verify == "block" and fast.n_looked_at:
        text = f"{fast.alpha:.2f} on average after accepted guesses"
        rows["alpha"] = rows["alpha"]._replace(text=text)
    return rows


HELP = {  # of the options that main.py does not have
    "draft": "what guesses. model: the model of --draft_model_size. unigram, bigram, ngram: counts "
    "of 1, 2 and 3 tokens in a row. online: such counts in the text so far. lookup: copies from "
    "the text so far. early-exit:L: the target's first L layers (default: %(default)s)",
    "draft_corpus": "the text that --draft unigram, bigram or ngram learns from; the bundled pair "
    "has counts of its own",
    "schedule": "how many tokens to guess in each round. fixed: always K. target-confidence: K if "
    "the target was sure of the last token, otherwise none. draft-confidence: up to K, but stop "
    "after a token that the draft is not sure of. heuristic: 2 more after a round that accepted "
    "all tokens, otherwise 1 fewer (default: %(default)s)",
    "verify": "accept guesses one by one (Chen et al. 2023), or as a block (Sun et al. "
    "2024) (default: %(default)s)",
    "repetition_penalty": "above 1, tokens of the text become less likely (default: %(default)s)",
    "eos": "stop after the token that ends a text",
    "trace": "write a page that shows every round of the speculative run, with --verify token",
}


def arguments(argv=None):
    """The options, checked. Those that do not fit together are a UserError."""
    argv = sys.argv[1:] if argv is None else argv
    parser = options(__doc__, None)
    parser.prog = "python -m lab"
    group = parser.add_argument_group("the lab")

    def add(name, **kwargs):
        add_option(group, name, help=HELP[name], **kwargs)

    drafts = f"one of {', '.join(DRAFTS)}, early-exit:1, early-exit:2, ..."
    penalty = checked_type(float, lambda r: 0.01 <= r <= 100, "a number from 0.01 to 100")
    html = checked_type(str, lambda path: path.endswith(".html"), "the name of a .html file")
    add("draft", default="model", metavar="DRAFT", type=checked_type(str, is_draft, drafts))
    add("draft_corpus", metavar="FILE")
    add("schedule", choices=SCHEDULES, default="fixed")
    add("verify", choices=RULES, default="token")
    add("repetition_penalty", type=penalty, default=1.0, metavar="r")
    add("eos", action="store_true")
    add("trace", type=html, metavar="FILE")
    args = parser.parse_args(argv)
    check_that_they_fit(args)
    args.command = shlex.join(["python", "-m", "lab", *argv])
    args.K = min(args.K, args.n_tokens_to_generate)  # a larger one would make no difference
    return args


def check_that_they_fit(args):
    """UserError if two options exclude each other."""
    if args.draft_corpus is not None and args.draft not in ORDERS:
        needed = " or ".join(ORDERS)
        raise UserError(f"--draft_corpus needs --draft {needed}, but --draft is {args.draft}")
    if args.draft_model_size is not None and args.draft != "model":
        raise UserError(f"--draft_model_size needs --draft model, but --draft is {args.draft}")
    if args.draft == "lookup" and args.schedule == "draft-confidence":
        problem = "--draft lookup stops by itself where it finds no copy"
        raise UserError(f"{problem}; choose another --schedule")
    if args.trace and args.verify == "block":
        raise UserError("--trace shows rounds of --verify token; leave one of the two out")
    if args.trace and args.n_tokens_to_generate == 0:
        problem = "--trace needs a round to show"
        raise UserError(f"{problem}, so --n_tokens_to_generate must be above 0")


def is_draft(name):
    """Whether this is the name of a draft."""
    return name in DRAFTS or re.fullmatch("early-exit:[0-9]{1,4}", name)


if __name__ == "__main__":
    report(main, "python -m lab")
