"""Write a GPT-2 with random weights in OpenAI's checkpoint format, to measure a large model without a download.

python -m benchmarks.random_checkpoint 1558M models/1558M
"""

import argparse
from pathlib import Path

import numpy as np
from tqdm import tqdm

from checkpoint.openai import DATA
from checkpoint.read import expected_shapes
from checkpoint.write import write_checkpoint, write_vocabulary

SIZES = {  # n_layer, n_embd, n_head
    "124M": (12, 768, 12),
    "355M": (24, 1024, 16),
    "774M": (36, 1280, 20),
    "1558M": (48, 1600, 25),
}


def random_tensors(hparams, seed):
    """Initialise like OpenAI's model.py: gains are 1, biases are 0, weights are normal with deviation 0.02 or 0.01."""
    rng = np.random.default_rng(seed)
    for name, shape in tqdm(sorted(expected_shapes(**hparams).items()), desc="Writing", unit="tensor"):
        if name.endswith("/g"):
            yield name, np.ones(shape, dtype=np.float32)
        elif name.endswith("/b"):
            yield name, np.zeros(shape, dtype=np.float32)
        else:
            deviation = np.float32(0.01 if name.endswith("wpe") else 0.02)
            yield name, rng.standard_normal(shape, dtype=np.float32) * deviation


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", choices=SIZES, help="the size of the model")
    parser.add_argument("directory", help="where to write the files")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random numbers (%(default)s)")
    args = parser.parse_args()

    n_layer, n_embd, n_head = SIZES[args.size]
    hparams = dict(n_vocab=50257, n_ctx=1024, n_embd=n_embd, n_head=n_head, n_layer=n_layer)
    if Path(args.directory, DATA).exists():
        parser.error(f"{args.directory} has a checkpoint already; name another directory, or remove that checkpoint")
    write_checkpoint(args.directory, hparams, random_tensors(hparams, args.seed))
    write_vocabulary(args.directory, hparams["n_vocab"])


if __name__ == "__main__":
    main()
