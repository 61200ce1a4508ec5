"""Hugging Face's format: folders of transformers, what is refused, the cache, and downloads."""

import hashlib
import json
import os
import shutil
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import CONTENT, ROOT

import lab.__main__ as lab_main
import main
from checkpoint import UserError, find, huggingface, names
from encoder import get_encoder
from gpt2 import GPT2
from utils import load_encoder_hparams_and_params, pair_of

HF = ROOT / "tests" / "fixtures" / "hf"  # written by transformers, see studies/making/hf_fixture.py
GOLDEN = json.loads((HF / "golden.json").read_text(encoding="utf-8"))
PLAIN = {path.name: path.read_bytes() for path in (HF / "plain").iterdir()}
WEIGHTS = HF / "plain" / "model.safetensors"
TENSORS = {name: np.array(tensor) for name, tensor in huggingface.safetensors(WEIGHTS).items()}
WTE = "transformer.wte.weight"
EOT, PAD = "<|endoftext|>", {"id": 272, "content": "[PAD]"}
MERGES = [line.split(" ") for line in PLAIN["merges.txt"].decode().split("\n")[1:-1]]
WORDS = {token: id for token, id in json.loads(PLAIN["vocab.json"]).items() if token != EOT}
SPECIALS = {"eos_token": "</s>", "unk_token": "<s>", "bos_token": "<s>"}
SPECIALS_FIRST = {"<s>": 0, "</s>": 1} | {token: id + 2 for token, id in WORDS.items()}
ATTRIBUTE_MAP = {  # of transformers' GPT2Config
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}
BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}
SPACED = BYTE_LEVEL | {"add_prefix_space": True}
A, B = ({"Sequence": {"id": letter, "type_id": 0}} for letter in "AB")
TEMPLATE = {"type": "TemplateProcessing", "single": [A], "pair": [A, B], "special_tokens": {}}
START = TEMPLATE | {
    "single": [{"SpecialToken": {"id": EOT, "type_id": 0}}, A],
    "special_tokens": {EOT: {"id": EOT, "ids": [271], "tokens": [EOT]}},
}


@pytest.mark.parametrize("name", ["plain", "chat", "older", "shards"])
def test_ids_and_logits_are_those_of_transformers(name):
    if name == "chat":  # it has a template
        pytest.importorskip("tokenizers")
    golden = GOLDEN[name]
    encoder, hparams, params = load_encoder_hparams_and_params(str(HF / name))
    assert [encoder.encode(text) for text in GOLDEN["texts"]] == golden["ids"]
    assert encoder.eos == golden["eos"]
    assert hparams["n_vocab"] == golden["n_vocab"] == len(params["wte"])
    network, ids = GPT2(params, hparams), golden["ids"][0][: hparams["n_ctx"]]
    assert np.abs(network(ids)[0] - golden["logits"]).max() < 1e-5
    text = encoder.decode(golden["ids"][3]).removeprefix("<|im_start|>" * (name == "chat"))
    assert text.replace(" ", "") == GOLDEN["texts"][3].replace(" ", "")


BUNDLED = ROOT / "models" / "target"
ALONE = {
    "lookup": [HF / "shards", BUNDLED],
    "bigram": [HF / "shards", BUNDLED],
    "early-exit:1": [HF / "older", BUNDLED],
    "online": [BUNDLED],
}


@pytest.mark.parametrize(
    ("draft", "folder"), [(draft, folder) for draft, folders in ALONE.items() for folder in folders]
)
def test_a_single_model_is_tried_without_a_partner(folder, draft, capsys):
    corpus = ["--draft_corpus", __file__] if draft == "bigram" else []
    args = ["--draft", draft, *corpus, "--target_model_size", str(folder), "--prompt", "The cat"]
    lab_main.main([*args, "--n_tokens_to_generate", "20"])
    assert "same text         yes" in capsys.readouterr().out


# ---- Changes to a plain folder ----


def tokenizer_json(model=(), added=(), **parts):
    """The tokenizer.json that means the same as the files of plain/, with these changes."""
    bpe = {
        "type": "BPE",
        "dropout": None,
        "vocab": json.loads(PLAIN["vocab.json"]),
        "merges": [*map(" ".join, MERGES)],
    }
    flags = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    tokens = [flags | token for token in ({"id": 271, "content": EOT}, *added)]
    whole = {"version": "1.0", "truncation": None, "padding": None, "normalizer": None}
    whole |= dict.fromkeys(["pre_tokenizer", "post_processor", "decoder"], BYTE_LEVEL) | parts
    return {"tokenizer.json": whole | {"model": bpe | dict(model), "added_tokens": tokens}}


