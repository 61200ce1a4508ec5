"""Decode with a target model alone, then with a draft model that guesses ahead, and compare.

At temperature 0 both give the same text, the second one sooner.

Without any model sizes, the trained pair in models/ runs, which needs no download. With --target_model_size 1558M,
OpenAI's released GPT-2 runs, after a download (6.2 GB, and 0.5 GB for the 124M that drafts).

examples:
  python main.py --K 4
  python main.py --prompt "The old woman" --temperature 0.8 --top_p 0.9
  python main.py --draft lookup --K auto
  python main.py --K 8 --schedule adaptive
  python main.py --temperature 1 --trace trace.html
  python main.py --target_model_size 1558M --K 4 --prompt "Alan Turing theorized that computers would one day become"
"""

if __name__ == "__main__":  # Ctrl-C may come while NumPy is still being imported
    import os
    import signal

    signal.signal(signal.SIGINT, lambda *_: (os.write(2, b"\nInterrupted.\n"), os._exit(130)))

import argparse
import math
import re
import shlex
import sys
from functools import partial

import numpy as np
from tqdm import tqdm

from drafts import DRAFTS, ORDERS
from encoder import EOT
from errors import UserError
from pair import load_pair
from schedules import SCHEDULES
from show.figures import best_K, figures
from show.rounds import Recorder, origins
from show.terminal import Writer, legend, wants_colour
from show.trace import write_trace
from speculative import verify, verify_block
from utils import BUNDLED, MODELS_DIR, RELEASED

PROMPT = "Once upon a time, long, long ago, there were two"
PILOT = 96  # tokens of the pilot run of --K auto
THRESHOLDS = ("target-confidence", "draft-confidence")


def make_parser():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.error = fail
    sizes = f"{', '.join(RELEASED)}, or the bundled {' or '.join(BUNDLED)}"

    def add(name, help, **options):
        parser.add_argument(name, help=help, **options)

    def number(type, is_good, what):
        def parse(text):
            value = type(text)
            if not is_good(value):
                raise argparse.ArgumentTypeError(f"{text} is not {what}")
            return value

        parse.__name__ = type.__name__  # for "invalid int value"
        return parse

    count = number(int, lambda n: n >= 0, "0 or more")

    def K(text):
        return text if text == "auto" else count(text)

    add("--prompt", "the text to continue; an empty one starts from <|endoftext|> (%(default)r)", default=PROMPT)
    add("--n_tokens_to_generate", "how many tokens to decode (%(default)s)", type=count, default=154, metavar="N")
    add("--draft_model_size", f"the small model that guesses: {sizes} (draft; 124M if the target is one of OpenAI's)",
        metavar="SIZE")  # fmt: skip
    add("--target_model_size", f"the large model, whose text it is: {sizes} (target; 1558M if the draft is OpenAI's)",
        metavar="SIZE")  # fmt: skip
    add("--models_dir", "where models are, and where they are downloaded to (%(default)s)", default=MODELS_DIR,
        metavar="DIR")  # fmt: skip
    add("--models_url", "where to download from (OpenAI, or the variable GPT2_MODELS_URL)", metavar="URL")
    add("--draft", "what guesses. model: the model of --draft_model_size. unigram, bigram, ngram: counts of 1, 2 and 3 "
        "tokens in a row. online: such counts in the text so far. lookup: copies from the text so far. early-exit:L: "
        "the target's first L layers (%(default)s)",
        type=draft_name, default="model")  # fmt: skip
    add("--draft_corpus", "a text to fit unigram, bigram or ngram on (the bundled pair has its own n-grams)",
        metavar="FILE")  # fmt: skip
    add("--K", "how many tokens to draft per round, at most; auto: what is best by a short pilot run (%(default)s)",
        type=K, default=4)  # fmt: skip
    add("--schedule", "how many tokens to draft in each round. fixed: always K. target-confidence: none after an "
        "unsure token. draft-confidence: stop at an unsure one. heuristic: 2 more or 1 fewer. adaptive: the best by "
        "measured alpha and costs (%(default)s)",
        choices=SCHEDULES, default="fixed")  # fmt: skip
    add("--threshold", "a token is sure from this probability on (0.5 for target-confidence, 0.4 for draft-confidence)",
        type=number(float, lambda p: 0 <= p <= 1, "a probability from 0 to 1"), metavar="P")  # fmt: skip
    add("--temperature", "0: always the most probable token; 1: sample as the model says (%(default)s)", metavar="T",
        default=0.0, type=number(float, lambda T: 0 <= T < math.inf, "a number from 0 up"))  # fmt: skip
    add("--top_k", "sample among the k most probable tokens; 0: among all (%(default)s)", type=count, default=0,
        metavar="k")  # fmt: skip
    add("--top_p", "sample among the fewest tokens whose probability adds up to p (%(default)s)", default=1.0,
        type=number(float, lambda p: 0 < p <= 1, "above 0 and at most 1"), metavar="p")  # fmt: skip
    add("--repetition_penalty", "above 1, tokens that have occurred become less likely, as in CTRL (%(default)s)",
        type=number(float, lambda r: 0.01 <= r <= 100, "a number from 0.01 to 100"), default=1.0,
        metavar="r")  # fmt: skip
    add("--eos", f"stop after {EOT}", action="store_true")
    add("--verify", "accept drafted tokens one by one (Chen et al. 2023) or as a block (Sun et al. 2024) (%(default)s)",
        choices=("token", "block"), default="token")  # fmt: skip
    add("--bit_identical", "refuse to run if NumPy rounds differently with speculation", action="store_true")
    add("--color", "colour the text by where each token comes from (%(default)s: on a terminal)", default="auto",
        choices=("auto", "always", "never"))  # fmt: skip
    add("--trace", "write a page that shows every round of the speculative run (.html), or a picture of a typical "
        "round (.svg)", type=trace_file, metavar="FILE")  # fmt: skip
    add("--seed", "for the random numbers of both loops (%(default)s)", type=count, default=123)
    return parser


