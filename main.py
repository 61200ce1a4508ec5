"""Decode with the target alone, then with a draft that guesses ahead, and compare.

At temperature 0 both loops write the same text, the second one in less time.

examples:
  python main.py --K 4
  python main.py --prompt "The old woman" --temperature 0.8 --top_p 0.9
  python main.py --temperature 1 --same_text
  python main.py --target_model_size 1558M --prompt "Alan Turing theorized that computers would one day become"
"""

import math
import time

import numpy as np

from errors import Parser, checked, report
from sampling import sampler, seeded
from speculative import autoregressive_sampling, speculative_sampling
from utils import MODELS_DIR, SIZES, load_models, pair_of, prompt_ids, show

PROMPT = "Once upon a time there was a king who had three sons,"
LAB = """there is more in the lab:
  python -m lab --K auto                            find the best K first
  python -m lab --draft ngram                       guess without a neural network
  python -m lab --temperature 1 --trace trace.html  a page that shows every round"""


def main(argv=None):
    args = options(__doc__, LAB, "see --help, and python -m lab --help, which has more options").parse_args(argv)
    encoder, *networks = load_models(*pair_of(args.draft_model_size, args.target_model_size), args.models_dir)
    draft, target = (sampler(network, args.temperature, args.top_k, args.top_p) for network in networks)
    if args.same_text:
        draft, target = seeded(draft, args.seed), seeded(target, args.seed)
    N, K = args.n_tokens_to_generate, args.K
    x = prompt_ids(args.prompt, N, encoder, networks)

    def plain(on_round=None, N=N, model=target):
        return autoregressive_sampling(x, model, N, np.random.default_rng(args.seed), on_round=on_round)

    def speculative(on_round=None, N=N):
        rng = np.random.default_rng(args.seed)
        return speculative_sampling(x, draft, target, N, K, rng, on_round=on_round)

    def decode(title, loop):
        for network in networks:
            network.forget()
        target.seconds.clear()
        return (*show(title, args.prompt, encoder, N, loop), target.seconds[1:])  # the first pass reads the prompt

    for loop in plain, speculative:
        loop(N=min(N, 8))  # the first use of the weights is slow
    ids, seconds, _, passes = decode("Autoregressive Decode", plain)
    fast_ids, fast_seconds, rounds, fast_passes = decode("Speculative Decode", speculative)
    networks[0].forget()
    begun = time.perf_counter()
    plain(model=draft)
    draft_seconds = time.perf_counter() - begun
    if N == 0:
        return print("\nnothing was decoded, so there is nothing to compare")

    n_drafted, n_accepted = (sum(counts) for counts in zip(*rounds))
    alone, draft_alone, together = (f"{N / each:.1f}" for each in (seconds, draft_seconds, fast_seconds))
    same = "yes"
    if not np.array_equal(ids, fast_ids):
        two_samples = args.temperature > 0 and not args.same_text
        same = "no: two samples from one distribution, unless --same_text is given" if two_samples else "NO: a bug"
    print(f"\ntokens per second {alone} target alone, {draft_alone} draft alone, {together} speculative")
    print(f"speedup           {seconds / fast_seconds:.2f}")
    print(f"acceptance rate   {n_accepted / max(n_drafted, 1):.2f} of {n_drafted} drafted tokens")
    print(f"tokens per round  {N / len(rounds):.2f}, with K = {K}")
    print(f"same text         {same}")
    if fast_seconds > seconds and n_drafted and passes and fast_passes:
        v = np.median(fast_passes) / np.median(passes)
        print(f"slower, because   {K + 1} positions took {v:.1f} times one; try --K 2, or python -m lab --K auto")


def options(description, epilog, advice="see --help"):
    """The parser of this page's options, which the lab has too."""
    parser = Parser(description=description, epilog=epilog, advice=advice)
    add = parser.add_argument
    count = checked(int, lambda n: n >= 0, "a whole number from 0 up")
    add("--prompt", default=PROMPT, help="the text to continue (default: %(default)r)")
    add("--n_tokens_to_generate", type=count, default=154, metavar="N", help="how many tokens (default: %(default)s)")
    add("--draft_model_size", metavar="SIZE", help="the small model, which guesses")
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
