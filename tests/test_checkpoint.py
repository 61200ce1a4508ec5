"""checkpoint/ and utils.py: a checkpoint that TensorFlow wrote, published checksums, damaged and hostile files."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support import MICRO, ROOT, micro_files

import utils
from checkpoint import crc32c as crc
from checkpoint import writer
from checkpoint.bundle import CheckpointError, check_tensors, load, read_index
from checkpoint.crc32c import crc32c
from checkpoint.download import DATA, FILES
from utils import load_encoder_hparams_and_params

PREFIX = str(MICRO / "model.ckpt")
DATA_END = DATA.removeprefix("model.ckpt")
HPARAMS = {"n_vocab": 300, "n_ctx": 64, "n_embd": 48, "n_head": 4, "n_layer": 3}
CONTENT = micro_files()


@pytest.fixture
def prefix(tmp_path):
    """A copy of the fixture, to be damaged."""
    for end in (".index", DATA_END):
        shutil.copy(PREFIX + end, tmp_path / ("model.ckpt" + end))
    return str(tmp_path / "model.ckpt")


def index_of(prefix, items):
    """Write an index of these (key, value) pairs, with all checksums right."""
    Path(prefix + ".index").write_bytes(writer.table(writer.blocks(items, 1 << 18)))


def entry(shape=(2, 3), dtype=1, offset=0, size=None):
    return writer.entry(dtype, shape, offset, 4 * int(np.prod(shape)) if size is None else size, 0)


# ---- crc32c ----


@pytest.mark.parametrize(
    "data, crc",
    [
        (b"", 0),
        (b"123456789", 0xE3069283),  # the customary check value
        (bytes(32), 0x8A9136AA),  # these four: RFC 3720, appendix B.4
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_crc32c_of_published_vectors(data, crc):
    assert crc32c(data) == crc


def test_the_four_term_polynomial_is_a_multiple_of_the_crc_polynomial():
    def power_of_x(n):
        x = 1
        for _ in range(n):
            x = x << 1 ^ (0x11EDC6F41 if x >> 31 else 0)
        return x

    assert power_of_x(6777) ^ power_of_x(484) ^ power_of_x(100) ^ 1 == 0


def test_folding_gives_the_checksum_of_the_plain_loop(monkeypatch):
    monkeypatch.setattr(crc, "PIECE", 500_000)  # else only large data would be cut
    data = np.random.default_rng(0).integers(0, 256, 1_300_000, dtype=np.uint8)
    for n in (1, 4, 6776, 6777, 6778, 13_070, 13_071, 60_000, 499_999, 500_001, 1_300_000):
        expected = 0xFFFFFFFF
        for byte in data[:n].tobytes():
            expected = crc.TABLE[(expected ^ byte) & 255] ^ (expected >> 8)
        assert crc32c(data[:n]) == expected ^ 0xFFFFFFFF, n


# ---- Reading what is right ----


def test_reads_what_tensorflow_wrote():
    tensors = load(PREFIX)
    assert len(tensors) == 3 * 12 + 4
    assert tensors["model/wte"].shape == (300, 48) and tensors["model/wte"].dtype == np.float32
    assert tensors["model/h2/mlp/c_fc/w"].shape == (1, 48, 192)
    assert not any(tensor.flags.writeable or tensor.flags.owndata for tensor in tensors.values())  # views of the file
    check_tensors(PREFIX)


@pytest.mark.parametrize("n, block_size", [(1, 1 << 18), (50, 100), (900, 5000)])
def test_reads_what_the_writer_wrote(tmp_path, n, block_size):
    rng, prefix = np.random.default_rng(n), str(tmp_path / "model.ckpt")
    shapes, dtypes = ((), (3,), (2, 5), (1, 7, 3), (5000,)), (np.float32, np.float16)
    tensors = {f"model/h{i}/x": rng.standard_normal(shapes[i % 5]).astype(dtypes[i % 2]) for i in range(n)}
    writer.write_bundle(prefix, tensors.items(), block_size)
    found = load(prefix)
    assert list(found) == sorted(tensors)
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype and found[name].shape == tensor.shape
        np.testing.assert_array_equal(found[name], tensor)
    done = []
    check_tensors(prefix, on_bytes=done.append)
    assert sum(done) == os.path.getsize(prefix + DATA_END)


# ---- Refusing what is wrong ----


@pytest.mark.parametrize("size", [0, 1, 409_535, 409_537])
def test_a_data_file_of_another_length_is_named_with_both(prefix, size):
    Path(prefix + DATA_END).write_bytes((Path(prefix + DATA_END).read_bytes() + b"x")[:size])
    with pytest.raises(CheckpointError, match=f"{size:,} bytes.*409,536"):
        load(prefix)


def test_one_wrong_bit_in_the_data_is_found_with_the_tensor(prefix):
    data = bytearray(Path(prefix + DATA_END).read_bytes())
    data[read_index(prefix + ".index")["model/h1/ln_2/g"].offset + 5] ^= 16
    Path(prefix + DATA_END).write_bytes(data)
    load(prefix)  # which reads nothing
    with pytest.raises(CheckpointError, match=r"'model/h1/ln_2/g'.*crc32c"):
        check_tensors(prefix)


def test_a_compressed_block_is_refused(prefix):
    block = writer.end_block(b"")
    footer = (writer.varint(0) * 3 + writer.varint(len(block))).ljust(40, b"\0") + Path(prefix + ".index").read_bytes()[
        -8:
    ]
    Path(prefix + ".index").write_bytes(writer.seal(block, compression=1) + footer)
    with pytest.raises(CheckpointError, match=r"block at 0 is compressed \(type 1"):
        read_index(prefix + ".index")


@pytest.mark.parametrize("offset, size", [(0, 1360), (2**63, 8), (1366, 0), (8, 2**64 - 1)])
def test_a_block_outside_the_file_is_refused(prefix, offset, size):
    footer = (writer.varint(0) * 2 + writer.varint(offset) + writer.varint(size)).ljust(40, b"\0")
    index = Path(prefix + ".index").read_bytes()
    Path(prefix + ".index").write_bytes(index[:-48] + footer + index[-8:])
    with pytest.raises(CheckpointError, match=r"a block is said to end at byte .*, outside the file"):
        read_index(prefix + ".index")


HEAD = (b"", writer.HEADER)
GOOD = (b"a", entry())


@pytest.mark.parametrize(
    "items, message",
    [
        ([GOOD], "no header"),
        ([], "no header"),
        ([(b"", writer.number(1, 2)), GOOD], "several data files"),
        ([(b"", writer.number(1, 1) + writer.number(2, 1)), GOOD], "big-endian"),
        ([HEAD, GOOD, GOOD], "'a' is there twice"),
        ([HEAD, (b"b", entry(offset=24)), GOOD], "'a' is there twice, or out of order"),
        ([HEAD, GOOD, (b"b", entry(offset=23))], "'a' and 'b' overlap"),
        ([HEAD, (b"a", entry(dtype=7))], "'a' is of type 7"),
        ([HEAD, (b"a", entry(dtype=14))], "type 14"),
        ([HEAD, (b"a", entry(dtype=19))], "float16.*24 bytes"),
        ([HEAD, (b"a", entry(size=23))], "23 bytes"),
        ([HEAD, (b"a", entry(shape=(0,)))], "0 bytes"),
        ([HEAD, (b"a", entry(shape=(1,) * 9))], "no usable shape"),
        ([HEAD, (b"a", entry(shape=(2**62, 2**62), size=24))], "24 bytes"),
        ([HEAD, (b"a", entry() + writer.number(3, 1))], "data file 1"),
        ([HEAD, (b"a", entry() + writer.text(7, b""))], "field 7"),
        ([HEAD, (b"a", entry() + writer.number(2, 1))], "field 2"),
        ([HEAD, (b"a", b"\x0b")], "wire type 3"),
        ([HEAD, (b"a", entry()[:-1])], "cut off"),
        ([HEAD, (b"a", b"\xff" * 11)], "more than 64 bits"),
        ([HEAD, (b"a" * 257, entry())], "name is too long"),
    ],
)
def test_what_is_wrong_with_an_index_is_said(prefix, items, message):
    index_of(prefix, items)
    with pytest.raises(CheckpointError, match=message) as error:
        read_index(prefix + ".index")
    assert "\n" not in str(error.value) and prefix in str(error.value)


# ---- A model's directory ----


@pytest.fixture
def models_dir(tmp_path):
    """A models directory with the micro model in the place of 124M."""
    (tmp_path / "124M").mkdir()
    for name, content in CONTENT.items():
        (tmp_path / "124M" / name).write_bytes(content)
    return tmp_path


def test_params_are_nested_as_in_picogpt(models_dir):
    encoder, hparams, params = load_encoder_hparams_and_params("124M", str(models_dir))
    tensors = load(PREFIX)
    assert hparams == HPARAMS and encoder.decode(encoder.encode("Once upon a time")) == "Once upon a time"
    assert sorted(params) == ["blocks", "ln_f", "wpe", "wte"] and len(params["blocks"]) == 3
    for name, tensor in tensors.items():
        branch, parts = params, name.split("/")[1:]
        if parts[0][1:].isdigit():
            branch = params["blocks"][int(parts.pop(0)[1:])]
        for part in parts:
            branch = branch[part]
        assert branch.ndim == (2 if parts[-1] in ("w", "wte", "wpe") else 1) and not branch.flags.owndata
        np.testing.assert_array_equal(branch, tensor.reshape(branch.shape))


@pytest.mark.parametrize("size", ["../../etc", "124m", "", "/etc", "124M\0"])
def test_unknown_sizes_are_refused_with_those_there_are(models_dir, size):
    with pytest.raises(ValueError, match=r"unknown model size.*draft, target, 124M, 355M, 774M, 1558M"):
        load_encoder_hparams_and_params(size, str(models_dir))


def test_the_bundled_pair_is_found_wherever_models_dir_points(models_dir, monkeypatch):
    (models_dir / "124M").rename(models_dir / "draft")
    monkeypatch.setattr(utils, "MODELS_DIR", str(models_dir))
    assert load_encoder_hparams_and_params("draft", "/nowhere")[1] == HPARAMS


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        *((name, content, " is missing or empty") for name in FILES if name != DATA for content in (None, b"")),
        (DATA, None, ", which should have 409,536 bytes, cannot be read: No such file"),
        (DATA, b"", " has 0 bytes, but its index describes 409,536"),
        (DATA, CONTENT[DATA][:-100], " has 409,436 bytes, but its index describes 409,536"),
    ],
)
def test_a_bundled_file_that_is_missing_or_too_short_is_named(models_dir, name, content, complaint):
    (models_dir / "124M").rename(models_dir / "target")
    path = models_dir / "target" / name
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(CheckpointError, match=f"target/{re.escape(name)}{complaint}"):
        load_encoder_hparams_and_params("target", str(models_dir))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"n_layer": 10**12}, "n_layer = 1000000000000"),
        ({"n_layer": 2**31 - 1}, "n_layer = 2147483647 but only 40 tensors"),
        ({"n_layer": 2}, "'model/h2/attn/c_attn/b' is unknown.* and 9 more"),
        ({"n_layer": 4}, "model/h3/ln_1/g is missing.* and 9 more"),
        ({"n_layer": True}, "n_layer = True"),
        ({"n_layer": 3.0}, "n_layer = 3.0"),
        ({"n_layer": 0}, "n_layer = 0"),
        ({"n_embd": -48}, "n_embd = -48"),
        ({"n_embd": 44}, r"model/wte is \[300, 48\], not \[300, 44\]"),
        ({"n_head": 5}, "n_head = 5 does not divide n_embd = 48"),
        ({"n_head": None}, "n_head = NoneType"),
        ({"n_ctx": "64"}, "n_ctx = str"),
        ({"n_ctx": 65}, r"model/wpe is \[64, 48\], not \[65, 48\]"),
        ({"n_vocab": 299}, r"model/wte is \[300, 48\], not \[299, 48\]"),
    ],
)
def test_wrong_hparams_are_named(models_dir, change, message):
    (models_dir / "124M" / "hparams.json").write_text(json.dumps(HPARAMS | change))
    with pytest.raises(CheckpointError, match=message) as error:
        load_encoder_hparams_and_params("124M", str(models_dir))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["{", "[]", "12", "\ufeff{}", "[" * 100_000, '{"n_layer": ' + "9" * 5000 + "}", "\0"])
def test_hparams_that_are_no_object_are_refused(models_dir, text):
    (models_dir / "124M" / "hparams.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"hparams\.json"):
        load_encoder_hparams_and_params("124M", str(models_dir))


def test_a_vocabulary_of_another_size_is_refused(models_dir):
    tokens = json.loads(CONTENT["encoder.json"])
    (models_dir / "124M" / "encoder.json").write_text(json.dumps(tokens | {"more": 300}))
    with pytest.raises(CheckpointError, match="n_vocab = 300 but 301 tokens"):
        load_encoder_hparams_and_params("124M", str(models_dir))


def test_all_numbers_are_checked_on_demand(models_dir):
    command = [sys.executable, "-m", "checkpoint", str(models_dir / "124M")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "all numbers match" in done.stdout
    (models_dir / "124M" / DATA).write_bytes(CONTENT[DATA][:-1] + b"x")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "'model/wte'" in done.stderr and "Traceback" not in done.stderr
