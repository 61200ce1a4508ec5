"""Write a GPT-2 with random weights in OpenAI's format, to measure a large one without a download.

python -m studies.times.random_checkpoint 1558M  # writes models/random-1558M
"""

from pathlib import Path

import numpy as np
from tqdm import tqdm

from checkpoint import UserError
from checkpoint.names import MODELS, MODELS_DIR
from checkpoint.openai import DATA
from checkpoint.read import expected_shapes
from checkpoint.write import write_checkpoint, write_vocabulary
from terminal.ending import report
from terminal.options import Parser


def random_tensors(hparams):
    """Gains are 1, all else is normal with deviation 0.02."""
    rng = np.random.default_rng(0)
    shapes = sorted(expected_shapes(**hparams).items())
    for name, shape in tqdm(shapes, desc="Writing", unit="tensor"):
        if name.endswith("/g"):
            yield name, np.ones(shape, np.float32)
        else:
            yield name, rng.standard_normal(shape, np.float32) * np.float32(0.02)


def main():
    parser = Parser(description=__doc__)
    released = [name for name, model in MODELS.items() if model.sizes]
    parser.add_argument("size", choices=released, help="the size of the model")
    size = parser.parse_args().size
    folder = Path(MODELS_DIR, f"random-{size}")
    hparams = MODELS[size].sizes
    if (folder / DATA).exists():
        raise UserError(f"{folder} has a checkpoint already; remove it first")
    write_checkpoint(folder, hparams, random_tensors(hparams))
    write_vocabulary(folder, hparams["n_vocab"])


if __name__ == "__main__":
    report(main, "python -m studies.times.random_checkpoint")
