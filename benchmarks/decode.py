"""Speculative against autoregressive decoding for K = 1 ... 8: the speedup measured, and the one that theory expects.

    python benchmarks/decode.py models/draft models/target
    python benchmarks/decode.py models/124M models/1558M --N 40 --K 4

The formula is given what was measured in the same run: alpha, the time of a draft step, and that of a target step
with one row and with K + 1. Each repetition times both loops, one after the other, and has a speedup and a formula of
its own, as the speed of a shared machine changes from one minute to the next; the table has the medians.
"""

import argparse
import os
import sys
import time

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import theory
from gpt2 import GPT2
from schedules import Timed, measured
from speculative import autoregressive_sampling, sampler, speculative_sampling
from utils import load_hparams_and_params


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("draft")
    parser.add_argument("target")
    parser.add_argument("--N", type=int, default=200)
    parser.add_argument("--K", type=int, nargs="*", default=[1, 2, 3, 4, 5, 6, 7, 8])
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--repetitions", type=int, default=5)
    args = parser.parse_args()

    networks = [GPT2(params, hparams) for hparams, params in map(load_hparams_and_params, (args.draft, args.target))]
    prompt = np.random.default_rng(0).integers(networks[1].n_vocab, size=12)

    def decode(sampling, *models, seed, **options):
        for net in networks:
            net.forget()
        for model in models:
            model.restart()
        begun = time.perf_counter()
        sampling(prompt, *models, args.N, rng=np.random.default_rng(seed), **options)
        return time.perf_counter() - begun

    draft, target = (sampler(net, args.temperature) for net in networks)
    decode(speculative_sampling, Timed(draft), Timed(target), seed=0, K=4)  # the first touch of the weights
    print(f"T = {args.temperature}, N = {args.N}, {args.draft} -> {args.target}\n")
    print("| K | alpha | tokens per round | target step, ms | c (draft step) | v (K + 1 rows) | speedup | formula |")
    print("| --- " * 8 + "|")
    for K in args.K:
        runs, rounds = [], []
        for seed in range(args.repetitions):
            p, q = Timed(draft), Timed(target)
            plain = decode(autoregressive_sampling, q, seed=seed)
            fast = decode(speculative_sampling, p, q, seed=seed, K=K, on_round=rounds.append)
            c, v = measured(p, q)(K)
            runs.append([plain / fast, q.typical(1), c, v[K]])
        alpha = theory.betas(rounds).mean()
        expected = np.median([theory.improvement(alpha, K, c, v) for _, _, c, v in runs])
        speedup, step, c, v = np.median(runs, axis=0)
        print(
            f"| {K} | {alpha:.3f} | {args.N * args.repetitions / len(rounds):.2f} | {step * 1e3:.2f} | {c:.3f} "
            f"| {v:.2f} | {speedup:.2f} | {expected:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
