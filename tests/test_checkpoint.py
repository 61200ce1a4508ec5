"""checkpoint/: a model of TensorFlow, published checksums, and files that are damaged or lie."""

import json
import re
import shutil
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support import CONTENT, ROOT

import utils
from checkpoint import UserError, find, names, openai, write
from checkpoint import crc32c as crc
from checkpoint.crc32c import crc32c
from checkpoint.openai import DATA, FILES, INDEX
from utils import load_encoder_hparams_and_params

HPARAMS = {"n_vocab": 300, "n_ctx": 64, "n_embd": 48, "n_head": 4, "n_layer": 3}

# ---- crc32c ----


def test_crc32c_of_published_vectors():
    vectors = {
        b"": 0,
        b"123456789": 0xE3069283,
        bytes(32): 0x8A9136AA,
    }  # the third is from RFC 3720, appendix B.4
    assert {data: crc32c(data) for data in vectors} == vectors


def test_folding_gives_the_checksum_of_the_plain_loop(monkeypatch):
    data = np.random.default_rng(0).integers(0, 256, 1_300_000, dtype=np.uint8)
    lengths = (1, 4, 6776, 6777, 6778, 13_070, 13_071, 60_000, 499_999, 500_001, 1_300_000)
    with monkeypatch.context() as patch:
        patch.setattr(crc, "FAR", len(data))  # so that nothing is folded
        expected = [crc32c(data[:n]) for n in lengths]
    monkeypatch.setattr(crc, "PIECE", 500_000)  # so that less data has several pieces
    monkeypatch.setattr(crc, "_fold", Mock(wraps=crc._fold))
    assert [crc32c(data[:n]) for n in lengths] == expected
    assert crc._fold.call_count == 7  # without folding, 6 GB would take ten minutes


# ---- Good files ----


def test_reads_what_the_writer_wrote(tmp_path):
    rng = np.random.default_rng(0)
    shapes, dtypes = ((), (3,), (2, 5), (1, 7, 3), (5000,)), (np.float32, np.float16)
    tensors = {}
    for i in range(900):
        tensor = rng.standard_normal(shapes[i % 5])
        tensors[f"model/h{i}/x"] = tensor.astype(dtypes[i % 2])
    write.write_checkpoint(tmp_path, {}, tensors.items())
    found = openai.tensors(tmp_path)
    assert list(found) == sorted(tensors)
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(found[name], tensor, strict=True)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    """The micro model. Each test leaves it whole."""
    directory = tmp_path_factory.mktemp("model")
    for name, content in CONTENT.items():
        (directory / name).write_bytes(content)
    return directory


def test_reads_what_tensorflow_wrote_into_the_params_of_picogpt(model_dir):
    encoder, hparams, params = load_encoder_hparams_and_params(str(model_dir))
    assert hparams == HPARAMS
    assert encoder.decode(encoder.encode("Once upon a time")) == "Once upon a time"
    assert sorted(params) == ["blocks", "ln_f", "wpe", "wte"] and len(params["blocks"]) == 3
    w = params["blocks"][1]["mlp"]["c_fc"]["w"]
    assert w.shape == (48, 192) and w.dtype == np.float32
    assert not w.flags.writeable and not w.flags.owndata  # a view of the file
    _, hparams, _ = load_encoder_hparams_and_params("draft", "/nowhere")
    assert hparams["n_layer"] == 1  # the bundled pair is found anyway


def test_a_model_that_its_trainer_named_by_its_steps(model_dir, tmp_path):
    for name, content in CONTENT.items():
        (tmp_path / name.replace("model.ckpt", "model-1000")).write_bytes(content)
    expected = load_encoder_hparams_and_params(str(model_dir))[2]["wte"]
    name = "model_checkpoint_path"
    for text in (
        f'{name}: "/home/me/run1/model-1000"\nall_{name}s: 1\n',
        f"\ufeffall_{name}s: 'a'\n{name}:'model-1000'",
    ):
        (tmp_path / "checkpoint").write_text(text, encoding="utf-8")
        assert np.array_equal(load_encoder_hparams_and_params(str(tmp_path))[2]["wte"], expected)
    (tmp_path / "checkpoint").write_text("model-1000")
    with pytest.raises(UserError, match="the file checkpoint has no model_checkpoint_path"):
        load_encoder_hparams_and_params(str(tmp_path))


