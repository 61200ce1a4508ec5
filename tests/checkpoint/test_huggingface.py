"""Hugging Face's format: folders of transformers, what is refused, the cache, and downloads."""

import hashlib
import json
import os
import random
import shutil
import sys

import numpy as np
import pytest
from support.programs import ROOT
from support.server import CONTENT, files_of

from checkpoint import UserError, find, huggingface, names
from checkpoint.read import open_model
from gpt2 import GPT2
from utils import get_encoder, load_encoder_hparams_and_params, load_models, pair_of

HF = ROOT / "tests" / "fixtures" / "hf"  # tiny GPT-2s, ids and logits by transformers 5
GOLDEN = json.loads((HF / "golden.json").read_text(encoding="utf-8"))
PLAIN = files_of(HF / "plain")
CONFIG = json.loads(PLAIN["config.json"])
PLAIN_SIZES = open_model(HF / "plain").hparams
VOCABULARY = json.loads(PLAIN["vocab.json"])
MERGES = PLAIN["merges.txt"].decode().split("\n")[1:-1]
WEIGHTS = "model.safetensors"
TENSORS = {
    name: np.array(tensor)
    for name, tensor in huggingface.safetensors(HF / "plain" / WEIGHTS).items()
}
WTE = "transformer.wte.weight"
ATTN = "transformer.h.0.attn.c_attn.weight"
EOT = "<|endoftext|>"
FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}


def write(folder, changes):
    """Write plain/ with files that are changed, or left out if they are None -> folder"""
    for name, content in (PLAIN | changes).items():
        if content is None:
            continue
        if isinstance(content, dict):
            if name == "config.json":
                content = CONFIG | content
            if name == "tokenizer.json":
                content = tokenizer_json(**content)
            content = json.dumps(content).encode()
        (folder / name).write_bytes(content)
    return str(folder)


def tokenizer_json(model=None, added_tokens=(), eot=271, **parts):
    """The tokenizer.json that means the same as the files of plain/, with these changes."""
    bpe = {"type": "BPE", "dropout": None, "vocab": VOCABULARY, "merges": MERGES}
    tokens = [{"id": eot, "content": EOT}, *added_tokens]
    tokens.sort(key=lambda token: token["id"])
    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "normalizer": None,
        "pre_tokenizer": BYTE_LEVEL,
        "post_processor": BYTE_LEVEL,
        "decoder": BYTE_LEVEL,
        "added_tokens": [FLAGS | {"special": True} | token for token in tokens],
        "model": bpe | (model or {}),
    }
    return whole | parts


@pytest.mark.parametrize("name", ["plain", "chat", "shards"])
def test_ids_and_logits_are_those_of_transformers(name):
    if name == "chat":  # it has other tokens, and a template
        pytest.importorskip("tokenizers")
    golden = GOLDEN[name]
    encoder, hparams, params = load_encoder_hparams_and_params(str(HF / name))
    assert [encoder.encode(text) for text in GOLDEN["texts"]] == golden["ids"]
    assert encoder.eos == (golden["eos"],)
    assert hparams["n_vocab"] == golden["n_vocab"] == len(params["wte"])
    ids = golden["ids"][0][: hparams["n_ctx"]]
    logits = GPT2(params, hparams)(ids)[0]
    assert np.abs(logits - golden["logits"]).max() < 1e-5
    decoded = encoder.decode(golden["ids"][3])
    assert decoded.removeprefix("<|im_start|>") == GOLDEN["texts"][3]


# ---- Folders that mean the same ----


def stored(tensors):
    """The file with these tensors, {name: array}."""
    header = {}
    data = b""
    for name, tensor in tensors.items():
        begin = len(data)
        data += tensor.tobytes()
        header[name] = {
            "dtype": KINDS[tensor.dtype.str],
            "shape": tensor.shape,
            "data_offsets": [begin, len(data)],
        }
    return packed(json.dumps(header), data)


KINDS = {
    "<f8": "F64",
    "<f4": "F32",
    "<f2": "F16",
    "<u2": "BF16",
    "<i8": "I64",
    "|b1": "BOOL",
}


def packed(header, data):
    return len(header).to_bytes(8, "little") + header.encode() + data


def cast(dtype):
    return stored({name: tensor.astype(dtype) for name, tensor in TENSORS.items()})


def renamed(rename):
    return stored({rename(name): tensor for name, tensor in TENSORS.items()})


