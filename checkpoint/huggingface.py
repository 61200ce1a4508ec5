"""GPT-2 as Hugging Face keeps it: config.json, safetensors, and the files of a tokenizer.

A file of safetensors begins with the length of its header (8 bytes) and the header, JSON:
{name: {"dtype", "shape", "data_offsets": [start, stop]}}. The numbers follow, packed, and
offsets count from there. Source: the format's README at github.com/huggingface/safetensors.

What a file asks for is computed, or refused by its own name. Whatever does not change
ids or logits is ignored, such as truncation and padding. A tokenizer that is more than
GPT-2's is left to the library tokenizers.
"""

import json
import re

import numpy as np

from checkpoint.openai import EOT, Entry, mapped, read_json, views

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
SIZES = {  # our name: transformers' name, and another one that it has
    "n_vocab": ["vocab_size"],
    "n_ctx": ["n_positions", "max_position_embeddings"],
    "n_embd": ["n_embd", "hidden_size"],
    "n_head": ["n_head", "num_attention_heads"],
    "n_layer": ["n_layer", "num_hidden_layers"],
}
COMPUTED = {  # what config.json may say; the first value is what it means if it says nothing
    "model_type": ["gpt2"],
    "activation_function": ["gelu_new", "gelu_pytorch_tanh", "gelu_fast"],
    "layer_norm_epsilon": [1e-5],
    "add_cross_attention": [False],
    "scale_attn_weights": [True],
    "scale_attn_by_inverse_layer_idx": [False],
    "quantization_config": [None],
}
PREFIX = r"(_orig_mod\.)?(transformer\.)?"
MASK = re.compile(PREFIX + r"h\.\d+\.attn\.(masked_)?bias")
NAME = r"(wte|wpe|ln_f|lm_head|h\.\d+\.[\w.]+)\.(weight|bias)"
MERGE = "model.merge_and_unload().save_pretrained(folder)"
CONVERT = "GPT2LMHeadModel.from_pretrained(folder).save_pretrained(folder)"


def hparams(folder):
    """The five numbers of config.json. ValueError if it asks for what is not computed here."""
    config = read_json(folder / "config.json")
    only("config.json", config, COMPUTED)
    absent = [names[0] for names in SIZES.values() if config.keys().isdisjoint(names)]
    if absent:
        raise ValueError(f"config.json has no {', '.join(absent)}")
    return {ours: size(config, names) for ours, names in SIZES.items()}


def size(config, names):
    """The number that has these names. transformers lets the last one win."""
    given = [config[name] for name in names if name in config]
    if given[0] != given[-1]:
        both = f"{names[0]} is {given[0]!r:.80}, and {names[1]} is {given[1]!r:.80}"
        raise ValueError(f"config.json: {both}, but these are two names of one number")
    return given[0]


def only(where, found, allowed):
    """ValueError unless a dict has one of the allowed values for each name, or nothing."""
    for name, values in allowed.items():
        if found.get(name, values[0]) not in values:
            told = [str(value) for value in values if value]
            what = f"{where}: {name} is {found[name]!r:.80}"
            raise ValueError(f"{what}, and only {' or '.join(told) or values[0]} is computed here")


def optional(folder, name):
    return read_json(folder / name) if (folder / name).exists() else {}


# ---- Weights ----


def tensors(folder, data=None):
    """{OpenAI's name: array}: views of the memory-mapped files, but BF16 becomes float32."""
    stored = {}
    for path in [data] if data else weights(folder):
        stored |= safetensors(path)
    stored = {name: tensor for name, tensor in stored.items() if not MASK.fullmatch(name)}
    for name in sorted(stored):
        check_name(name)
    found = {openai_name(name): tensor for name, tensor in stored.items()}
    if len(found) < len(stored):
        raise ValueError("a tensor is there twice, as with and without the prefix 'transformer.'")
    head = found.pop("model/lm_head/w", None)
    if head is None:
        if read_json(folder / "config.json").get("tie_word_embeddings") is False:
            what = "lm_head.weight is missing, and tie_word_embeddings = False"
            raise ValueError(f"{what} says that it is not wte")
    elif not np.array_equal(head, found.setdefault("model/wte", head)):
        raise ValueError("lm_head.weight is not wte, so it is not a GPT-2")
    return found


