"""GPT-2 as Hugging Face keeps it: config.json, safetensors, and the files of a tokenizer.

A file of safetensors begins with the length of its header (8 bytes) and the header, JSON:
{name: {"dtype", "shape", "data_offsets": [start, stop]}}. The numbers follow, packed, and
offsets count from there. Source: the format's README at github.com/huggingface/safetensors.

What a file asks for is computed, or refused by its own name. Whatever does not change
ids or logits is ignored, such as truncation and padding. GPT-2's own tokenizer is read
here, and any other by the library tokenizers, from its tokenizer.json.
"""

import json
import re
from operator import index

import numpy as np

from checkpoint.library import library_tokenizer
from checkpoint.openai import (
    EOT,
    Entry,
    mapped,
    pairs,
    read_json,
    read_merges,
    views,
    whole_number,
)
from encoder import BYTES

FILES = ("config.json", "vocab.json", "merges.txt", "model.safetensors")
DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "BOOL": "?",
    "U8": "u1",
    "I64": "<i8",
}
SIZES = {  # our names, and transformers'
    "n_vocab": "vocab_size",
    "n_ctx": "n_positions",
    "n_embd": "n_embd",
    "n_head": "n_head",
    "n_layer": "n_layer",
}
ALIASES = {  # other names that transformers has for them
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}
COMPUTED = {  # what config.json may say; the first value is what it means if it says nothing
    "model_type": ["gpt2"],
    "activation_function": ["gelu_new", "gelu_pytorch_tanh", "gelu_fast"],
    "layer_norm_epsilon": [1e-5],
    "add_cross_attention": [False],
    "scale_attn_weights": [True],
    "scale_attn_by_inverse_layer_idx": [False],
    "tie_word_embeddings": [True],
    "quantization_config": [None],
}
PREFIX = r"(_orig_mod\.)?(transformer\.)?"
MASK = re.compile(PREFIX + r"h\.\d+\.attn\.(masked_)?bias")
NAME = re.compile(PREFIX + r"(wte|wpe|ln_f|lm_head|h\.\d+\.[\w.]+)\.(weight|bias)")


def hparams(folder):
    """The five numbers of config.json. ValueError if it asks for what is not computed here."""
    config = read_json(folder / "config.json")
    same = {alias: [config.get(name)] for alias, name in ALIASES.items()}
    only("config.json", config, COMPUTED | same)
    return {ours: whole_number("config.json", config, name) for ours, name in SIZES.items()}


def only(where, found, allowed):
    """ValueError unless a dict has one of the allowed values for each name, or nothing."""
    for name, values in allowed.items():
        value = found.get(name, values[0])
        if value not in values:
            computed = " or ".join(str(value) for value in values if value is not None)
            instead = f"but only {computed} is computed" if computed else "which is not computed"
            raise ValueError(f"{where}: {name} is {value!r:.80}, {instead} here")


def optional(folder, name):
    path = folder / name
    return read_json(path) if path.exists() else {}


# ---- Weights ----


def tensors(folder, data=None):
    """{OpenAI's name: array}: views of the memory-mapped files, but BF16 becomes float32."""
    found = {}
    for path in [data] if data else weights(folder):
        for name, tensor in safetensors(path).items():
            if MASK.fullmatch(name):
                continue
            ours = openai_name(name)
            if ours in found:
                raise ValueError(f"{name} is there twice, in two files or with two prefixes")
            found[ours] = tensor
    head = found.pop("model/lm_head/w", None)
    if head is not None and not np.array_equal(head, found.setdefault("model/wte", head)):
        raise ValueError("lm_head.weight is not wte, so it is not a GPT-2")
    return found


def weights(folder):
    """The files of the weights. Large models are cut into several."""
    whole = folder / "model.safetensors"
    paths = [whole] if whole.exists() else sorted(folder.glob("model-*.safetensors"))
    if not paths:
        missing = f"{whole.name} is missing"
        if (folder / "pytorch_model.bin").exists():
            missing += ", and pytorch_model.bin is a pickle, which can run code when it is read"
        advice = "GPT2LMHeadModel.from_pretrained(folder).save_pretrained(folder)"
        raise ValueError(f"{missing}; transformers writes it: {advice}")
    return paths


def safetensors(path):
    """A file -> {name: array}."""
    data = mapped(path)
    end = 8 + int.from_bytes(data[:8].tobytes(), "little")
    try:
        header = json.loads(data[8:end].tobytes())
        header.pop("__metadata__", None)
        entries = {name: entry_of(**told) for name, told in header.items()}
        found = views(data[end:], entries)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path.name} cannot be used: {str(error)[:200]}") from None
    for name, told in header.items():
        if told["dtype"] == "BF16":
            found[name] = (found[name].astype("<u4") << 16).view("<f4")
    return found


