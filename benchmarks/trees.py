"""Trees against chains, with the bundled target: the tables of docs/trees.md.

    python -m benchmarks.trees  # prints both tables, and takes minutes

The first table is about one token: how likely is one of n siblings accepted, averaged
over the target's own texts? The second decodes: tokens per round, for a chain, for two
chains, and for the tree of the same size that the first table says is best.
"""

import argparse
import concurrent.futures
import heapq
import itertools
import json
from pathlib import Path

import numpy as np

from benchmarks.tables import table
from gpt2 import GPT2
from lab.drafts import make_draft
from lab.theory import best_acceptance
from lab.trees import balanced, bottom_up, top_down, tree_sampling
from runs import beta
from sampling import as_model, sample
from speculative import acceptance, autoregressive_sampling, max_fn, residual
from utils import load_encoder_hparams_and_params

SIZE = 8  # guesses per round
SEEDS = {0.0: 1, 1.0: 2}  # how often each prompt is continued at each temperature
RANKS, SHOWN = 8, (1, 2, 3, 4, 8)  # siblings that are measured, and those in the first table
COLD = 0.02  # the draft's temperature where the target's is 0: one-hot rows have no second guess


def sibling_acceptance(p, q, rng):
    """The mean probability that `top_down` accepts the 1st, one of 2, ... one of RANKS siblings."""
    accepted = np.ones((len(p), RANKS))
    for i, (p_i, r) in enumerate(zip(p, q)):
        refused = 1.0  # the probability that all siblings so far are refused
        for n in range(RANKS):
            accepted[i, n:] = 1 - refused * (1 - beta(p_i, r))
            token = sample(p_i, rng)
            refused *= 1 - acceptance(p_i[token], r[token])
            r, left = residual(p_i, r), np.where(np.arange(len(p_i)) == token, 0, p_i)
            if refused == 0 or not left.any():
                accepted[i, n + 1 :] = 1 - refused
                break
            p_i = max_fn(left)
    return accepted.mean(axis=0)


def best_shape(gains, size):
    """The tree with the most accepted guesses, if the i-th child were accepted with gains[i] wherever it is."""
    heap, chosen = [(-gains[0], (0,))], set()
    while len(chosen) < size:
        reach, path = heapq.heappop(heap)
        chosen.add(path)
        rank = path[-1]
        heapq.heappush(heap, (reach * gains[0], (*path, 0)))
        if rank + 1 < len(gains):
            heapq.heappush(heap, (reach / gains[rank] * gains[rank + 1], (*path[:-1], rank + 1)))

    def nested(path):
        return tuple(nested((*path, i)) for i in itertools.takewhile(lambda i: (*path, i) in chosen, range(len(gains))))

    return nested(())


def widths(shape):
    """How many nodes there are at depth 1, 2, ..."""
    below = [widths(child) for child in shape]
    return [len(shape), *map(sum, itertools.zip_longest(*below, fillvalue=0))] if shape else []


def measure(T, name, N, n_prompts):
    """The rows of both tables for one draft and one temperature."""
    encoder, hparams, params = load_encoder_hparams_and_params("target")
    target = GPT2(params, hparams)
    if name == "network":
        draft = GPT2(*reversed(load_encoder_hparams_and_params("draft")[1:]))
    else:
        draft = make_draft("ngram", target, encoder)
    draft_model, target_model = as_model(draft, T or COLD), as_model(target, T)
    openings = json.loads(Path(__file__).with_name("openings.json").read_text(encoding="utf-8"))
    prompts = [np.array(encoder.encode(text)) for text in openings[:n_prompts]] * SEEDS[T]
    seeds = [np.random.SeedSequence(i) for i in range(len(prompts))]
    p, q, name = [], [], f"{name}, T = {T:g}"
    for x, seed in zip(prompts, seeds):
        text = autoregressive_sampling(x, target_model, N, np.random.default_rng(seed))
        p.append(draft_model(text[:-1], N))
        q.append(target_model(text[:-1], N))
    p, q = np.concatenate(p), np.concatenate(q)  # [n_prompts * N, n_vocab]
    accepted = sibling_acceptance(p, q, np.random.default_rng(0))
    siblings = [[name, *(float(accepted[n - 1]) for n in SHOWN)]]
    if T > 0:  # at 0, independent guesses are all the same
        bound = [float(best_acceptance(p, q, n).mean()) for n in SHOWN]
        siblings.append(["at best, if independent", *bound])
    best, means = best_shape(np.maximum(np.diff(accepted, prepend=0), 1e-9), SIZE), []
    trees = balanced(*[1] * SIZE), balanced(2, *[1] * (SIZE // 2 - 1)), best
    for shape, rule in [*((shape, bottom_up) for shape in trees), (best, top_down)]:
        emitted = []
        for x, seed in zip(prompts, seeds):
            options = dict(rule=rule, on_round=lambda r: emitted.append(len(r.emitted)))  # noqa: B023
            tree_sampling(x, draft_model, target_model, N, shape, np.random.default_rng(seed), **options)
        means.append(float(np.mean(emitted)))
    return siblings, [name, *means, " ".join(map(str, widths(best)))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--N", type=int, default=64, help="tokens per prompt")
    parser.add_argument("--prompts", type=int, default=20)
    args = parser.parse_args()
    ways = [(T, name, args.N, args.prompts) for T in SEEDS for name in ("network", "n-grams")]
    with concurrent.futures.ProcessPoolExecutor() as pool:
        siblings, rounds = zip(*pool.map(measure, *zip(*ways)))
    print(table(["one of n siblings is accepted", *(f"n = {n}" for n in SHOWN)], itertools.chain(*siblings)))
    header = ["draft", "chain", "two chains", "best tree", "best, top-down", "its nodes at depth 1, 2, ..."]
    print(f"\n{table(header, rounds)}")


if __name__ == "__main__":
    main()
