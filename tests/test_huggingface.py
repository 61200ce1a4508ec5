"""Hugging Face's layout: safetensors, config.json, the cache of transformers, downloads, and the released weights."""

import json
import os
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import CONTENT, ROOT, run

import main
from checkpoint import find, huggingface
from checkpoint.read import read
from errors import UserError
from gpt2 import GPT2
from utils import load_encoder_hparams_and_params, pair_of

HF = ROOT / "tests" / "fixtures" / "hf"  # written by transformers, see tools/hf_fixture.py
FILES = {name: (HF / name).read_bytes() for name in huggingface.FILES}


def written(tensors, directory, **changes):
    """The folder of a model with these tensors, and with a changed config.json."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        begin, data = len(data), data + tensor.tobytes()
        kind = {"<f4": "F32", "<f2": "F16", "<u2": "BF16", "|b1": "BOOL"}[tensor.dtype.str]
        header[name] = {"dtype": kind, "shape": tensor.shape, "data_offsets": [begin, len(data)]}
    for name, content in FILES.items():
        (directory / name).write_bytes(content)
    text = json.dumps(header).encode()
    (directory / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    (directory / "config.json").write_text(json.dumps(json.loads(FILES["config.json"]) | changes))
    return directory


@pytest.fixture
def tensors():
    """{Hugging Face's name: array}"""
    return {name: np.array(tensor) for name, tensor in huggingface.safetensors(HF / "model.safetensors").items()}


def test_the_logits_are_those_of_transformers():
    golden = np.load(HF / "golden.npz")
    encoder, hparams, params = load_encoder_hparams_and_params(str(HF))
    assert hparams == dict(n_vocab=272, n_ctx=32, n_embd=24, n_head=3, n_layer=2)
    assert encoder.encode(str(golden["text"]))[: len(golden["ids"])] == golden["ids"].tolist()
    network, n = GPT2(params, hparams), len(golden["ids"])
    logits = network(golden["ids"], n)
    np.testing.assert_allclose(logits, golden["logits"], atol=1e-5)
    network.forget()
    assert np.array_equal(logits, [network(golden["ids"][: i + 1])[0] for i in range(n)])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_types_prefixes_masks_and_a_tied_head(tensors, tmp_path, dtype, prefix):
    _, expected = read(HF)
    if dtype == "bfloat16":
        tensors = {name: (tensor.view(np.uint32) >> 16).astype(np.uint16) for name, tensor in tensors.items()}
    else:
        tensors = {name: tensor.astype(dtype) for name, tensor in tensors.items()}
    tensors = {prefix + name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    tensors |= {
        f"{prefix}h.0.attn.bias": np.ones((1, 1, 4, 4), dtype=bool),
        "lm_head.weight": tensors[f"{prefix}wte.weight"],
    }
    _, params = read(written(tensors, tmp_path))
    assert params["wte"].dtype == ("float16" if dtype == "float16" else "float32")
    for found, wanted in (params["wte"], expected["wte"]), (params["blocks"][1]["mlp"]["c_fc"]["w"],
                                                            expected["blocks"][1]["mlp"]["c_fc"]["w"]):  # fmt: skip
        np.testing.assert_allclose(found, wanted, rtol=0 if dtype == "float32" else 1e-2, atol=1e-7)
        assert not found.flags.writeable or dtype == "bfloat16"


@pytest.mark.parametrize(
    ("config", "head", "message"),
    [
        ({"activation_function": "relu"}, None, "activation_function is 'relu', and only gelu_new is computed here"),
        ({"add_cross_attention": True}, None, "add_cross_attention is True"),
        ({"scale_attn_by_inverse_layer_idx": True}, None, "scale_attn_by_inverse_layer_idx is True"),
        ({"model_type": "llama"}, None, "model_type is 'llama'"),
        ({"n_layer": 3}, None, "12 tensors differ"),
        ({"vocab_size": None}, None, "n_vocab is None"),
        ({}, np.zeros((272, 24), np.float32), "lm_head.weight is not wte"),
    ],
)
def test_what_is_not_computed_here_is_refused_by_name(tensors, tmp_path, config, head, message):
    with pytest.raises(UserError, match=message) as error:
        read(written(tensors | ({} if head is None else {"lm_head.weight": head}), tmp_path, **config))
    assert str(tmp_path) in str(error.value)


def test_a_tensor_of_another_type_or_with_two_names_is_refused(tensors, tmp_path):
    ones = {name: np.ones(tensor.shape, bool) for name, tensor in tensors.items() if name.endswith("ln_f.bias")}
    twice = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    for change, message in (ones, "expected .*found bool"), (twice, "a tensor is there twice"):
        assert change
        with pytest.raises(UserError, match=message):
            read(written(tensors | change, tmp_path))


HEADER = int.from_bytes(FILES["model.safetensors"][:8], "little")


@settings(max_examples=200)
@given(at=st.integers(0, HEADER + 7), flip=st.integers(1, 255), cut=st.booleans())
def test_a_damaged_header_is_refused_or_means_the_same(tmp_path_factory, at, flip, cut):
    content = bytearray(FILES["model.safetensors"])
    content[at] ^= flip
    path = tmp_path_factory.getbasetemp() / "damaged.safetensors"
    path.write_bytes(content[: at + 1] if cut else content)
    try:
        found = huggingface.safetensors(path)
    except ValueError as error:
        assert str(error).startswith(path.name) and "\n" not in str(error)
    else:  # a letter of a name, or of the metadata; the names are checked against config.json
        assert [t.tobytes() for t in found.values()] == [
            t.tobytes() for t in huggingface.safetensors(HF / "model.safetensors").values()
        ]


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header["a"].update(dtype="F64"),
        lambda header: header["a"].update(shape=[2, 2]),
        lambda header: header["a"].update(shape=[-1, -3]),
        lambda header: header["a"].update(shape=[3.0]),
        lambda header: header["a"].update(data_offsets=[4, 16]),
        lambda header: header["a"].update(data_offsets=[0, 10**12]),
        lambda header: header["b"].update(data_offsets=[8, 20]),
        lambda header: header["b"].update(data_offsets=[16, 28]),
        lambda header: header.pop("b"),
        lambda header: header.update(a=[]),
    ],
)
def test_headers_that_lie(tmp_path, change):
    header = {name: {"dtype": "F32", "shape": [3], "data_offsets": [i, i + 12]} for i, name in ((0, "a"), (12, "b"))}
    path = tmp_path / "x.safetensors"
    for honest in True, False:
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(24))
        if honest:
            assert huggingface.safetensors(path)["b"].shape == (3,)
            change(header)
    with pytest.raises(ValueError, match=r"x\.safetensors is damaged"):
        huggingface.safetensors(path)
    one = json.dumps({"dtype": "F32", "shape": [3], "data_offsets": [0, 12]})
    twice = f'{{"a": {one}, "a": {one}}}'.encode()
    for length, body in (len(twice), twice + bytes(12)), (10**9, twice), (2**63, b""):
        path.write_bytes(length.to_bytes(8, "little") + body)
        with pytest.raises(ValueError, match="is damaged"):
            huggingface.safetensors(path)


