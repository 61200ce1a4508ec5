"""The time of a forward pass, and of the demo beside the best loop that plain NumPy offers.

    python -m times.forward models/target  # passes
    python -m times.forward 124M           # the same with random weights of this size
    python -m times.forward                # the demo

"products" are the matrix products of a pass and nothing else, and "x @ w" are the same
with plain matrices. Each ratio is computed within a turn, see turns.py, and the tables
show the medians.

The demo also runs with plain matrices in place of fast/'s tiles: stored as they are, or
transposed; and with a BLAS of one thread, or as many as it likes.
"""

from itertools import product

import numpy as np

import fast
import gpt2
from checkpoint.names import MODELS
from checkpoint.read import expected_shapes, nest, open_model
from lab.pair import LabPair
from terminal.ending import report
from terminal.options import PROMPT, Parser
from terminal.table import table
from times.turns import Engine, compare, timed
from utils import get_encoder

CONTEXT = 32  # tokens in the cache before passes over a few rows
K = 4
PAIR = "models/target", "models/draft"


# ---- Weights ----


def hparams_of(model):
    """The hyperparameters of a folder, or of a released model."""
    return sizes_of(model) or open_model(model).hparams


def sizes_of(model):
    return MODELS[model].sizes if model in MODELS else None


def tensors_of(model):
    """The tensors of a folder, or random ones, so that a released model needs no download."""
    if not sizes_of(model):
        return open_model(model).tensors()
    rng = np.random.default_rng(0)
    tensors = {}
    for name, shape in expected_shapes(**sizes_of(model)).items():
        tensors[name] = rng.standard_normal(shape, np.float32) * np.float32(0.02)
        if name.endswith("/g"):
            tensors[name] += 1
    return tensors


def read(model):
    """The hyperparameters and nested parameters of a model."""
    hparams = hparams_of(model)
    return hparams, nest(tensors_of(model), hparams["n_layer"])


# ---- Passes ----


def ids_for(n_vocab, n_ctx):
    """The ids of a prompt that is long enough."""
    return np.random.default_rng(0).integers(n_vocab, size=n_ctx)


def our_pass(folder):
    """An engine: forward(n_past, n_new) -> seconds, some logits."""
    network = laid_out(folder)
    ids = ids_for(network.n_vocab, network.n_ctx)

    @timed
    def forward(n_past, n_new):
        if n_past == 0:  # a prompt
            network.reset()
        logits = network(ids[: n_past + n_new], n_new if n_past else 1)
        return logits[:, :5].tolist()

    return forward


def products(folder, layout):
    """An engine: multiply(n_rows) -> seconds, None. It has the matrices of a pass alone."""
    _, params = read(folder)
    network = laid_out(folder, layout)
    widths = [w.shape[0] for w in matrices(params["blocks"], params["wte"].T)]
    ws = matrices(network.blocks, network.head)

    @timed
    def multiply(n_rows):
        for n_in, w in zip(widths, ws):
            np.ones((n_rows, n_in), np.float32) @ w

    return multiply


def matrices(blocks, head):
    return [layer["w"] for layer in layers(blocks)] + [head]


def layers(blocks):
    """All layers with a matrix w."""
    return [layer for block in blocks for part in ("attn", "mlp") for layer in block[part].values()]


def passes(folder, name):
    """{name: job} for `compare`."""
    n_prompt = min(512, hparams_of(folder)["n_ctx"])
    engine = Engine(f"times.{name}", folder)
    jobs = {"1 row": (engine, 4, CONTEXT, 1)}
    for n in 2, 3, 4, 5, 9:
        jobs[f"{n} rows"] = engine, 4, CONTEXT, n
    jobs[f"prompt of {n_prompt}"] = engine, 1, 0, n_prompt
    return jobs


def compare_passes(folder):
    """A table: the time of each pass, divided by that over one row."""
    jobs = passes(folder, "forward:our_pass")
    for kind, layout in ("products", "tiles"), ("x @ w", "as they are"):
        engine = Engine("times.forward:products", folder, layout)
        jobs[f"{kind}, 1 row"] = engine, 4, 1
        jobs[f"{kind}, 5 rows"] = engine, 4, 5
    seconds, _ = compare(jobs)
    of_one_row = seconds["1 row"]
    rows = [[name, float(np.median(times / of_one_row))] for name, times in seconds.items()]
    return table([f"1 row: {np.median(of_one_row) * 1e3:.1f} ms", "time / time of 1 row"], rows)


# ---- The demo ----


def loop(target, draft, layout="tiles"):
    """An engine: decode(N, K) -> seconds, ids. It continues the demo's prompt."""
    pair = LabPair(laid_out(draft, layout), laid_out(target, layout))
    x = get_encoder(target, "").encode(PROMPT)

    def decode(N, K):
        run = pair.decode(x, N, K)
        return run.seconds, run.ids.tolist()

    return decode


def laid_out(folder, layout="tiles"):
    """fast.GPT2, or gpt2.GPT2 with its matrices "as they are" or "transposed"."""
    hparams, params = read(folder)
    if layout == "tiles":
        return fast.GPT2(params, hparams)
    network = gpt2.GPT2(params, hparams)
    if layout == "transposed":
        for layer in layers(network.blocks):
            layer["w"] = np.asfortranarray(layer["w"])
    return network


def compare_loops():
    """The demo's loops, by fast/ and by plain NumPy."""
    name = "times.forward:loop"
    engines = {"fast/": Engine(name, *PAIR)}
    for layout, own_threads in product(("as they are", "transposed"), (False, True)):
        threads = "BLAS's threads" if own_threads else "one thread"
        engine = Engine(name, *PAIR, layout, own_threads=own_threads)
        engines[f"x @ w, w {layout}, {threads}"] = engine
    return speeds(engines, 154)


def speeds(engines, N):
    """A table: tokens per second of each {name: engine}, plain and with K guesses."""
    jobs = {}
    for name, engine in engines.items():
        jobs[name, None] = engine, 1, N, None
        jobs[name, K] = engine, 1, N, K
    seconds, texts = compare(jobs)
    best = np.min([seconds[name, None] for name in engines], axis=0)  # in each turn
    rows = []
    for name in engines:
        plain, fast = seconds[name, None], seconds[name, K]
        speed = [round(N / np.median(times)) for times in (plain, fast)]
        rows.append([name, *speed, *(float(np.median(times / fast)) for times in (plain, best))])
    n_texts = len({tuple(ids) for ids in texts.values()})
    header = ["tokens per second", "plain", f"K = {K}", "speedup", "K against the best plain loop"]
    return f"{table(header, rows)}\n\nDifferent texts: {n_texts}"


# ---- A program ----


def main(description=__doc__, of_model=compare_passes, of_pair=compare_loops):
    parser = Parser(description=description)
    parser.add_argument("folder", nargs="?", help="a model, such as models/target or 124M")
    folder = parser.parse_args().folder
    print(of_model(folder) if folder else of_pair())


if __name__ == "__main__":
    report(main, "python -m times.forward")