def wider():
    """n_inner = 40 in place of 32, where the new columns are multiplied by 0."""
    added = {
        "c_fc.weight": ((0, 0), (0, 8)),
        "c_fc.bias": (0, 8),
        "c_proj.weight": ((0, 8), (0, 0)),
    }
    tensors = dict(TENSORS)
    for i in range(2):
        for part, width in added.items():
            name = f"transformer.h.{i}.mlp.{part}"
            tensors[name] = np.pad(TENSORS[name], width, constant_values="c_fc" in name)
    return stored(tensors)


PADDED = stored(TENSORS | {WTE: np.pad(TENSORS[WTE], ((0, 48), (0, 0)), constant_values=9)})
MASK = {"transformer.h.0.attn.bias": np.ones((1, 1, 4, 4), int)}
INDEXED = {  # where the last copy of a tensor counts, as it does for transformers
    WEIGHTS: None,
    "model.safetensors.index.json": {"weight_map": {ATTN: "a.safetensors", WTE: "b.safetensors"}},
    "a.safetensors": cast("<f2"),
    "b.safetensors": PLAIN[WEIGHTS],
}
PAIRS = [merge.split(" ") for merge in MERGES]
GENERAL = {"tokenizer_class": "PreTrainedTokenizerFast"}
SAME = {
    "merges without a version": {"merges.txt": PLAIN["merges.txt"].partition(b"\n")[2]},
    "lines of Windows": {"merges.txt": PLAIN["merges.txt"].replace(b"\n", b"\r\n")},
    "older files beside it": {"tokenizer.json": {}, "vocab.json": {"a": 0}, "encoder.json": {}},
    "merges as pairs": {"tokenizer.json": {"model": {"merges": PAIRS}}},
    "no class of a tokenizer": {"tokenizer.json": {}, "tokenizer_config.json": GENERAL},
    "rows up to a multiple of 64": {WEIGHTS: PADDED, "config.json": {"vocab_size": 320}},
    "F64": {WEIGHTS: cast("<f8")},
    "no prefix": {WEIGHTS: renamed(lambda name: name.removeprefix("transformer."))},
    "a compiled model": {WEIGHTS: renamed(lambda name: f"_orig_mod.{name}")},
    "a head": {WEIGHTS: stored(TENSORS | {"lm_head.weight": TENSORS[WTE]})},
    "a head without wte": {WEIGHTS: renamed(lambda name: name.replace(WTE, "lm_head.weight"))},
    "masks": {WEIGHTS: stored(TENSORS | MASK)},
    "an index": INDEXED,
    "n_inner": {WEIGHTS: wider()},
    "gelu_pytorch_tanh": {"config.json": {"activation_function": "gelu_pytorch_tanh"}},
    "two names of one number": {"config.json": {"num_attention_heads": 2}},
}


@pytest.mark.parametrize("changes", SAME.values(), ids=SAME)
def test_folders_that_mean_the_same(tmp_path, changes):
    encoder, hparams, params = load_encoder_hparams_and_params(write(tmp_path, changes))
    ids = [encoder.encode(text) for text in GOLDEN["texts"][:3]]
    assert ids == GOLDEN["plain"]["ids"][:3]
    assert encoder.eos == (271,)
    logits = GPT2(params, hparams)(ids[0][:48])
    assert np.abs(logits - GOLDEN["plain"]["logits"]).max() < 1e-5


BF16 = {name: (tensor.view("<u4") >> 16).astype("<u2") for name, tensor in TENSORS.items()}


@pytest.mark.parametrize(("content", "bits"), [(cast("<f2"), 11), (stored(BF16), 8)])
def test_numbers_of_two_bytes(tmp_path, content, bits):
    folder = write(tmp_path, {WEIGHTS: content})
    _, _, params = load_encoder_hparams_and_params(folder)
    np.testing.assert_allclose(params["wte"], TENSORS[WTE], rtol=2.0**-bits * 2, atol=1e-7)


# ---- What is refused ----

