"""How often the bundled target accepts drafts, and what they gain: docs/acceptance.json.

    python -m studies.times.acceptance new.json  # measures for half an hour
    python -m studies.making.write               # writes docs/acceptance.json into docs/drafts.md

The prompts are the first 32 tokens of tales that the bundled models and n-grams have not
seen (openings.json). All drafts take turns at each prompt, and the plain loop gets a turn
before each group of three, because the memory of a shared machine may be twice as fast a
minute later. A speedup is the mean time of the plain loop, divided by that of the draft.

Trees are measured, too: how likely is one of n siblings accepted, averaged over the
target's own texts? And how many tokens do a chain, two chains, and the tree of the same
size add that these numbers say is best?
"""

import datetime
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
from tqdm import tqdm

from ending import report
from fast import matrix_kernel
from fast.threads import n_cores
from lab.drafts import make_draft
from lab.pair import LabPair
from lab.theory import best_acceptance
from lab.trees import balanced, bottom_up, top_down, tree_sampling
from runs import overlap
from sampling import as_model, sample
from speculative import acceptance, autoregressive_sampling, max_fn, residual
from terminal import Parser
from utils import load_models

TEMPERATURES = 0.0, 0.5, 1.0
EARLY = "early-exit:1", "early-exit:2", "early-exit:3"
DRAFTS = "unigram", "bigram", "ngram", "online", "lookup", *EARLY, "model"
PROMPTS, SEEDS = 20, 2
N, K = 100, 4
GROUP = 3  # drafts that share a turn of the plain loop
SIZE = 8  # guesses in a tree
TREE_SEEDS = {0.0: 1, 1.0: 2}  # how often each prompt is continued at each temperature
TREE_N = 64  # by so many tokens
RANKS, SHOWN = 8, (1, 2, 3, 4, 8)  # siblings that are measured, and those that are shown
COLD = 0.02  # the draft's temperature where the target's is 0: one-hot rows have no second guess


def openings(encoder):
    path = Path(__file__).with_name("openings.json")
    texts = json.loads(path.read_text(encoding="utf-8"))
    return [np.array(encoder.encode(text)) for text in texts[:PROMPTS]]


def measure():
    """The content of acceptance.json."""
    encoder, network, target = load_models("draft", "target")

    def draft(name):
        return network if name == "model" else make_draft(name, target, encoder)

    prompts = openings(encoder)
    drafts = {name: draft(name) for name in DRAFTS}
    results = {f"{T:g}": gains(T, drafts, target, prompts * SEEDS) for T in TEMPERATURES}
    trees = {}
    for T, n_seeds in TREE_SEEDS.items():
        for title, name in ("network", "model"), ("n-grams", "ngram"):
            found = of_trees(T, draft(name), target, prompts * n_seeds)
            trees[f"{title}, T = {T:g}"] = found
    date = str(datetime.date.today())
    about = {"date": date, "cores": n_cores(), "kernel": matrix_kernel()}
    return {"about": about, "results": results, "trees": trees}


# ---- What each draft gains ----


def gains(T, drafts, target, prompts):
    """{draft: {"overlap", "c", "tokens per round", "speedup"}} at temperature T."""
    pairs = {}
    for name, draft in drafts.items():
        stop_below = 1.0 if name == "lookup" else 0.0
        pairs[name] = LabPair(draft, target, temperature=T, stop_below=stop_below)
        pairs[name].decode(prompts[0], 20, K)  # so that no timed run is the first to use weights
    plain = []
    runs = defaultdict(list)
    overlaps = defaultdict(list)
    for seed, x in enumerate(tqdm(prompts, desc=f"T = {T:g}", unit="prompt")):
        for i, (name, pair) in enumerate(pairs.items()):
            if i % GROUP == 0:
                plain.append(pair.decode(x, N, rng=seed))
            runs[name].append(pair.decode(x, N, K, rng=seed))
        text = plain[-1].ids[:-1]
        for name, pair in pairs.items():
            p = pair.draft_model(text, N)  # [N, n_vocab]
            q = pair.target_model(text, N)
            overlaps[name].append(overlap(p, q))
    plain_step = np.mean([run.seconds for run in plain]) / N
    results = {}
    for name, some in runs.items():
        draft_steps = np.concatenate([run.draft_seconds for run in some])
        n_rounds = np.mean([len(run.round_seconds) for run in some])
        seconds = np.mean([run.seconds for run in some])
        results[name] = {
            "overlap": float(np.mean(overlaps[name])),
            "c": float(np.mean(draft_steps) / plain_step),
            "tokens per round": float(N / n_rounds),
            "speedup": float(N * plain_step / seconds),
        }
    return results