def config(**changes):
    return {"config.json": json.loads(PLAIN["config.json"]) | changes}


def aliased():
    """The same sizes by the other names that transformers has for them."""
    names = {theirs: alias for alias, theirs in ATTRIBUTE_MAP.items()}
    plain = json.loads(PLAIN["config.json"])
    return {"config.json": {names.get(name, name): value for name, value in plain.items()}}


def tokenizer_config(**settings):
    return {"tokenizer_config.json": settings}


def stored(tensors):
    """model.safetensors with these tensors, {name: array}."""
    kinds = {
        "<f8": "F64",
        "<f4": "F32",
        "<f2": "F16",
        "<u2": "BF16",
        "|b1": "BOOL",
        "|i1": "F8_E4M3",
    }
    header, data = {}, b""
    for name, tensor in tensors.items():
        begin, data = len(data), data + tensor.tobytes()
        header[name] = {
            "dtype": kinds[tensor.dtype.str],
            "shape": tensor.shape,
            "data_offsets": [begin, len(data)],
        }
    return {"model.safetensors": packed(json.dumps(header), data)}


def packed(header, data):
    return len(header).to_bytes(8, "little") + header.encode() + data


def cast(dtype):
    return stored({name: tensor.astype(dtype) for name, tensor in TENSORS.items()})


def renamed(rename):
    return stored({rename(name): tensor for name, tensor in TENSORS.items()})


def transposed():
    """Matrices as nn.Linear and so nanoGPT has them."""
    is_matrix = {name: "attn.c_" in name or "mlp.c_" in name for name in TENSORS}
    return {name: tensor.T if is_matrix[name] else tensor for name, tensor in TENSORS.items()}


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
    return tensors


PADDED = TENSORS | {WTE: np.pad(TENSORS[WTE], ((0, 48), (0, 0)), constant_values=9)}
BF16 = {name: (tensor.view("<u4") >> 16).astype("<u2") for name, tensor in TENSORS.items()}
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"

SAME = {  # folders that mean the same as plain/
    "merges without a version": {"merges.txt": PLAIN["merges.txt"].partition(b"\n")[2]},
    "an older vocab.json beside it": tokenizer_json() | {"vocab.json": {"a": 0}},
    "merges as lists, and an empty template": (
        tokenizer_json({"merges": MERGES}, post_processor=TEMPLATE)
    ),
    "an added token without a row": tokenizer_json(added=[PAD]),
    "the end of a text in config.json": (
        tokenizer_json() | tokenizer_config(tokenizer_class="PreTrainedTokenizerFast")
    ),
    "rows up to a multiple of 64": stored(PADDED) | config(vocab_size=320),
    "F64": cast("<f8"),
    "no prefix": renamed(lambda name: name.removeprefix("transformer.")),
    "a compiled model": renamed(lambda name: f"_orig_mod.{name}"),
    "a head": stored(TENSORS | {"lm_head.weight": TENSORS[WTE]}),
    "a head without wte": renamed(lambda name: "lm_head.weight" if name == WTE else name),
    "masks": stored(TENSORS | {"transformer.h.0.attn.bias": np.ones((1, 1, 4, 4), bool)}),
    "n_inner": stored(wider()) | config(n_inner=40),
    "gelu_pytorch_tanh": config(activation_function="gelu_pytorch_tanh"),
    "gelu_fast": config(activation_function="gelu_fast"),
    "aliases alone": aliased(),
    "aliases beside the names": config(**aliased()["config.json"]),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path, request):
    """plain/ with files that are changed, or left out if they are None."""
    for name, content in (PLAIN | request.param).items():
        if content is not None:
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            (tmp_path / name).write_bytes(data)
    return tmp_path


@pytest.mark.parametrize("folder", SAME.values(), ids=SAME, indirect=True)
def test_folders_that_mean_the_same(folder):
    encoder, hparams, params = load_encoder_hparams_and_params(str(folder))
    ids = [encoder.encode(text) for text in GOLDEN["texts"][:3]]
    assert ids == GOLDEN["plain"]["ids"][:3] and encoder.eos == 271 and hparams["n_vocab"] == 272
    logits = GPT2(params, hparams)(ids[0][:48])
    assert np.abs(logits - GOLDEN["plain"]["logits"]).max() < 1e-5