IN_CONFIG = [  # what config.json says, and what is said of it
    (
        {"activation_function": "relu"},
        "activation_function is 'relu', but only gelu_new or gelu_py",
    ),
    ({"scale_attn_weights": False}, "scale_attn_weights is False"),
    ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True"),
    ({"layer_norm_epsilon": 1e-6}, "layer_norm_epsilon is 1e-06"),
    ({"tie_word_embeddings": False}, "tie_word_embeddings is False"),
    ({"model_type": "llama"}, "model_type is 'llama'"),
    ({"n_layer": 3}, "12 tensors do not fit the hyperparameters"),
    ({"vocab_size": None}, "config.json: vocab_size is None"),
    ({"num_attention_heads": 4}, "num_attention_heads is 4, but only 2 is computed"),
    ({"num_hidden_layers": 1}, "num_hidden_layers is 1, but only 2"),
    ({"tokenizer_class": "RobertaTokenizer"}, "tokenizer_class is 'RobertaTokenizer'"),
]
NFC = {"type": "NFC"}
PAD = {"id": 272, "content": "[PAD]"}
LEFT = PAD | {"lstrip": True}
STRIPPED = FLAGS | {"content": EOT, "lstrip": True}
AS_ONE = BYTE_LEVEL | {"use_regex": False}
SPACED = BYTE_LEVEL | {"add_prefix_space": True}
LISTED = {"added_tokens_decoder": {"271": FLAGS | {"content": EOT}}}
IN_SETTINGS = [  # the same of tokenizer_config.json
    ({"split_special_tokens": True}, "split_special_tokens is True"),
    ({"add_eos_token": True}, "add_eos_token is True"),
    ({"add_bos_token": True}, "add_bos_token is True, but only False is computed"),
    ({"add_prefix_space": True}, "add_prefix_space is True"),
    ({"tokenizer_class": "BertTokenizer"}, "tokenizer_class is 'BertTokenizer'"),
    (GENERAL, "without tokenizer.json: tokenizer_class is 'PreTrainedTokenizerFast'"),
    (
        {"pad_token": "[PAD]"},
        r"the added token '\[PAD\]' has no id; see docs/your_models.md",
    ),
    ({"image_token": "<A>"}, "the added token '<A>' has no id"),
    ({"extra_special_tokens": ["<A>"]}, "the added token '<A>' has no id"),
    ({"extra_special_tokens": {"image": "<A>"}}, "the added token '<A>' has no id"),
    ({"additional_special_tokens": ["<A>"]}, "the added token '<A>' has no id"),
    ({"eos_token": STRIPPED}, "do not agree about the added token '<.endoft"),
    (
        {"added_tokens_decoder": {"9": {"content": EOT}}},
        "do not agree about the added token '<.endoft",
    ),
]
UNIGRAM = {"type": "Unigram", "vocab": [["a", 0.0]]}
IN_TOKENIZER = [  # the same of tokenizer.json, and tokenizer_config.json
    ({"model": UNIGRAM}, GENERAL, "model: type is 'Unigram', but only BPE is computed"),
    ({"normalizer": NFC}, {}, "tokenizer.json: normalizer is {'type': 'NFC'}"),
    ({"model": {"dropout": 0.1}}, GENERAL, "dropout is 0.1"),
    ({"pre_tokenizer": None}, {}, "pre_tokenizer: type is None"),
    ({"pre_tokenizer": AS_ONE}, {}, "use_regex is False"),
    ({"pre_tokenizer": SPACED}, GENERAL, "add_prefix_space is T"),
    ({"decoder": None}, GENERAL, "decoder: type is None"),
    ({"added_tokens": [PAD]}, LISTED, "has added tokens that tokenizer_config.json does not list"),
    (
        {"added_tokens": [PAD]},
        {"pad_token": "<A>"},
        "do not agree about the added token '<A>'",
    ),
    (
        {"added_tokens": [LEFT]},
        {"pad_token": FLAGS | PAD},
        r"do not agree about the added token '\[PAD\]'",
    ),
]
NO_TILDE = {token.replace("~", "zz"): id for token, id in VOCABULARY.items()}
TWICE = VOCABULARY | {"b": 64}
SPACES = PLAIN["merges.txt"].replace(b"\n", b" \n")
CUT_SHORT = PLAIN["merges.txt"][:-9].rpartition(b"\n")[0]
WORDS = {token: id for token, id in VOCABULARY.items() if token != EOT}
FIRST = {"id": 271, "content": "[PAD]"}
PAD_ALONE = {"added_tokens": [FLAGS | {"special": True} | FIRST]}
WITHOUT_EOT = json.dumps(tokenizer_json({"vocab": WORDS}) | PAD_ALONE).encode()
IN_FILES = [  # the same of other files
    ({"merges.txt": SPACES}, "which is not two tokens"),
    ({"vocab.json": TWICE}, "numbered from 0 on: none has the id 65"),
    ({"tokenizer.json": WITHOUT_EOT, "tokenizer_config.json": LISTED}, "agree about .* '<.endof"),
    ({"special_tokens_map.json": {"pad_token": "<A>"}}, "the added token '<A>' has no id"),
    ({"vocab.json": WORDS, "added_tokens.json": {EOT: 271}}, "do not agree about .* '<.endoft"),
    ({"adapter_config.json": {}}, "it holds an adapter; merge that with peft"),
]
HEAD = {"lm_head.weight": np.zeros(8, "f")}
TWO_OF_THEM = {ATTN: np.stack([TENSORS[ATTN]] * 2)}
IN_WEIGHTS = [  # the same of model.safetensors
    (stored(TENSORS | {"h.0.attn.bias_k": np.ones(8, "f")}), "'h.0.attn.bias_k' is no tensor"),
    (stored(TENSORS | TWO_OF_THEM), r"expected \(8, 24\), found \(2, 8, 24\)"),
    (stored(TENSORS | HEAD), "lm_head.weight is not wte"),
    (stored(TENSORS | {"ln_f.bias": np.ones(8, "f")}), "ln_f.bias is there twice"),
    (stored(TENSORS | {"transformer.h.0.mlp.c_fc.bias": np.ones(32, bool)}), "found bool numbers"),
]
IN_ONE_FILE = {"config.json": IN_CONFIG, "tokenizer_config.json": IN_SETTINGS, WEIGHTS: IN_WEIGHTS}
REFUSED = [({name: content}, why) for name, cases in IN_ONE_FILE.items() for content, why in cases]
REFUSED += [
    ({"tokenizer.json": content, "tokenizer_config.json": settings_file}, why)
    for content, settings_file, why in IN_TOKENIZER
]


