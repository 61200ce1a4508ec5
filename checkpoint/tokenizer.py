"""The tokenizer of a folder in Hugging Face's format.

GPT-2's own is tokenizer.json, or vocab.json and merges.txt, with <|endoftext|> as its only
added token, which no word contains. Any other is read by the library tokenizers. Several
files may describe the added tokens, and have to agree, because transformers obeys now one
and now another.
"""

import json
import os
from operator import index

from checkpoint import UserError
from checkpoint.openai import EOT, pairs, read_merges
from checkpoint.raw import only, optional, read_json
from encoder import BYTES

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
ADDED = {**dict.fromkeys(FLAGS, False), "normalized": False, "special": True}  # the defaults
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}


def tokenizer(folder, config):
    """What `encoder.Encoder` needs -> dict. The library reads what is not GPT-2's own tokenizer.

    Below, spec is the content of a tokenizer.json.
    """
    settings = config | optional(folder, "tokenizer_config.json")
    if "added_tokens_decoder" not in settings:
        settings |= optional(folder, "special_tokens_map.json")
    only("the tokenizer", settings, SETTINGS)
    described = described_tokens(folder, settings)
    if (folder / "merges.txt").exists() and not (folder / "tokenizer.json").exists():
        spec = of_two_files(folder, settings, described)
    else:
        spec = read_json(folder / "tokenizer.json")
        check_is_obeyed(spec, settings)
    added = {token["content"]: token for token in spec.get("added_tokens") or []}
    ids = spec["model"]["vocab"] | {name: added[name]["id"] for name in added}
    if gaps := {*range(len(ids))}.difference(map(index, ids.values())):
        problem = f"none has the id {min(gaps)}"
        raise ValueError(f"the {len(ids):,} tokens are not numbered from 0 on: {problem}")
    added.pop("", None)  # it is never found
    try:
        check_only_eot(spec, [*added.values(), *described])
        parts = by_encoder(spec, is_added=added or described)
    except ValueError as why:
        check_agree(described, {EOT: ADDED | {"content": EOT, "id": None}} | added)
        if len(settings.get("added_tokens_decoder", added)) != len(added):
            problem = "added tokens that tokenizer_config.json does not list"
            raise ValueError(f"tokenizer.json has {problem}") from None
        is_new = EOT not in added and {"content": EOT} in described
        parts = by_library(spec, added, why, [EOT] if is_new else [])
    return parts | {"eos": ends_of_text(folder, config, len(parts["ids"]))}


def ends_of_text(folder, config, n_vocab):
    """The ids where `generate` of transformers stops."""
    if (folder / "generation_config.json").exists():
        ends = read_json(folder / "generation_config.json").get("eos_token_id")
    else:
        ends = config.get("eos_token_id", 50256)
    ends = ends if isinstance(ends, list) else [ends]
    return tuple(id for id in ends if type(id) is int and 0 <= id < n_vocab)


def of_two_files(folder, settings, described):
    """vocab.json and merges.txt, as a tokenizer.json would have them."""
    only("without tokenizer.json", settings, {"tokenizer_class": GPT2})
    ids = read_json(folder / "vocab.json")
    merges = read_merges(folder / "merges.txt")
    numbers = {token["content"]: token["id"] for token in described if "id" in token} | ids
    unk = settings.get("unk_token")
    for name in EOT, unk["content"] if isinstance(unk, dict) else unk:
        numbers.setdefault(name, len(numbers))  # transformers adds it, if nobody else does
    is_listed = "added_tokens_decoder" in settings
    named = {token["content"] for token in described if "id" not in token}
    if EOT not in settings.values():
        named.discard(EOT)  # it has its names by default
    added = {}
    for token in described:
        name = token["content"]
        if name not in numbers:
            raise ValueError(f"the added token {name!r} has no id; see docs/your_models.md")
        is_last = not is_listed and "id" in token and name not in named  # to be looked for
        token = ADDED | {"normalized": is_last} | token | {"id": numbers[name]}
        added.setdefault(name, token)
        if not is_listed:
            check_agree([token], added)
    return {
        "added_tokens": sorted(added.values(), key=lambda token: token["id"]),
        "pre_tokenizer": BYTE_LEVEL,
        "decoder": BYTE_LEVEL,
        "model": {"type": "BPE", "vocab": ids, "merges": merges},
    }


def check_fits(ids, merges):
    """ValueError unless the tokens are bytes, what merges make of them once, and EOT perhaps."""
    tokens = {*BYTES.values()}
    for left, right in merges:
        if left not in tokens or right not in tokens or left + right in tokens:
            problem = "is of tokens that no merge before it makes, or makes one again"
            raise ValueError(f"the merge {(left, right)!r:.80} {problem}")
        tokens.add(left + right)
    if odd := sorted(tokens - ids.keys() | ids.keys() - tokens - {EOT}):
        problem = f"{len(odd):,} tokens are in one of them alone, such as {odd[0]!r:.20}"
        raise ValueError(f"the vocabulary does not fit its merges: {problem}")