@pytest.mark.parametrize(
    ("folder", "bits"),
    [(cast("<f2"), 11), (stored(BF16), 8)],
    ids=["F16", "BF16"],
    indirect=["folder"],
)
def test_numbers_of_two_bytes(folder, bits):
    _, _, params = load_encoder_hparams_and_params(str(folder))
    np.testing.assert_allclose(params["wte"], TENSORS[WTE], rtol=2.0**-bits * 2, atol=1e-7)


NO_TOKENIZER = {"vocab.json": None, "merges.txt": None}
MISSING_SHARD = {"weight_map": {"a": "model-1.safetensors"}}
FLAGS = {"lstrip": True, "rstrip": False, "normalized": False, "single_word": False}
REFUSED = {  # changes, and what is said of them
    "another algorithm, which transformers 5 leaves out": (
        tokenizer_json(normalizer={"type": "NFC"}),
        "a GPT2Tokenizer leaves out the normalizer {'type': 'NFC'}; set tokenizer_class to PreTr",
    ),
    "dropout": (tokenizer_json({"dropout": 0.1}), "dropout is 0.1"),
    "a gap in the ids": (
        tokenizer_json(added=[PAD | {"id": 280}]), "273 tokens .* do not have the ids 0 to 272",
    ),
    "split_special_tokens": (
        tokenizer_config(split_special_tokens=True), "split_special_tokens is True",
    ),
    "add_eos_token": (tokenizer_config(add_eos_token=True), "add_eos_token is True"),
    "a class with rules of its own": (
        config(tokenizer_class="RobertaTokenizer"), "'RobertaTokenizer'",
    ),
    "the same with tokenizer.json": (
        tokenizer_json() | tokenizer_config(tokenizer_class="BartTokenizer"),
        "'BartTokenizer', and only",
    ),
    "the same without a tokenizer": (
        tokenizer_config(tokenizer_class="BertTokenizer") | NO_TOKENIZER,
        "'BertTokenizer'",
    ),
    "two minds about a space": (
        tokenizer_json() | tokenizer_config(add_prefix_space=True),
        "add_prefix_space is False in .*True",
    ),
    "a space that transformers leaves out": (
        tokenizer_json(pre_tokenizer=SPACED),
        "add_prefix_space is True in .*False",
    ),
    "a start in two files": (
        tokenizer_json() | tokenizer_config(add_bos_token=True),
        "add_bos_token is True, and tokenizer.json has a",
    ),
    "no start in one file": (
        tokenizer_json(post_processor=START) | tokenizer_config(add_bos_token=False),
        "add_bos_token is False, and",
    ),
    "a token that is missing in the list": (
        tokenizer_json(added=[PAD]) | tokenizer_config(added_tokens_decoder={}),
        f"the added token {EOT!r} is not that of tokenizer_config.json".replace("|", r"\|"),
    ),
    "one list with two names": (
        tokenizer_config(extra_special_tokens=["<A>"], additional_special_tokens=["<B>"]),
        "additional_special_tokens is the older name of extra_special_tokens",
    ),
    "flags of a token": (
        tokenizer_config(pad_token=FLAGS | {"content": "[PAD]"}), r"'\[PAD\]': lstrip is True",
    ),
    "merges with a space too many": (
        {"merges.txt": PLAIN["merges.txt"].replace(b"\n", b" \n")}, "not two tokens",
    ),
    "an id for a name": (
        tokenizer_config(eos_token=271), r"\(271, 272\) is not a token and its id",
    ),
    "an id in quotes": (
        {"added_tokens.json": {"[PAD]": "272"}}, r"\('\[PAD\]', '272'\) is not a token and its id",
    ),
    "half a tokenizer.json": (
        {"tokenizer.json": {"pre_tokenizer": BYTE_LEVEL}}, "the tokenizer is damaged: KeyError",
    ),
    "a merge without its token": ({"merges.txt": PLAIN["merges.txt"] + b"! !\n"}, "no token '!!'"),
    "relu": (
        config(activation_function="relu"),
        "activation_function is 'relu', and only gelu_new or gelu_py",
    ),
    "cross-attention": (config(add_cross_attention=True), "add_cross_attention is True"),
    "scaled by layer": (
        config(scale_attn_by_inverse_layer_idx=True), "scale_attn_by_inverse_layer_idx is True",
    ),
    "llama": (config(model_type="llama"), "model_type is 'llama'"),
    "too many layers": (config(n_layer=3), "12 tensors differ"),
    "no size": (config(vocab_size=None), "n_vocab is None"),
    "sizes left out": (
        {"config.json": {"n_layer": 2, "n_head": 2}}, "has no vocab_size, n_positions, n_embd",
    ),
    "two numbers of heads": (
        config(num_attention_heads=4),
        "n_head is 2, and num_attention_heads is 4, but these are two names of one",
    ),
    "two numbers of layers": (
        config(num_hidden_layers=1), "n_layer is 2, and num_hidden_layers is 1",
    ),
    "two widths": (config(hidden_size=16), "n_embd is 8, and hidden_size is 16"),
    "two contexts": (
        config(max_position_embeddings=4), "n_positions is 48, and max_position_embeddings is 4",
    ),
    "quantized": (config(quantization_config={"bits": 8}), "quantization_config is"),
    "an adapter": ({"adapter_config.json": {}}, "it holds an adapter; merge that with peft"),
    "a head of its own that is missing": (
        config(tie_word_embeddings=False), "lm_head.weight is missing",
    ),
    "other names": (
        renamed(lambda name: name.replace("attn.weight", "attn.w")), "attn.c_attn.w is of no GPT-2",
    ),
    "a classifier": (
        stored(TENSORS | {"score.weight": np.ones((2, 8), "f")}),
        "score.weight is of no GPT-2 that wri",
    ),
    "a prefix": (
        renamed(lambda name: f"module.{name}"),
        "names of tensors begin with 'module.'; remove that pref",
    ),
    "two prefixes": (
        renamed(lambda name: f"base_model.model.{name}"), "begin with 'base_model.model.'",
    ),
    "an adapter's tensor": (
        stored(TENSORS | {f"{WTE[:-6]}lora_A.x.weight": np.ones(1, "f")}),
        "is of an adapter; merge",
    ),
    "nn.Linear": (
        stored(transposed()),
        "6 matrices are stored transposed, as nn.Linear has them; transpose all of attn",
    ),
    "a bias of another type": (
        stored(TENSORS | {"transformer.h.0.mlp.c_fc.bias": np.ones(32, bool)}),
        "expected .*found bool numbers",
    ),
    "no tensors": (stored({}), "model.safetensors holds no tensors"),
    "an empty file": ({"model.safetensors": b""}, "model.safetensors is empty"),
    "shards of nothing": (
        {"model.safetensors": None, "model.safetensors.index.json": {"weight_map": {}}},
        "it has no weight_map",
    ),
    "another head": (
        stored(TENSORS | {"lm_head.weight": np.zeros(8, "f")}), "head.weight is not wte",
    ),
    "a tensor with two names": (
        stored(TENSORS | {"ln_f.bias": np.ones(8, "f")}), "a tensor is there twice",
    ),
    "F8": (cast("i1"), "numbers of type F8_E4M3 cannot be read here; convert them to F32"),
    "no weights": ({"model.safetensors": None}, "model.safetensors is missing"),
    "PyTorch's weights": (
        {"model.safetensors": None, "pytorch_model.bin": b"x"},
        r"convert it .*from_pretrained\(folder\).save_pre",
    ),
    "half a tokenizer": ({"merges.txt": None}, "tokenizer.json is missing; copy the tokenizer of"),
    "an empty folder": (dict.fromkeys(PLAIN), "config.json is missing; docs/your_models.md"),
    "git-lfs, weights": ({"model.safetensors": LFS}, "model.safetensors is a pointer of git-lfs"),
    "git-lfs, tokenizer": (
        tokenizer_json() | {"tokenizer.json": LFS}, "tokenizer.json is a pointer of git-lfs",
    ),
    "a missing shard": (
        {"model.safetensors": None, "model.safetensors.index.json": MISSING_SHARD},
        "No such file or directory: .*model-1.safetensors",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("folder", "message"), REFUSED.values(), ids=REFUSED, indirect=["folder"])
def test_what_is_refused_by_name(folder, message):
    with pytest.raises((UserError, FileNotFoundError), match=message) as error:
        load_encoder_hparams_and_params(str(folder))
    assert str(folder) in str(error.value) and "\n" not in str(error.value)
    assert "download" not in str(error.value)


LITERAL, SECOND = (
    {"id": 272, "content": "<|a|>"},
    {"id": 273, "content": "<|a|>bc", "normalized": True},
)
IDS = {  # changes, a text, and its ids
    "add_prefix_space": (
        tokenizer_json(pre_tokenizer=SPACED) | tokenizer_config(add_prefix_space=True),
        "The cat", [220, 265, 263],
    ),
    "add_bos_token": (tokenizer_config(add_bos_token=True), "The cat", [271, 265, 263]),
    "[PAD]": (tokenizer_json(added=[PAD]), "The cat[PAD]b", [265, 263, 272, 65]),
    "[PAD] of tokenizer_config.json": (
        tokenizer_config(pad_token="[PAD]"), "The cat[PAD]b", [265, 263, 272, 65],
    ),
    "[PAD] of added_tokens.json": (
        {"added_tokens.json": {"[PAD]": 272}}, "The cat[PAD]b", [265, 263, 272, 65],
    ),
    "special tokens first": (
        {"vocab.json": SPECIALS_FIRST} | tokenizer_config(**SPECIALS),
        "The cat", [267, 265],
    ),
    "one list or the other": (
        {"special_tokens_map.json": {"pad_token": "<A>"}} | tokenizer_config(pad_token="<B>"),
        "<A><B>", [272, 27, 33, 29],
    ),
    "no list": (
        tokenizer_config(added_tokens_decoder={"271": {"content": EOT}})
        | {"special_tokens_map.json": {"pad_token": "<A>"}, "added_tokens.json": {"<A>": 272}},
        "<A>", [27, 32, 29],
    ),
    "a list beside tokenizer.json": (
        tokenizer_json() | {"added_tokens.json": {"<A>": 272}}, "<A>", [272],
    ),
    "a name that is empty": (
        tokenizer_config(additional_special_tokens=["", "<A>"]), "a<A>", [64, 272],
    ),
    "the shorter one, which is taken literally": (
        tokenizer_json(added=[LITERAL, SECOND]), "<|a|>bc", [272, 65, 66],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("folder", "text", "ids"), IDS.values(), ids=IDS, indirect=["folder"])
def test_ids(folder, text, ids, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)  # nothing here needs it
    assert get_encoder(folder, "").encode(text) == ids


GENERAL = tokenizer_config(tokenizer_class="PreTrainedTokenizerFast")
SPLIT = {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False}
BOTH = {"type": "Sequence", "pretokenizers": [SPLIT, BYTE_LEVEL]}
NO_TILDE = {token.replace("~", "zz"): id for token, id in (WORDS | {EOT: 271}).items()}
CUT = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
FILL = {
    "strategy": {"Fixed": 9},
    "direction": "Right",
    "pad_to_multiple_of": None,
    "pad_id": 271,
    "pad_type_id": 0,
    "pad_token": EOT,
}
LIBRARY = {  # changes, a text, its ids, and what needs the library tokenizers
    "a template": (
        tokenizer_json(post_processor=START), "The cat", [271, 265, 263],
        "post-processor TemplateProc",
    ),
    "a sequence": (
        tokenizer_json(post_processor={"type": "Sequence", "processors": [BYTE_LEVEL, START]}),
        "The cat", [271, 265, 263], "post-processor Sequence",
    ),
    "lstrip": (
        tokenizer_json(added=[PAD | {"lstrip": True}]), "a [PAD] \n b",
        [64, 272, 220, 198, 220, 65], r"lstrip of the added token '\[PAD\]'",
    ),
    "rstrip": (
        tokenizer_json(added=[PAD | {"rstrip": True}]), "a [PAD] \n b", [64, 220, 272, 65],
        "rstrip of the",
    ),
    "single_word": (
        tokenizer_json(added=[PAD | {"content": "ox", "single_word": True}]), "ox oxs",
        [272, 220, 78, 87, 82], "single_",
    ),
    "a normalizer": (
        tokenizer_json(normalizer={"type": "Lowercase"}) | GENERAL, "THE", [83, 257], "normalizer",
    ),
    "no token for a byte": (
        tokenizer_json({"vocab": NO_TILDE}, post_processor=START),
        "The ~cat", [271, 265, 220, 260], "post-processor",
    ),
    "what does not change ids": (
        tokenizer_json(post_processor=START, truncation=CUT, padding=FILL),
        "The cat", [271, 265, 263], "post-processor TemplateProcessing",
    ),
    "a sequence of pre-tokenizers": (
        tokenizer_json(pre_tokenizer=BOTH) | GENERAL,
        "The", [51, 71, 68], "pre-tokenizer {'type': 'Sequence'",
    ),
    "ignore_merges": (
        tokenizer_json({"ignore_merges": True}) | GENERAL, "The cat", [265, 263],
        "ignore_merges = True",
    ),
}  # fmt: skip


LIBRARY_CASES = pytest.mark.parametrize(
    ("folder", "text", "ids", "other"),
    LIBRARY.values(),
    ids=LIBRARY,
    indirect=["folder"],
)


@LIBRARY_CASES
def test_ids_by_the_library(folder, text, ids, other, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "tokenizers", None)  # as if it were not installed
        message = rf"tokenizer.json has a {other}.*: pip install tokenizers"
        with pytest.raises(UserError, match=message):
            get_encoder(folder, "")
    pytest.importorskip("tokenizers")
    encoder = get_encoder(folder, "")
    assert encoder.encode(text) == ids and encoder.eos == 271 and len(encoder.ids) in (272, 273)
    assert encoder.decode(encoder.encode("The cat")).lower().endswith("the cat")
    with pytest.raises(UserError, match="the text contains U\\+D83D, half of a pair"):
        encoder.encode("\ud83d")


BEYOND = {  # what the library cannot help
    "WordPiece": (
        tokenizer_json({"type": "WordPiece"}) | GENERAL,
        "tokenizer.json cannot be read by tokenizers",
    ),
    "another decoder": (
        tokenizer_json(post_processor=START, decoder={"type": "Metaspace"}),
        "decoder: type is 'Metas",
    ),
    "a token that is not there": (
        tokenizer_json(post_processor=START) | tokenizer_config(pad_token="[PAD]"),
        r"'\[PAD\]' is not that of tokeniz",
    ),
    "other flags": (
        tokenizer_json(added=[PAD | {"rstrip": True}])
        | tokenizer_config(pad_token=FLAGS | {"content": "[PAD]"}),
        r"'\[PAD\]' is not that of tokenizer.json",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("folder", "message"), BEYOND.values(), ids=BEYOND, indirect=["folder"])
def test_what_the_library_cannot_help(folder, message):
    pytest.importorskip("tokenizers")
    with pytest.raises(UserError, match=message):
        get_encoder(folder, "")


ALL = [each[:2] for each in (*IDS.values(), *LIBRARY.values())]


@pytest.mark.parametrize(("folder", "text"), ALL, ids=[*IDS, *LIBRARY], indirect=["folder"])
def test_transformers_finds_the_same(folder, text):
    transformers = pytest.importorskip("transformers")
    theirs, ours = transformers.AutoTokenizer.from_pretrained(folder), get_encoder(folder, "")
    for each in text, *GOLDEN["texts"], "ＴＨＥ 12 cats\n\n [PAD]  cat":
        assert ours.encode(each) == theirs(each)["input_ids"]
    assert ours.eos == theirs.eos_token_id or theirs.eos_token_id is None


@pytest.mark.parametrize("folder", [tokenizer_json(added=[PAD])], ids=["[PAD]"], indirect=True)
def test_a_token_without_a_row(folder, capsys):
    args = (
        "--draft_model_size",
        str(folder),
        "--target_model_size",
        str(folder),
        "--n_tokens_to_generate",
        "12",
    )
    main.main([*args, "--prompt", "The cat"])
    assert "same text         yes" in capsys.readouterr().out
    message = r"the prompt has the token '\[PAD\]', for which these weights have no row"
    with pytest.raises(UserError, match=message):
        main.main([*args, "--prompt", "a[PAD]b"])


ENDS = [(config(eos_token_id=3), 271), (config(eos_token_id=3, vocab_size=271), 3)]


@pytest.mark.parametrize(("folder", "eos"), ENDS, ids=["named", "numbered"], indirect=["folder"])
def test_the_token_that_ends_a_text_has_a_row(folder, eos):
    assert get_encoder(folder, "").eos == eos


HIGHER = stored(PADDED) | config(vocab_size=320)


@pytest.mark.parametrize("folder", [HIGHER], ids=["320 rows"], indirect=True)
def test_tables_of_different_height_over_one_vocabulary_are_a_pair(folder, capsys):
    sizes = ["--draft_model_size", str(folder), "--target_model_size", str(HF / "plain")]
    main.main([*sizes, "--prompt", "The cat", "--n_tokens_to_generate", "12", "--temperature", "9"])
    assert "speedup" in capsys.readouterr().out


HEADER = int.from_bytes(PLAIN["model.safetensors"][:8], "little")


@settings(max_examples=200)
@given(at=st.integers(0, HEADER + 7), flip=st.integers(1, 255), cut=st.booleans())
def test_a_damaged_header_is_refused_or_means_the_same(tmp_path_factory, at, flip, cut):
    content = bytearray(PLAIN["model.safetensors"])
    content[at] ^= flip
    path = tmp_path_factory.getbasetemp() / "damaged.safetensors"
    path.write_bytes(content[: at + 1] if cut else content)
    try:
        found = huggingface.safetensors(path)
    except ValueError as error:
        assert str(error).startswith(path.name) and "\n" not in str(error)
    else:  # a letter of a name, or of the metadata; the names are checked against config.json
        assert len(found) == len(TENSORS)
        assert all(map(np.array_equal, found.values(), TENSORS.values()))


ONE = {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}
TWO = {"dtype": "F32", "shape": [3], "data_offsets": [12, 24]}


@pytest.mark.parametrize(
    "lie",
    [
        {"a": ONE | {"dtype": "F64"}, "b": TWO},
        {"a": ONE | {"shape": [2, 2]}, "b": TWO},
        {"a": ONE | {"shape": [-1, -3]}, "b": TWO},
        {"a": ONE | {"shape": [3.0]}, "b": TWO},
        {"a": ONE | {"data_offsets": [4, 16]}, "b": TWO},
        {"a": ONE | {"data_offsets": [0, 10**12]}, "b": TWO},
        {"a": ONE, "b": TWO | {"data_offsets": [8, 20]}},
        {"a": ONE, "b": TWO | {"data_offsets": [16, 28]}},
        {"a": ONE},
        {"a": [], "b": TWO},
    ],
)
def test_headers_that_lie(tmp_path, lie):
    path = tmp_path / "x.safetensors"
    path.write_bytes(packed(json.dumps({"a": ONE, "b": TWO}), bytes(24)))
    assert huggingface.safetensors(path)["b"].shape == (3,)
    twice = f'{{"a": {json.dumps(ONE)}, "a": {json.dumps(ONE)}}}'
    too_long = [length.to_bytes(8, "little") + twice.encode() for length in (10**9, 2**63)]
    for content in packed(json.dumps(lie), bytes(24)), packed(twice, bytes(12)), *too_long:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"x\.safetensors cannot be used"):
            huggingface.safetensors(path)


def test_the_aliases_are_those_of_transformers():
    transformers = pytest.importorskip("transformers")
    assert transformers.GPT2Config.attribute_map == ATTRIBUTE_MAP


# ---- Where a model can be ----


def test_which_files_are_complete(tmp_path):
    assert find.is_complete(HF / "plain")
    assert find.is_complete(HF / "chat")  # tokenizer.json in place of vocab.json and merges.txt
    shutil.copy(HF / "plain" / "config.json", tmp_path)
    shutil.copy(HF / "plain" / "model.safetensors", tmp_path)
    assert not find.is_complete(tmp_path)


def test_the_cache_of_transformers(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert find.newest_in_cache("gpt2") is None
    n_files = {"gpt2": 4, "openai-community--gpt2": 4, "openai-community--gpt2-xl": 3}
    for i, (repository, n) in enumerate(n_files.items()):
        snapshot = tmp_path / "hub" / f"models--{repository}" / "snapshots" / f"{i}"
        snapshot.mkdir(parents=True)
        for name in huggingface.FILES[:n]:
            shutil.copy(HF / "plain" / name, snapshot)
        os.utime(snapshot, (i, i))
    assert find.newest_in_cache("gpt2").name == "1"
    assert find.newest_in_cache("gpt2-xl") is None  # one file is missing
    monkeypatch.setattr(names, "KNOWN", {})
    assert load_encoder_hparams_and_params("gpt2", "nowhere")[1]["n_layer"] == 2
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ELSEWHERE", str(tmp_path))
    for variable in "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE":
        for place in "~/hub", "$ELSEWHERE/hub":
            monkeypatch.setenv("HF_HOME", "nowhere")
            monkeypatch.setenv(variable, place)
            assert find.newest_in_cache("gpt2").name == "1"
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "elsewhere"))
    assert find.newest_in_cache("gpt2") is None


@pytest.fixture
def hub(server, tmp_path, monkeypatch):
    """Loads "gpt2" from a server that has the files of plain/."""
    for name, content in PLAIN.items():
        monkeypatch.setitem(CONTENT, name, content)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "empty"))
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    return lambda: load_encoder_hparams_and_params("gpt2", str(tmp_path))


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def sha1(data):
    return hashlib.sha1(data).hexdigest()


