"""GPT-2 as Hugging Face keeps it: config.json, safetensors, and the files of a tokenizer.

A file of safetensors begins with the length of its header (8 bytes) and the header, JSON:
{name: {"dtype", "shape", "data_offsets": [start, stop]}}. The numbers follow, packed, and
offsets count from there. Source: the format's README at github.com/huggingface/safetensors.

What a file asks for is computed, or refused by its own name. Whatever does not change
ids or logits is ignored, such as truncation and padding.
"""

import json
import re

import numpy as np

from checkpoint.openai import EOT, Entry, read_json, views

FILES = ("config.json", "vocab.json", "merges.txt", "model.safetensors")
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "?", "U8": "u1", "I64": "<i8"}
HPARAMS = dict(n_vocab="vocab_size", n_ctx="n_positions", n_embd="n_embd", n_head="n_head", n_layer="n_layer")
ALIASES = dict(  # what transformers calls them, too
    n_positions="max_position_embeddings",
    n_embd="hidden_size",
    n_head="num_attention_heads",
    n_layer="num_hidden_layers",
)
COMPUTED = dict(  # what config.json may say; the first value is what it means if it says nothing
    model_type=["gpt2"], activation_function=["gelu_new", "gelu_pytorch_tanh", "gelu_fast"],
    layer_norm_epsilon=[1e-5], add_cross_attention=[False], scale_attn_weights=[True],
    scale_attn_by_inverse_layer_idx=[False], quantization_config=[None],
)  # fmt: skip
MODEL = dict(  # the same for the "model" of tokenizer.json
    type=["BPE"], dropout=[None, 0], ignore_merges=[False], byte_fallback=[False],
    continuing_subword_prefix=[None, ""], end_of_word_suffix=[None, ""],
)  # fmt: skip
BYTE_LEVEL = dict(type=["ByteLevel"], use_regex=[True])  # and for its "pre_tokenizer", besides add_prefix_space
GPT2 = [None, "GPT2Tokenizer", "GPT2TokenizerFast"]  # what tokenizer_class may be: others have rules of their own
GENERAL = [*GPT2, "PreTrainedTokenizer", "PreTrainedTokenizerFast", "TokenizersBackend"]  # the same for tokenizer.json
ROLES = [f"{role}_token" for role in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")]
PREFIX = r"(_orig_mod\.)?(transformer\.)?"
MASK = re.compile(PREFIX + r"h\.\d+\.attn\.(masked_)?bias")
CONVERT = "GPT2LMHeadModel.from_pretrained(folder).save_pretrained(folder)"


def hparams(folder):
    """The five numbers of config.json. ValueError if it asks for something that is not computed here."""
    config = read_json(folder / "config.json")
    only("config.json", config, COMPUTED)
    for name, alias in ALIASES.items():
        if alias not in config:
            continue
        value = config.setdefault(name, config[alias])
        if value != config[alias]:
            both = f"{name} is {value!r:.80}, and {alias} is {config[alias]!r:.80}"
            raise ValueError(f"config.json: {both}, but these are two names of one number")
    if missing := [name for name in HPARAMS.values() if name not in config]:
        raise ValueError(f"config.json has no {', '.join(missing)}")
    return {ours: config.get(theirs) for ours, theirs in HPARAMS.items()}


def only(where, found, allowed):
    """ValueError unless a dict has one of the allowed values for each name, or nothing."""
    for name, values in allowed.items():
        if found.get(name, values[0]) not in values:
            values = " or ".join(map(str, filter(None, values))) or values[0]
            raise ValueError(f"{where}: {name} is {found[name]!r:.80}, and only {values} is computed here")


# ---- Weights ----


def tensors(folder, data=None):
    """{OpenAI's name: array}: views of the memory-mapped files, but BF16 becomes float32."""
    stored = {}
    for path in [data] if data else weights(folder):
        stored |= safetensors(path)
    found = {openai_name(name): tensor for name, tensor in stored.items() if not MASK.fullmatch(name)}
    if len(found) < sum(not MASK.fullmatch(name) for name in stored):
        raise ValueError("a tensor is there twice, as with and without the prefix 'transformer.'")
    if other := sorted(name for name in found if not re.match(r"model/(wte|wpe|h\d+|ln_f|lm_head)(/|$)", name)):
        raise ValueError(f"{other[0]} is of no GPT-2 that writes text; perhaps of a head for something else")
    if (head := found.pop("model/lm_head/w", None)) is not None:
        if not np.array_equal(head, found.setdefault("model/wte", head)):
            raise ValueError("lm_head.weight is not wte, so it is not a GPT-2")
    elif read_json(folder / "config.json").get("tie_word_embeddings") is False:
        raise ValueError("lm_head.weight is missing, and tie_word_embeddings = False says that it is not wte")
    return found


def weights(folder):
    """The files of the weights. Large models are cut into several."""
    path = folder / "model.safetensors"
    if path.exists():
        return [path]
    if index := optional(folder, f"{path.name}.index.json"):
        if type(places := index.get("weight_map")) is dict and {*map(type, places.values())} == {str}:
            return [folder / name for name in {*places.values()}]
        raise ValueError(f"{path.name}.index.json is damaged: it has no weight_map")
    if [*folder.glob("pytorch_model*.bin")]:
        raise ValueError(f"pytorch_model.bin cannot be read here; convert it with transformers: {CONVERT}")
    raise ValueError("model.safetensors is missing")


def safetensors(path):
    """A file -> {name: array}."""
    data = np.asarray(np.memmap(path, np.uint8, "r"))
    end = 8 + int.from_bytes(data[:8].tobytes(), "little")
    try:
        header = json.loads(data[8:end].tobytes(), object_pairs_hook=unique)
        header.pop("__metadata__", None)
        if unknown := {t["dtype"] for t in header.values()} - {*DTYPES}:
            raise ValueError(f"numbers of type {', '.join(sorted(unknown))} cannot be read here; convert them to F32")
        places = {name: (t["dtype"], t["shape"], *t["data_offsets"]) for name, t in header.items()}
        entries = {name: Entry(DTYPES[kind], shape, a, b - a) for name, (kind, shape, a, b) in places.items()}
        found = views(data[end:], entries)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path.name} cannot be used: {str(error)[:200]}") from None
    bf16 = {name: (found[name].astype("<u4") << 16).view("<f4") for name in places if places[name][0] == "BF16"}
    return found | bf16