def entry_of(dtype, shape, data_offsets):
    if dtype not in DTYPES:
        raise ValueError(f"numbers of type {dtype} cannot be read here; convert them to F32")
    start, stop = data_offsets
    return Entry(start, stop - start, DTYPES[dtype], shape)


def openai_name(name):
    """h.0.attn.c_attn.weight -> model/h0/attn/c_attn/w, and ln_f.weight -> model/ln_f/g"""
    if not NAME.fullmatch(name):
        advice = "remove a prefix, merge an adapter, or take the model without another head"
        raise ValueError(f"{name} is no tensor of a GPT-2 that writes text; {advice}")
    name = re.sub(r"^h\.(?=\d)", "h", re.sub(f"^{PREFIX}", "", name))
    name = re.sub(r"^(wte|wpe)\.weight$", r"\1", name)
    name = re.sub(r"(ln_\w)\.weight$", r"\1.g", name)
    name = name.replace(".weight", ".w").replace(".bias", ".b")
    return "model/" + name.replace(".", "/")


# ---- The tokenizer ----

GPT2 = [None, "GPT2Tokenizer", "GPT2TokenizerFast"]  # it leaves out a normalizer, among others
GENERAL = ["PreTrainedTokenizer", "PreTrainedTokenizerFast", "TokenizersBackend"]
NO = [False, None]
SETTINGS = {  # what tokenizer_config.json may say
    "tokenizer_class": [*GPT2, *GENERAL],
    "split_special_tokens": NO,
    "add_prefix_space": NO,
    "add_bos_token": NO,
    "add_eos_token": NO,
    "fast_tokenizer_files": [None],
}
BPE = {  # the "model" of GPT-2's tokenizer.json
    "type": ["BPE"],
    "unk_token": [None],
    "ignore_merges": [False],
    "byte_fallback": [False],
    "continuing_subword_prefix": [None, ""],
    "end_of_word_suffix": [None, ""],
}
FLAGS = {"single_word": NO, "lstrip": NO, "rstrip": NO}  # of an added token
ADDED = {**dict.fromkeys(FLAGS, False), "normalized": False, "special": True}  # if nothing is said
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}


def tokenizer(folder):
    """What `encoder.Encoder` needs -> dict. The library reads what is not GPT-2's own tokenizer."""
    config = optional(folder, "config.json") | optional(folder, "tokenizer_config.json")
    if "added_tokens_decoder" not in config:
        config |= optional(folder, "special_tokens_map.json")
    only("the tokenizer", config, SETTINGS)
    described = described_tokens(folder, config)
    if (folder / "merges.txt").exists() and not (folder / "tokenizer.json").exists():
        found = of_two_files(folder, config, described)
    else:
        found = read_json(folder / "tokenizer.json")
        check_is_obeyed(found, config)
    added = {token["content"]: token for token in found.get("added_tokens") or []}
    added.pop("", None)  # it is never found
    try:
        check_only_eot(found, [*added.values(), *described])
        parts = by_encoder(found, is_added=added or described)
    except ValueError as why:
        check_agree(described, added)
        if len(config.get("added_tokens_decoder", added)) != len(added):
            problem = "added tokens that tokenizer_config.json does not list"
            raise ValueError(f"tokenizer.json has {problem}") from None
        parts = by_library(found, added, why)
    ids = parts["ids"]
    if sorted(map(index, ids.values())) != [*range(len(ids))]:
        raise ValueError(f"the {len(ids):,} tokens of the vocabulary are not numbered from 0 on")
    return parts | {"eos": ends_of_text(folder, len(ids))}


def ends_of_text(folder, n_vocab):
    """The ids where `generate` of transformers stops."""
    if (folder / "generation_config.json").exists():
        ends = read_json(folder / "generation_config.json").get("eos_token_id")
    else:
        ends = read_json(folder / "config.json").get("eos_token_id", 50256)
    ends = ends if isinstance(ends, list) else [ends]
    return tuple(id for id in ends if type(id) is int and 0 <= id < n_vocab)


def of_two_files(folder, config, described):
    """vocab.json and merges.txt, as a tokenizer.json would have them."""
    only("without tokenizer.json", config, {"tokenizer_class": GPT2})
    ids = read_json(folder / "vocab.json")
    merges = read_merges(folder / "merges.txt")
    numbers = ids | {token["content"]: token["id"] for token in described if "id" in token}
    numbers.setdefault(EOT, len(numbers))  # transformers adds it, if nobody else does
    added = {}
    for token in described:
        name = token["content"]
        if name not in numbers:
            raise ValueError(f"the added token {name!r} has no id; see docs/your_models.md")
        added.setdefault(name, ADDED | token | {"id": numbers[name]})
    check_fits(ids, merges, added)
    return {
        "added_tokens": sorted(added.values(), key=lambda token: token["id"]),
        "pre_tokenizer": BYTE_LEVEL,
        "decoder": BYTE_LEVEL,
        "model": {"type": "BPE", "vocab": ids, "merges": merges},
    }


