"""Measure acceptance and speedup with the bundled target, for each draft, schedule, verification and K.

    pip install -r benchmarks/requirements.txt
    python benchmarks/acceptance.py              # takes half an hour; writes docs/acceptance.json and draws it
    python benchmarks/acceptance.py --draw       # only draws docs/acceptance.md and its figures again

The prompts are the first 32 tokens of 20 tales that the bundled models and n-grams have not seen (openings.json). Each
is continued with two seeds. For each prompt and seed, all ways to decode take turns, so that a slow minute of the
machine slows all of them. The plain loop gets a turn before each group of eight ways, because its time is part of every
speedup. A speedup is the mean time of the plain loop, divided by the mean time of the other way.
"""

import argparse
import contextlib
import datetime
import importlib.util
import json
import platform
import re
import sys
from pathlib import Path

import numpy as np
from tqdm import tqdm

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from fast import matrix_kernel
from fast.threads import n_cores
from gpt2 import GPT2
from lab.block import verify_block
from lab.drafts import make_draft
from lab.measure import joined, predicted
from lab.pair import Pair
from lab.schedules import SCHEDULES
from lab.theory import beta, optimal_K
from sampling import sampler
from speculative import verify
from utils import load_encoder_hparams_and_params

TEMPERATURES = 0.0, 0.5, 1.0
DRAFTS = "unigram", "bigram", "ngram", "online", "lookup", "early-exit:1", "early-exit:2", "early-exit:3", "model"
SEEDS, EVERY = 2, 8


def ways():
    """All ways to decode but the plain loop: {name: (draft, options of Pair.decode)}."""
    found = {f"{draft}, K = 4": (draft, dict(K=4)) for draft in DRAFTS}
    found |= {f"model, K = {K}": ("model", dict(K=K)) for K in range(1, 9)}
    for K in 4, 8:
        for schedule in SCHEDULES:
            found[f"{schedule}, K = {K}"] = "model", dict(K=K, schedule=schedule)
    for K in 2, 4, 8:
        for how in verify, verify_block:
            found[f"{how.__name__}, K = {K}"] = "model", dict(K=K, verify=how)
    return found


def measure(args):
    """Decode all prompts in all ways -> the content of acceptance.json."""
    encoder, hparams, params = load_encoder_hparams_and_params("target")
    target = GPT2(params, hparams)
    drafts = {name: make_draft(name, target, encoder) for name in DRAFTS if name != "model"}
    drafts["model"] = GPT2(*reversed(load_encoder_hparams_and_params("draft")[1:]))
    openings = json.loads((Path(__file__).parent / "openings.json").read_text(encoding="utf-8"))
    prompts = [np.array(encoder.encode(text)) for text in openings[: args.prompts]] * SEEDS

    results = {}
    for T in TEMPERATURES:
        # Each way has a pair of its own, so "adaptive" knows only the costs that it has measured itself.
        pairs = {name: Pair(drafts[draft], target, temperature=T) for name, (draft, _) in ways().items()}
        target_alone = Pair(drafts["model"], target, temperature=T)
        plain, runs, alphas = [], {name: [] for name in ways()}, {name: [] for name in DRAFTS}
        for draft in drafts.values():  # so that no timed run is the first to use weights and threads
            Pair(draft, target, temperature=T).decode(prompts[0], min(args.N, 20), 4)
        for seed, x in enumerate(tqdm(prompts, desc=f"T = {T:g}", unit="prompt")):
            for i, (name, (_, options)) in enumerate(ways().items()):
                if i % EVERY == 0:
                    plain.append(target_alone.decode(x, args.N, rng=np.random.default_rng(seed)))
                runs[name].append(pairs[name].decode(x, args.N, rng=np.random.default_rng(seed), **options))
            ids = plain[-1].ids
            q = sampler(target, T)(ids[:-1], args.N)  # [N, n_vocab]
            for name, draft in drafts.items():
                alphas[name].append(beta(sampler(draft, T)(ids[:-1], args.N), q))
        results[f"{T:g}"] = {"alpha": {name: float(np.mean(betas)) for name, betas in alphas.items()}, "ways": {}}
        for name in ways():
            fast = runs[name]
            prediction, _, c, v, _ = predicted(plain, fast) or [None] * 5
            drafted, accepted = joined(fast, "n_drafted"), joined(fast, "n_accepted")
            results[f"{T:g}"]["ways"][name] = {
                "speedup": float(np.mean([run.seconds for run in plain]) / np.mean([run.seconds for run in fast])),
                "predicted": prediction,
                "c": c,
                "v": v,
                "tokens per round": sum(run.n_new for run in fast) / len(drafted),
                "acceptance rate": float(accepted.sum() / max(drafted.sum(), 1)),
            }
    about = dict(
        date=str(datetime.date.today()), openings=len(prompts) // SEEDS, seeds=SEEDS, N=args.N,
        n_prompt=len(prompts[0]), cores=n_cores(), cpu=cpu(), numpy=np.__version__, kernel=matrix_kernel(),
    )  # fmt: skip
    return {"about": about, "results": results}


