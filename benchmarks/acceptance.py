"""How often drafts are right, and what that gains: by draft, schedule, verification and K, on the bundled pair.

    pip install -r benchmarks/requirements.txt
    python benchmarks/acceptance.py fairy-tales.txt

The prompts are from the last tenth of the text, which no model and no table was fitted on. Writes docs/acceptance.md
and the figures beside it. For each prompt all ways to decode take turns, so that a machine that becomes slower does so
for all of them; the speedup is the ratio of the seconds summed over prompts.
"""

import argparse
import os
import sys
import time
from collections import defaultdict
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [ROOT, os.path.join(ROOT, "tools")]
from corpus import split_tales

from drafts import NGram, Online, early_exit, log_probs, lookup, not_found
from gpt2 import GPT2
from schedules import Overheard, Timed, adaptive, draft_confidence, heuristic, measured, target_confidence
from speculative import autoregressive_sampling, sampler, speculative_sampling, verify, verify_block
from theory import beta, betas, expected_tokens, optimal_K
from utils import load_encoder_hparams_and_params

TEMPERATURES = 0.0, 0.5, 1.0
SCHEDULES = "fixed", "target-confidence", "draft-confidence", "both gates", "heuristic", "adaptive"
N_PROMPT = 32


class Way(NamedTuple):
    """A way to decode. The K of "plain" is 0."""

    draft: str = "draft network"
    K: int = 4
    schedule: str = "fixed"
    verify: str = "token"


PLAIN = Way(K=0, schedule="plain")


class Result:
    """What decoding in one way at one temperature came to, over all prompts."""

    def __init__(self):
        self.seconds, self.n_tokens, self.betas, self.ks, self.costs = 0.0, 0, [], [], []

    def add(self, seconds, n_tokens, rounds, costs):
        self.seconds, self.n_tokens = self.seconds + seconds, self.n_tokens + n_tokens
        self.ks += [len(r.drafted) for r in rounds]
        self.betas += betas(rounds).tolist()
        self.costs.append(costs)

    @property
    def tokens_per_round(self):
        return self.n_tokens / len(self.ks)

    @property
    def accepted(self):
        """Of all drafted tokens, the share that is in the text: each round adds one token of the target's as well."""
        return (self.n_tokens - len(self.ks)) / sum(self.ks)

    @property
    def predicted(self):
        """The speedup by theory.py, from each round's k and what was measured: alpha, c, v."""
        ks, c, v = np.array(self.ks), *(np.median(costs, axis=0) for costs in zip(*self.costs, strict=True))
        alpha = np.mean(self.betas) if self.betas else 0.0
        return expected_tokens(alpha, ks).sum() / (ks * c + v[ks]).sum()


