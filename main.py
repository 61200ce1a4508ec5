"""Decode with the target alone, then with a draft that guesses ahead, and compare.

At temperature 0 both loops write the same text, the second one in less time.

examples:
  python main.py --K 4
  python main.py --prompt "The old woman" --temperature 0.8 --top_p 0.9
  python main.py --temperature 1 --same_text
  python main.py --target_model_size 1558M --prompt "Alan Turing theorized that computers would one day become"
"""

import fast  # noqa: F401  # before NumPy, so that BLAS leaves the cores to it

# isort: split
import math
from functools import partial

import numpy as np

from checkpoint.find import MODELS_DIR, SIZES
from errors import Parser, checked, report
from runs import Run, figures, printed, show
from sampling import as_model, seeded
from speculative import autoregressive_sampling, speculative_sampling
from utils import load_models, pair_of, prompt_ids

PROMPT = "Once upon a time there was a king who had three sons,"
LAB = """there is more in the lab:
  python -m lab --K auto                            find the best K first
  python -m lab --draft ngram                       guess without a neural network
  python -m lab --temperature 1 --trace trace.html  a page that shows every round"""


def main(argv=None):
    args = options(__doc__, LAB, "see --help, and python -m lab --help, which has more options").parse_args(argv)
    encoder, *networks = load_models(*pair_of(args.draft_model_size, args.target_model_size), args.models_dir)
    draft, target = (as_model(network, args.temperature, args.top_k, args.top_p) for network in networks)
    if args.same_text:
        draft, target = seeded(draft, args.seed), seeded(target, args.seed)
    K, x = args.K, prompt_ids(args.prompt, args.n_tokens_to_generate, encoder, networks)

    def plain(run, N):
        return autoregressive_sampling(x, run.target, N, np.random.default_rng(args.seed), on_round=run.on_round)

    def speculative(run, N):
        rng = np.random.default_rng(args.seed)
        return speculative_sampling(x, run.draft, run.target, N, K, rng, on_round=run.on_round)

    def decode(loop, N=args.n_tokens_to_generate, on_round=None):
        for network in networks:
            network.forget()
            network(x)  # reads the prompt, before the clock starts
        run = Run(draft, target, on_round)
        run.ids = loop(run, N)
        return run

    runs = []
    for loop in plain, speculative:
        decode(loop, min(args.n_tokens_to_generate, 8))  # the first use of the weights is slow
    for title, loop in ("Autoregressive Decode", plain), ("Speculative Decode", speculative):
        runs.append(show(title, args.prompt, encoder, args.n_tokens_to_generate, partial(decode, loop)))
    print(f"\n{printed(figures(*runs, f'K = {K}', args.temperature > 0 and not args.same_text))}")


def options(description, epilog, advice="see --help"):
    """The parser of this page's options, which the lab has too."""
    parser = Parser(description=description, epilog=epilog, advice=advice)
    add = parser.add_argument
    count = checked(int, lambda n: n >= 0, "a whole number from 0 up")
    add("--prompt", default=PROMPT, help="the text to continue (default: %(default)r)")
    add("--n_tokens_to_generate", type=count, default=154, metavar="N", help="how many tokens (default: %(default)s)")
    add("--draft_model_size", metavar="SIZE", help="the small model, which guesses; names as below")
    add("--target_model_size", metavar="SIZE", help=f"the large model, which decides the text: {SIZES}")
    add("--models_dir", default=MODELS_DIR, metavar="DIR", help="where models are, and where downloads go")
    add("--K", type=count, default=4, help="how many tokens to draft per round (default: %(default)s)")
    add("--temperature", type=checked(float, lambda T: 0 <= T < math.inf, "a number from 0 up"), default=0.0,
        metavar="T", help="0: the most probable token; 1: sample as the model says (default: %(default)s)")  # fmt: skip
    add("--top_k", type=count, default=0, metavar="k", help="sample among the k most probable tokens; 0: among all")
    add("--top_p", type=checked(float, lambda p: 0 < p <= 1, "a number above 0 and at most 1"), default=1.0,
        metavar="p", help="sample among the most probable tokens, up to probability p together; 1: all")  # fmt: skip
    add("--same_text", action="store_true",
        help="draw both texts with the same noise, so that they are the same at any temperature")  # fmt: skip
    add("--seed", type=count, default=123, help="for the random numbers of both loops (default: %(default)s)")
    return parser


if __name__ == "__main__":
    report(main, "main.py")