def check_only_eot(spec, added):
    """ValueError if there are other added tokens, which no word contains."""
    ids = spec["model"]["vocab"]
    for token in added:
        allowed = FLAGS | {"content": [EOT], "id": [ids.get(EOT, len(ids))]}
        only(f"the added token {token['content']!r}", token, allowed)


def by_encoder(spec, is_added):
    """GPT-2's own tokenizer, perhaps with another vocabulary. ValueError if it is another one."""
    check_algorithm(spec)
    check_template(spec.get("post_processor") or {})
    ids = spec["model"]["vocab"]
    merges = pairs(spec["model"]["merges"])
    check_fits(ids, merges)
    if is_added:
        ids.setdefault(EOT, len(ids))  # transformers adds it, if nobody else does
    return {"merges": merges, "ids": ids, "special": EOT if is_added else None}


def by_library(spec, added, why, new_tokens):
    """What the library makes of a tokenizer.json, and of more tokens. ValueError if it cannot."""
    try:
        import tokenizers
    except ImportError:
        advice = "the library tokenizers reads it: pip install tokenizers"
        raise ValueError(f"{why}; {advice}") from None
    library = called(tokenizers.Tokenizer.from_str, json.dumps(spec))
    library.add_special_tokens(new_tokens)
    library.no_truncation()
    library.no_padding()
    ids = library.get_vocab()
    check_agree(added.values(), {name: {"id": id} for name, id in ids.items()})
    return {"merges": [], "ids": ids, "library": lambda text: called(library.encode, text).ids}


def check_agree(described, known):
    """ValueError unless each described token is known, and no known property of it differs."""
    for token in described:
        name = token["content"]
        known_token = known.get(name, {"content": None})
        if any(known_token.get(key, value) != value for key, value in token.items()):
            raise ValueError(f"the files do not agree about the added token {name!r}")


def check_is_obeyed(spec, settings):
    """ValueError where transformers does not do what tokenizer.json says, or by chance."""
    only("tokenizer.json, model", spec["model"], {"type": ["BPE"]})
    cut = spec.get("pre_tokenizer") or {}
    only("tokenizer.json", spec["model"] | cut, {"dropout": [None, 0], "add_prefix_space": NO})
    decoder = spec.get("decoder") or {"type": None}
    only("tokenizer.json, decoder", decoder, {"type": ["ByteLevel"]})
    if settings.get("tokenizer_class") in GPT2:
        check_algorithm(spec)


def check_algorithm(spec):
    """ValueError if the words are not GPT-2's."""
    only("tokenizer.json", spec["model"], BPE)
    only("tokenizer.json", spec, {"normalizer": [None]})
    cut = spec.get("pre_tokenizer") or {"type": None}
    only("tokenizer.json, pre_tokenizer", cut, {"type": ["ByteLevel"], "use_regex": [True]})


def check_template(after):
    """ValueError if something is put around a text. transformers 5 writes a template without."""
    items = after.get("single") or []
    if [[*item] for item in items] != [["Sequence"]]:
        only("tokenizer.json, post_processor", after, {"type": ["ByteLevel"]})


def described_tokens(folder, settings):
    """What files other than tokenizer.json say of added tokens."""
    tokens = []
    if "added_tokens_decoder" in settings:
        for id, token in settings["added_tokens_decoder"].items():
            tokens.append(token | {"id": int(id)})
    else:
        for name, id in optional(folder, "added_tokens.json").items():
            tokens.append({"content": name, "id": id})
    if settings.get("tokenizer_class") in GPT2:
        settings = {"bos_token": EOT, "eos_token": EOT, "unk_token": EOT} | settings
    named = [value for name, value in settings.items() if name.endswith("_token")]
    for key in "extra_special_tokens", "additional_special_tokens":
        more = settings.get(key) or []
        named += more if isinstance(more, list) else more.values()
    for token in named:
        if isinstance(token, dict):
            tokens.append(token)
        elif isinstance(token, str) and token:
            tokens.append({"content": token})
    return tokens


def called(function, *args):
    """What a function of the library returns. UserError if it fails, or panics, as Rust calls it.

    A panic prints where it happened, in lines of its own, and is no Exception in Python.
    """
    stderr = os.dup(2)
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 2)
    try:
        return function(*args)
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:
        raise UserError(f"the library tokenizers fails: {str(error)!r:.200}") from None
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