def weights(folder):
    """The files of the weights. Large models are cut into several."""
    path = folder / "model.safetensors"
    if path.exists():
        return [path]
    if index := optional(folder, f"{path.name}.index.json"):
        places = index.get("weight_map")
        if type(places) is dict and {type(place) for place in places.values()} == {str}:
            return [folder / name for name in {*places.values()}]
        raise ValueError(f"{path.name}.index.json is damaged: it has no weight_map")
    if [*folder.glob("pytorch_model*.bin")]:
        advice = f"convert it with transformers: {CONVERT}"
        raise ValueError(f"pytorch_model.bin cannot be read here; {advice}")
    raise ValueError("model.safetensors is missing")


def safetensors(path):
    """A file -> {name: array}."""
    data = mapped(path)
    end = 8 + int.from_bytes(data[:8].tobytes(), "little")
    try:
        header = json.loads(data[8:end].tobytes(), object_pairs_hook=unique)
        header.pop("__metadata__", None)
        entries = {name: entry_of(**told) for name, told in header.items()}
        found = views(data[end:], entries)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path.name} cannot be used: {str(error)[:200]}") from None
    if not found:
        raise ValueError(f"{path.name} holds no tensors")
    for name, told in header.items():
        if told["dtype"] == "BF16":
            found[name] = (found[name].astype("<u4") << 16).view("<f4")
    return found


def entry_of(dtype, shape, data_offsets):
    if dtype not in DTYPES:
        raise ValueError(f"numbers of type {dtype} cannot be read here; convert them to F32")
    start, stop = data_offsets
    return Entry(DTYPES[dtype], shape, start, stop - start)