def check_fits(ids, merges, added):
    """ValueError unless the tokens are bytes, what merges make of them, and those added."""
    tokens = {*BYTES.values()}
    for left, right in merges:
        if left not in tokens or right not in tokens:
            problem = "is of tokens that no merge before it makes"
            raise ValueError(f"the merge {(left, right)!r:.80} {problem}")
        tokens.add(left + right)
    if odd := sorted(tokens - ids.keys() | ids.keys() - tokens - {*added}):
        problem = f"{len(odd):,} tokens are in one of them alone, such as {odd[0]!r:.20}"
        raise ValueError(f"the vocabulary does not fit its merges: {problem}")


def check_only_eot(found, added):
    """ValueError if there are other added tokens, which no word contains."""
    ids = found["model"]["vocab"]
    for token in added:
        allowed = FLAGS | {"content": [EOT], "id": [ids.get(EOT, len(ids))]}
        only(f"the added token {token['content']!r}", token, allowed)


def by_encoder(found, is_added):
    """GPT-2's own tokenizer, of another vocabulary perhaps. ValueError if it is not."""
    check_algorithm(found)
    check_template(found.get("post_processor") or {})
    ids = found["model"]["vocab"]
    merges = pairs(found["model"]["merges"])
    check_fits(ids, merges, [EOT])
    if is_added:
        ids.setdefault(EOT, len(ids))  # transformers adds it, if nobody else does
    return {"merges": merges, "ids": ids, "special": EOT if is_added else None}


def by_library(found, added, why):
    try:
        encode, ids = library_tokenizer(json.dumps(found))
    except ImportError:
        advice = "the library tokenizers reads it: pip install tokenizers"
        raise ValueError(f"{why}; {advice}") from None
    check_agree(added.values(), {name: {"id": id} for name, id in ids.items()})
    return {"merges": [], "ids": ids, "library": encode}


def check_agree(described, known):
    """ValueError unless what is said of each token is known of it, or nothing is."""
    for token in described:
        name = token["content"]
        same = known.get(name, {"content": None})
        if any(same.get(key, value) != value for key, value in token.items()):
            raise ValueError(f"the files do not agree about the added token {name!r}")


def check_is_obeyed(found, config):
    """ValueError where transformers does not do what tokenizer.json says, or by chance."""
    cut = found.get("pre_tokenizer") or {}
    only("tokenizer.json", found["model"] | cut, {"dropout": [None, 0], "add_prefix_space": NO})
    decoder = found.get("decoder") or {"type": None}
    only("tokenizer.json, decoder", decoder, {"type": ["ByteLevel"]})
    if config.get("tokenizer_class") in GPT2:
        check_algorithm(found)


def check_algorithm(found):
    """ValueError if the words are not GPT-2's."""
    only("tokenizer.json", found["model"], BPE)
    only("tokenizer.json", found, {"normalizer": [None]})
    cut = found.get("pre_tokenizer") or {"type": None}
    only("tokenizer.json, pre_tokenizer", cut, {"type": ["ByteLevel"], "use_regex": [True]})


def check_template(after):
    """ValueError if something is put around a text. transformers 5 writes a template without."""
    items = after.get("single") or []
    if [[*item] for item in items] != [["Sequence"]]:
        only("tokenizer.json, post_processor", after, {"type": ["ByteLevel"]})


def described_tokens(folder, config):
    """What files other than tokenizer.json say of added tokens."""
    tokens = []
    if "added_tokens_decoder" in config:
        for id, token in config["added_tokens_decoder"].items():
            if not id.isdecimal():
                raise ValueError(f"tokenizer_config.json is damaged: {id!r:.20} is no id")
            tokens.append(token | {"id": int(id)})
    else:
        for name, id in optional(folder, "added_tokens.json").items():
            tokens.append({"content": name, "id": id})
    if config.get("tokenizer_class") in GPT2:
        config = {"bos_token": EOT, "eos_token": EOT, "unk_token": EOT} | config
    named = [value for name, value in config.items() if name.endswith("_token")]
    for key in "extra_special_tokens", "additional_special_tokens":
        more = config.get(key) or []
        named += more if isinstance(more, list) else more.values()
    for token in named:
        if isinstance(token, dict):
            tokens.append(token)
        elif isinstance(token, str) and token:
            tokens.append({"content": token})
    return tokens
