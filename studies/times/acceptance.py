"""Measure how often drafts are accepted by the bundled target, and what they gain: docs/acceptance.json.

    python -m studies.times.acceptance new.json  # measures for half an hour
    python -m studies.making.write                     # writes docs/acceptance.json into docs/drafts.md

The prompts are the first 32 tokens of tales that the bundled models and n-grams have not
seen (openings.json). All drafts take turns at each prompt, and the plain loop gets a turn
before each group of three, because the memory of a shared machine may be twice as fast a
minute later. A speedup is the mean time of the plain loop, divided by that of the draft.

Trees are measured, too: how likely is one of n siblings accepted, averaged over the
target's own texts? And how many tokens do a chain, two chains, and the tree of the same
size add that these numbers say is best?
"""

import argparse
import contextlib
import datetime
import heapq
import json
import platform
import re
from itertools import product, takewhile, zip_longest
from pathlib import Path

import numpy as np
from tqdm import tqdm

from checkpoint import UserError
from fast import matrix_kernel
from fast.threads import n_cores
from lab.drafts import make_draft
from lab.pair import LabPair
from lab.theory import best_acceptance
from lab.trees import balanced, bottom_up, top_down, tree_sampling
from runs import overlap
from sampling import as_model, sample
from speculative import acceptance, autoregressive_sampling, max_fn, residual
from terminal import report
from utils import load_models

TEMPERATURES = 0.0, 0.5, 1.0
DRAFTS = (
    "unigram",
    "bigram",
    "ngram",
    "online",
    "lookup",
    "early-exit:1",
    "early-exit:2",
    "early-exit:3",
    "model",
)
PROMPTS, N, SEEDS, K, EVERY = 20, 100, 2, 4, 3
SIZE, TREE_SEEDS = (
    8,
    {0.0: 1, 1.0: 2},
)  # guesses in a tree; how often each prompt is continued at each temperature
TREE_N = 64  # by so many tokens
RANKS, SHOWN = 8, (1, 2, 3, 4, 8)  # siblings that are measured, and those that are shown
COLD = 0.02  # the draft's temperature where the target's is 0: one-hot rows have no second guess


def openings(encoder):
    texts = json.loads((Path(__file__).parent / "openings.json").read_text(encoding="utf-8"))[
        :PROMPTS
    ]
    return [np.array(encoder.encode(text)) for text in texts]


def measure():
    """Continue all prompts with all drafts -> the content of acceptance.json."""
    encoder, network, target = load_models("draft", "target")
    drafts = {
        name: network if name == "model" else make_draft(name, target, encoder) for name in DRAFTS
    }
    prompts = openings(encoder) * SEEDS

    results = {}
    for T in TEMPERATURES:
        pairs = {}
        for name in DRAFTS:
            stop_below = 1.0 if name == "lookup" else 0.0
            pairs[name] = LabPair(drafts[name], target, temperature=T, stop_below=stop_below)
        plain, runs, overlaps = [], {name: [] for name in DRAFTS}, {name: [] for name in DRAFTS}
        for pair in pairs.values():  # so that no timed run is the first to use weights and threads
            pair.decode(prompts[0], 20, K)
        for seed, x in enumerate(tqdm(prompts, desc=f"T = {T:g}", unit="prompt")):
            for i, (name, pair) in enumerate(pairs.items()):
                if i % EVERY == 0:
                    plain.append(pair.decode(x, N, rng=np.random.default_rng(seed)))
                runs[name].append(pair.decode(x, N, K, rng=np.random.default_rng(seed)))
            ids = plain[-1].ids
            q = as_model(target, T)(ids[:-1], N)  # [N, n_vocab]
            for name, draft in drafts.items():
                overlaps[name].append(overlap(as_model(draft, T)(ids[:-1], N), q))
        step = np.mean([run.seconds for run in plain]) / N
        results[f"{T:g}"] = {
            name: {
                "overlap": float(np.mean(overlaps[name])),
                "c": float(
                    np.mean(np.concatenate([run.draft_seconds for run in runs[name]])) / step
                ),
                "tokens per round": N / np.mean([len(run.round_seconds) for run in runs[name]]),
                "speedup": step * N / np.mean([run.seconds for run in runs[name]]),
            }
            for name in DRAFTS
        }
    about = dict(
        date=str(datetime.date.today()), openings=PROMPTS, seeds=SEEDS, N=N, n_prompt=len(prompts[0]),
        cores=n_cores(), cpu=cpu(), numpy=np.__version__, kernel=matrix_kernel(),
    )  # fmt: skip
    return {"about": about, "results": results}