def cpu():
    """The name of the CPU, as far as the system tells."""
    with contextlib.suppress(OSError, IndexError):
        return re.findall("model name.*: (.*)", Path("/proc/cpuinfo").read_text())[0]
    return platform.processor() or platform.machine()


def table(header, rows):
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def draw(found, out):
    """Write acceptance.md and the figures beside it."""
    about, results = found["about"], found["results"]

    def cell(T, way, figure="speedup", digits=2):
        value = results[f"{T:g}"]["ways"][way][figure]
        return "" if value is None else f"{value:.{digits}f}"

    def with_rounds(names, columns):
        """A table of speedups, with the tokens per round in brackets and one line per name."""

        def both(T, way):
            return f"{cell(T, way)} ({cell(T, way, 'tokens per round')})"

        rows = [[name, *(both(T, f"{name}, K = {K}") for T, K in columns)] for name in names]
        return table(["", *(f"T = {T:g}, K = {K}" for T, K in columns)], rows)

    by_T = [f"T = {T:g}" for T in TEMPERATURES]
    drafts = [
        [
            name,
            *(f"{results[f'{T:g}']['alpha'][name]:.3f}" for T in TEMPERATURES),
            cell(1.0, f"{name}, K = 4", "c", 3),
            *(cell(T, f"{name}, K = 4") for T in TEMPERATURES),
        ]
        for name in DRAFTS
    ]
    formula = [
        [K, cell(0.0, f"model, K = {K}")]
        + [cell(T, f"model, K = {K}", what) for T in TEMPERATURES[1:] for what in ("speedup", "predicted")]
        for K in range(1, 9)
    ]
    sections = [
        f"""# What each draft, schedule and K gains

`python benchmarks/acceptance.py` continued the first {about["n_prompt"]} tokens of {about["openings"]} tales, which \
the bundled models have not seen, by {about["N"]} tokens, with {about["seeds"]} seeds each. It ran on {about["date"]} \
on {about["cores"]} cores of "{about["cpu"]}", with NumPy {about["numpy"]} and the matrix \
kernel "{about["kernel"]}". [acceptance.json](acceptance.json) has the raw figures.

A speedup is the time of the plain loop divided by that of the speculative loop. Repeated measurements of the same \
texts differ by a few percent. Above T = 0, different rules also write different texts, some of which are easier.""",
        """## Drafts

With K = 4. The overlap is the mean of sum min(p, q) over all positions of the target's own text, c the cost of a \
draft step in plain steps, at T = 1.

![overlap by draft](alpha_by_draft.svg)

"""
        + table(["draft", *(f"overlap, {T}" for T in by_T), "c", *(f"speedup, {T}" for T in by_T)], drafts)
        + """

`lookup` costs next to nothing and pays at T = 0, where the text repeats itself. `early-exit` never pays: the target's \
own first layers are neither cheap nor good, because nobody trained them to be a draft.""",
        """## Schedules

The speedup, and in brackets the tokens per round. [lab/schedules.py](../lab/schedules.py) explains the names. \
`target-confidence` has many rounds that draft nothing, which count in the mean.

![speedup by schedule](speedup_by_schedule.svg)

"""
        + with_rounds(SCHEDULES, [(T, K) for T in TEMPERATURES for K in (4, 8)])
        + """

Above T = 0, a fixed K = 8 drafts too much. `adaptive` knows when to stop, and loses nothing by a large K.""",
        """## Token by token, or as a block

The speedup, and in brackets the tokens per round, for `verify` and for [block verification](../lab/block.py). At \
T = 0 both accept the same tokens.

"""
        + with_rounds(("verify", "verify_block"), [(T, K) for T in TEMPERATURES[1:] for K in (2, 4, 8)]),
        """## Fixed K, measured and predicted

The prediction comes from the formulas of [lab/theory.py](../lab/theory.py), with costs and betas of the same runs. At \
T = 0 it would only repeat the measurement. Above, the two differ by the luck of the draw.

![measured and predicted speedup](measured_and_predicted.svg)

"""
        + table(
            ["K", "measured, T = 0", *(f"{what}, {T}" for T in by_T[1:] for what in ("measured", "predicted"))], formula
        ),
        """## The best K in theory

For v = 1 and r = 0, as in Leviathan et al. 2023, Figure 3. On a CPU v grows with K, so the best K is smaller.

![optimal K](optimal_K.svg)
""",
    ]
    (out / "acceptance.md").write_text("\n\n".join(sections), encoding="utf-8")
    figures(results, out)


