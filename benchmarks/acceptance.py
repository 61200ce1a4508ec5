"""Measure how often each draft is accepted by the bundled target, and what it gains: the table of docs/acceptance.md.

    python -m benchmarks.acceptance new.json              # measures for half an hour, and prints the table
    python -m benchmarks.acceptance docs/acceptance.json  # only prints it

The prompts are the first 32 tokens of tales that the bundled models and n-grams have not
seen (openings.json). All drafts take turns at each prompt, and the plain loop gets a turn
before each group of three, because the memory of a shared machine may be twice as fast a
minute later. A speedup is the mean time of the plain loop, divided by that of the draft.
"""

import argparse
import contextlib
import datetime
import json
import platform
import re
from pathlib import Path

import numpy as np
from tqdm import tqdm

from benchmarks.tables import table
from fast import matrix_kernel
from fast.threads import n_cores
from gpt2 import GPT2
from lab.drafts import make_draft
from lab.pair import Pair
from runs import beta
from sampling import as_model
from utils import load_encoder_hparams_and_params

TEMPERATURES = 0.0, 0.5, 1.0
DRAFTS = "unigram", "bigram", "ngram", "online", "lookup", "early-exit:1", "early-exit:2", "early-exit:3", "model"
SEEDS, K, EVERY = 2, 4, 3


def measure(n_openings, N):
    """Continue all prompts with all drafts -> the content of acceptance.json."""
    encoder, hparams, params = load_encoder_hparams_and_params("target")
    target = GPT2(params, hparams)
    drafts = {name: make_draft(name, target, encoder) for name in DRAFTS if name != "model"}
    drafts["model"] = GPT2(*reversed(load_encoder_hparams_and_params("draft")[1:]))
    openings = json.loads((Path(__file__).parent / "openings.json").read_text(encoding="utf-8"))[:n_openings]
    prompts = [np.array(encoder.encode(text)) for text in openings] * SEEDS

    results = {}
    for T in TEMPERATURES:
        pairs = {name: Pair(drafts[name], target, temperature=T, sure=float(name == "lookup")) for name in DRAFTS}
        plain, runs, overlaps = [], {name: [] for name in DRAFTS}, {name: [] for name in DRAFTS}
        for pair in pairs.values():  # so that no timed run is the first to use weights and threads
            pair.decode(prompts[0], min(N, 20), K)
        for seed, x in enumerate(tqdm(prompts, desc=f"T = {T:g}", unit="prompt")):
            for i, (name, pair) in enumerate(pairs.items()):
                if i % EVERY == 0:
                    plain.append(pair.decode(x, N, rng=np.random.default_rng(seed)))
                runs[name].append(pair.decode(x, N, K, rng=np.random.default_rng(seed)))
            ids = plain[-1].ids
            q = as_model(target, T)(ids[:-1], N)  # [N, n_vocab]
            for name, draft in drafts.items():
                overlaps[name].append(beta(as_model(draft, T)(ids[:-1], N), q))
        step = np.mean([run.seconds for run in plain]) / N
        results[f"{T:g}"] = {
            name: {
                "overlap": float(np.mean(overlaps[name])),
                "c": float(np.mean(np.concatenate([run.steps for run in runs[name]])) / step),
                "tokens per round": N / np.mean([len(run.lasted) for run in runs[name]]),
                "speedup": step * N / np.mean([run.seconds for run in runs[name]]),
            }
            for name in DRAFTS
        }
    about = dict(
        date=str(datetime.date.today()), openings=len(openings), seeds=SEEDS, N=N, n_prompt=len(prompts[0]),
        cores=n_cores(), cpu=cpu(), numpy=np.__version__, kernel=matrix_kernel(),
    )  # fmt: skip
    return {"about": about, "results": results}


def cpu():
    """The name of the CPU, as far as the system tells."""
    with contextlib.suppress(OSError, IndexError):
        return re.findall("model name.*: (.*)", Path("/proc/cpuinfo").read_text())[0]
    return platform.processor() or platform.machine()


def shown(results):
    by_T = [f"{T:g}" for T in TEMPERATURES]
    header = ["draft", *(f"overlap, T = {T}" for T in by_T), "c", *(f"speedup, T = {T}" for T in by_T)]
    rows = [
        [name, *(results[T][name]["overlap"] for T in by_T), f"{results['1'][name]['c']:.3f}",
         *(results[T][name]["speedup"] for T in by_T)]
        for name in DRAFTS
    ]  # fmt: skip
    return table(header, rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="the results: measured if there is no such file, and then shown")
    parser.add_argument("--prompts", type=int, default=20, help="how many of the prompts to use (%(default)s)")
    parser.add_argument("--N", type=int, default=100, help="how many tokens to decode after each (%(default)s)")
    args = parser.parse_args()
    if not args.file.exists():
        args.file.write_text(json.dumps(measure(args.prompts, args.N), indent=1))
    print(shown(json.loads(args.file.read_text())["results"]))


if __name__ == "__main__":
    main()