@pytest.mark.parametrize(("changes", "message"), IN_FILES + REFUSED)
def test_what_is_refused_by_name(tmp_path, changes, message):
    folder = write(tmp_path, changes)
    with pytest.raises(UserError, match=message) as error:
        load_encoder_hparams_and_params(folder)
    assert folder in str(error.value)
    assert "\n" not in str(error.value)


# ---- The ids of other tokenizers ----

A = {"Sequence": {"id": "A", "type_id": 0}}
TEXT_ALONE = {"type": "TemplateProcessing", "single": [A], "pair": [A, A], "special_tokens": {}}
EMPTY = {"id": 272, "content": ""}
NONE_ADDED = json.dumps(tokenizer_json({"vocab": WORDS}) | {"added_tokens": []}).encode()
OWN = [  # changes, a text, and its ids
    ({"tokenizer.json": {"post_processor": TEXT_ALONE}}, "The cat", [265, 263]),
    ({"vocab.json": WORDS}, "The cat<|endoftext|>", [265, 263, 271]),
    ({"tokenizer_config.json": GENERAL, "tokenizer.json": {}}, "a<|endoftext|>", [64, 271]),
    ({"tokenizer.json": {"added_tokens": [EMPTY]}}, "The cat", [265, 263]),
    ({"tokenizer.json": NONE_ADDED}, "a<|endoftext|>", [64, 271]),
    ({"tokenizer_config.json": LISTED, "added_tokens.json": {"<A>": 272}}, "<A>", [27, 32, 29]),
]


@pytest.mark.parametrize(("changes", "text", "ids"), OWN)
def test_ids(tmp_path, changes, text, ids, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)  # nothing here needs it
    assert get_encoder(write(tmp_path, changes), "").encode(text) == ids


START = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": EOT, "type_id": 0}}, A],
    "pair": [A, A],
    "special_tokens": {EOT: {"id": EOT, "ids": [271], "tokens": [EOT]}},
}
CUT = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
FILL = {
    "strategy": {"Fixed": 9},
    "direction": "Right",
    "pad_to_multiple_of": None,
    "pad_id": 271,
    "pad_type_id": 0,
    "pad_token": EOT,
}
SPLIT = {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False}
BOTH = {"type": "Sequence", "pretokenizers": [SPLIT, BYTE_LEVEL]}
LONGER = {"bb": 271, "bbb": 272}
UNLEARNT = {"vocab": WORDS | LONGER, "merges": ["bb b", "b b", *MERGES]}
TWO_WAYS = {
    "vocab": WORDS | {"bc": 271, "ab": 272, "abc": 273, "abca": 274},
    "merges": [*MERGES, "b c", "a b", "ab c", "abc a", "a bc"],
}
BEFORE = {"post_processor": START}
IGNORED = BEFORE | {"truncation": CUT, "padding": FILL}
OF_GPT2 = [  # tokenizer.json, a text, and what needs the library tokenizers
    ({"added_tokens": [PAD]}, "The cat[PAD]b", r"the added token '\[PAD\]'"),
    ({"model": {"vocab": WORDS}, "eot": 272, "added_tokens": [FIRST]}, EOT, r"'\[PAD\]'"),
    (BEFORE, "The cat", "post_processor: type is 'Template"),
    (IGNORED, "The cat", "post_processor: type is"),
    ({"model": {"vocab": NO_TILDE}}, "The ~cat", "the vocabulary does not fit its merges"),
    ({"model": UNLEARNT, "eot": 273}, "bbbb", "the merge .'bb', 'b'. is of tokens"),
    ({"model": TWO_WAYS, "eot": 275}, "abcabc", "the merge .'a', 'bc'. .* or makes one again"),
]
OF_OTHERS = [  # the same with another tokenizer_class
    ({"normalizer": {"type": "Lowercase"}}, "THE", "normalizer is"),
    ({"pre_tokenizer": BOTH}, "The", "pre_tokenizer: type is 'Sequence'"),
    ({"model": {"ignore_merges": True}}, "The cat", "ignore_merges is True"),
]
NUMBERED = {"vocab.json": WORDS, "added_tokens.json": {"[PAD]": 271}}
NAMED = {"added_tokens.json": {"[PAD]": 272}, "special_tokens_map.json": {"pad_token": "[PAD]"}}
UNK = {"tokenizer_config.json": {"unk_token": "<unk>"}}
X_FIRST = {"added_tokens.json": {"oxs": 272}, "tokenizer_config.json": {"pad_token": "x"}}
LIBRARY = [  # files, and the same
    (NUMBERED, "[PAD]<|endoftext|>", r"the added token '\[PAD"),
    (NAMED, "a[PAD]b", r"the added token '\[PAD"),
    (X_FIRST, "oxs", "the added token '"),
    (UNK, "a<unk>b", "the added token '<unk>'"),
    ({"merges.txt": CUT_SHORT}, "The cat", "the vocabulary does not fit its merges"),
    ({"tokenizer.json": WITHOUT_EOT}, "[PAD]<|endoftext|>", r"the added token '\[PAD"),
]
for settings_file, cases in ({}, OF_GPT2), (GENERAL, OF_OTHERS):
    for content, *rest in cases:
        LIBRARY.append(({"tokenizer.json": content, "tokenizer_config.json": settings_file}, *rest))


@pytest.mark.parametrize(("changes", "text", "why"), LIBRARY)
def test_what_is_left_to_the_library(tmp_path, changes, text, why, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)  # as if it were not installed
    with pytest.raises(UserError, match=f"{why}.*: pip install tokenizers"):
        get_encoder(write(tmp_path, changes), "")


@pytest.mark.parametrize("seed", range(30))
def test_flags_of_added_tokens_mean_what_they_mean_to_transformers(tmp_path, seed):
    transformers = pytest.importorskip("transformers")
    rng = random.Random(seed)
    tokens = []
    for id, name in enumerate((EOT, "[PAD]", "ox", "[PAD]bc"), start=271):
        flags = {flag: rng.random() < 0.3 for flag in (*FLAGS, "special")}
        tokens.append({"id": id, "content": name} | flags)
    whole = json.dumps(tokenizer_json() | {"added_tokens": tokens}).encode()
    listed = {"added_tokens_decoder": {token["id"]: token for token in tokens}}
    files = [
        {"tokenizer.json": whole},
        {"tokenizer.json": whole, "tokenizer_config.json": GENERAL},
        {"tokenizer_config.json": listed},
    ]
    folder = write(tmp_path, files[seed % 3])
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    our_encoder = get_encoder(folder, "")
    for _ in range(20):
        text = "".join(rng.choices([EOT, "[PAD]", "ox", "bc", " ", "\n", "s"], k=9))
        assert our_encoder.encode(text) == their_tokenizer(text)["input_ids"]


