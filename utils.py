"""Load models, like picoGPT's utils.py (J. Mody 2023), and print text while it is decoded."""

import codecs
import hashlib
import json
import os
import reprlib
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from tqdm import tqdm

from checkpoint import bundle, huggingface, safetensors
from checkpoint.download import FILES, INDEX, OPENAI, RELEASED, check, download, missing_files
from encoder import EOT, get_encoder
from errors import UserError
from gpt2 import GPT2

BUNDLED = ("draft", "target")
SIZES = f"one of {', '.join([*BUNDLED, *RELEASED, *huggingface.MODELS])}, or a folder"
HPARAMS = ("n_vocab", "n_ctx", "n_embd", "n_head", "n_layer")
MODELS_DIR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "models")


def load_encoder_hparams_and_params(model_size, models_dir=MODELS_DIR):
    """Load everything that a model consists of. Files that are missing are downloaded first.

    Parameters
    ----------
    model_size : str
        "draft" or "target" of the bundled pair; "124M", ... from OpenAI; "gpt2", ... from
        Hugging Face; or a folder of your own with the files of either.
    models_dir : str
        Has a folder for each size. The bundled pair is found anyway.

    Returns
    -------
    encoder : encoder.Encoder
    hparams : dict of str to int
    params : nested dict of ndarray
        {"wte", "wpe", "ln_f": {"g", "b"}, "blocks": [{"ln_1", "attn": {"c_attn": {"w", "b"},
        "c_proj"}, "ln_2", "mlp": {"c_fc", "c_proj"}}, ...]}. Each w is [n_in, n_out]. All are
        read-only views of the memory-mapped file where its type allows it.

    Raises
    ------
    UserError
        If the size is unknown, or a file is damaged or missing.
    OSError
        If a file cannot be read or downloaded.
    """
    directory = directory_of(model_size, models_dir)
    hparams, params = load_hparams_and_params(directory)
    if model_size in RELEASED and 768 <= hparams["n_embd"] != 64 * hparams["n_head"]:  # no shape depends on n_head
        raise UserError(f"{directory} has n_head = {hparams['n_head']}, but OpenAI's heads have 64 dimensions")
    encoder = get_encoder(directory, "")
    if (n := len(encoder.ids)) != hparams["n_vocab"]:
        raise UserError(f"{directory} has n_vocab = {hparams['n_vocab']}, but its vocabulary has {n} tokens")
    return encoder, hparams, params


def directory_of(model_size, models_dir):
    """The folder of a model's files, after their download if they are missing."""
    directory = os.path.join(models_dir, model_size)
    if model_size in BUNDLED:
        if not os.path.isdir(directory):
            models_dir, directory = MODELS_DIR, os.path.join(MODELS_DIR, model_size)
        if missing := missing_files(directory):
            raise UserError(f"{os.path.join(directory, missing[0])} is missing or empty; restore it from the project")
        check_sums(models_dir, model_size)
    elif model_size in RELEASED:
        if missing_files(directory):
            server = (os.environ.get("GPT2_MODELS_URL") or OPENAI).rstrip("/")
            same = next(name for name, size in huggingface.MODELS.items() if size == model_size)
            try:
                urls = {name: f"{server}/{model_size}/{name}" for name in FILES}
                download(directory, urls, partial(check_small_files, directory), partial(check, directory))
            except OSError as error:
                raise OSError(f"{error}. {model_size} is also at Hugging Face, under the name {same}") from None
    elif model_size in huggingface.MODELS:
        directory = huggingface.cached(model_size) or directory
        if not huggingface.is_complete(directory):
            urls = {name: huggingface.url(model_size, name) for name in huggingface.FILES}
            download(directory, urls, partial(check_small_files, directory), safetensors.load)
    elif model_size and os.path.isdir(model_size):
        return model_size
    else:
        raise UserError(f"there is no model or folder {model_size!r}: give {SIZES}")
    return directory


def check_sums(models_dir, model_size):
    """Compare the files of a bundled model with models_dir/SHA256SUMS, if there is one. It takes 20 ms for 25 MB."""
    sums = Path(models_dir, "SHA256SUMS")
    for line in sums.read_text(errors="replace").splitlines() if sums.exists() else ():
        digest, _, name = line.partition("  ")
        path = Path(models_dir, name)
        if not path.is_file():
            raise UserError(f"{sums} names {name[:40]!r}, which is not there; restore both from the project")
        if name.startswith(f"{model_size}/") and hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            raise UserError(f"{path} is damaged: SHA256SUMS has another checksum; restore it from the project")


def load_hparams_and_params(model_dir):
    """`load_encoder_hparams_and_params` for a given folder, without the encoder."""
    if os.path.exists(os.path.join(model_dir, "config.json")):
        hparams, tensors = huggingface.load(model_dir)
        tensors = {name: tensor[None] if name.endswith("/w") else tensor for name, tensor in tensors.items()}
    else:
        tensors = bundle.load(os.path.join(model_dir, "model.ckpt"))
        hparams = read_hparams(os.path.join(model_dir, "hparams.json"))
    check_shapes(model_dir, hparams, tensors)
    return hparams, nest(tensors, hparams["n_layer"])


def check_small_files(directory):
    """UserError unless a model's files, except the weights, are whole and fit together."""
    get_encoder(directory, "")
    if os.path.exists(os.path.join(directory, "config.json")):
        return huggingface.read_config(Path(directory, "config.json"))
    check_shapes(
        directory, read_hparams(os.path.join(directory, "hparams.json")), bundle.read_index(f"{directory}/{INDEX}")
    )


def check_shapes(directory, hparams, tensors):
    """UserError unless the tensors, {name: something with a shape}, are those of a GPT-2 with these hparams."""
    for name in HPARAMS:
        if type(value := hparams.get(name)) is not int or not 0 < value < 2**31:  # the type of True is bool
            raise UserError(f"{directory} has {name} = {reprlib.repr(value)}; a whole number from 1 on is needed")
    if hparams["n_embd"] % hparams["n_head"]:
        raise UserError(f"{directory}: n_head = {hparams['n_head']} does not divide n_embd = {hparams['n_embd']}")
    found = {name: tensor.shape if tensor.dtype.kind == "f" else tensor.dtype for name, tensor in tensors.items()}
    shapes = expected_shapes(**hparams) if hparams["n_layer"] <= len(found) else {}
    if wrong := sorted(name for name in {*shapes, *found} if shapes.get(name) != found.get(name)):
        expected, has = shapes.get(wrong[0], "nothing"), found.get(wrong[0], "nothing")
        problem = f"{len(wrong)} tensors differ, such as {wrong[0]!r}: expected {expected}, found {has}"
        raise UserError(f"{directory}: its hyperparameters do not fit its tensors: {problem}; {bundle.ADVICE}")


def read_hparams(path):
    """The five numbers of hparams.json."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        return {name: found.get(name) for name in HPARAMS}
    except (ValueError, RecursionError, AttributeError) as error:
        raise UserError(f"{path} is damaged: {error}; {bundle.ADVICE}") from None


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
    families = (BUNDLED, BUNDLED), (RELEASED, ("124M", "1558M")), (huggingface.MODELS, ("gpt2", "gpt2-xl"))
    given = draft_size or target_size or BUNDLED[0]
    default = next((default for sizes, default in families if given in sizes), None)
    if default is None and os.path.isdir(given) and not (draft_size and target_size):
        missing = "target" if draft_size else "draft"
        raise UserError(f"{given} has no partner of its own, so give --{missing}_model_size too")
    return draft_size or (default or BUNDLED)[0], target_size or (default or BUNDLED)[1]


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
