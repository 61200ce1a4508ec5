"""Load a vocabulary, hyperparameters and weights by the size of the model, like picoGPT's utils.py (J. Mody 2023).

Each size is a directory of seven files in OpenAI's format. At the end of this file are two helpers of gpt2.py.
"""

import json
import os
import reprlib

import numpy as np

from checkpoint.bundle import CheckpointError, load
from checkpoint.download import RELEASED, download_gpt2_files, missing_files
from encoder import get_encoder
from errors import UserError

BUNDLED = ("draft", "target")
HPARAMS = ("n_vocab", "n_ctx", "n_embd", "n_head", "n_layer")
MODELS_DIR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "models")


def load_encoder_hparams_and_params(model_size, models_dir=MODELS_DIR, models_url=None):
    """Load everything that a model consists of. Files that are missing are downloaded first.

    Parameters
    ----------
    model_size : str
        "124M", "355M", "774M" or "1558M"; or "draft" or "target", the bundled pair, which is never downloaded.
    models_dir : str
        Has a directory for each size. A bundled model that is not there is taken from this project's.
    models_url : str, optional
        Where to download from. The default is the environment variable GPT2_MODELS_URL or, if it is not set, OpenAI.

    Returns
    -------
    encoder : encoder.Encoder
    hparams : dict of str to int
        n_vocab, n_ctx, n_embd, n_head, n_layer.
    params : nested dict of ndarray
        {"wte", "wpe", "ln_f": {"g", "b"}, "blocks": [{"ln_1", "attn": {"c_attn": {"w", "b"}, "c_proj"}, "ln_2",
        "mlp": {"c_fc", "c_proj"}}, ...]}. Each w is [n_in, n_out]. All are read-only views of the memory-mapped file.

    Raises
    ------
    UserError
        If the size is unknown. Its subclasses CheckpointError and VocabularyError mean that a file is damaged, or
        that a file of a bundled model is missing.
    DownloadError
        If a file is missing and cannot be downloaded.
    """
    if model_size not in BUNDLED + RELEASED:
        raise UserError(f"unknown model size {model_size!r}; there are {', '.join(BUNDLED + RELEASED)}")
    if model_size in BUNDLED and not os.path.isdir(os.path.join(models_dir, model_size)):
        models_dir = MODELS_DIR
    model_dir = os.path.join(models_dir, model_size)
    if model_size in RELEASED and missing_files(model_dir):
        download_gpt2_files(model_size, model_dir, models_url)
    if missing := missing_files(model_dir):
        raise CheckpointError(f"{os.path.join(model_dir, missing[0])} is missing or empty; restore it from the project")
    hparams, params = load_hparams_and_params(model_dir)
    encoder = get_encoder(model_size, models_dir)
    if (n := len(encoder.ids)) != hparams["n_vocab"]:
        raise CheckpointError(f"{model_dir} has n_vocab = {hparams['n_vocab']}, but encoder.json has {n} tokens")
    if n != 256 + (n_pairs := len(encoder.ranks)) + 1:  # one token for each byte and each pair, and <|endoftext|>
        raise CheckpointError(f"{model_dir} has {n} tokens, but vocab.bpe has {n_pairs} pairs; restore vocab.bpe")
    return encoder, hparams, params


def load_hparams_and_params(model_dir):
    """`load_encoder_hparams_and_params` for a given directory, without the encoder."""
    tensors = load(os.path.join(model_dir, "model.ckpt"))
    hparams = read_hparams(os.path.join(model_dir, "hparams.json"))
    if hparams["n_layer"] > len(tensors):  # before anything is repeated n_layer times
        raise CheckpointError(f"{model_dir} has n_layer = {hparams['n_layer']} but only {len(tensors)} tensors in all")
    shapes = expected_shapes(**hparams)
    found = {name: tensor.shape for name, tensor in tensors.items()}
    if wrong := sorted(name for name in {*shapes, *found} if shapes.get(name) != found.get(name)):
        expected, has = shapes.get(wrong[0], "nothing"), found.get(wrong[0], "nothing")
        problem = f"{len(wrong)} tensors differ, such as {wrong[0]!r}: expected {expected}, found {has}"
        raise CheckpointError(f"{model_dir}: hparams.json does not fit the tensors: {problem}")
    return hparams, nest(tensors, hparams["n_layer"])


def read_hparams(path):
    """Read and check the five numbers in hparams.json -> dict."""
    try:
        with open(path, "rb") as f:
            found = json.load(f)
    except (OSError, ValueError, RecursionError) as error:  # RecursionError: thousands of "["
        raise CheckpointError(f"{path} cannot be read, so restore it: {error}") from None
    if not isinstance(found, dict):
        raise CheckpointError(f"{path} is not a JSON object with {', '.join(HPARAMS)}, so restore it")
    hparams = {name: found.get(name) for name in HPARAMS}
    for name, value in hparams.items():
        if type(value) is not int or not 0 < value < 2**31:  # the type of True is bool
            shown = reprlib.repr(value)
            raise CheckpointError(f"{path} has {name} = {shown}; a whole number from 1 to 2^31 - 1 is needed")
    if hparams["n_embd"] % hparams["n_head"]:
        raise CheckpointError(f"{path}: n_head = {hparams['n_head']} does not divide n_embd = {hparams['n_embd']}")
    return hparams


def expected_shapes(n_vocab, n_ctx, n_embd, n_head, n_layer):
    """The names and shapes of the tensors of a GPT-2, from the model.py that OpenAI released with it -> dict."""
    dense = {"attn/c_attn": (1, 3), "attn/c_proj": (1, 1), "mlp/c_fc": (1, 4), "mlp/c_proj": (4, 1)}  # times n_embd
    block = {f"{ln}/{leaf}": (n_embd,) for ln in ("ln_1", "ln_2") for leaf in "gb"}
    for name, (n_in, n_out) in dense.items():
        block |= {f"{name}/w": (1, n_in * n_embd, n_out * n_embd), f"{name}/b": (n_out * n_embd,)}
    shapes = {"wte": (n_vocab, n_embd), "wpe": (n_ctx, n_embd), "ln_f/g": (n_embd,), "ln_f/b": (n_embd,)}
    shapes |= {f"h{i}/{name}": shape for i in range(n_layer) for name, shape in block.items()}
    return {f"model/{name}": shape for name, shape in shapes.items()}


def nest(tensors, n_layer):
    """{"model/h0/attn/c_attn/w": [1, n_in, n_out], ...} -> {"blocks": [{"attn": {"c_attn": {"w": [n_in, n_out]}}}]}"""
    params = {}
    for name, tensor in tensors.items():
        _, *path, leaf = name.split("/")
        branch = params
        for part in path:
            branch = branch.setdefault(part, {})
        branch[leaf] = tensor[0] if tensor.ndim == 3 else tensor  # w was the kernel of a convolution of width 1
    params["blocks"] = [params.pop(f"h{i}") for i in range(n_layer)]
    return params


def largest(weights, name="model"):
    """The largest absolute value of all weights, and the name of its tensor. NaN counts as larger than any number."""
    if isinstance(weights, np.ndarray):
        return np.abs(weights).max(), name
    if isinstance(weights, list):
        weights = {f"h{i}": block for i, block in enumerate(weights)}
    found = [largest(branch, name if key == "blocks" else f"{name}/{key}") for key, branch in weights.items()]
    return max(found, key=lambda one: (np.isnan(one[0]), one[0]))


def common_prefix(a, b):
    """How many ids two texts share at their beginning."""
    n = min(len(a), len(b))
    differs = a[:n] != b[:n]
    return int(differs.argmax()) if differs.any() else n
