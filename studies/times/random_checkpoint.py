"""Write a GPT-2 with random weights in OpenAI's checkpoint format, to measure a large model without a download.

python -m studies.times.random_checkpoint 1558M  # writes models/random-1558M
"""

import argparse
from pathlib import Path

import numpy as np
from tqdm import tqdm

from checkpoint.find import MODELS_DIR, RELEASED
from checkpoint.openai import DATA
from checkpoint.read import expected_shapes
from checkpoint.write import write_checkpoint, write_vocabulary
from terminal import report


def random_tensors(hparams):
    """Initialise like OpenAI's model.py: gains are 1, biases are 0, weights are normal with deviation 0.02 or 0.01."""
    rng = np.random.default_rng(0)
    for name, shape in tqdm(
        sorted(expected_shapes(**hparams).items()), desc="Writing", unit="tensor"
    ):
        if name.endswith("/g"):
            yield name, np.ones(shape, dtype=np.float32)
        elif name.endswith("/b"):
            yield name, np.zeros(shape, dtype=np.float32)
        else:
            deviation = np.float32(0.01 if name.endswith("wpe") else 0.02)
            yield name, rng.standard_normal(shape, dtype=np.float32) * deviation


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("size", choices=RELEASED, help="the size of the model")
    size = parser.parse_args().size
    folder, hparams = Path(MODELS_DIR, f"random-{size}"), RELEASED[size]
    if (folder / DATA).exists():
        parser.error(f"{folder} has a checkpoint already; remove it first")
    write_checkpoint(folder, hparams, random_tensors(hparams))
    write_vocabulary(folder, hparams["n_vocab"])


if __name__ == "__main__":
    report(main, "python -m studies.times.random_checkpoint")