# ---- Damaged files ----


def loaded(model_dir, name, content):
    """The model with this content in a file, or the error: one line with its place."""
    path = model_dir / name
    path.unlink() if content is None else path.write_bytes(content)
    try:
        return load_encoder_hparams_and_params(str(model_dir))
    except (UserError, FileNotFoundError) as error:
        assert "\n" not in str(error) and str(model_dir) in str(error) and len(str(error)) < 1000
        assert "download" not in str(error)  # nothing would be
        return str(error)
    finally:
        path.write_bytes(CONTENT[name])


def hparams(**change):
    return json.dumps(HPARAMS | change).encode()


def index_of(entry, n_shards=1):
    return write.table([(b"", write.number(1, n_shards)), (b"a", entry)])


TOKENS, PAIRS = CONTENT["encoder.json"], CONTENT["vocab.bpe"]
NO_JSON = b"[]", b"12", b"{", b"[" * 100_000
ENTRY = write.number(1, 1) + write.number(5, 4) + write.number(6, 0)  # one float32, without a shape


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        *((name, None, f"{name} is missing; copy the tokenizer") for name in FILES[:2]),
        ("hparams.json", None, "hparams.json is missing; docs/your_models.md"),
        *((name, None, f"No such file or directory: '.*{name}'") for name in FILES[3:]),
        (DATA, b"", "00001 is empty"),
        (DATA, CONTENT[DATA][:-1], "the weights have 409,535 bytes, not 409,536"),
        (DATA, CONTENT[DATA] + b"x", "the weights have 409,537 bytes, not 409,536"),
        ("encoder.json", b"[" * 100_000, "encoder.json is damaged"),
        (
            "encoder.json",
            TOKENS.replace(b": 1,", b": X,").replace(b": 2,", b": 1,").replace(b"X", b"2"),
            "not follow",
        ),
        ("encoder.json", TOKENS[:-1] + b', "more": 300}', "one does not follow from the other"),
        ("vocab.bpe", PAIRS[:-4], "one does not follow from the other"),
        ("vocab.bpe", PAIRS + b"a b c\n", "one does not follow from the other"),
        *(("hparams.json", content, "hparams.json is damaged") for content in NO_JSON),
        ("hparams.json", hparams(n_layer=10**12), "n_layer is 1000000000000; a whole number"),
        (
            "hparams.json",
            hparams(n_layer=2**31 - 1),
            "n_layer is 2147483647, but there are only 40 tensors",
        ),
        (
            "hparams.json",
            hparams(n_layer=2),
            "12 tensors differ, such as 'model/h2/attn/c_attn/b': expected None",
        ),
        ("hparams.json", hparams(n_layer=True), "n_layer is True"),
        (
            "hparams.json",
            hparams(n_vocab=44),
            r"'model/wte': expected \(44, 48\), found \(300, 48\)",
        ),
        ("hparams.json", hparams(n_head=5), "n_head = 5 does not divide n_embd = 48"),
        (
            "hparams.json",
            hparams(n_ctx="64" * 99),
            "n_ctx is '646464646464...4646464646464'; a whole number",
        ),
        (INDEX, b"", "not a LevelDB table"),
        (
            INDEX,
            bytes([CONTENT[INDEX][0] ^ 1]) + CONTENT[INDEX][1:],
            "block at 0 does not match its crc32c",
        ),
        (INDEX, index_of(ENTRY, n_shards=2), "not in one little-endian file"),
        (INDEX, index_of(ENTRY + write.number(3, 1)), "in slices or in another file"),
        (
            INDEX,
            index_of(write.number(1, 7) + ENTRY[2:]),
            "index cannot be read: a tensor has TensorFlow's type 7",
        ),
        (INDEX, index_of(write.varint(2 << 3 | 2) + write.varint(2**70)), "index cannot be read"),
        (INDEX, index_of(ENTRY[:-1]), "index cannot be read"),
        (INDEX, index_of(ENTRY), "the weights have 409,536 bytes, not 4"),
        (INDEX, index_of(ENTRY + write.number(4, 4)), "'a' begins at byte 4, where 0 was expected"),
    ],
)
def test_what_is_wrong_with_a_folder_is_said_in_one_line(model_dir, name, content, message):
    found = loaded(model_dir, name, content)
    assert isinstance(found, str) and re.search(message, found), found