# ---- Trees ----


def of_trees(T, draft, target, prompts):
    """{"siblings", "bound", "tokens", "best"} at temperature T, see docs/drafts.md."""
    draft_model = as_model(draft, T or COLD)
    target_model = as_model(target, T)
    p, q = [], []
    for seed, x in enumerate(prompts):
        text = autoregressive_sampling(x, target_model, TREE_N, seed)
        p.append(draft_model(text[:-1], TREE_N))
        q.append(target_model(text[:-1], TREE_N))
    p, q = np.concatenate(p), np.concatenate(q)
    rng = np.random.default_rng(0)
    accepted = np.mean([siblings(*rows, rng) for rows in zip(p, q)], axis=0)
    best = best_shape(np.diff(accepted, prepend=0), SIZE)
    chain = balanced(*[1] * SIZE)
    two_chains = balanced(2, *[1] * (SIZE // 2 - 1))
    ways = (chain, bottom_up), (two_chains, bottom_up), (best, bottom_up), (best, top_down)
    tokens = []
    for shape, rule in tqdm(ways, desc=f"Trees, T = {T:g}"):
        emitted = []

        def note(r, emitted=emitted):
            emitted.append(len(r.emitted))

        for seed, x in enumerate(prompts):
            tree_sampling(
                x, draft_model, target_model, TREE_N, shape, seed, rule=rule, on_round=note
            )
        tokens.append(float(np.mean(emitted)))
    bound = None  # at 0 guesses are equal
    if T > 0:
        bound = [float(best_acceptance(p, q, n).mean()) for n in SHOWN]
    shown = [float(accepted[n - 1]) for n in SHOWN]
    return {"siblings": shown, "tokens": tokens, "best": widths(best), "bound": bound}


def siblings(p, q, rng):
    """The probability that `top_down` accepts the 1st, one of 2, ... one of RANKS siblings."""
    accepted = []
    refused = 1.0  # the probability that all siblings so far are refused
    for _ in range(RANKS):
        accepted.append(1 - refused * (1 - overlap(p, q)))
        token = sample(p, rng)
        refused *= 1 - acceptance(p[token], q[token])
        q = residual(p, q)
        p = np.where(np.arange(len(p)) == token, 0, p)
        if refused == 0 or not p.any():
            break
        p = max_fn(p)
    return accepted + [1 - refused] * (RANKS - len(accepted))


def best_shape(gains, size):
    """The tree with the most accepted guesses, if any i-th child were accepted with gains[i]."""
    root = []
    nodes = [(1.0, root)]  # how likely a node is reached, and its children
    for _ in range(size):
        reached, children = max(nodes, key=lambda node: node[0] * gains[len(node[1])])
        child = []
        nodes.append((reached * gains[len(children)], child))
        children.append(child)
    return root


def widths(shape):
    """How many nodes there are at depth 1, 2, ..."""
    found = []
    while shape:
        found.append(len(shape))
        shape = [below for child in shape for below in child]
    return found


def main():
    parser = Parser(description=__doc__)
    parser.add_argument("file", type=Path, help="the results")
    file = parser.parse_args().file
    file.touch()  # if it cannot be written, that is said before anything takes time
    file.write_text(json.dumps(measure(), indent=1) + "\n")


if __name__ == "__main__":
    report(main, "python -m studies.times.acceptance")
