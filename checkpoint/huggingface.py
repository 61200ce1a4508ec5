"""GPT-2 as Hugging Face keeps it: config.json, safetensors, and the files of a tokenizer.

A file of safetensors begins with the length of its header (8 bytes) and the header, JSON:
{name: {"dtype", "shape", "data_offsets": [start, stop]}}. The numbers follow, packed, and
offsets count from there. Source: the format's README at github.com/huggingface/safetensors.

What a file asks for is computed, or refused by its own name. Whatever does not change
ids or logits is ignored, such as truncation and padding. A tokenizer.json that is more
than GPT-2's is left to the library tokenizers.
"""

import json
import re

import numpy as np

from checkpoint.openai import BYTES, EOT, Entry, mapped, pairs, read_json, views

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
    return {ours: config.get(name) for ours, name in SIZES.items()}


def only(where, found, allowed):
    """ValueError unless a dict has one of the allowed values for each name, or nothing."""
    for name, values in allowed.items():
        value = found.get(name, values[0])
        if value not in values:
            computed = " or ".join(map(str, values))
            raise ValueError(f"{where}: {name} is {value!r:.80}, but only {computed} is computed")


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
        advice = "GPT2LMHeadModel.from_pretrained(folder).save_pretrained(folder)"
        raise ValueError(f"{whole.name} is missing; transformers writes it: {advice}")
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
ROLES = [f"{role}_token" for role in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")]
NO = [False, None]
SETTINGS = {  # what tokenizer_config.json may say
    "tokenizer_class": [*GPT2, *GENERAL],
    "split_special_tokens": NO,
    "add_prefix_space": NO,
    "add_bos_token": NO,
    "add_eos_token": NO,
}
FLAGS = {"single_word": NO, "lstrip": NO, "rstrip": NO}  # of an added token
BPE = {  # the "model" of GPT-2's tokenizer.json
    "type": ["BPE"],
    "ignore_merges": [False],
    "byte_fallback": [False],
    "continuing_subword_prefix": [None, ""],
    "end_of_word_suffix": [None, ""],
}


def tokenizer(folder):
    """What `encoder.Encoder` needs, from tokenizer.json, or vocab.json and merges.txt -> dict."""
    config = settings(folder)
    is_newer = (folder / "tokenizer.json").exists() or not (folder / "merges.txt").exists()
    found = read_json(folder / "tokenizer.json") if is_newer else older(folder, config)
    check_is_obeyed(found, config)
    added = united(found.get("added_tokens") or [])
    listed = listed_tokens(folder, config)
    if "added_tokens_decoder" in config:
        check_are_known(added, united(listed), "tokenizer_config.json")
    tokens = united([*added.values(), *listed, *named_tokens(config)])
    try:
        check_algorithm(found, "tokenizer.json")
        check_surroundings(found, tokens)
    except ValueError as error:
        if not is_newer:
            raise
        check_are_known(tokens, added, "tokenizer.json")
        only("the tokenizer", config, {"add_bos_token": [None], "add_eos_token": [None]})
        parts = by_library(folder / "tokenizer.json", found, added, error)
    else:
        parts = by_encoder(found["model"], tokens)
    ids = parts["ids"]
    if sorted(ids.values()) != [*range(len(ids))]:
        raise ValueError(f"the {len(ids):,} tokens of the vocabulary are not numbered from 0 on")
    return parts | {"eos": end_of_text(ids, config)}


def settings(folder):
    """What tokenizer_config.json and others say about a tokenizer."""
    config = optional(folder, "config.json") | optional(folder, "tokenizer_config.json")
    if "added_tokens_decoder" not in config:
        config |= optional(folder, "special_tokens_map.json")
    if config.get("tokenizer_class") in GPT2:
        config = dict.fromkeys(ROLES[:3], EOT) | config
    only("the tokenizer", config, SETTINGS)
    return config


def end_of_text(ids, config):
    """The id of the named token, or that of config.json."""
    name = as_token(config.get("eos_token"))["content"]
    number = config.get("eos_token_id")
    return ids.get(name, number if number in ids.values() else None)


def older(folder, config):
    """vocab.json and merges.txt, as tokenizer.json would have them."""
    only("without tokenizer.json", config, {"tokenizer_class": GPT2})
    lines = (folder / "merges.txt").read_text(encoding="utf-8").split("\n")
    merges = [line for line in lines if line and not line.startswith("#version")]
    model = {"vocab": read_json(folder / "vocab.json"), "merges": merges}
    return {"model": model, "pre_tokenizer": {"type": "ByteLevel"}}


def listed_tokens(folder, config):
    """The added tokens that are listed with their ids."""
    if "added_tokens_decoder" in config:
        listed = config["added_tokens_decoder"].items()
        return [token | {"id": int(id)} for id, token in listed]
    others = optional(folder, "added_tokens.json").items()
    return [{"content": name, "id": id} for name, id in others]


def named_tokens(config):
    """The added tokens that have a role, or are just named."""
    named = [config.get(role) for role in ROLES]
    named += config.get("extra_special_tokens") or []
    named += config.get("additional_special_tokens") or []
    return [as_token(token) for token in named if token]


def as_token(token):
    return token if isinstance(token, dict) else {"content": token, "special": True}


def united(tokens):
    """{name: what all say of this added token}. ValueError if two contradict each other."""
    found = {}
    for token in tokens:
        name = token["content"]
        known = found.get(name, {})
        if known | token != token | known:
            raise ValueError(f"the added token {name!r} is described in two ways")
        found[name] = known | token
    return found


def check_are_known(tokens, known, where):
    for name in tokens:
        if name not in known:
            raise ValueError(f"the added token {name!r} is not in {where}")


def check_is_obeyed(found, config):
    """ValueError where transformers does not do what tokenizer.json says, or by chance."""
    cut = found.get("pre_tokenizer") or {}
    only("tokenizer.json", found["model"] | cut, {"dropout": [None, 0], "add_prefix_space": NO})
    if config.get("tokenizer_class") in GPT2:
        check_algorithm(found, "tokenizer.json of a GPT2Tokenizer")


def check_algorithm(found, where):
    """ValueError if the words are not GPT-2's."""
    only(where, found["model"], BPE)
    only(where, found, {"normalizer": [None]})
    cut = found.get("pre_tokenizer") or {"type": None}
    only(f"{where}, pre_tokenizer", cut, {"type": ["ByteLevel"], "use_regex": [True]})


def check_surroundings(found, tokens):
    """ValueError if there is something around texts or added tokens."""
    after = found.get("post_processor") or {}
    if not is_text_alone(after):
        only("tokenizer.json, post_processor", after, {"type": ["ByteLevel"]})
    for name, token in tokens.items():
        only(f"the added token {name!r}", token, FLAGS)


def is_text_alone(processor):
    """Whether it is a template that puts nothing around a text, as transformers 5 writes it."""
    items = processor.get("single") or []
    return [list(item) for item in items] == [["Sequence"]]


def by_encoder(model, tokens):
    ids, special = model["vocab"], {}
    if EOT in tokens:  # transformers adds it, if nobody else does
        ids.setdefault(EOT, len(ids))
    for name, token in tokens.items():
        id = token.get("id", ids.get(name))
        if id is None or ids.setdefault(name, id) != id:
            raise ValueError(f"the added token {name!r} has no id, or two")
        special[name] = token.get("normalized", not token.get("special"))
    merges = pairs(model["merges"])
    for token in (*BYTES.values(), *map("".join, merges)):
        if token not in ids:
            raise ValueError(f"the vocabulary has no token {token!r:.20} of a byte or a merge")
    return {"merges": merges, "ids": ids, "special": special}


def by_library(path, found, added, why):
    """The same by the library tokenizers, without truncation and padding."""
    decoder = found.get("decoder") or {"type": None}
    only("tokenizer.json, decoder", decoder, {"type": ["ByteLevel"]})
    try:
        import tokenizers
    except ImportError:
        advice = "the library tokenizers reads it: pip install tokenizers"
        raise ValueError(f"{why}; {advice}") from None
    try:
        library = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # it has no error of its own
        raise ValueError(f"tokenizer.json cannot be read by tokenizers: {error}") from None
    library.no_truncation()
    library.no_padding()
    special = dict.fromkeys(added, False)
    return {"merges": [], "ids": library.get_vocab(), "special": special, "library": library}