def git_hash(data):
    return sha1(b"blob %d\0" % len(data) + data)


def tagged(name, content=None, checksum=None):
    """The server sends this content, or what is in plain/, and names the checksum of the latter."""
    checksum = checksum or (sha256 if name == "model.safetensors" else git_hash)
    return {"content": content or PLAIN[name], "headers": {"ETag": f'"{checksum(PLAIN[name])}"'}}


def test_models_are_downloaded_from_hugging_face(server, hub, tmp_path, monkeypatch, capsys):
    server.plan["config.json"] = [{"content": b"<!DOCTYPE html>"}, {}]
    with pytest.raises(UserError, match="gave a wrong file; try again"):
        hub()
    server.plan["merges.txt"] = [{"content": PLAIN["merges.txt"] + b"! !\n"}, {}]
    with pytest.raises(UserError, match=r"gave a wrong file; try again .*no token '!!'"):
        hub()
    assert "model.safetensors" not in dict(server.log)  # the small files are checked first
    server.plan["model.safetensors"] = [{"content": b"<!DOCTYPE html>"}]
    with pytest.raises(UserError, match="gave wrong weights, now removed"):
        hub()
    server.plan["model.safetensors"] = [{"drop": 8_000}, {}]
    assert hub()[1]["n_layer"] == 2
    assert server.log[-1][1] is None and sorted(os.listdir(tmp_path / "gpt2")) == sorted(PLAIN)
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith("names no checksum, so damage may go unnoticed in model.safetensors")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    hub()  # nothing is downloaded twice


