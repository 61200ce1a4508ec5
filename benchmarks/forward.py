"""Seconds per forward pass, and how much of the memory's bandwidth that is.

    python benchmarks/forward.py models/target
    python benchmarks/random_checkpoint.py 1558M models/1558M && python benchmarks/forward.py models/1558M

A pass with few rows cannot be faster than the weights can be read. How fast that is, is measured before each pass, by
OpenBLAS's own product of a matrix of 512 MB and a vector (sgemv): on a shared machine it may double within a minute.
That is why the cases take turns, too. Medians; of the ratios, within a turn, as well.
"""

import itertools
import os
import re
import sys
import time

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from gpt2 import GPT2
from utils import DATA, load_hparams_and_params

REPETITIONS = 7
CONTEXT = 32  # tokens in the cache when the few rows are timed


def seconds(function, *args):
    begun = time.perf_counter()
    function(*args)
    return time.perf_counter() - begun


def memory():
    """The bytes that this process has in memory, pages of files left out (Linux)."""
    with open("/proc/self/status") as f:
        return int(re.search(r"RssAnon:\s+(\d+) kB", f.read())[1]) * 1024


def main():
    matrix, vector = np.ones((32768, 4096), dtype=np.float32), np.ones(4096, dtype=np.float32)
    for directory in sys.argv[1:] or sys.exit(__doc__):
        hparams, params = load_hparams_and_params(directory)
        before = memory()
        load = time.perf_counter()
        net = GPT2(params, hparams)
        load = time.perf_counter() - load
        n_bytes = sum(w.nbytes for w in weights(net.weights["blocks"])) + net.weights["head"]["w"].nbytes
        ids = np.random.default_rng(0).integers(net.n_vocab, size=net.n_ctx)

        cases = {f"{n} row{'s' * (n > 1)}": (ids[: CONTEXT + n], n) for n in (1, 2, 3, 4, 5, 9)}
        cases |= {f"prompt of {n}": (ids[:n], 1) for n in (64, 512) if n <= net.n_ctx}
        cases |= {f"1 row, after {n}": (ids[: n + 1], 1) for n in (10, 1000) if n < net.n_ctx}
        times, sgemv = {name: [] for name in cases}, {name: [] for name in cases}
        for repetition, (name, (x, n_rows)) in itertools.product(range(REPETITIONS), cases.items()):
            is_prompt = name.startswith("prompt")
            if is_prompt and repetition >= 3:
                continue
            sgemv[name].append(seconds(np.matmul, matrix, vector))
            settled = time.perf_counter() + 0.3  # for a while OpenBLAS's threads go on spinning, on the cores that we
            while time.perf_counter() < settled:  # need, and the caches are full of another matrix
                net(x, n_rows)
            if is_prompt:
                net.forget()
            times[name].append(seconds(net, x, n_rows))  # the last n_rows positions are computed in any case
        roofline = matrix.nbytes / np.median(np.concatenate(list(sgemv.values())))
        taken, size = memory() - before, os.path.getsize(os.path.join(directory, DATA))
        print(
            f"\n{directory}: {n_bytes / 1e9:.2f} GB, loaded in {load:.1f} s; sgemv: {roofline / 1e9:.1f} GB/s; "
            f"in memory {taken / 1e9:.2f} GB, {taken / size:.2f} of the data file\n"
        )
        print("| | ms | to 1 row | weights read, GB/s | of sgemv |\n| --- | --- | --- | --- | --- |")
        for name, ts in times.items():
            t, to_one = np.median(ts), np.median(np.divide(ts, times["1 row"][: len(ts)]))
            of_sgemv = np.median(n_bytes / np.divide(ts, sgemv[name]) / matrix.nbytes)
            print(f"| {name} | {t * 1e3:.2f} | {to_one:.2f} | {n_bytes / t / 1e9:.1f} | {of_sgemv:.2f} |")


def weights(tree):
    """All arrays of a nest of lists and dicts."""
    if isinstance(tree, np.ndarray):
        return [tree]
    return [w for branch in (tree.values() if isinstance(tree, dict) else tree) for w in weights(branch)]


if __name__ == "__main__":
    main()
