"""checkpoint/: a model of TensorFlow, published checksums, and files that are damaged or lie."""

import json
import re
import shutil

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.programs import ROOT
from support.server import CONTENT

from checkpoint import UserError, find
from checkpoint import crc32c as crc
from checkpoint.crc32c import crc32c, mask
from checkpoint.openai import DATA, FILES, INDEX
from utils import load_encoder_hparams_and_params

HPARAMS = {"n_vocab": 300, "n_ctx": 64, "n_embd": 48, "n_head": 4, "n_layer": 3}

# ---- crc32c ----


def test_crc32c_of_published_vectors():
    assert crc32c(b"") == 0
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, appendix B.4


@pytest.mark.parametrize("n", [1, 4, 6776, 6777, 6778, 13_070, 13_071, 60_000, 300_001])
def test_folding_gives_the_checksum_of_the_plain_loop(monkeypatch, n):
    data = np.random.default_rng(0).integers(0, 256, n, dtype=np.uint8)
    with monkeypatch.context() as patch:
        patch.setattr(crc, "FAR", n)  # so that nothing is folded
        expected = crc32c(data)
    monkeypatch.setattr(crc, "PIECE", 120_000)  # so that less data has several pieces
    assert crc32c(data) == expected


# ---- Good files ----


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    """The micro model. Each test leaves it whole."""
    directory = tmp_path_factory.mktemp("model")
    for name, content in CONTENT.items():
        (directory / name).write_bytes(content)
    return directory


def test_reads_what_tensorflow_wrote_into_the_params_of_picogpt(model_dir):
    _, hparams, params = load_encoder_hparams_and_params(str(model_dir))
    assert hparams == HPARAMS
    w = params["blocks"][1]["mlp"]["c_fc"]["w"]
    assert w.shape == (48, 192) and w.dtype == np.float32
    assert not w.flags.writeable and not w.flags.owndata  # a view of the file


def test_a_model_that_its_trainer_named_by_its_steps(model_dir, tmp_path):
    for name, content in CONTENT.items():
        (tmp_path / name.replace("model.ckpt", "model-1000")).write_bytes(content)
    _, _, expected = load_encoder_hparams_and_params(str(model_dir))
    _, _, params = load_encoder_hparams_and_params(str(tmp_path))
    assert np.array_equal(params["wte"], expected["wte"])


# ---- Damaged files ----


def loaded(model_dir, name, content):
    """The model with this content in a file, or the error: one line with its place."""
    path = model_dir / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    try:
        return load_encoder_hparams_and_params(str(model_dir))
    except UserError as error:
        assert "\n" not in str(error)
        assert str(model_dir) in str(error)
        return str(error)
    finally:
        path.write_bytes(CONTENT[name])


def index_with(old, new):
    """The index with other bytes in its first block, and the checksum that they have."""
    block = CONTENT[INDEX][:1281].replace(old, new, 1)
    return block + mask(crc32c(block)).to_bytes(4, "little") + CONTENT[INDEX][1285:]


def hparams_with(**change):
    return json.dumps(HPARAMS | change).encode()


JSON = CONTENT["encoder.json"]
SWAPPED = JSON.replace(b": 1,", b": 0,").replace(b": 0,", b": 1,", 1)  # the ids 0 and 1
BPE = CONTENT["vocab.bpe"]
FLIPPED = bytes([CONTENT[INDEX][0] ^ 1]) + CONTENT[INDEX][1:]
TWO_SHARDS = index_with(b"\x08\x01\x1a", b"\x08\x02\x1a")  # field 1 of the BundleHeaderProto
TYPE_7 = index_with(b"\x08\x01\x12", b"\x08\x07\x12")  # field 1 of a BundleEntryProto
ENDLESS = CONTENT[INDEX][:-48] + b"\xff" * 40 + CONTENT[INDEX][-8:]  # a number in the footer
ELSEWHERE = index_with(b" \xc0\x04(", b" \xc4\x04(")  # field 4


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("encoder.json", None, "encoder.json is missing; docs/your_models.md"),
        ("hparams.json", None, "hparams.json is missing"),
        (INDEX, None, "one file like model.ckpt.index is needed, and there are 0"),
        (DATA, None, "model.ckpt.data-00000-of-00001 is missing"),
        (DATA, b"", "00001 is empty"),
        (DATA, CONTENT[DATA][:-1], "the weights have 409,535 bytes, not 409,536"),
        (DATA, CONTENT[DATA] + b"x", "the weights have 409,537 bytes, not 409,536"),
        ("encoder.json", b"[" * 100_000, "encoder.json is damaged"),
        ("encoder.json", SWAPPED, "one does not follow from the other"),
        ("vocab.bpe", BPE[:-4], "one does not follow from the other"),
        ("vocab.bpe", BPE + b"a b c\n", "a merge is .* which is not two tokens"),
        ("hparams.json", b"[]", "hparams.json is damaged"),
        ("hparams.json", b"{", "hparams.json is damaged"),
        (INDEX, FLIPPED, "block at 0 does not match its crc32c"),
        (INDEX, TWO_SHARDS, "not in one little-endian file"),
        (INDEX, TYPE_7, "index cannot be read: a tensor has TensorFlow's type 7"),
        (INDEX, ENDLESS, "index cannot be read: a number has more than 64 bits"),
        (INDEX, ELSEWHERE, "a tensor begins at byte 580 and not at 576"),
        ("hparams.json", hparams_with(n_layer=10**12), "n_layer is 1000000000000; a whole number"),
        ("hparams.json", hparams_with(n_layer=2**31 - 1), "but there are only 40 tensors"),
        ("hparams.json", hparams_with(n_layer=2), "'model/h2/attn/c_attn/b': expected none"),
        ("hparams.json", hparams_with(n_layer=True), "n_layer is True"),
        ("hparams.json", hparams_with(n_ctx=32), r"expected \(32, 48\), found \(64, 48\)"),
        ("hparams.json", hparams_with(n_vocab=44), "n_vocab is 44, but the vocabulary has 300"),
        ("hparams.json", hparams_with(n_head=5), "n_head = 5 does not divide n_embd = 48"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_one_line(model_dir, name, content, message):
    result = loaded(model_dir, name, content)
    assert isinstance(result, str)
    assert re.search(message, result), result


@pytest.mark.slow
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
    result = loaded(model_dir, name, bytes(content))
    if not isinstance(result, str):
        encoder, hparams, params = load_encoder_hparams_and_params(str(model_dir))
        assert result[0].ids == encoder.ids and result[0].ranks == encoder.ranks and name != DATA
        assert result[1] | {"n_head": 4} == hparams  # no shape depends on n_head
        assert np.array_equal(result[2]["wte"], params["wte"])


@pytest.mark.parametrize("name", [*(f"draft/{name}" for name in FILES), "SHA256SUMS"])
def test_a_wrong_bit_in_the_bundled_pair_is_noticed(tmp_path, monkeypatch, name):
    shutil.copytree(ROOT / "models", tmp_path / "models")
    monkeypatch.setattr(find, "MODELS_DIR", str(tmp_path / "models"))
    path = tmp_path / "models" / name
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 4] ^= 1  # in SHA256SUMS, that is about the draft
    path.write_bytes(damaged)
    with pytest.raises(UserError, match="is damaged, or SHA256SUMS; restore them from the project"):
        load_encoder_hparams_and_params("draft")