@pytest.mark.parametrize(("changes", "text"), [case[:2] for case in OWN + LIBRARY])
def test_transformers_finds_the_same(tmp_path, changes, text):
    transformers = pytest.importorskip("transformers")
    folder = write(tmp_path, changes)
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    our_encoder = get_encoder(folder, "")
    for sample in text, *GOLDEN["texts"], "ＴＨＥ 12 cats\n\n [PAD]  cat":
        assert our_encoder.encode(sample) == their_tokenizer(sample)["input_ids"]
    assert our_encoder.decode(our_encoder.encode("The cat")).lower().endswith("the cat")


NO_EOS = {"eos_token_id": None}
UNSAID = json.dumps({key: value for key, value in CONFIG.items() if key != "eos_token_id"})


@pytest.mark.parametrize(
    ("changes", "eos"),
    [
        ({}, (271,)),
        ({"config.json": {"eos_token_id": 5}}, (5,)),
        ({"config.json": NO_EOS}, ()),
        ({"config.json": UNSAID.encode()}, ()),  # which means GPT-2's own, 50256
        ({"config.json": {"eos_token_id": 5}, "generation_config.json": {}}, ()),
        ({"generation_config.json": {"eos_token_id": [7, 300, 3]}}, (7, 3)),
        ({"tokenizer_config.json": {"eos_token": EOT}, "config.json": NO_EOS}, ()),
    ],
)
def test_a_text_ends_where_generate_stops(tmp_path, changes, eos):
    folder = write(tmp_path, changes)
    assert get_encoder(folder, "").eos == eos
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    their_eos = np.ravel(model.generation_config.eos_token_id)
    assert {*eos} == {*their_eos} - {None, 300, 50256}


def test_a_pair_has_one_vocabulary(tmp_path):
    swapped = VOCABULARY | {"a": VOCABULARY["b"], "b": VOCABULARY["a"]}
    folder = write(tmp_path, {"vocab.json": swapped})
    with pytest.raises(UserError, match="have different vocabularies"):
        load_models(folder, str(HF / "plain"))


# ---- Damage ----

ONE = {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}
TWO = {"dtype": "F32", "shape": [3], "data_offsets": [12, 24]}


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "F64"},
        {"shape": [2, 2]},
        {"shape": [-1, -3]},
        {"more": 0},
        {"data_offsets": [4, 16]},  # it begins within ONE
        {"data_offsets": [0, 8]},
        {"data_offsets": []},
    ],
)
def test_headers_that_lie(tmp_path, change):
    path = tmp_path / "x.safetensors"
    path.write_bytes(packed(json.dumps({"a": ONE, "b": TWO | change}), bytes(24)))
    with pytest.raises(ValueError, match=r"^x\.safetensors (cannot be used|has a damaged)"):
        huggingface.safetensors(path)


# ---- Where a model can be ----