# ---- Where a model can be ----


@pytest.mark.parametrize("layout", ["vocab.json", "tokenizer.json", "<|endoftext|> first"])
def test_a_folder_of_your_own(tmp_path, capsys, layout):
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    if layout != "vocab.json":
        merges = [line.split(" ") for line in FILES["merges.txt"].decode().split("\n")[1:] if line]
        vocab = json.loads(FILES["vocab.json"])
        del vocab["<|endoftext|>"]
        first = layout != "tokenizer.json"
        vocab = {token: id + first for token, id in vocab.items()}
        added = [{"content": "<|endoftext|>", "id": 0 if first else 271}]
        (tmp_path / "vocab.json").unlink()
        text = json.dumps({"model": {"vocab": vocab, "merges": merges}, "added_tokens": added})
        (tmp_path / "tokenizer.json").write_text(text)
    sizes = ["--draft_model_size", str(tmp_path), "--target_model_size", str(tmp_path)]
    main.main([*sizes, "--prompt", "The cat", "--n_tokens_to_generate", "12"])
    assert "same text         yes" in capsys.readouterr().out


def test_the_cache_of_transformers(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert find.newest_in_cache("gpt2") is None
    for i, (repository, files) in enumerate(
        {"gpt2": 4, "openai-community--gpt2": 4, "openai-community--gpt2-xl": 3}.items()
    ):
        snapshot = tmp_path / "hub" / f"models--{repository}" / "snapshots" / f"{i}"
        snapshot.mkdir(parents=True)
        for name in huggingface.FILES[:files]:
            shutil.copy(HF / name, snapshot)
        os.utime(snapshot, (i, i))
    assert find.newest_in_cache("gpt2").name == "1" and find.newest_in_cache("gpt2-xl") is None  # one file is missing
    assert load_encoder_hparams_and_params("gpt2", "nowhere")[1]["n_layer"] == 2
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "elsewhere"))
    assert find.newest_in_cache("gpt2") is None


