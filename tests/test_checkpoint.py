"""checkpoint/ and utils.py: a checkpoint that TensorFlow wrote, published checksums, damaged and hostile files."""

import json
import os
import shutil
import subprocess
import sys
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support import CONTENT, MICRO, ROOT
from writer import HEADER, block, finish, number, seal, table, text, varint, write_bundle
from writer import entry as write_entry

import utils
from checkpoint import crc32c as crc
from checkpoint.bundle import load, read_index
from checkpoint.crc32c import crc32c
from checkpoint.download import DATA, FILES, INDEX, check
from errors import UserError
from utils import load_encoder_hparams_and_params

HPARAMS = {"n_vocab": 300, "n_ctx": 64, "n_embd": 48, "n_head": 4, "n_layer": 3}

# ---- crc32c ----


def test_crc32c_of_published_vectors():
    vectors = {b"": 0, b"123456789": 0xE3069283, bytes(32): 0x8A9136AA}  # the third is from RFC 3720, appendix B.4
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


# ---- Good checkpoints ----


def test_reads_what_the_writer_wrote(tmp_path):
    rng, prefix = np.random.default_rng(0), str(tmp_path / "model.ckpt")
    shapes, dtypes = ((), (3,), (2, 5), (1, 7, 3), (5000,)), (np.float32, np.float16)
    tensors = {f"model/h{i}/x": rng.standard_normal(shapes[i % 5]).astype(dtypes[i % 2]) for i in range(900)}
    write_bundle(prefix, tensors.items())
    found = load(prefix)
    assert list(found) == sorted(tensors)
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(found[name], tensor, strict=True)
    check(tmp_path)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    """The micro model in the place of the bundled target, which is never downloaded. Each test leaves it whole."""
    directory = tmp_path_factory.mktemp("models") / "target"
    directory.mkdir()
    for name, content in CONTENT.items():
        (directory / name).write_bytes(content)
    return directory


def test_reads_what_tensorflow_wrote_into_the_params_of_picogpt(model_dir, monkeypatch):
    monkeypatch.setattr(utils, "MODELS_DIR", str(model_dir.parent))
    encoder, hparams, params = load_encoder_hparams_and_params("target", "/nowhere")  # the bundled pair is found anyway
    assert hparams == HPARAMS and encoder.decode(encoder.encode("Once upon a time")) == "Once upon a time"
    assert sorted(params) == ["blocks", "ln_f", "wpe", "wte"] and len(params["blocks"]) == 3
    w = params["blocks"][1]["mlp"]["c_fc"]["w"]
    assert w.shape == (48, 192) and w.dtype == np.float32
    assert not w.flags.writeable and not w.flags.owndata  # a view of the file
    assert load_encoder_hparams_and_params(str(model_dir))[1] == HPARAMS  # a folder is a size too


# ---- Damaged files ----


def refused(model_dir, name, content):
    """The error of loading the model with this content in a file, one line that names the place; None if it loads."""
    path = model_dir / name
    path.unlink() if content is None else path.write_bytes(content)
    try:
        load_encoder_hparams_and_params("target", str(model_dir.parent))
    except UserError as error:
        assert "\n" not in str(error) and str(model_dir) in str(error) and len(str(error)) < 1000
        return str(error)
    finally:
        path.write_bytes(CONTENT[name])


def entry(shape=(2, 3), dtype=1, offset=0, size=None):
    return write_entry(dtype, shape, offset, 4 * int(np.prod(shape)) if size is None else size, 0)


def hparams(**change):
    return json.dumps(HPARAMS | change).encode()