def make_drafts(draft_network, target_network, tables):
    """{name: network}, but for lookup, which is a model: no temperature applies to what is certain."""
    n_vocab, n_layer = target_network.n_vocab, len(target_network.weights["blocks"])
    drafts = {
        name: log_probs(NGram.load(tables, n)) for n, name in enumerate(("unigram", "bigram", "trigram"), start=1)
    }
    drafts |= {"online trigram": log_probs(Online(n_vocab)), "prompt lookup": lookup(n_vocab)}
    drafts |= {f"early exit, {n} of {n_layer}": early_exit(target_network, n) for n in range(1, n_layer // 2 + 1)}
    return drafts | {"draft network": draft_network}


def options_of(way, T, draft, target, costs):
    """What `speculative_sampling` takes for a way."""
    rows = dict(draft=draft.rows if way.draft != "prompt lookup" else None, target=target.rows) if T == 0 else {}
    gate, stop = target_confidence(way.K, rows=rows.get("target")), draft_confidence(rows=rows.get("draft"))
    schedule = {"heuristic": heuristic(way.K), "adaptive": adaptive(way.K, costs)}
    return dict(
        K=way.K,
        verify=verify_block if way.verify == "block" else verify,
        schedule=gate if way.schedule in ("target-confidence", "both gates") else schedule.get(way.schedule),
        stop=stop if way.schedule in ("draft-confidence", "both gates")
        else not_found if way.draft == "prompt lookup" else None,
    )  # fmt: skip


def decode(ways, prompts, N, T, drafts, target_network):
    """Decode all prompts in all ways -> {way: Result}, {draft: alpha along the target's own text}."""
    heard = {name: Overheard(net) for name, net in drafts.items()}
    target_heard = Overheard(target_network)
    models = {name: Timed(sampler(net, T)) for name, net in heard.items()}
    models["prompt lookup"] = Timed(drafts["prompt lookup"])
    target, results, by_draft = Timed(sampler(target_heard, T)), defaultdict(Result), defaultdict(list)
    options = {
        way: options_of(way, T, heard[way.draft], target_heard, measured(models[way.draft], target)) for way in ways
    }

    def run(way, prompt, N, seed):
        for net in (*drafts.values(), target_network):
            if isinstance(net, GPT2):
                net.forget()
        for model in (*models.values(), target):
            model.restart()
        rounds, rng = [], np.random.default_rng(seed)
        begun = time.perf_counter()
        if way == PLAIN:
            ids = autoregressive_sampling(prompt, target, N, rng, on_round=rounds.append)
        else:
            ids = speculative_sampling(
                prompt, models[way.draft], target, N, rng=rng, **options[way], on_round=rounds.append
            )
        return ids, time.perf_counter() - begun, rounds

    for way in (PLAIN, *ways):
        run(way, prompts[0], min(N, 10), seed=0)  # the first touch of weights and threads
    for seed, prompt in enumerate(tqdm(prompts, desc=f"T = {T:g}", unit="prompt")):
        for way in (PLAIN, *ways):
            ids, seconds, rounds = run(way, prompt, N, seed)
            results[way].add(seconds, N, rounds, measured(models[way.draft], target)(way.K))
            if way == PLAIN:
                q = target(ids[:-1], N)  # [N, n_vocab]
                for name, model in models.items():
                    by_draft[name].append(beta(model.model(ids[:-1], N), q))
    return results, {name: np.mean(b) for name, b in by_draft.items()}


def table(header, rows):
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def report(results, alphas, drafts, by_K, K_draft, args):
    """docs/acceptance.md. results is {T: {way: Result}}, alphas {T: {draft: alpha}}."""

    def speedup(T, way):
        return f"{results[T][PLAIN].seconds / results[T][way].seconds:.2f}"

    def cost(draft):
        return f"{np.median([c for c, _ in results[1.0][Way(draft, K_draft)].costs]):.3f}"

    accepted = ", ".join(f"{results[T][Way(K=K_draft)].accepted:.2f} at T = {T:g}" for T in TEMPERATURES)
    sections = [
        f"""# Acceptance and speedup, measured

By `python benchmarks/acceptance.py`: {args.prompts} held-out prompts of {N_PROMPT} tokens, {args.N} new tokens each, \
{os.cpu_count()} cores, NumPy {np.__version__}.""",
        f"""## How often each draft is right

alpha is the mean of sum min(p, q) along the target's own text, draft and target both at temperature T (cf. Leviathan \
et al., Table 3). c is what a draft step costs, in target steps; the speedup is that of K = {K_draft}. (A lookup that \
finds nothing counts as a uniform row in alpha; there the round stops.) Of the tokens that the draft network drafts, \
those after a rejection among them, these shares are accepted: {accepted}.

![alpha by draft](alpha_by_draft.svg)

"""
        + table(
            [
                "draft",
                *(f"alpha, T = {T:g}" for T in TEMPERATURES),
                "c",
                *(f"speedup, T = {T:g}" for T in TEMPERATURES),
            ],
            [
                [
                    name,
                    *(f"{alphas[T][name]:.3f}" for T in TEMPERATURES),
                    cost(name),
                    *(speedup(T, Way(name, K_draft)) for T in TEMPERATURES),
                ]
                for name in drafts
            ],
        ),
        """## Schedules

Speedup, the tokens per round in brackets. Thresholds are 0.5 of the target and 0.4 of the draft; K is the most that a \
schedule may draft.

![speedup by schedule](speedup_by_schedule.svg)

"""
        + table(
            ["schedule", *(f"T = {T:g}, K = {K}" for T in TEMPERATURES for K in (4, 8))],
            [
                [
                    schedule,
                    *(
                        f"{speedup(T, way)} ({results[T][way].tokens_per_round:.2f})"
                        for T in TEMPERATURES
                        for K in (4, 8)
                        for way in [Way(K=K, schedule=schedule)]
                    ),
                ]
                for schedule in SCHEDULES
            ],
        ),
        """## Token by token or as a block

Speedup, the tokens per round in brackets. (At T = 0 they are the same.)

"""
        + table(
            ["verification", *(f"T = {T:g}, K = {K}" for T in TEMPERATURES[1:] for K in (2, 4, 8))],
            [
                [
                    how,
                    *(
                        f"{speedup(T, way)} ({results[T][way].tokens_per_round:.2f})"
                        for T in TEMPERATURES[1:]
                        for K in (2, 4, 8)
                        for way in [Way(K=K, verify=how)]
                    ),
                ]
                for how in ("token", "block")
            ],
        ),
        """## Measured and predicted

The prediction is that of theory.py for the alpha, c and v(K + 1) of the same runs.

![measured and predicted speedup](measured_and_predicted.svg)

"""
        + table(
            ["K", *(f"{what}, T = {T:g}" for T in TEMPERATURES for what in ("measured", "predicted"))],
            [
                [K, *(x for T in TEMPERATURES for x in (speedup(T, Way(K=K)), f"{results[T][Way(K=K)].predicted:.2f}"))]
                for K in by_K
            ],
        ),
        """## The best K in theory

v = 1, as in Leviathan et al., Figure 3.

![optimal K](optimal_K.svg)
""",
    ]
    with open(os.path.join(args.out, "acceptance.md"), "w", encoding="utf-8") as f:
        f.write("\n\n".join(sections))


def figures(results, alphas, drafts, by_K, out):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "the same names in each run"
    from matplotlib import pyplot as plt

    def figure(name, draw, **labels):
        fig, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
        draw(ax)
        ax.set(**labels)
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False)
        fig.savefig(os.path.join(out, name), metadata={"Date": None})
        plt.close(fig)

    def bars(ax, names, height):
        for i, T in enumerate(TEMPERATURES):
            ax.bar(
                np.arange(len(names)) + 0.27 * (i - 1), [height(T, name) for name in names], 0.25, label=f"T = {T:g}"
            )
        ax.set_xticks(np.arange(len(names)), names, rotation=20, ha="right")

    def speedups(ax):
        for i, T in enumerate(TEMPERATURES):
            plain = results[T][PLAIN].seconds
            ax.plot(by_K, [plain / results[T][Way(K=K)].seconds for K in by_K], f"C{i}o-", label=f"T = {T:g}, measured")
            ax.plot(by_K, [results[T][Way(K=K)].predicted for K in by_K], f"C{i}--", label="predicted")

    def best(ax):
        grid = np.linspace(0, 0.97, 400)
        for c in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5):
            ax.step(grid, optimal_K(grid, c), label=f"c = {c:g}")

    figure("alpha_by_draft.svg", lambda ax: bars(ax, list(drafts), lambda T, name: alphas[T][name]), ylabel="alpha")
    figure(
        "speedup_by_schedule.svg",
        lambda ax: bars(
            ax, SCHEDULES, lambda T, s: results[T][PLAIN].seconds / results[T][Way(K=8, schedule=s)].seconds
        ),
        ylabel="speedup, K = 8",
    )
    figure("measured_and_predicted.svg", speedups, xlabel="K", ylabel="speedup")
    figure("optimal_K.svg", best, xlabel="alpha", ylabel="optimal K", ylim=(0, 20))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("--models_dir", default=os.path.join(ROOT, "models"), help="has draft/, target/, ngrams.npz")
    parser.add_argument("--out", default=os.path.join(ROOT, "docs"))
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--N", type=int, default=100)
    args = parser.parse_args()

    encoder, *target = load_encoder_hparams_and_params("target", args.models_dir)
    _, *draft = load_encoder_hparams_and_params("draft", args.models_dir)
    draft_network, target_network = (GPT2(params, hparams) for hparams, params in (draft, target))
    drafts = make_drafts(draft_network, target_network, os.path.join(args.models_dir, "ngrams.npz"))
    _, tales = split_tales(args.corpus)
    some = [tales[i * len(tales) // args.prompts] for i in range(args.prompts)]
    prompts = [np.array(encoder.encode(tale)[:N_PROMPT]) for tale in some]

    by_K, K_draft = range(1, 9), 4
    ways = {
        **{Way(draft, K_draft): None for draft in drafts},
        **{Way(K=K, schedule=schedule): None for schedule in SCHEDULES for K in (4, 8)},
        **{Way(K=K, verify=how): None for how in ("token", "block") for K in (2, 4, 8)},
        **{Way(K=K): None for K in by_K},
    }
    decoded = {T: decode(list(ways), prompts, args.N, T, drafts, target_network) for T in TEMPERATURES}
    results, alphas = ({T: both[i] for T, both in decoded.items()} for i in (0, 1))
    os.makedirs(args.out, exist_ok=True)
    report(results, alphas, drafts, by_K, K_draft, args)
    figures(results, alphas, drafts, by_K, args.out)


if __name__ == "__main__":
    main()
