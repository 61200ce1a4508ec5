"""The time of a forward pass, and the share of the memory's bandwidth that it uses.

    python -m benchmarks.forward models/target
    python -m benchmarks.random_checkpoint 1558M models/1558M && python -m benchmarks.forward models/1558M

A pass over few rows takes at least the time to read the weights. So the table compares each pass with sgemv, which is
OpenBLAS's product of a matrix and a vector, on a matrix of 537 MB. The cases "x @ w" multiply rows by matrices of the
model's shapes and do nothing else. (Models of 1 GB or more do not have these cases.) The cases take turns, because the
memory of a shared machine may become twice as fast within a minute. Each ratio is computed within a turn, and the table
shows the medians. The printed memory is right only for the first model, because later ones use memory again that the
first one has freed.
"""

import argparse
import itertools
import os
import re
import time

import numpy as np

from benchmarks.tables import table
from checkpoint.openai import DATA
from checkpoint.read import read
from fast import matrix_kernel
from gpt2 import GPT2

REPETITIONS, PROMPTS = 21, 7  # of passes over a few rows, and of prompts
CONTEXT = 32  # tokens in the cache before passes over a few rows


def seconds(function, *args):
    begun = time.perf_counter()
    function(*args)
    return time.perf_counter() - begun


def memory():
    """The bytes of memory that this process uses, without mapped files. NaN if the system does not report it."""
    try:
        with open("/proc/self/status") as f:
            return int(re.search(r"RssAnon:\s+(\d+) kB", f.read())[1]) * 1024
    except (OSError, TypeError):  # no such file, or no such line in it
        return float("nan")


def measure(directory):
    hparams, params = read(directory)
    matrix, vector = np.ones((32768, 4096), dtype=np.float32), np.ones(4096, dtype=np.float32)
    before = memory()
    load = time.perf_counter()
    net = GPT2(params, hparams)
    load = time.perf_counter() - load
    ids = np.random.default_rng(0).integers(net.n_vocab, size=net.n_ctx)
    layers = [layer["w"] for block in net.blocks for part in ("attn", "mlp") for layer in block[part].values()]
    n_bytes = sum(w.tiles.nbytes for w in [*layers, net.head])

    cases = {f"{n} row{'s' * (n > 1)}": (net, ids[: CONTEXT + n], n) for n in (1, 2, 3, 4, 5, 9)}
    cases |= {f"prompt of {n}": (net, ids[:n], 1) for n in (64, 512) if n <= net.n_ctx}
    if net.n_ctx > 1000:
        cases["1 row, after 1000"] = (net, ids[:1001], 1)
    for function, *args in cases.values():
        function(*args)
    taken = memory() - before
    if n_bytes < 1e9:  # a second copy of the matrices
        layers = [layer for block in params["blocks"] for part in ("attn", "mlp") for layer in block[part].values()]
        plain = [np.ones(w.shape, np.float32) for w in [*(layer["w"] for layer in layers), params["wte"].T]]
        for n in 1, 5:
            xs = [np.ones((n, len(w)), np.float32) for w in plain]
            cases[f"x @ w, {n} row{'s' * (n > 1)}"] = (lambda xs: [x @ w for x, w in zip(xs, plain)], xs)
    times, sgemv = {name: [] for name in cases}, {name: [] for name in cases}
    for repetition, (name, (function, *args)) in itertools.product(range(REPETITIONS), cases.items()):
        is_prompt = name.startswith("prompt")
        if is_prompt and repetition >= PROMPTS:
            continue
        sgemv[name].append(seconds(np.matmul, matrix, vector))
        settled = time.perf_counter() + 0.3  # until then OpenBLAS's threads may keep the cores busy,
        while time.perf_counter() < settled:  # and the caches hold the other matrix
            function(*args)
        if is_prompt:
            net.forget()
        times[name].append(seconds(function, *args))  # the last n_rows positions are always computed
    roofline = matrix.nbytes / np.median(np.concatenate(list(sgemv.values())))
    size = os.path.getsize(os.path.join(directory, DATA))
    print(
        f"\n{directory}: {n_bytes / 1e9:.2f} GB, loaded in {load:.1f} s; matrix kernel: {matrix_kernel()}; "
        f"1 row: {np.median(times['1 row']) * 1e3:.1f} ms; sgemv: {roofline / 1e9:.1f} GB/s; "
        f"memory: {taken / 1e9:.2f} GB, {taken / size:.2f} of the data file\n"
    )
    rows = []
    for name, ts in times.items():
        to_one = float(np.median(np.divide(ts, times["1 row"][: len(ts)])))
        of_sgemv = float(np.median(n_bytes / np.divide(ts, sgemv[name]) / matrix.nbytes))
        rows.append([name, to_one, "" if name.startswith("prompt") else of_sgemv])  # a prompt reads them several times
    print(table(["", "time / time of 1 row", "reading speed / that of sgemv"], rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directories", nargs="+", metavar="DIR", help="the directory of a model, such as models/target")
    for directory in parser.parse_args().directories:
        measure(directory)


if __name__ == "__main__":
    main()