FLIPPED = bytearray(PLAIN["model.safetensors"])
FLIPPED[-1] ^= 1
OTHER_CONFIG = PLAIN["config.json"].replace(b'"n_head": 2', b'"n_head": 4')


@pytest.mark.parametrize("checksum", [sha256, sha1, git_hash])
@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_what_does_not_match_is_not_kept(server, hub, tmp_path, capsys, name, checksum):
    wrong = {"model.safetensors": bytes(FLIPPED), "config.json": OTHER_CONFIG}
    server.plan = {each: [tagged(each)] for each in PLAIN}
    server.plan[name] = [tagged(name, wrong[name], checksum), tagged(name, checksum=checksum)]
    message = f"cannot download .*{name}: what arrived does not match the checksum"
    with pytest.raises(OSError, match=message):
        hub()
    assert hub()[1]["n_head"] == 2 and capsys.readouterr().err == ""
    assert {path.name: path.read_bytes() for path in (tmp_path / "gpt2").iterdir()} == PLAIN


def test_a_model_of_another_size_under_a_released_name(server, hub, monkeypatch):
    monkeypatch.setattr(names, "KNOWN", {"gpt2": names.RELEASED["124M"]})
    message = r"gave a wrong file; .*it is not the released gpt2: found n_vocab = 272"
    with pytest.raises(UserError, match=message):
        hub()