def measure_trees():
    """{"network, T = 0": {"siblings": [...], "bound": [...], "tokens": [...], "best": [...]}, ...}"""
    encoder, network, target = load_models("draft", "target")
    drafts, found = {"network": network, "n-grams": make_draft("ngram", target, encoder)}, {}
    for T, (name, draft) in product(TREE_SEEDS, drafts.items()):
        draft_model, target_model = as_model(draft, T or COLD), as_model(target, T)
        prompts = openings(encoder) * TREE_SEEDS[T]
        texts = [
            autoregressive_sampling(x, target_model, TREE_N, seed) for seed, x in enumerate(prompts)
        ]
        p, q = (
            np.concatenate([model(text[:-1], TREE_N) for text in texts])
            for model in (draft_model, target_model)
        )
        accepted = sibling_acceptance(p, q, np.random.default_rng(0))
        best, means = best_shape(np.maximum(np.diff(accepted, prepend=0), 1e-9), SIZE), []
        trees = balanced(*[1] * SIZE), balanced(2, *[1] * (SIZE // 2 - 1)), best
        for shape, rule in [*((shape, bottom_up) for shape in trees), (best, top_down)]:
            emitted = []
            for seed, x in enumerate(
                tqdm(prompts, desc=f"{name}, T = {T:g}, a tree", unit="prompt")
            ):
                options = dict(rule=rule, on_round=lambda r: emitted.append(len(r.emitted)))  # noqa: B023
                tree_sampling(x, draft_model, target_model, TREE_N, shape, seed, **options)
            means.append(float(np.mean(emitted)))
        found[f"{name}, T = {T:g}"] = {
            "siblings": [float(accepted[n - 1]) for n in SHOWN], "tokens": means, "best": widths(best),
            "bound": [float(best_acceptance(p, q, n).mean()) for n in SHOWN] if T else None,  # at 0 guesses are equal
        }  # fmt: skip
    return found


def sibling_acceptance(p, q, rng):
    """The mean probability that `top_down` accepts the 1st, one of 2, ... one of RANKS siblings."""
    accepted = np.ones((len(p), RANKS))
    for i, (p_i, r) in enumerate(zip(p, q)):
        refused = 1.0  # the probability that all siblings so far are refused
        for n in range(RANKS):
            accepted[i, n:] = 1 - refused * (1 - overlap(p_i, r))
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
        return tuple(
            nested((*path, i)) for i in takewhile(lambda i: (*path, i) in chosen, range(len(gains)))
        )

    return nested(())


def widths(shape):
    """How many nodes there are at depth 1, 2, ..."""
    below = [widths(child) for child in shape]
    return [len(shape), *map(sum, zip_longest(*below, fillvalue=0))] if shape else []


def cpu():
    """The name of the CPU, as far as the system tells."""
    with contextlib.suppress(OSError, IndexError):
        return re.findall("model name.*: (.*)", Path("/proc/cpuinfo").read_text())[0]
    return platform.processor() or platform.machine()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "file", type=Path, help="the results; what is in there already is not measured again"
    )
    args = parser.parse_args()
    args.file.open("a").close()  # if it cannot be written, that is said before anything takes time
    try:
        found = json.loads(args.file.read_text() or "{}")
    except ValueError as error:
        raise UserError(f"{args.file} holds no results: {error}") from None
    found = found or measure()
    args.file.write_text(json.dumps(found, indent=1) + "\n")
    if "trees" not in found:
        found["trees"] = measure_trees()
        args.file.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    report(main, "python -m studies.times.acceptance")