GOOD, HEAD, A, EMPTY = CONTENT[INDEX], (b"", HEADER), (b"a", entry()), block([])
AT_0 = (b"a", varint(0) + varint(len(EMPTY)))  # says that an empty block is at byte 0
TOKENS, PAIRS = CONTENT["encoder.json"], CONTENT["vocab.bpe"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        *((name, content, f"{name} is missing or empty") for name in FILES for content in (None, b"")),
        (DATA, CONTENT[DATA][:-1], f"{DATA} has 409,535 bytes, not 409,536; restore it"),
        (DATA, CONTENT[DATA] + b"x", "has 409,537 bytes, not 409,536"),
        ("encoder.json", b"[" * 100_000, "encoder.json or vocab.bpe is damaged"),
        ("encoder.json", TOKENS.replace(b": 1,", b": X,").replace(b": 2,", b": 1,").replace(b"X", b"2"), "not follow"),
        ("encoder.json", TOKENS[:-1] + b', "more": 300}', "does not follow from"),
        ("vocab.bpe", PAIRS.replace(b"! #", b"# !"), "does not follow from"),
        ("vocab.bpe", PAIRS[:-4], "does not follow from"),
        ("vocab.bpe", PAIRS + b"a b c\n", "too many values"),
        ("vocab.bpe", b"\n".join(reversed(PAIRS.split(b"\n"))), "vocab.bpe is damaged"),
        *(("hparams.json", content, "hparams.json is damaged") for content in (b"[]", b"12", b"{", b"[" * 100_000)),
        ("hparams.json", hparams(n_layer=10**12), "n_layer = 1000000000000; a whole number"),
        ("hparams.json", hparams(n_layer=2**31 - 1), "40 tensors differ"),
        ("hparams.json", hparams(n_layer=2), "12 tensors differ, such as 'model/h2/attn/c_attn/b': expected nothing"),
        ("hparams.json", hparams(n_layer=True), "n_layer = True"),
        ("hparams.json", hparams(n_layer=0), "n_layer = 0"),
        ("hparams.json", hparams(n_vocab=44), "'model/wte': expected (44, 48), found (300, 48)"),
        ("hparams.json", hparams(n_head=5), "n_head = 5 does not divide n_embd = 48"),
        ("hparams.json", hparams(n_ctx="64" * 99), "n_ctx = '646464646464...4646464646464'; a whole number"),
        (INDEX, GOOD[-8:], "cannot be used"),
        (INDEX, GOOD[:-1] + b"x", "are not a LevelDB table"),
        (INDEX, bytes([GOOD[0] ^ 1]) + GOOD[1:], "block at 0 does not match its crc32c"),
        (INDEX, finish(seal(EMPTY, compression=1), block([AT_0])), "it is compressed"),
        (INDEX, finish(seal(EMPTY), block([AT_0, AT_0])), "blocks overlap"),
        (INDEX, finish(b"", block([(b"a", varint(0) + varint(10**6))])), "does not match its crc32c"),
        (INDEX, table([A]), "not in one little-endian file"),
        (INDEX, table([(b"", number(1, 2)), A]), "not in one little-endian file"),
        (INDEX, table([(b"", number(1, 1) + number(2, 1)), A]), "not in one little-endian file"),
        (INDEX, table([HEAD, A, A]), "one of them twice"),
        (INDEX, table([HEAD, A, (b"b", entry(offset=23))]), "tensors overlap"),
        (INDEX, table([HEAD]), "no tensors"),
        (INDEX, table([HEAD, (b"a" * 257, entry())]), "long name"),
        (INDEX, table([HEAD, (b"a", entry(dtype=7))]), "a tensor of type 7"),
        (INDEX, table([HEAD, (b"a", entry(size=23))]), "23 bytes"),
        (INDEX, table([HEAD, (b"a", entry(shape=(2**62, 2**62), size=24))]), "24 bytes"),
        (INDEX, table([HEAD, (b"a", entry() + number(3, 1))]), "in another file"),
        (INDEX, table([HEAD, (b"a", entry() + text(7, b""))]), "in slices"),
        (INDEX, table([HEAD, (b"a", b"\x0b\0")]), "wire type 3"),
        (INDEX, table([HEAD, (b"a", text(9, b"ab")[:-1])]), "cut off"),
        (INDEX, table([HEAD, (b"a", b"\xff" * 99)]), "cannot be used"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_directory_is_said_in_one_line(model_dir, name, content, message):
    assert message in refused(model_dir, name, content)


@settings(max_examples=300)
@example(name="vocab.bpe", at=100, flip=8, cut=None)
@given(
    name=st.sampled_from([INDEX, "encoder.json", "vocab.bpe", "hparams.json"]),
    at=st.integers(0, 10**4),
    flip=st.integers(1, 255),
    cut=st.sampled_from([None, None, None, 0, 1]),
)
def test_a_damaged_file_is_refused_or_means_the_same(model_dir, name, at, flip, cut):
    content = bytearray(CONTENT[name])
    at %= len(content)
    content[at] ^= flip
    if cut is not None:
        content = content[: at + cut]
    path = model_dir / name
    if refused(model_dir, name, bytes(content)) is None:
        path.write_bytes(content)
        encoder, found, params = load_encoder_hparams_and_params("target", str(model_dir.parent))
        path.write_bytes(CONTENT[name])
        expected_encoder, expected, expected_params = load_encoder_hparams_and_params(str(model_dir))
        assert encoder.ids == expected_encoder.ids and encoder.ranks == expected_encoder.ranks
        assert found.items() - {("n_head", found["n_head"])} == expected.items() - {("n_head", 4)}
        assert np.array_equal(params["wte"], expected_params["wte"])


def test_a_wrong_bit_in_the_bundled_pair_is_noticed(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "models", tmp_path / "models")
    monkeypatch.setattr(utils, "MODELS_DIR", str(tmp_path / "models"))
    for name in FILES:
        path = tmp_path / "models" / "draft" / name
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        with pytest.raises(UserError, match=f"{name} is damaged: SHA256SUMS has another"):
            load_encoder_hparams_and_params("draft", "elsewhere")
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        load_encoder_hparams_and_params("draft", "elsewhere")
    sums = tmp_path / "models" / "SHA256SUMS"
    for damaged in b"junk", b"\xff" + sums.read_bytes():
        sums.write_bytes(damaged)
        with pytest.raises(UserError, match="SHA256SUMS"):
            load_encoder_hparams_and_params("draft", "elsewhere")


def test_a_wrong_number_of_heads_in_a_released_model_is_noticed(monkeypatch):
    """It is the one number that no shape depends on."""
    monkeypatch.setattr(utils, "directory_of", lambda *args: "124M")
    monkeypatch.setattr(utils, "load_hparams_and_params", lambda directory: ({"n_embd": 768, "n_head": 16}, {}))
    with pytest.raises(UserError, match="n_head = 16, but OpenAI's heads have 64"):
        load_encoder_hparams_and_params("124M")


def test_python_m_checkpoint_finds_one_wrong_bit_and_names_its_tensor(model_dir):
    data = bytearray(CONTENT[DATA])
    data[read_index(MICRO / INDEX)["model/h1/ln_2/g"].offset + 5] ^= 16
    for content, code, complaint in ((data, 2, "'model/h1/ln_2/g'"), (CONTENT[DATA], 0, "")):
        (model_dir / DATA).write_bytes(content)
        done = subprocess.run([sys.executable, "-m", "checkpoint", model_dir], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == code and complaint in done.stderr and "Traceback" not in done.stderr
        assert ("all numbers match" in done.stdout) == (code == 0)
    assert os.path.getsize(model_dir / DATA) == len(CONTENT[DATA])