def unique(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    return found


def check_name(name):
    """ValueError unless a tensor belongs to a GPT-2 that writes text."""
    if re.fullmatch(PREFIX + NAME, name):
        return
    found = re.match(r"(\w+\.)+?(?=(_orig_mod\.|transformer\.)*(wte|wpe|ln_f|h\.\d+)\.)", name)
    if ".lora_" in name or ".base_layer." in name:
        raise ValueError(f"{name} is of an adapter; merge it with peft: {MERGE}")
    if found and not re.fullmatch(PREFIX, found[0]):
        raise ValueError(f"the names of tensors begin with {found[0]!r}; remove that prefix")
    raise ValueError(f"{name} is of no GPT-2 that writes text; perhaps it is another head")


def openai_name(name):
    """h.0.attn.c_attn.weight -> model/h0/attn/c_attn/w, and ln_f.weight -> model/ln_f/g"""
    name = re.sub(r"^h\.(?=\d)", "h", re.sub(f"^{PREFIX}", "", name))
    name = re.sub(r"^(wte|wpe)\.weight$", r"\1", name)
    name = re.sub(r"(ln_\w)\.weight$", r"\1.g", name)
    name = name.replace(".weight", ".w").replace(".bias", ".b")
    return "model/" + name.replace(".", "/")


# ---- The tokenizer ----

GPT2 = [None, "GPT2Tokenizer", "GPT2TokenizerFast"]  # others obey all of tokenizer.json
GENERAL = ["PreTrainedTokenizer", "PreTrainedTokenizerFast", "TokenizersBackend"]
ROLES = [f"{role}_token" for role in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")]
FLAGS = {"single_word": [False, None], "lstrip": [False, None], "rstrip": [False, None]}
BPE = {  # the "model" of GPT-2's tokenizer.json
    "type": ["BPE"],
    "ignore_merges": [False],
    "byte_fallback": [False],
    "continuing_subword_prefix": [None, ""],
    "end_of_word_suffix": [None, ""],
}


def tokenizer(folder):
    """What `encoder.Encoder` needs, from tokenizer.json, or vocab.json and merges.txt -> dict."""
    model = optional(folder, "config.json")
    config = optional(folder, "tokenizer_config.json")
    config.setdefault("tokenizer_class", model.get("tokenizer_class"))
    if "added_tokens_decoder" not in config:
        config |= optional(folder, "special_tokens_map.json")
    if config["tokenizer_class"] in GPT2:
        config = {"add_prefix_space": False} | dict.fromkeys(ROLES[:3], EOT) | config
    allowed = {"tokenizer_class": [*GPT2, *GENERAL], "split_special_tokens": [False, None]}
    only("the tokenizer", config, allowed)
    has_json = (folder / "tokenizer.json").exists() or not (folder / "merges.txt").exists()
    parts = newer(folder, config) if has_json else older(folder, config)
    parts["eos"] = end_of_text(parts["ids"], config, model)
    return parts


def end_of_text(ids, config, model):
    """The named token that ends a text, or that of config.json if only this has a row."""
    eos = config.get("eos_token")
    ends = [ids.get(as_token(eos)["content"]), model.get("eos_token_id")]
    n_rows = model.get("vocab_size") or 0
    with_rows = [id for id in ends if id in ids.values() and id < n_rows]
    return with_rows[0] if with_rows else ends[0]


def as_token(token):
    return token if isinstance(token, dict) else {"content": token, "special": True}


def named_tokens(config):
    """The added tokens that have a role, or are just named."""
    named = [config[role] for role in ROLES if config.get(role)]
    more = config.get("extra_special_tokens") or {}
    named += more.values() if isinstance(more, dict) else more
    older_name = config.get("additional_special_tokens") or []
    if more and older_name:
        raise ValueError("additional_special_tokens is the older name of extra_special_tokens")
    return [as_token(token) for token in [*named, *older_name] if token]


def listed_tokens(folder, config):
    """The added tokens that are listed with their ids."""
    if "added_tokens_decoder" in config:
        listed = config["added_tokens_decoder"].items()
        return [token | {"id": int(id)} for id, token in listed]
    special = [token["content"] for token in named_tokens(config)]
    others = optional(folder, "added_tokens.json").items()
    return [{"id": id, "content": name, "special": name in special} for name, id in others]


def add_tokens(ids, tokens):
    """Give each token an id, the next one if it has none -> {token: whether it is found late}

    A late one is looked for only in what is left between the others.
    """
    special = {}
    for token in tokens:
        name = token["content"]
        only(f"the added token {name!r}", token, FLAGS)
        ids.setdefault(name, token.get("id", len(ids)))
        special.setdefault(name, token.get("normalized", not token.get("special")))
    return special


def older(folder, config):
    """vocab.json and merges.txt."""
    only("the tokenizer", config, {"add_eos_token": [False, None], "tokenizer_class": GPT2})
    lines = (folder / "merges.txt").read_text(encoding="utf-8").split("\n")
    merges = pairs(line for line in lines if line and not line.startswith("#version"))
    ids = read_json(folder / "vocab.json")
    special = add_tokens(ids, listed_tokens(folder, config) + named_tokens(config))
    parts = {"merges": merges, "ids": ids, "special": special}
    parts["prefix_space"] = config.get("add_prefix_space")
    if config.get("add_bos_token") and config.get("bos_token"):
        parts["before"] = [ids[as_token(config["bos_token"])["content"]]]
    return parts


def pairs(merges):
    found = [tuple(pair.split(" ") if isinstance(pair, str) else pair) for pair in merges]
    for pair in found:
        if len(pair) != 2 or not all(pair):
            raise ValueError(f"a merge is {pair!r:.80}, which is not two tokens")
    return found


def newer(folder, config):
    """tokenizer.json, which transformers 5 writes alone. Other files must not contradict it."""
    found = read_json(folder / "tokenizer.json")
    added = found.get("added_tokens") or []
    listed, named = listed_tokens(folder, config), named_tokens(config)
    algorithm, around = other_algorithm(found), other_tokens(found)
    check_is_obeyed(found, config, algorithm)
    if "added_tokens_decoder" in config:
        check_are_known(added, listed, "tokenizer_config.json")
    if algorithm or around:
        library = by_library(folder / "tokenizer.json", found, algorithm or around)
        check_are_known([*listed, *named], added, "tokenizer.json")
        special = {token["content"]: False for token in added}
        return {"merges": [], "ids": library.get_vocab(), "special": special, "library": library}
    ids = found["model"]["vocab"] | {token["content"]: token["id"] for token in added}
    special = add_tokens(ids, [*listed, *added, *named])
    merges = pairs(found["model"]["merges"])
    space = found["pre_tokenizer"].get("add_prefix_space")
    return {"merges": merges, "ids": ids, "special": special, "prefix_space": space}


def check_is_obeyed(found, config, algorithm):
    """ValueError where transformers does not do what tokenizer.json says, or by chance."""
    only("tokenizer.json", found["model"], {"dropout": [None, 0]})
    if algorithm and config["tokenizer_class"] in GPT2:
        advice = "set tokenizer_class to PreTrainedTokenizerFast to keep it"
        raise ValueError(f"tokenizer.json: a GPT2Tokenizer leaves out the {algorithm}; {advice}")
    space = (found.get("pre_tokenizer") or {}).get("add_prefix_space")
    wanted = config.get("add_prefix_space", False)
    if bool(wanted) != bool(space):
        both = f"add_prefix_space is {space} in tokenizer.json, and {wanted} otherwise"
        raise ValueError(f"{both}; make them agree")
    for key in "add_bos_token", "add_eos_token":
        if config.get(key) or (key in config and adds_ids(found.get("post_processor"))):
            what = f"{key} is {config[key]}, and tokenizer.json has a post-processor"
            raise ValueError(f"{what}; remove one of them")


def check_are_known(tokens, others, where):
    """ValueError unless others have these tokens, with the same flags where both tell."""
    known = {token["content"]: token for token in others}
    for token in tokens:
        name = token["content"]
        told = {key: token[key] for key in ("id", "normalized", *FLAGS) if key in token}
        if name not in known or told | known[name] != known[name] | told:
            raise ValueError(f"the added token {name!r} is not that of {where}")


def other_algorithm(found):
    """What cuts a text in another way than GPT-2's tokenizer, or None."""
    for key, values in BPE.items():
        value = found["model"].get(key, values[0])
        if value not in values:
            return f"{key} = {value}"
    cut = found.get("pre_tokenizer") or {}
    if cut.get("type") != "ByteLevel" or not cut.get("use_regex", True):
        return f"pre-tokenizer {cut!r:.60}"
    if found.get("normalizer"):
        return f"normalizer {found['normalizer']!r:.60}"
    return None


def other_tokens(found):
    """What is around texts and added tokens, unlike with GPT-2, or None."""
    post = found.get("post_processor")
    if adds_ids(post):
        return f"post-processor {post['type']}"
    for token in found.get("added_tokens") or []:
        for flag in FLAGS:
            if token.get(flag):
                return f"{flag} of the added token {token['content']!r}"
    return None


def adds_ids(post):
    """Whether a post-processor puts ids around a text."""
    if post is None or post["type"] == "ByteLevel":
        return False
    items = post.get("single", [])
    return len(items) != 1 or "Sequence" not in items[0]


def by_library(path, found, other):
    """A `tokenizers.Tokenizer`, without truncation and padding."""
    decoder = found.get("decoder") or {"type": None}
    only("tokenizer.json, decoder", decoder, {"type": ["ByteLevel"]})
    try:
        import tokenizers
    except ImportError:
        advice = "the library tokenizers reads it: pip install tokenizers"
        raise ValueError(f"tokenizer.json has a {other}; {advice}") from None
    try:
        library = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # it has no error of its own
        raise ValueError(f"tokenizer.json cannot be read by tokenizers: {error}") from None
    library.no_truncation()
    library.no_padding()
    return library
