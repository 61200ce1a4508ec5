"""GPT-2 as Hugging Face keeps it: where the files are, and what OpenAI calls the tensors in them."""

import json
import os
import re
import reprlib
from pathlib import Path

import numpy as np

from checkpoint import safetensors
from checkpoint.download import missing_files
from errors import UserError

MODELS = {"gpt2": "124M", "gpt2-medium": "355M", "gpt2-large": "774M", "gpt2-xl": "1558M", "distilgpt2": None}
FILES = ("config.json", "vocab.json", "merges.txt", "model.safetensors")
HPARAMS = {
    "n_vocab": "vocab_size",
    "n_ctx": "n_positions",
    "n_embd": "n_embd",
    "n_head": "n_head",
    "n_layer": "n_layer",
}
COMPUTED = {  # what config.json may say, and what it means if it says nothing
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "add_cross_attention": False,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
}


def repository(name):
    return f"distilbert/{name}" if name == "distilgpt2" else f"openai-community/{name}"


def url(name, file):
    """Where a file of one of MODELS is, at Hugging Face or at HF_ENDPOINT."""
    endpoint = (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
    return f"{endpoint}/{repository(name)}/resolve/main/{file}"


def cached(name):
    """The newest complete snapshot of one of MODELS in the cache that transformers uses, or None."""
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "huggingface")
    hub = Path(os.environ.get("HF_HUB_CACHE") or Path(home, "hub"))
    repositories = {name, repository(name).replace("/", "--")}
    found = [path for each in repositories for path in hub.glob(f"models--{each}/snapshots/*") if is_complete(path)]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def is_complete(directory):
    """Whether all files are there. tokenizer.json may replace vocab.json and merges.txt."""
    missing = {*missing_files(directory, FILES)}
    return not missing or (missing <= {*FILES[1:3]} and not missing_files(directory, ["tokenizer.json"]))


def load(directory):
    """config.json and model.safetensors -> hparams, {OpenAI's name: array}"""
    hparams, path = read_config(Path(directory, "config.json")), Path(directory, "model.safetensors")
    stored = safetensors.load(path)
    tensors = {name.removeprefix("transformer."): tensor for name, tensor in stored.items()}
    if len(tensors) < len(stored):
        raise UserError(f"{path} has a tensor twice, with and without the prefix 'transformer.'")
    head = tensors.pop("lm_head.weight", None)
    if head is not None and not np.array_equal(head, tensors.get("wte.weight")):
        raise UserError(f"{path} has an lm_head.weight that is not wte, so it is not a GPT-2")
    masks = re.compile(r"h\.\d+\.attn\.(masked_)?bias")
    tensors = {openai_name(name): tensor for name, tensor in tensors.items() if not masks.fullmatch(name)}
    return hparams, tensors


def read_config(path):
    """The five numbers of config.json, or None for one that is missing."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        for name, value in COMPUTED.items():
            if config.get(name, value) != value:
                raise ValueError(f"{name} is {reprlib.repr(config[name])}, and only {value} is computed here")
    except (ValueError, AttributeError, RecursionError) as error:
        raise UserError(f"{path} cannot be used: {error}") from None
    return {ours: config.get(theirs) for ours, theirs in HPARAMS.items()}


def openai_name(name):
    """h.0.attn.c_attn.weight -> model/h0/attn/c_attn/w, and ln_f.weight -> model/ln_f/g"""
    name = re.sub(r"^h\.(?=\d)", "h", name)
    name = re.sub(r"^(wte|wpe)\.weight$", r"\1", name)
    name = re.sub(r"(ln_\w)\.weight$", r"\1.g", name)
    return "model/" + name.replace(".weight", ".w").replace(".bias", ".b").replace(".", "/")