def test_a_vocabulary_of_another_size(model_dir, tmp_path):
    shutil.copytree(model_dir, tmp_path / "model")
    write.write_vocabulary(tmp_path / "model", 299)
    with pytest.raises(UserError, match="has n_vocab = 300, but its vocabulary has 299 tokens"):
        load_encoder_hparams_and_params(str(tmp_path / "model"))


@settings(max_examples=150)
@example(name="vocab.bpe", at=100, flip=8, cut=None)
@example(name=DATA, at=99_999, flip=1, cut=None)
@given(
    name=st.sampled_from(FILES),
    at=st.integers(0, 10**6),
    flip=st.integers(1, 255),
    cut=st.sampled_from([None, None, None, 0, 1]),
)
def test_a_damaged_file_is_refused_or_means_the_same(model_dir, name, at, flip, cut):
    content = bytearray(CONTENT[name])
    at %= len(content)
    content[at] ^= flip
    if cut is not None:
        content = content[: at + cut]
    found = loaded(model_dir, name, bytes(content))
    if not isinstance(found, str):
        encoder, hparams, params = load_encoder_hparams_and_params(str(model_dir))
        assert found[0].ids == encoder.ids and found[0].ranks == encoder.ranks and name != DATA
        assert found[1] | {"n_head": 4} == hparams  # no shape depends on n_head
        assert np.array_equal(found[2]["wte"], params["wte"])


def test_a_wrong_bit_in_the_bundled_pair_is_noticed(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "models", tmp_path / "models")
    monkeypatch.setattr(find, "MODELS_DIR", str(tmp_path / "models"))
    for path in [
        *(tmp_path / "models" / "draft" / name for name in FILES),
        tmp_path / "models" / "SHA256SUMS",
    ]:
        content = path.read_bytes()
        half = len(content) // 4  # of SHA256SUMS, it is about the draft
        for damaged in (
            content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :],
            b"junk",
            b"\xff",
        ):
            path.write_bytes(damaged)
            message = r"is missing or damaged.*restore them from the project"
            with pytest.raises(UserError, match=message):
                load_encoder_hparams_and_params("draft")
        path.write_bytes(content)
    load_encoder_hparams_and_params("draft")


@pytest.mark.parametrize("name", ["124M", "gpt2"])
def test_a_released_model_of_another_size_is_noticed(model_dir, monkeypatch, name):
    """No shape depends on the number of heads."""
    monkeypatch.setattr(utils, "locate", lambda *args: model_dir)
    monkeypatch.setitem(names.KNOWN, name, HPARAMS)
    load_encoder_hparams_and_params(name)
    monkeypatch.setitem(names.KNOWN, name, HPARAMS | {"n_head": 2})
    with pytest.raises(
        UserError,
        match=rf"it is not the released {name}: found n_head = 4; remove .* to download it",
    ):
        load_encoder_hparams_and_params(name)


def test_what_is_known_of_the_released_models():
    """The widths and heads are those of OpenAI's and Hugging Face's own files."""
    known = {name: (h["n_layer"], h["n_head"], h["n_embd"]) for name, h in names.KNOWN.items()}
    assert known["1558M"] == known["gpt2-xl"] == (48, 25, 1600) and known["distilgpt2"] == (
        6,
        12,
        768,
    )
    assert known["124M"] == known["gpt2"] == (12, 12, 768)
    assert known["774M"] == known["gpt2-large"] == (36, 20, 1280)
