"""Write a GPT-2 with random weights, to measure a large one without a download.

python -m times.random_checkpoint 1558M  # writes models/random-1558M
"""

import json
import math
import re
from itertools import islice, product
from pathlib import Path

import numpy as np
from tqdm import tqdm

from checkpoint import UserError
from checkpoint.huggingface import SIZES
from checkpoint.names import MODELS, MODELS_DIR
from checkpoint.openai import EOT
from checkpoint.read import expected_shapes
from encoder import BYTES
from terminal.ending import report
from terminal.options import Parser


def write_weights(path, hparams):
    """Gains are 1, all else is normal with deviation 0.02. See checkpoint.huggingface."""
    rng = np.random.default_rng(0)
    shapes = sorted(expected_shapes(**hparams).items())
    header = {}
    end = 0
    for name, shape in shapes:
        begin, end = end, end + 4 * math.prod(shape)
        told = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
        header[their_name(name)] = told
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the numbers are aligned
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, shape in tqdm(shapes, desc="Writing", unit="tensor"):
            if name.endswith("/g"):
                file.write(np.ones(shape, np.float32))
            else:
                file.write(rng.standard_normal(shape, np.float32) * np.float32(0.02))


def their_name(name):
    """model/h0/attn/c_attn/w -> h.0.attn.c_attn.weight, the inverse of `openai_name`."""
    name = re.sub(r"^h(?=\d)", "h.", name.removeprefix("model/"))
    name = re.sub(r"/[gw]$|(?<=^w[tp]e)$", ".weight", name)
    return re.sub(r"/b$", ".bias", name).replace("/", ".")


def write_vocabulary(folder, n_vocab):
    """A vocabulary for any text: all bytes, pairs of two bytes, and <|endoftext|>."""
    pairs = [*islice(product(BYTES.values(), repeat=2), n_vocab - 257)]
    tokens = [*BYTES.values(), *map("".join, pairs), EOT]
    ids = {token: id for id, token in enumerate(tokens)}
    (folder / "vocab.json").write_text(json.dumps(ids))
    merges = "\n".join(map(" ".join, pairs))
    (folder / "merges.txt").write_text(merges, encoding="utf-8", newline="")


def main():
    parser = Parser(description=__doc__)
    released = [name for name, model in MODELS.items() if model.sizes]
    parser.add_argument("size", choices=released, help="the size of the model")
    size = parser.parse_args().size
    folder = Path(MODELS_DIR, f"random-{size}")
    if folder.exists():
        raise UserError(f"{folder} is there already; remove it first")
    folder.mkdir(parents=True)
    hparams = MODELS[size].sizes
    sizes = {theirs: hparams[ours] for ours, theirs in SIZES.items()}
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2"} | sizes))
    write_vocabulary(folder, hparams["n_vocab"])
    write_weights(folder / "model.safetensors", hparams)


if __name__ == "__main__":
    report(main, "python -m times.random_checkpoint")