def figures(results, out):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "the same names in each run"
    from matplotlib import pyplot as plt

    def save(name, ax, **labels):
        ax.set(**labels)
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
        ax.figure.savefig(out / name, metadata={"Date": None})
        plt.close(ax.figure)

    def axes():
        return plt.subplots(figsize=(7, 3.6), layout="constrained")[1]

    def bars(name, names, height, **labels):
        ax = axes()
        for i, T in enumerate(results):
            places = np.arange(len(names)) + 0.27 * (i - 1)
            ax.bar(places, [height(results[T], n) for n in names], 0.25, label=f"T = {T}")
        ax.set_xticks(np.arange(len(names)), names, rotation=20, ha="right")
        save(name, ax, **labels)

    bars("alpha_by_draft.svg", DRAFTS, lambda r, name: r["alpha"][name], ylabel="overlap")
    bars(
        "speedup_by_schedule.svg", SCHEDULES, lambda r, name: r["ways"][f"{name}, K = 8"]["speedup"],
        ylabel="speedup, K = 8",
    )  # fmt: skip
    ax, by_K = axes(), range(1, 9)
    for i, T in enumerate(results):
        fixed = [results[T]["ways"][f"model, K = {K}"] for K in by_K]
        ax.plot(by_K, [way["speedup"] for way in fixed], f"C{i}o-", label=f"T = {T}, measured")
        if T != "0":
            ax.plot(by_K, [way["predicted"] or np.nan for way in fixed], f"C{i}--", label=f"T = {T}, predicted")
    save("measured_and_predicted.svg", ax, xlabel="K", ylabel="speedup")
    ax, grid = axes(), np.linspace(0, 0.97, 400)
    for c in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5):
        ax.step(grid, optimal_K(grid, c), label=f"c = {c:g}")
    save("optimal_K.svg", ax, xlabel="alpha", ylabel="best K, for v = 1", ylim=(0, 20), yticks=range(0, 21, 4))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", action="store_true", help="only draw acceptance.md and its figures again")
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="where the results are written (%(default)s)")
    parser.add_argument("--prompts", type=int, default=20, help="how many of the prompts to use (%(default)s)")
    parser.add_argument("--N", type=int, default=100, help="how many tokens to decode after each (%(default)s)")
    args = parser.parse_args()
    if importlib.util.find_spec("matplotlib") is None:  # say so before minutes of measuring
        parser.error("matplotlib is missing; pip install -r benchmarks/requirements.txt")
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "acceptance.json"
    if not args.draw:
        path.write_text(json.dumps(measure(args), indent=1))
    draw(json.loads(path.read_text()), args.out)


if __name__ == "__main__":
    main()