PAIRS = {  # what is given, and what it becomes
    (None, None): ("draft", "target"),
    ("draft", None): ("draft", "target"),
    (None, "774M"): ("124M", "774M"),
    ("355M", None): ("355M", "1558M"),
    ("distilgpt2", None): ("distilgpt2", "gpt2-xl"),
    ("gpt2", "1558M"): ("gpt2", "1558M"),
    (None, "gpt2"): ("distilgpt2", "gpt2"),
    (None, "gpt2-large"): ("gpt2", "gpt2-large"),
}


def test_which_models_are_a_pair():
    assert {given: pair_of(*given) for given in PAIRS} == PAIRS
    for alone in str(HF), "1558M", "target":
        message = "has no larger partner, so give --target_model_size too"
        with pytest.raises(UserError, match=message):
            pair_of(alone, None)
    for alone in str(HF), "124M", "draft", "distilgpt2":
        message = "has no smaller partner, so give --draft_model_size too, or try python"
        with pytest.raises(UserError, match=message):
            pair_of(None, alone)


def test_a_folder_that_is_called_like_a_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in "gpt2", "target":
        shutil.copytree(HF / "plain", name)
        message = rf"{name} is a model's name, and a folder here: give \./{name}"
        with pytest.raises(UserError, match=message):
            find.locate(name)
    monkeypatch.chdir(find.MODELS_DIR)
    assert find.locate("target").samefile("target")


# ---- The released weights, if they are there ----

RELEASED = os.environ.get("RELEASED_MODELS", "").split()  # such as "124M gpt2", if they are here


@pytest.mark.parametrize(
    "name",
    RELEASED or [pytest.param("", marks=pytest.mark.skip(reason="RELEASED_MODELS is not set"))],
)
def test_the_released_weights_write_what_picogpt_shows(name):
    encoder, hparams, params = load_encoder_hparams_and_params(name)
    network, ids = (
        GPT2(params, hparams),
        encoder.encode("Alan Turing theorized that computers would one day become"),
    )
    for _ in range(8):
        ids.append(int(network(ids)[-1].argmax()))
    assert encoder.decode(ids[-8:]) == " the most powerful machines on the planet."
    if len(RELEASED) == 2:
        both = [GPT2(*reversed(load_encoder_hparams_and_params(each)[1:])) for each in RELEASED]
        np.testing.assert_allclose(both[0](ids), both[1](ids), atol=1e-6)