def unique(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    return found


def openai_name(name):
    """h.0.attn.c_attn.weight -> model/h0/attn/c_attn/w, and ln_f.weight -> model/ln_f/g"""
    if not re.fullmatch(r"[\w.]+\.(weight|bias)", name):
        return name  # of no GPT-2
    name = re.sub(r"^h\.(?=\d)", "h", re.sub(f"^{PREFIX}", "", name))
    name = re.sub(r"^(wte|wpe)\.weight$", r"\1", name)
    name = re.sub(r"(ln_\w)\.weight$", r"\1.g", name)
    return "model/" + name.replace(".weight", ".w").replace(".bias", ".b").replace(".", "/")


# ---- The tokenizer ----


def tokenizer(folder):
    """What `encoder.Encoder` needs, from tokenizer.json, or from vocab.json and merges.txt -> dict.

    tokenizer_config.json adds tokens, as in transformers. Where it has no added_tokens_decoder,
    special_tokens_map.json and added_tokens.json do.
    """
    model, config = (optional(folder, name) for name in ("config.json", "tokenizer_config.json"))
    config.setdefault("tokenizer_class", model.get("tokenizer_class"))
    only("the tokenizer", config, {"tokenizer_class": GENERAL})
    if "added_tokens_decoder" not in config:
        config |= optional(folder, "special_tokens_map.json")
    if config["tokenizer_class"] in GPT2:
        config = {"add_prefix_space": False} | dict.fromkeys(ROLES[:3], EOT) | config
    only(
        "tokenizer_config.json",
        config,
        {"split_special_tokens": [False, None], "add_prefix_space": [None, False, True]},
    )
    roles = {role: as_token(config[role]) for role in ROLES if config.get(role)}
    more = [config.get(name) or [] for name in ("additional_special_tokens", "extra_special_tokens")]
    more = [token for each in more for token in (each.values() if isinstance(each, dict) else each)]
    named = [*roles.values(), *map(as_token, more)]
    added = [token | {"id": int(id)} for id, token in config.get("added_tokens_decoder", {}).items()]
    if "added_tokens_decoder" not in config:
        special, others = [token["content"] for token in named], optional(folder, "added_tokens.json")
        named = [{"id": id, "content": token, "special": token in special} for token, id in others.items()] + named
    if (folder / "tokenizer.json").exists() or not (folder / "merges.txt").exists():
        parts = newer(read_json(folder / "tokenizer.json"), config)
    else:
        parts = older(folder, config)
    ids = parts["ids"]
    for token in (token for token in [*added, *named] if token["content"]):
        ids.setdefault(token["content"], token.get("id", len(ids)))
    parts["special"] = specials(named) | parts["special"] | specials(added)
    ends = [ids.get(roles.get("eos_token", {}).get("content")), model.get("eos_token_id")]
    with_rows = [id for id in ends if id in ids.values() and id < (model.get("vocab_size") or 0)]
    parts["eos"] = [*with_rows, *ends][0]
    if parts.pop("add_bos", False) and "bos_token" in roles:
        parts["before"] = [ids[roles["bos_token"]["content"]]]
    return parts


def optional(folder, name):
    return read_json(folder / name) if (folder / name).exists() else {}


def as_token(token):
    return token if isinstance(token, dict) else {"content": token, "special": True}


def specials(tokens):
    """[{"content", "normalized", "lstrip", "rstrip", ...}, ...] -> {token: (normalized, lstrip, rstrip)}"""
    for token in tokens:
        only(f"the added token {token['content']!r}", token, {"single_word": [False]})
    flags = [(t.get("normalized", not t.get("special")), t.get("lstrip"), t.get("rstrip")) for t in tokens]
    return {token["content"]: each for token, each in zip(tokens, flags) if token["content"]}


def newer(found, config):
    """tokenizer.json, which transformers 5 writes alone."""
    model, cut = found["model"], found.get("pre_tokenizer") or {"type": None}
    only("tokenizer.json", model, MODEL)
    only("tokenizer.json, pre_tokenizer", cut | {"type": kind_of(cut)}, BYTE_LEVEL)
    if found.get("normalizer"):
        raise ValueError(f"tokenizer.json: the normalizer {kind_of(found['normalizer'])} is not computed here")
    if (wanted := config.get("add_prefix_space")) not in (None, space := cut.get("add_prefix_space")):
        raise ValueError(f"add_prefix_space is {space} in tokenizer.json, and {wanted} otherwise; make them agree")
    before, after = template(found.get("post_processor"))
    added = found.get("added_tokens") or []
    return {
        "merges": pairs(model["merges"]),
        "ids": model["vocab"] | {token["content"]: token["id"] for token in added},
        "special": specials(added), "prefix_space": space, "before": before, "after": after,
    }  # fmt: skip


def kind_of(part):
    """Digits, or Sequence of Digits, ByteLevel."""
    inner = part.get("pretokenizers") or part.get("normalizers")
    return f"Sequence of {', '.join(map(kind_of, inner))}" if inner else part.get("type")


def template(processor):
    """The ids that a post-processor puts before and after a text."""
    kind = processor["type"] if processor else "ByteLevel"
    if kind == "Sequence":
        both = [template(each) for each in processor["processors"]]
        return [id for before, _ in reversed(both) for id in before], [id for _, after in both for id in after]
    only("tokenizer.json, post_processor", {"type": kind}, {"type": ["ByteLevel", "TemplateProcessing"]})
    if kind == "ByteLevel":
        return [], []
    around = [[]]
    for item in processor["single"]:
        if "Sequence" in item:
            around.append([])
        else:
            around[-1] += processor["special_tokens"][item["SpecialToken"]["id"]]["ids"]
    if len(around) != 2:
        raise ValueError("tokenizer.json: a template must have the text exactly once")
    return around


def older(folder, config):
    """vocab.json and merges.txt."""
    only("the tokenizer", config, {"add_eos_token": [False, None], "tokenizer_class": GPT2})
    lines = (folder / "merges.txt").read_text(encoding="utf-8").split("\n")
    return {
        "merges": pairs(line for line in lines if line and not line.startswith("#version")),
        "ids": read_json(folder / "vocab.json"), "special": {}, "prefix_space": config.get("add_prefix_space"),
        "add_bos": config.get("add_bos_token"),
    }  # fmt: skip


def pairs(merges):
    found = [tuple(pair.split(" ") if isinstance(pair, str) else pair) for pair in merges]
    if wrong := [pair for pair in found if len(pair) != 2 or not all(pair)]:
        raise ValueError(f"a merge is {wrong[0]!r:.80}, which is not two tokens")
    return found
