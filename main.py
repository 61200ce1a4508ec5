"""Decode with the target alone, then with a draft that guesses ahead, and compare.

At temperature 0 both loops write the same text, the second one in less time. They run up
to five times, in turns, and the table is about the turn with the median speedup.

examples:
  python main.py --K 4
  python main.py --prompt "The old woman" --temperature 0.8 --top_p 0.9
  python main.py --temperature 1 --same_text
  python main.py --numpy
  python main.py --mine --temperature 0.7 --seed 7
  python main.py --target_model_size 1558M --prompt "Alan Turing theorized that computers would"
"""

from terminal import ending  # first, so that Ctrl-C is one line from here on

# isort: split
import fast  # before NumPy, so that BLAS leaves the cores to it

# isort: split
from functools import partial

import gpt2
from runs import Pair, in_turns
from speculative import autoregressive_sampling, speculative_sampling
from terminal.figures import figures, printed, why_texts_differ
from terminal.options import options
from terminal.text import show
from utils import load_models, pair_of, prompt_ids

LAB = """there is more in the lab:
  python -m lab --draft ngram                       guess without a neural network
  python -m lab --temperature 1 --trace trace.html  a page that shows every round"""
NUMPY = "multiply with NumPy's own x @ w, and see what five rows cost"
MINE = "let exercise/mine.py write the second text, or FILE, such as tiny.py resample_from_q"


def arguments(argv=None):
    advice = "see --help, and python -m lab --help, which has more options"
    parser = options(__doc__, LAB, advice)
    parser.add_argument("--numpy", action="store_true", help=NUMPY)
    parser.add_argument("--mine", nargs="*", help=MINE, metavar=("FILE", "FUNCTION"))
    return parser.parse_args(argv)


def main(argv=None):
    args = arguments(argv)
    N = args.n_tokens_to_generate
    mine = None
    if args.mine is not None:
        from exercise import demo  # the grader, which nothing else here needs

        mine = demo.graded(*args.mine)
    names = pair_of(args.draft_model_size, args.target_model_size)
    network = gpt2.GPT2 if args.numpy else fast.GPT2
    encoder, draft, target = load_models(*names, args.models_dir, network)
    noise = args.seed if args.same_text else None
    pair = Pair(draft, target, encoder, args.temperature, noise, top_k=args.top_k, top_p=args.top_p)
    x = prompt_ids(args.prompt, N, encoder, [pair])

    # `Pair.timed` calls a loop with both models, each with a clock. The plain one needs no draft.
    def plain(draft_model, target_model, n, on_round):
        return autoregressive_sampling(x, target_model, n, args.seed, on_round=on_round)

    def speculative(draft_model, target_model, n, on_round, loop=speculative_sampling):
        return loop(x, draft_model, target_model, n, args.K, args.seed, on_round=on_round)

    for loop in plain, speculative:  # the first use of the weights is slow
        pair.timed(loop, x, min(N, 8))
    if mine:
        speculative = partial(speculative, loop=mine.loop())
    loops = {
        "Autoregressive Decode": partial(pair.timed, plain, x, N),
        "Speculative Decode": partial(pair.timed, speculative, x, N),
    }
    alone, guessed = in_turns(loops, partial(show, args.prompt, encoder))
    rows = figures(alone, guessed, f"K = {args.K}", why_texts_differ(args))
    if mine:
        rows |= mine.figures(args, alone, guessed)
    print(f"\n{printed(rows)}")


if __name__ == "__main__":
    ending.report(main, "main.py")