def arguments(argv):
    """The options, checked and completed. Those that do not fit together end the program."""
    args = make_parser().parse_args(argv)
    if args.threshold is not None and args.schedule not in THRESHOLDS:
        fail(f"--threshold is for {' and '.join(THRESHOLDS)}, and --schedule is {args.schedule}")
    if args.draft_corpus is not None and args.draft not in ORDERS:
        fail(f"--draft_corpus is for --draft {', '.join(ORDERS)}, and --draft is {args.draft}")
    if args.draft_model_size is not None and args.draft != "model":
        fail(f"--draft_model_size is for --draft model, and --draft is {args.draft}")
    if args.trace is not None and args.n_tokens_to_generate == 0:
        fail("--trace needs a round to show, so --n_tokens_to_generate must be above 0")
    args.command = shlex.join(["python", "main.py", *(sys.argv[1:] if argv is None else argv)])
    if args.K != "auto":
        args.K = min(args.K, args.n_tokens_to_generate)  # a larger K would make no difference
    released = args.draft_model_size in RELEASED or args.target_model_size in RELEASED
    args.draft_model_size = args.draft_model_size or ("124M" if released else "draft")
    args.target_model_size = args.target_model_size or ("1558M" if released else "target")
    return args


def trace_file(path):
    if not path.endswith((".html", ".svg")):
        raise argparse.ArgumentTypeError(f"{path!r} ends in neither .html nor .svg")
    return path


def draft_name(name):
    if name not in DRAFTS and not re.fullmatch(r"early-exit:[0-9]+", name):
        raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(DRAFTS)}, early-exit:1")
    return name


def fail(message):
    print(f"main.py: error: {message}", file=sys.stderr)
    sys.exit(2)