@pytest.mark.parametrize(
    ("variable", "folder"),
    [
        ("HF_HOME", "cache/hub/models--gpt2"),
        ("XDG_CACHE_HOME", "cache/huggingface/hub/models--gpt2"),
        ("HF_HUB_CACHE", "cache/models--openai-community--gpt2"),
        ("HUGGINGFACE_HUB_CACHE", "cache/models--openai-community--gpt2"),
    ],
)
def test_the_cache_of_transformers(tmp_path, monkeypatch, variable, folder):
    """A model comes from the snapshot that refs/main names, if that is whole."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in "HF_HOME", "XDG_CACHE_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE":
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, "~/cache")
    cached = tmp_path / folder
    for commit in "0", "1":
        shutil.copytree(HF / "plain", cached / "snapshots" / commit)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("1")
    url = names.MODELS["gpt2"].url
    assert find.in_cache(url, huggingface.FILES) == cached / "snapshots" / "1"
    (cached / "snapshots" / "1" / "vocab.json").unlink()
    assert find.in_cache(url, huggingface.FILES) is None


@pytest.fixture
def hub(server, tmp_path, monkeypatch):
    """Loads "gpt2" from a server that has the files of plain/."""
    for name, content in PLAIN.items():
        monkeypatch.setitem(CONTENT, name, content)
    monkeypatch.setitem(names.MODELS, "gpt2", names.MODELS["gpt2"]._replace(sizes=PLAIN_SIZES))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "empty"))
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    return lambda: load_encoder_hparams_and_params("gpt2", str(tmp_path))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", b"<!DOCTYPE html>", "gave a wrong file, now removed: "),
        ("merges.txt", CUT_SHORT, "gave a wrong file.* does not fit its merges"),
        (WEIGHTS, b"<!DOCTYPE html>", "gave a wrong file, now removed"),
    ],
)
def test_a_wrong_file_of_hugging_face_is_not_kept(server, hub, tmp_path, name, content, message):
    server.plan[name] = [{"content": content}, {}]
    with pytest.raises(UserError, match=message):
        hub()
    assert (WEIGHTS in dict(server.log)) == (name == WEIGHTS)  # the small files are checked first
    hub()
    assert files_of(tmp_path / "gpt2") == PLAIN


def test_models_are_downloaded_from_hugging_face_once(server, hub, tmp_path, monkeypatch, capsys):
    answer = {"headers": {"ETag": '"1"'}}
    server.plan[WEIGHTS] = [answer | {"drop": 8_000}, answer]
    assert hub()[1]["n_layer"] == 2
    assert server.log[-1][1] == "bytes=8192-"
    warning = "the server names no checksum, so damage may go unnoticed\n"
    assert capsys.readouterr().err == warning
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    hub()


def test_with_HF_HUB_OFFLINE_nobody_is_asked(server, hub, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match="with HF_HUB_OFFLINE nobody is asked for it"):
        hub()
    assert server.log == []


@pytest.mark.parametrize(("name", "header"), [(WEIGHTS, "X-Linked-Etag"), ("config.json", "ETag")])
def test_what_does_not_match_is_not_kept(server, hub, tmp_path, name, header):
    right = {"headers": {header: f'"{hashlib.sha256(PLAIN[name]).hexdigest()}"'}}
    server.plan[name] = [right | {"content": PLAIN[name].swapcase()}, right]
    with pytest.raises(OSError, match=f"cannot download .*{name}: it does not match the checksum"):
        hub()
    assert not [*tmp_path.glob(f"gpt2/{name}*")]  # or the next attempt would ask for its rest
    hub()
    assert files_of(tmp_path / "gpt2") == PLAIN


def test_a_model_of_another_size_under_a_released_name(server, hub, tmp_path, monkeypatch):
    """The other model has more heads, which no shape shows."""
    with_more_heads = names.MODELS["gpt2"]._replace(sizes=PLAIN_SIZES | {"n_head": 4})
    message = "it is not the model of this name: found n_head = 2"
    with monkeypatch.context() as patch:
        patch.setitem(names.MODELS, "gpt2", with_more_heads)
        with pytest.raises(UserError, match=f"gave a wrong file, now removed: {message}"):
            hub()
    assert not (tmp_path / "gpt2").exists()
    hub()
    monkeypatch.setitem(names.MODELS, "gpt2", with_more_heads)
    with pytest.raises(UserError, match=f"gpt2 cannot be used: {message}"):
        hub()


@pytest.mark.parametrize("name", ["gpt2", "target"])
def test_a_folder_that_is_called_like_a_model(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(HF / "plain", name)
    with pytest.raises(UserError, match=rf"{name} is a model's name, and a folder here: give \./"):
        find.find_model(name)


@pytest.mark.parametrize(
    ("draft", "target", "pair"),
    [
        (None, None, ("draft", "target")),
        ("gpt2", "1558M", ("gpt2", "1558M")),
        (None, "target", ("draft", "target")),
        (None, "1558M", ("124M", "1558M")),
        (None, "gpt2", ("distilgpt2", "gpt2")),
        ("draft", None, ("draft", "target")),
        ("355M", None, ("355M", "1558M")),
        ("gpt2-large", None, ("gpt2-large", "gpt2-xl")),
    ],
)
def test_which_models_are_a_pair(draft, target, pair):
    assert pair_of(draft, target) == pair


# ---- The released weights, if they are there ----

RELEASED = os.environ.get("RELEASED_MODELS", "").split()  # such as "124M gpt2", if they are here


@pytest.mark.parametrize("name", RELEASED)
def test_the_released_weights_write_what_picogpt_shows(name):
    encoder, hparams, params = load_encoder_hparams_and_params(name)
    network = GPT2(params, hparams)
    ids = encoder.encode("Alan Turing theorized that computers would one day become")
    for _ in range(8):
        ids.append(int(network(ids)[-1].argmax()))
    assert encoder.decode(ids[-8:]) == " the most powerful machines on the planet."
