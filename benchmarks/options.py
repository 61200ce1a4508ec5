"""Compute how far the output is from the target's distribution, for 2,880 combinations of options.

    python benchmarks/options.py

The options are draft, schedule, verification, temperature, top-k, top-p, repetition penalty and end of text. The models
have 3 tokens, N is 4 and K is 2. For each combination, enumeration.py walks all outcomes of the random draws of
`pair.Pair.decode`, so the distance from plain sampling is exact up to rounding. Each row of the table covers all
combinations with one draft and one schedule. This takes about a minute.
"""

import argparse
import itertools
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from enumeration import output_distribution, total_variation
from gpt2 import GPT2
from lab.block import verify_block
from lab.drafts import AsNetwork, lookup
from lab.ngrams import ngram, online
from lab.pair import Pair
from lab.schedules import SCHEDULES
from speculative import verify
from utils import expected_shapes, nest

PROMPT, N, K = [0, 2, 1], 4, 2
OPTIONS = {
    "verify": (verify, verify_block),
    "temperature": (1.0, 0.5, 0.0),
    "top_k": (0, 2),
    "top_p": (1.0, 0.8),
    "repetition_penalty": (1.0, 1.5),
    "eos": (None, 0),
}
COSTS = np.array([1.0, 1.2, 1.55])  # of rounds with 0, 1, 2 drafted tokens: `adaptive` drafts 1 or 2, as alpha changes


def random_gpt2(seed, n_layer):
    hparams = dict(n_vocab=3, n_ctx=16, n_embd=8, n_head=2, n_layer=n_layer)
    rng = np.random.default_rng(seed)
    tensors = {name: 0.4 * rng.standard_normal(shape) for name, shape in expected_shapes(**hparams).items()}
    return GPT2(nest(tensors, n_layer), hparams)


def drafts(target):
    text = np.random.default_rng(2).integers(3, size=40)
    return {
        "model": random_gpt2(1, n_layer=1),
        "early-exit:1": target.first_layers(1),
        "unigram": AsNetwork(ngram(text, 3, 1)),
        "ngram": AsNetwork(ngram(text, 3, 3)),
        "online": AsNetwork(lambda ids: online(ids, 3)),
        "lookup": AsNetwork(lambda ids: lookup(ids, 3), sure=1.0),
    }


class Remembers:
    """The same network, but each row is computed only once, because enumeration asks for the same rows often."""

    def __init__(self, network):
        self.n_ctx, self.sure = network.n_ctx, getattr(network, "sure", 0.0)
        self.row = cache(lambda *ids: network(np.array(ids))[-1])

    def __call__(self, ids, n_rows=1):
        return np.array([self.row(*ids[: len(ids) - i].tolist()) for i in reversed(range(n_rows))])

    def forget(self):
        """Does nothing, because a row depends on its ids alone."""


def check(draft, schedule_name):
    """Try all combinations with one draft and one schedule -> n_combinations, n_paths, largest distance."""
    network = random_gpt2(0, n_layer=2)
    draft_network = drafts(network)[draft]
    draft_network, network = Remembers(draft_network), Remembers(network)
    n_paths, worst, n_combinations = 0, 0.0, 0
    for values in itertools.product(*OPTIONS.values()):
        options = dict(zip(OPTIONS, values, strict=True))
        shared = {name: options.pop(name) for name in ("verify", "eos")}
        pair = Pair(draft_network, network, **options)
        pair.costs = lambda K: COSTS[: K + 1]  # times would depend on more than rng
        paths = []

        def fast(rng, pair=pair, shared=shared, paths=paths):
            paths.append(1)
            return pair.decode(PROMPT, N, K, rng, schedule=schedule_name, **shared).ids

        def slow(rng, pair=pair, shared=shared):
            return pair.decode(PROMPT, N, rng=rng, **shared).ids

        worst = max(worst, total_variation(output_distribution(fast), output_distribution(slow)))
        n_paths, n_combinations = n_paths + len(paths), n_combinations + 1
    return n_combinations, n_paths, worst


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    begun, pairs = time.time(), list(itertools.product(drafts(random_gpt2(0, 2)), SCHEDULES))
    print("| draft | schedule | combinations of the other options | paths walked | largest distance |")
    print("| --- | --- | ---: | ---: | ---: |")
    totals = [0, 0, 0.0]
    with ProcessPoolExecutor() as pool:
        for (draft, schedule), found in zip(pairs, pool.map(check, *zip(*pairs, strict=True)), strict=True):
            totals = [totals[0] + found[0], totals[1] + found[1], max(totals[2], found[2])]
            print(f"| {draft} | {schedule} | {found[0]:,} | {found[1]:,} | {found[2]:.0e} |", flush=True)
    print(f"| all | all | {totals[0]:,} | {totals[1]:,} | {totals[2]:.0e} |\n\n{time.time() - begun:.0f} seconds")


if __name__ == "__main__":
    main()
