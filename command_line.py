"""The options of main.py: their types, their help, and which of them fit together."""

import argparse
import math
import os
import re
import shlex
import sys

from drafts import DRAFTS, ORDERS
from encoder import EOT
from schedules import SCHEDULES
from utils import BUNDLED, MODELS_DIR, RELEASED

PROMPT = "Once upon a time there was a king who had three sons,"
DEFAULT_K = 4  # as in Chen et al. 2023
THRESHOLDS = ("target-confidence", "draft-confidence")


def fail(message):
    print(f"main.py: error: {message}", file=sys.stderr)
    sys.exit(2)


def checked(type, is_good, what):
    """A type for argparse: a value for which is_good holds. `what` describes such values in the error message."""

    def parse(text):
        value = type(text)
        if not is_good(value):
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
        return value

    parse.__name__ = type.__name__  # for "invalid int value"
    return parse


count = checked(int, lambda n: n >= 0, "a whole number from 0 up")
draft_name = checked(
    str, lambda name: name in DRAFTS or re.fullmatch(r"early-exit:[0-9]{1,4}", name),
    f"one of {', '.join(DRAFTS)}, early-exit:1, early-exit:2, ...",
)  # fmt: skip
readable = checked(str, lambda path: os.access(path, os.R_OK) and not os.path.isdir(path), "a file that can be read")
trace_file = checked(str, lambda path: path.endswith((".html", ".svg")), "the name of a .html or .svg file")
K = checked(str, lambda text: re.fullmatch("auto|[0-9]{1,99}", text), "a whole number from 0 up, or auto")


# fmt: off
def add_options(parser):
    add = parser.add_argument_group("text").add_argument
    add("--prompt", default=PROMPT,
        help="the text to continue; an empty one starts from <|endoftext|> (default: %(default)r)")
    add("--n_tokens_to_generate", type=count, default=154, metavar="N",
        help="how many tokens to decode (default: %(default)s)")
    add("--temperature", type=checked(float, lambda T: 0 <= T < math.inf, "a number from 0 up"), default=0.0,
        metavar="T", help="0: always the most probable token; 1: sample as the model says (default: %(default)s)")
    add("--top_k", type=count, default=0, metavar="k",
        help="sample among the k most probable tokens; 0: among all (default: %(default)s)")
    add("--top_p", type=checked(float, lambda p: 0 < p <= 1, "a number above 0 and at most 1"), default=1.0,
        metavar="p",
        help="sample among the most probable tokens, just enough of them to reach probability p together "
        "(default: %(default)s)")
    add("--repetition_penalty", type=checked(float, lambda r: 0.01 <= r <= 100, "a number from 0.01 to 100"),
        default=1.0, metavar="r",
        help="above 1, tokens that have occurred become less likely, as in Hugging Face's Transformers "
        "(default: %(default)s)")
    add("--eos", action="store_true", help=f"stop after {EOT}")
    add("--seed", type=count, default=123, help="for the random numbers of both loops (default: %(default)s)")

    add = parser.add_argument_group("models").add_argument
    sizes = f"{', '.join(RELEASED)} (OpenAI's), {', '.join(BUNDLED)} (bundled)"
    add("--target_model_size", metavar="SIZE",
        help=f"the large model, which decides the text. One of: {sizes}. "
        "Default: the bundled target, or 1558M if the draft is one of OpenAI's")
    add("--draft_model_size", metavar="SIZE",
        help="the small model that guesses. One of the same sizes. Default: the bundled draft, or 124M if the target "
        "is one of OpenAI's")
    add("--models_dir", default=MODELS_DIR, metavar="DIR",
        help="the folder of the models, also for downloads; the bundled pair is found anyway (default: %(default)s)")
    add("--models_url", metavar="URL", help="where to download from (default: the variable GPT2_MODELS_URL, or OpenAI)")
    add("--bit_identical", action="store_true",
        help="refuse to run if a short test finds that speculation changes the last bits of logits")

    add = parser.add_argument_group("drafting").add_argument
    add("--K", type=K, default=DEFAULT_K,
        help="how many tokens to draft per round, at most; auto: the best of 0 to 8 by a short pilot run "
        "(default: %(default)s)")
    add("--draft", type=draft_name, default="model",
        help="what guesses. model: the model of --draft_model_size. unigram, bigram, ngram: counts of 1, 2 and 3 "
        "tokens in a row. online: such counts in the text so far. lookup: copies from the text so far. early-exit:L: "
        "the target's first L layers (default: %(default)s)")
    add("--draft_corpus", type=readable, metavar="FILE",
        help="the text that --draft unigram, bigram or ngram learns from (the bundled pair has counts of its own)")
    add("--schedule", choices=SCHEDULES, default="fixed",
        help="how many tokens to draft in each round. fixed: always K. target-confidence: K if the target was sure of "
        "the last token, otherwise none. draft-confidence: up to K, but stop after a token that the draft is not sure "
        "of. heuristic: 2 more after a round that accepted all tokens, otherwise 1 fewer. adaptive: the best by "
        "measured acceptance and costs (default: %(default)s)")
    add("--threshold", type=checked(float, lambda p: 0 <= p <= 1, "a probability from 0 to 1"), metavar="P",
        help="a model is sure of a token if its probability is at least P; with --temperature 0, the probability at "
        "temperature 1 counts (default: 0.5 for target-confidence, 0.4 for draft-confidence; --draft lookup has a rule "
        "of its own, so draft-confidence has no effect on it)")
    add("--verify", choices=("token", "block"), default="token",
        help="accept drafted tokens one by one (Chen et al. 2023), or as a block (Sun et al. 2024) "
        "(default: %(default)s)")

    add = parser.add_argument_group("output").add_argument
    add("--color", choices=("auto", "always", "never"), default="auto",
        help="colour the text by where each token comes from (default: auto, which means on a terminal)")
    add("--trace", type=trace_file, metavar="FILE",
        help="write a page that shows every round of the speculative run (.html), or a picture of a typical round "
        "(.svg)")
