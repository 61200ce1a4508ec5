"""The time of a forward pass, and of the demo beside the best loop that plain NumPy offers.

    python -m studies.times.forward models/target  # passes
    python -m studies.times.random_checkpoint 124M && python -m studies.times.forward models/random-124M
    python -m studies.times.forward                # the demo

A pass over few rows takes at least the time to read the weights. So the table compares
each pass with sgemv, which is BLAS's product of a matrix and a vector, on a matrix of
537 MB. "products" are the products of a pass and nothing else, and "x @ w" are the same
with plain matrices, for models below 1 GB. The cases take turns, because the memory of a
shared machine may become twice as fast within a minute. Each ratio is computed within a
turn, and the table shows the medians.

The demo also runs with plain matrices in place of fast/'s tiles: stored as they are, or
transposed; and with a BLAS of one thread, or as many as it likes.
"""

import argparse
import contextlib
import itertools
import time

import numpy as np

from checkpoint.read import read
from encoder import get_encoder
from fast import matrix_kernel
from gpt2 import GPT2
from lab.tables import table
from sampling import as_model
from speculative import speculative_sampling
from studies.times.turns import Turns
from terminal import PROMPT, report

REPETITIONS, PROMPTS = 21, 7  # of passes over a few rows, and of prompts
CONTEXT = 32  # tokens in the cache before passes over a few rows


def seconds(function, *args):
    begun = time.perf_counter()
    function(*args)
    return time.perf_counter() - begun


def layers(blocks):
    """All layers with a matrix w."""
    return [layer for block in blocks for part in ("attn", "mlp") for layer in block[part].values()]


def measure(directory):
    hparams, params = read(directory)
    matrix, vector = np.ones((32768, 4096), dtype=np.float32), np.ones(4096, dtype=np.float32)
    load = time.perf_counter()
    net = GPT2(params, hparams)
    load = time.perf_counter() - load
    ids = np.random.default_rng(0).integers(net.n_vocab, size=net.n_ctx)
    tiles = [*(layer["w"] for layer in layers(net.blocks)), net.head]
    n_bytes = sum(w.tiles.nbytes for w in tiles)

    cases = {f"{n} row{'s' * (n > 1)}": (net, ids[: CONTEXT + n], n) for n in (1, 2, 3, 4, 5, 9)}
    cases |= {f"prompt of {n}": (net, ids[:n], 1) for n in (64, 512) if n <= net.n_ctx}
    if net.n_ctx > 1000:
        cases["1 row, after 1000"] = (net, ids[:1001], 1)
    for function, *args in cases.values():
        function(*args)
    if n_bytes < 1e9:  # a second copy of the matrices
        shapes = [*(layer["w"].shape for layer in layers(params["blocks"])), params["wte"].T.shape]
        plain = [np.ones(shape, np.float32) for shape in shapes]
        for name, matrices in {"products": tiles, "x @ w": plain}.items():
            for n in 1, 5:
                xs = [np.ones((n, len(w)), np.float32) for w in plain]
                call = lambda xs, matrices: [x @ w for x, w in zip(xs, matrices)]  # noqa: E731
                cases[f"{name}, {n} row{'s' * (n > 1)}"] = call, xs, matrices
    times, sgemv = {name: [] for name in cases}, {name: [] for name in cases}
    for repetition, (name, (function, *args)) in itertools.product(
        range(REPETITIONS), cases.items()
    ):
        is_prompt = name.startswith("prompt")
        if is_prompt and repetition >= PROMPTS:
            continue
        sgemv[name].append(seconds(np.matmul, matrix, vector))
        settled = (
            time.perf_counter() + 0.3
        )  # until then OpenBLAS's threads may keep the cores busy,
        while time.perf_counter() < settled:  # and the caches hold the other matrix
            function(*args)
        if is_prompt:
            net.reset()
        times[name].append(
            seconds(function, *args)
        )  # the last n_rows positions are always computed
    roofline = matrix.nbytes / np.median(np.concatenate(list(sgemv.values())))
    print(
        f"\n{directory}: {n_bytes / 1e9:.2f} GB, loaded in {load:.1f} s; matrix kernel: {matrix_kernel()}; "
        f"1 row: {np.median(times['1 row']) * 1e3:.1f} ms; sgemv: {roofline / 1e9:.1f} GB/s\n"
    )
    rows = []
    for name, ts in times.items():
        to_one = float(np.median(np.divide(ts, times["1 row"][: len(ts)])))
        of_sgemv = float(np.median(n_bytes / np.divide(ts, sgemv[name]) / matrix.nbytes))
        rows.append(
            [name, to_one, "" if name.startswith("prompt") else of_sgemv]
        )  # a prompt reads them several times
    print(table(["", "time / time of 1 row", "reading speed / that of sgemv"], rows))


def loop(target, draft, layout="tiles"):
    """An engine: decode(K) -> ids, with 154 tokens after the demo's prompt. Layouts but tiles are NumPy's `x @ w`."""
    networks = [GPT2(*reversed(read(folder))) for folder in (target, draft)]
    for network, folder in zip(networks, (target, draft)) if layout != "tiles" else ():
        params = read(folder)[1]
        for layer, plain in zip(layers(network.blocks), layers(params["blocks"])):
            layer["w"] = stored(plain["w"], layout)
        network.head = stored(params["wte"].T, layout)
    models = [as_model(network, temperature=0) for network in networks]
    x = get_encoder(target, "").encode(PROMPT)

    def decode(K):
        for network in networks:
            network.reset()
            network(x)
        begun = time.perf_counter()
        ids = speculative_sampling(x, models[1], models[0], 154, K)
        return time.perf_counter() - begun, ids.tolist()

    return decode


def stored(w, layout):
    w = w.astype(np.float32)
    return np.ascontiguousarray(w) if layout == "as they are" else np.ascontiguousarray(w.T).T


def demo(turns=12, K=4):
    """Tokens per second of the demo's loops, by fast/ and by plain NumPy."""
    ways, pair = {"fast/": ("tiles", False)}, ("models/target", "models/draft")
    for layout, own in itertools.product(("as they are", "transposed"), (False, True)):
        ways[f"x @ w, w {layout}, " + ("BLAS's threads" if own else "one thread")] = layout, own
    with contextlib.ExitStack() as stack:
        engines = [
            Turns("studies.times.forward:loop", *pair, layout, own_threads=own)
            for layout, own in ways.values()
        ]
        for engine in engines:
            stack.enter_context(engine)
        found = [[[e.ask(1, k)[1] for k in (0, K)] for e in engines] for _ in range(turns + 1)][1:]
    texts = {tuple(ids) for turn in found for both in turn for _, ids in both}
    speed = 154 / np.array(
        [[[seconds for seconds, _ in both] for both in turn] for turn in found]
    )  # [turns, ways, 2]
    best = speed[..., 0].max(axis=1)  # the fastest plain loop of each turn
    rows = [
        [
            name,
            *(round(float(np.median(speed[:, i, j]))) for j in (0, 1)),
            float(np.median(speed[:, i, 1] / best)),
        ]
        for i, name in enumerate(ways)
    ]
    print(table(["tokens per second", "plain", f"K = {K}", "K against the best plain loop"], rows))
    print(f"\nmatrix kernel: {matrix_kernel()}; {len(texts)} text{'s' * (len(texts) > 1)}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "directories",
        nargs="*",
        metavar="DIR",
        help="the directory of a model, such as models/target",
    )
    args = parser.parse_args()
    for directory in args.directories:
        measure(directory)
    if not args.directories:
        demo()


if __name__ == "__main__":
    report(main, "python -m studies.times.forward")
