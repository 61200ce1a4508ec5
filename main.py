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
from functools import partial

from runs import figures, timed
from sampling import as_model, seeded
from speculative import autoregressive_sampling, speculative_sampling
from terminal import options, printed, report, show
from utils import load_models, pair_of, prompt_ids

LAB = """there is more in the lab:
  python -m lab --K auto                            find the best K first
  python -m lab --draft ngram                       guess without a neural network
  python -m lab --temperature 1 --trace trace.html  a page that shows every round"""


def main(argv=None):
    args = options(__doc__, LAB, "see --help, and python -m lab --help, which has more options").parse_args(argv)
    encoder, *networks = load_models(*pair_of(args.draft_model_size, args.target_model_size), args.models_dir)
    models = [as_model(network, args.temperature, args.top_k, args.top_p) for network in networks]
    if args.same_text:
        models = [seeded(model, args.seed) for model in models]
    N, K, x = args.n_tokens_to_generate, args.K, prompt_ids(args.prompt, args.n_tokens_to_generate, encoder, networks)

    def plain(draft, target, on_round, N=N):
        return autoregressive_sampling(x, target, N, args.seed, on_round=on_round)

    def speculative(draft, target, on_round, N=N):
        return speculative_sampling(x, draft, target, N, K, args.seed, on_round=on_round)

    runs = []
    for loop in plain, speculative:
        timed(partial(loop, N=min(N, 8)), x, *models, networks)  # the first use of the weights is slow
    for title, loop in ("Autoregressive Decode", plain), ("Speculative Decode", speculative):
        runs.append(show(title, args.prompt, encoder, N, partial(timed, loop, x, *models, networks)))
    print(f"\n{printed(figures(*runs, f'K = {K}', args.temperature > 0 and not args.same_text))}")


if __name__ == "__main__":
    report(main, "main.py")
