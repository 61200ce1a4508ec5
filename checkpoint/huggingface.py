"""GPT-2 as Hugging Face keeps it: config.json and safetensors, and tokenizer.py for the rest.

A file of safetensors begins with the length of its header (8 bytes) and the header, JSON:
{name: {"dtype", "shape", "data_offsets": [start, stop]}}. The numbers follow, packed, and
offsets count from there. Source: the format's README at github.com/huggingface/safetensors.

Whatever does not change ids or logits is ignored, such as truncation and padding.
"""

import json
import re

import numpy as np

from checkpoint.raw import Entry, mapped, only, optional, read_json, views, whole_number
from checkpoint.tokenizer import tokenizer

WHOLE = "model.safetensors"
INDEX = f"{WHOLE}.index.json"  # of a large model, which is cut into several files
FILES = ("config.json", "vocab.json", "merges.txt", WHOLE)
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "?"}
SIZES = {  # our names, and transformers'
    "n_vocab": "vocab_size",
    "n_ctx": "n_positions",
    "n_embd": "n_embd",
    "n_head": "n_head",
    "n_layer": "n_layer",
}
ALIASES = {  # other names that transformers prefers; shapes would fit either number
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}
COMPUTED = {  # what config.json may say; the first value is what it means if it says nothing
    "model_type": ["gpt2"],
    "activation_function": ["gelu_new", "gelu_pytorch_tanh", "gelu_fast"],
    "layer_norm_epsilon": [1e-5],
    "scale_attn_weights": [True],
    "scale_attn_by_inverse_layer_idx": [False],
    "tie_word_embeddings": [True],
}
PREFIX = r"(_orig_mod\.)?(transformer\.)?"
MASK = re.compile(PREFIX + r"h\.\d+\.attn\.(masked_)?bias")
NAME = re.compile(PREFIX + r"(wte|wpe|ln_f|lm_head|h\.\d+\.[\w.]+)\.(weight|bias)")


class Folder:
    """The files of a model in this format. ValueError if they ask for what is not computed here."""

    def __init__(self, folder):
        self.folder = folder
        self.config = read_json(folder / "config.json")
        aliases = {alias: [self.config.get(name)] for alias, name in ALIASES.items()}
        only("config.json", self.config, COMPUTED | aliases)
        self.hparams = {}
        for name, hugging_face_name in SIZES.items():
            self.hparams[name] = whole_number("config.json", self.config, hugging_face_name)

    def tokenizer(self):
        """The parts of an `encoder.Encoder`, as a dict."""
        return tokenizer(self.folder, self.config)

    def tensors(self, path_of_weights=None):
        """{OpenAI's name: array}: views of the memory-mapped files, but BF16 becomes float32."""
        paths = [path_of_weights] if path_of_weights else weights(self.folder)
        has_index = (self.folder / INDEX).exists()
        tensors = {}
        names = {}
        for path in paths:
            for name, tensor in safetensors(path).items():
                if MASK.fullmatch(name):
                    continue
                our_name = openai_name(name)
                is_again = has_index and names.get(our_name) == name  # as transformers reads it
                if our_name in tensors and not is_again:
                    raise ValueError(f"{name} is there twice, in two files or with two prefixes")
                tensors[our_name] = tensor
                names[our_name] = name
        head = tensors.pop("model/lm_head/w", None)
        if head is not None and not np.array_equal(head, tensors.setdefault("model/wte", head)):
            raise ValueError("lm_head.weight is not wte, so it is not a GPT-2")
        return tensors


# ---- Weights ----


def weights(folder):
    """The files of the weights, in the order in which transformers reads them."""
    if (folder / WHOLE).exists():
        return [folder / WHOLE]
    index = optional(folder, INDEX).get("weight_map")
    if isinstance(index, dict):
        paths = {folder / str(name) for name in index.values()}
    else:
        paths = {*folder.glob("model-?????-of-?????.safetensors")}
    if not paths:
        missing = f"{WHOLE}, or parts such as model-00001-of-00002.safetensors, is missing"
        if (folder / "pytorch_model.bin").exists():
            missing += ", and pytorch_model.bin is a pickle, which can run code when it is read"
        advice = "GPT2LMHeadModel.from_pretrained(folder).save_pretrained(folder)"
        raise ValueError(f"{missing}; transformers writes it: {advice}")
    return sorted(paths)


def safetensors(path):
    """A file -> {name: array}."""
    data = mapped(path)
    end = 8 + int.from_bytes(data[:8].tobytes(), "little")
    try:
        header = json.loads(data[8:end].tobytes())
        header.pop("__metadata__", None)
        entries = {name: entry_of(name, **description) for name, description in header.items()}
        tensors = views(data[end:], entries)
    except (TypeError, AttributeError, RecursionError):
        raise ValueError(f"{path.name} has a damaged header") from None
    except ValueError as error:
        raise ValueError(f"{path.name} cannot be used: {error!s:.200}") from None
    for name, description in header.items():
        if description["dtype"] == "BF16" and not MASK.fullmatch(name):
            tensors[name] = (tensors[name].astype("<u4") << 16).view("<f4")
    return tensors


def entry_of(name, dtype, shape, data_offsets):
    """The `raw.Entry` of a tensor, from its description in the header."""
    start, stop = data_offsets
    if MASK.fullmatch(name):  # it is ignored, so its type doesn't matter
        return Entry(start, stop - start, "u1", (-1,))
    if dtype not in DTYPES:
        raise ValueError(f"numbers of type {dtype!r:.30} cannot be read here; convert them to F32")
    return Entry(start, stop - start, DTYPES[dtype], shape)


def openai_name(name):
    """h.0.attn.c_attn.weight -> model/h0/attn/c_attn/w, and ln_f.weight -> model/ln_f/g"""
    if not NAME.fullmatch(name):
        advice = "remove a prefix, merge an adapter, or take the model without another head"
        raise ValueError(f"{name!r:.80} is no tensor of a GPT-2 that writes text; {advice}")
    name = re.sub(r"^h\.(?=\d)", "h", re.sub(f"^{PREFIX}", "", name))
    name = re.sub(r"^(wte|wpe)\.weight$", r"\1", name)
    name = re.sub(r"(ln_\w)\.weight$", r"\1.g", name)
    name = name.replace(".weight", ".w").replace(".bias", ".b")
    return "model/" + name.replace(".", "/")
