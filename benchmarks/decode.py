"""Compare the measured speedup of speculative decoding with the formula of theory.py, for K = 1 ... 8.

    python benchmarks/decode.py models/draft models/target
    python benchmarks/decode.py models/124M models/1558M --N 40 --K 4

The prompt has 12 random tokens, because these suit every vocabulary. The formula gets the betas (see theory.py) and the
times of the draft and target steps as measured in the same runs. Runs with and without speculation take turns, because
the speed of a shared machine changes from minute to minute. All figures are over all repetitions together. "expected"
is the number of tokens per round by the betas. It has less noise than the number that was counted.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from gpt2 import GPT2
from lab.measure import joined, predicted
from lab.pair import Pair
from lab.theory import tokens_by_position
from utils import load_hparams_and_params


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("draft", help="the directory of the draft, such as models/draft")
    parser.add_argument("target", help="the directory of the target")
    parser.add_argument("--N", type=int, default=200, help="how many tokens to decode (%(default)s)")
    parser.add_argument("--K", type=int, nargs="*", default=[*range(1, 9)], help="the K to measure (default: 1 to 8)")
    parser.add_argument("--temperature", type=float, default=1.0, help="of both models (%(default)s)")
    parser.add_argument("--repetitions", type=int, default=5, help="how many runs per K (%(default)s)")
    args = parser.parse_args()

    networks = [GPT2(params, hparams) for hparams, params in map(load_hparams_and_params, (args.draft, args.target))]
    pair = Pair(*networks, temperature=args.temperature)
    prompt = np.random.default_rng(0).integers(networks[1].n_vocab, size=12)
    pair.decode(prompt, min(args.N, 20), K=4)  # so that no timed run is the first to use the weights
    print(f"T = {args.temperature}, N = {args.N}, draft {args.draft}, target {args.target}\n")
    columns = ["K", "alpha", "tokens per round", "expected", "target, ms", "c", "v", "r", "speedup", "formula"]
    print("| " + " | ".join(columns) + " |")
    print("| --- " * len(columns) + "|")
    for K in args.K:
        runs = [], []  # without and with speculation, in turns
        for seed in range(args.repetitions):
            for found, options in zip(runs, ({}, {"K": K})):
                found.append(pair.decode(prompt, args.N, rng=np.random.default_rng(seed), **options))
        plain, fast = runs
        prediction, alpha, c, v, r = predicted(plain, fast) or [np.nan] * 5
        tokens = sum(run.n_new for run in fast) / len(joined(fast, "n_drafted"))
        expected = tokens_by_position([b for run in fast for b in run.betas], K)[-1]
        step = joined(plain, "passes", first=1).mean()  # without those that read the prompt
        speedup = joined(plain, "lasted").sum() / joined(fast, "lasted").sum()
        print(
            f"| {K} | {alpha:.3f} | {tokens:.2f} | {expected:.2f} | {step * 1e3:.2f} | {c:.3f} | {v:.2f} | {r:.2f} "
            f"| {speedup:.2f} | {prediction:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