# fmt: on


def arguments(argv, description):
    """The options, checked and completed. Those that do not fit together end the program."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.error = lambda message: fail(f"{message} (see --help)")
    add_options(parser)
    args = parser.parse_args(argv)
    if lost := [name for name, value in vars(args).items() if value == []]:  # older versions of argparse lose a "--"
        fail(f"argument --{lost[0]}: found no value; this version of Python cannot take '--' as the value")
    if args.threshold is not None and args.schedule not in THRESHOLDS:
        fail(f"--threshold needs --schedule {' or '.join(THRESHOLDS)}, but --schedule is {args.schedule}")
    if args.draft_corpus is not None and args.draft not in ORDERS:
        fail(f"--draft_corpus needs --draft {' or '.join(ORDERS)}, but --draft is {args.draft}")
    if args.draft_model_size is not None and args.draft != "model":
        fail(f"--draft_model_size needs --draft model, but --draft is {args.draft}")
    if args.trace is not None and args.n_tokens_to_generate == 0:
        fail("--trace needs a round to show, so --n_tokens_to_generate must be above 0")
    args.command = shlex.join(["python", "main.py", *(sys.argv[1:] if argv is None else argv)])
    if args.K != "auto":
        args.K = min(int(args.K), args.n_tokens_to_generate)  # a larger K would make no difference
    released = args.draft_model_size in RELEASED or args.target_model_size in RELEASED
    if args.draft_model_size is None:
        args.draft_model_size = "124M" if released else "draft"
    if args.target_model_size is None:
        args.target_model_size = "1558M" if released else "target"
    sizes = {args.draft_model_size, args.target_model_size}
    is_usual = os.path.abspath(args.models_dir) == MODELS_DIR  # (another folder may have other models of these names)
    if is_usual and sizes & {*RELEASED} and sizes & {*BUNDLED}:
        fail("a bundled model and one of OpenAI's cannot be a pair: their vocabularies differ, so choose two of a kind")
    if is_usual and args.target_model_size in RELEASED and args.draft in ORDERS and args.draft_corpus is None:
        fail(f"--draft {args.draft} needs a --draft_corpus, because the bundled n-grams do not fit OpenAI's models")
    return args