def main(argv=None):
    args = arguments(argv)
    try:
        run(args)
    except (UserError, OSError) as error:  # what the user gave, the internet, the disk
        fail(error)
    except MemoryError:
        fail("there is not enough memory for these models; 1558M needs 8 GB")


def run(args):
    if args.trace:
        open(args.trace, "a", encoding="utf-8").close()  # if it cannot be written, say so before decoding begins
    pair = load_pair(
        args.draft_model_size, args.target_model_size, args.draft, args.draft_corpus, args.models_dir, args.models_url,
        args.bit_identical, temperature=args.temperature, top_k=args.top_k, top_p=args.top_p,
        repetition_penalty=args.repetition_penalty,
    )  # fmt: skip
    if EOT not in pair.encoder.ids:
        fail(f"the vocabulary of {args.target_model_size} has no token {EOT}; restore its encoder.json")
    x = np.array(pair.encoder.encode(args.prompt) or [pair.encoder.ids[EOT]])
    if (n := len(x) + args.n_tokens_to_generate) > pair.n_ctx:
        fail(f"a prompt of {len(x)} tokens and {n - len(x)} to generate are {n}; the models take {pair.n_ctx} at most")
    verifier = verify_block if args.verify == "block" else verify
    speedups = None
    if args.K == "auto":
        options = dict(rng=np.random.default_rng(args.seed), verify=verifier)
        args.K, speedups = pair.best_K(x, min(args.n_tokens_to_generate, PILOT), **options)
    speculative = dict(K=args.K, schedule=args.schedule, threshold=args.threshold, verify=verifier)
    for options in {}, speculative:  # the first use of the weights is loading, and does not count as decoding
        pair.decode(x, min(args.n_tokens_to_generate, 8), rng=np.random.default_rng(args.seed), **options)
    plain, _ = decode(args, pair, x, "Autoregressive Decode", {})
    fast, rounds = decode(args, pair, x, "Speculative Decode", speculative)
    drafter = args.draft_model_size if args.draft == "model" else args.draft
    found = figures(plain, fast, drafter, args.target_model_size, args.K, args.schedule, args.temperature)
    if speedups is not None:
        found.append(best_K(args.K, speedups))
    print("\n" + "\n".join(f"{name:<17} {value}" for name, value, _ in found))
    if args.trace:
        write_trace(args.trace, pair.encoder, x, plain, fast, rounds, found, args.command)


def decode(args, pair, x, title, options):
    """Decode with one of the two loops, and print the text: on a terminal as it comes, otherwise at the end.

    Returns
    -------
    pair.Run, and the rounds that --trace shows, as a list of show.rounds.Seen or None
    """
    live, held_back = sys.stdout.isatty(), []
    write = partial(print, end="", flush=True) if live else held_back.append
    is_fast = "K" in options
    coloured = is_fast and wants_colour(args.color, sys.stdout)
    writer = Writer(pair.encoder, write, coloured)
    rng = np.random.default_rng(args.seed)
    recorder = Recorder(rng, options["verify"]) if args.trace and is_fast else None
    eos = pair.encoder.ids[EOT] if args.eos else None
    head = f"\n{title}\n{'-' * len(title)}\n" + f"({legend()})\n" * coloured
    if live:
        print(f"{head}Text = ", end="")
    writer.add(x if args.prompt else x[1:])
    with tqdm(total=args.n_tokens_to_generate, desc=title, unit="token", leave=False, disable=live) as bar:

        def on_round(r):  # the clock of the run does not count the time that this takes
            if recorder:
                recorder(r)
            writer.add(r.emitted, origins(r))
            bar.update(len(r.emitted))

        done = pair.decode(x, args.n_tokens_to_generate, rng=recorder or rng, eos=eos, on_round=on_round, **options)
    writer.close()
    time = f"Time = {done.seconds:.2f}s"
    print(f"\n{time}" if live else f"{head}{time}\nText = {''.join(held_back)}", flush=True)
    return done, recorder and recorder.rounds


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="replace")  # a text may have characters that a terminal or a file cannot show
    main()
