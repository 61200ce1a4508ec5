"""Load a vocabulary, hyperparameters and weights by the size of the model, like picoGPT's utils.py (J. Mody 2023).

Each size is a directory of seven files in OpenAI's format. At the end of this file are two helpers of gpt2.py.
"""

import codecs
import json
import os
import reprlib
import sys
import time

import numpy as np
from tqdm import tqdm

from checkpoint.bundle import CheckpointError, load
from checkpoint.download import RELEASED, download_gpt2_files, missing_files
from encoder import EOT, get_encoder
from errors import UserError
from gpt2 import GPT2

BUNDLED = ("draft", "target")
SIZES = f"one of {', '.join(BUNDLED)} (bundled), {', '.join(RELEASED)} (OpenAI's)"
HPARAMS = ("n_vocab", "n_ctx", "n_embd", "n_head", "n_layer")
MODELS_DIR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "models")


def load_encoder_hparams_and_params(model_size, models_dir=MODELS_DIR):
    """Load everything that a model consists of. Files that are missing are downloaded first.

    Parameters
    ----------
    model_size : str
        "124M", "355M", "774M" or "1558M"; or "draft" or "target", the bundled pair, which is never downloaded.
    models_dir : str
        Has a directory for each size. A bundled model that is not there is taken from this project's.

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
        download_gpt2_files(model_size, model_dir)
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


def pair_of(draft_size, target_size):
    """Both sizes of a pair of which one or none was given."""
    released = draft_size in RELEASED or target_size in RELEASED
    return draft_size or ("124M" if released else "draft"), target_size or ("1558M" if released else "target")


def load_models(draft_size, target_size, models_dir=MODELS_DIR):
    """Load a draft and a target with the same vocabulary -> encoder, gpt2.GPT2, gpt2.GPT2"""
    loaded = [load_encoder_hparams_and_params(size, models_dir) for size in (draft_size, target_size)]
    if loaded[0][0].ids != loaded[1][0].ids:
        raise UserError(f"{draft_size} and {target_size} have different vocabularies; a pair must have the same")
    return loaded[0][0], *(GPT2(params, hparams) for _, hparams, params in loaded)


def prompt_ids(prompt, N, encoder, networks):
    """The prompt as an array of ids. An empty prompt is <|endoftext|>."""
    x = np.array(encoder.encode(prompt) or [encoder.ids[EOT]])
    n_ctx = min(network.n_ctx for network in networks)
    if len(x) + N > n_ctx:
        raise UserError(f"the prompt has {len(x)} tokens and {N} more are wanted; these models hold {n_ctx} in all")
    return x


# ---- Text as it is decoded ----

LEGEND = {"accepted": "guessed and accepted", "corrected": "corrected", "bonus": "bonus"}
COLOURS = {"accepted": "\x1b[32m", "corrected": "\x1b[31;4m", "bonus": "\x1b[35m"}  # green, red underlined, magenta
RESET = "\x1b[0m"


def origins(r):
    """Where each emitted token of a `speculative.Round` comes from, in the words of LEGEND."""
    last = "bonus" if r.n_accepted == len(r.drafted) else "corrected"
    return ["accepted"] * r.n_accepted + [last] * (len(r.emitted) - r.n_accepted)


def show(title, prompt, encoder, N, loop, colour=None):
    """Run loop(on_round) and print its text: on a terminal as it comes, in colours, otherwise at the end.

    Returns what the loop returned, the seconds that it took without the printing, and
    the counts (drafted, accepted) of each round.
    """
    live, utf8 = sys.stdout.isatty(), codecs.getincrementaldecoder("utf-8")("replace")
    if colour is None:
        colour = live and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")
    held_back, counts, printing = [], [], 0.0
    write = (lambda text: print(text, end="", flush=True)) if live else held_back.append
    print(f"\n{title}\n{'-' * len(title)}")
    write(f"Text = {prompt}")

    def on_round(r):
        nonlocal printing
        begun = time.perf_counter()
        counts.append((len(r.drafted), r.n_accepted))
        bar.update(len(r.emitted))
        for token, origin in zip(r.emitted, origins(r)):
            text = utf8.decode(encoder.bytes_of([token]))
            write(COLOURS[origin] + text + RESET if colour and text and len(r.drafted) else text)
        printing += time.perf_counter() - begun

    with tqdm(total=N, desc=title, unit="token", leave=False, disable=live or None) as bar:
        begun = time.perf_counter()
        result = loop(on_round)
        seconds = time.perf_counter() - begun - printing
    write(utf8.decode(b"", final=True))
    took = f"Time = {seconds:.2f}s"
    print(f"\n{took}" if live else f"{took}\n{''.join(held_back)}", flush=True)
    if colour and any(k for k, _ in counts):
        print("Colours:", ", ".join(COLOURS[origin] + words + RESET for origin, words in LEGEND.items()))
    return result, seconds, counts