def test_models_are_downloaded_from_hugging_face(server, tmp_path, monkeypatch):
    monkeypatch.setattr("support.CONTENT", CONTENT | FILES)
    monkeypatch.setitem(CONTENT, "model.safetensors", FILES["model.safetensors"])
    for name, content in FILES.items():
        monkeypatch.setitem(CONTENT, name, content)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "empty"))
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    server.plan["config.json"] = [{"content": b"<!DOCTYPE html>"}, {}]
    with pytest.raises(UserError, match="gave a wrong file; try again"):
        load_encoder_hparams_and_params("gpt2", str(tmp_path))
    assert "model.safetensors" not in dict(server.log)  # the small files are checked first
    server.plan["model.safetensors"] = [{"content": b"<!DOCTYPE html>"}]
    with pytest.raises(UserError, match="gave wrong weights, now removed"):
        load_encoder_hparams_and_params("gpt2", str(tmp_path))
    server.plan["model.safetensors"] = [{"drop": 30_000}, {}]
    assert load_encoder_hparams_and_params("gpt2", str(tmp_path))[1]["n_layer"] == 2
    assert server.log[-1][1].startswith("bytes=") and sorted(os.listdir(tmp_path / "gpt2")) == sorted(FILES)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    load_encoder_hparams_and_params("gpt2", str(tmp_path))  # nothing is downloaded twice


def test_which_models_are_a_pair():
    assert pair_of(None, None) == ("draft", "target") and pair_of("draft", None) == ("draft", "target")
    assert pair_of(None, "774M") == ("124M", "774M") and pair_of("355M", None) == ("355M", "1558M")
    assert pair_of("distilgpt2", None) == ("distilgpt2", "gpt2-xl") and pair_of("gpt2", "1558M") == ("gpt2", "1558M")
    with pytest.raises(UserError, match="has no partner of its own, so give --target_model_size too"):
        pair_of(str(HF), None)
    result = run("--target_model_size", "gpt3")
    assert (
        result.returncode == 2
        and "there is no model or folder 'gpt3': give one of draft, target, 124M" in result.stderr
    )


# ---- The released weights, if they are there ----

RELEASED = ["124M"] * (ROOT / "models" / "124M").is_dir() + ["gpt2"] * bool(find.newest_in_cache("gpt2"))


@pytest.mark.parametrize("name", RELEASED or [pytest.param("124M", marks=pytest.mark.skip(reason="not downloaded"))])
def test_the_released_weights_write_what_picogpt_shows(name):
    encoder, hparams, params = load_encoder_hparams_and_params(name)
    network, ids = GPT2(params, hparams), encoder.encode("Alan Turing theorized that computers would one day become")
    for _ in range(8):
        ids.append(int(network(ids)[-1].argmax()))
    assert encoder.decode(ids[-8:]) == " the most powerful machines on the planet."
    if len(RELEASED) == 2:
        both = [GPT2(*reversed(load_encoder_hparams_and_params(each)[1:])) for each in RELEASED]
        np.testing.assert_allclose(both[0](ids), both[1](ids), atol=1e-6)
