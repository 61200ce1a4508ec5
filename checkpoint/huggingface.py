"""GPT-2 as Hugging Face keeps it: config.json, model.safetensors, and the files of a tokenizer.

    8 bytes: length of the header | the header | the numbers of all tensors, packed

The header of safetensors is JSON: {name: {"dtype", "shape", "data_offsets": [start, stop]}}.
Offsets count from its end. Source: the format's README at github.com/huggingface/safetensors.
"""

import json
import re
import reprlib
from pathlib import Path

import numpy as np

from checkpoint.openai import EOT, Entry, read_json, views

FILES = ("config.json", "vocab.json", "merges.txt", "model.safetensors")
DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "?", "U8": "u1", "I64": "<i8"}
HPARAMS = dict(n_vocab="vocab_size", n_ctx="n_positions", n_embd="n_embd", n_head="n_head", n_layer="n_layer")
COMPUTED = {  # what config.json may say, and what it means if it says nothing
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "add_cross_attention": False,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
}
MASK = re.compile(r"h\.\d+\.attn\.(masked_)?bias")


def hparams(folder):
    """The five numbers of config.json. ValueError if it asks for something that is not computed here."""
    config = read_json(Path(folder, "config.json"))
    for name, value in COMPUTED.items():
        if config.get(name, value) != value:
            raise ValueError(f"{name} is {reprlib.repr(config[name])}, and only {value} is computed here")
    return {ours: config.get(theirs) for ours, theirs in HPARAMS.items()}


def tokenizer(folder):
    """merges, ids, eos, from vocab.json and merges.txt, or from tokenizer.json."""
    if (folder / "vocab.json").exists():
        ids = read_json(folder / "vocab.json")
        merges = [line for line in (folder / "merges.txt").read_text(encoding="utf-8").split("\n")[1:] if line]
    else:
        found = read_json(folder / "tokenizer.json")
        merges, added = found["model"]["merges"], {token["content"]: token["id"] for token in found["added_tokens"]}
        ids = found["model"]["vocab"] | added
    merges = [tuple(pair.split(" ") if isinstance(pair, str) else pair) for pair in merges]
    return merges, ids, ids.get(EOT)


def tensors(folder, data=None):
    """{OpenAI's name: array}: views of the memory-mapped file, but BF16 becomes float32."""
    stored = safetensors(data or Path(folder, "model.safetensors"))
    found = {name.removeprefix("transformer."): tensor for name, tensor in stored.items()}
    if len(found) < len(stored):
        raise ValueError("a tensor is there twice, with and without the prefix 'transformer.'")
    head = found.pop("lm_head.weight", None)
    if head is not None and not np.array_equal(head, found.get("wte.weight")):
        raise ValueError("lm_head.weight is not wte, so it is not a GPT-2")
    return {openai_name(name): tensor for name, tensor in found.items() if not MASK.fullmatch(name)}


def safetensors(path):
    """A file -> {name: array}."""
    data = np.asarray(np.memmap(path, np.uint8, "r"))
    end = 8 + int.from_bytes(data[:8].tobytes(), "little")
    try:
        if end > len(data):
            raise ValueError(f"it has {len(data):,} bytes, and a header that ends at {end:,}")
        header = json.loads(data[8:end].tobytes(), object_pairs_hook=unique)
        header.pop("__metadata__", None)
        places = {name: (t["dtype"], t["shape"], *t["data_offsets"]) for name, t in header.items()}
        entries = {name: Entry(DTYPES[kind], shape, a, b - a) for name, (kind, shape, a, b) in places.items()}
        found = views(data[end:], entries)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path.name} is damaged: {str(error)[:200]}") from None
    bf16 = {name: (found[name].astype("<u4") << 16).view("<f4") for name in places if places[name][0] == "BF16"}
    return found | bf16


def unique(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    return found


def openai_name(name):
    """h.0.attn.c_attn.weight -> model/h0/attn/c_attn/w, and ln_f.weight -> model/ln_f/g"""
    name = re.sub(r"^h\.(?=\d)", "h", name)
    name = re.sub(r"^(wte|wpe)\.weight$", r"\1", name)
    name = re.sub(r"(ln_\w)\.weight$", r"\1.g", name)
    return "model/" + name.replace(".weight", ".w").replace(".bias", ".b").replace(".", "/")
