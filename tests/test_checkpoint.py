"""checkpoint/ and utils.py: a checkpoint that TensorFlow wrote, published checksums, damaged and hostile files."""

import json
import subprocess
import sys
from unittest.mock import Mock

import numpy as np
import pytest
from support import CONTENT, MICRO, ROOT

import utils
from checkpoint import crc32c as crc
from checkpoint.bundle import CheckpointError, load, read_index
from checkpoint.crc32c import crc32c
from checkpoint.download import DATA, FILES, INDEX, check
from checkpoint.writer import HEADER, block, finish, number, seal, table, text, varint, write_bundle
from checkpoint.writer import entry as write_entry
from encoder import VocabularyError
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


@pytest.fixture
def model_dir(tmp_path):
    """The micro model in the place of the bundled target, which is never downloaded."""
    (tmp_path / "target").mkdir()
    for name, content in CONTENT.items():
        (tmp_path / "target" / name).write_bytes(content)
    return tmp_path / "target"


def test_reads_what_tensorflow_wrote_into_the_params_of_picogpt(model_dir, monkeypatch):
    monkeypatch.setattr(utils, "MODELS_DIR", str(model_dir.parent))
    encoder, hparams, params = load_encoder_hparams_and_params("target", "/nowhere")  # the bundled pair is found anyway
    assert hparams == HPARAMS and encoder.decode(encoder.encode("Once upon a time")) == "Once upon a time"
    assert sorted(params) == ["blocks", "ln_f", "wpe", "wte"] and len(params["blocks"]) == 3
    w = params["blocks"][1]["mlp"]["c_fc"]["w"]
    assert w.shape == (48, 192) and w.dtype == np.float32
    assert not w.flags.writeable and not w.flags.owndata  # a view of the file


# ---- Damaged files ----


def entry(shape=(2, 3), dtype=1, offset=0, size=None):
    return write_entry(dtype, shape, offset, 4 * int(np.prod(shape)) if size is None else size, 0)


def index_with(value):
    """An index whose only tensor, "a", has this value."""
    return table([HEAD, (b"a", value)])


def hparams(**change):
    return json.dumps(HPARAMS | change).encode()


GOOD, HEAD, A, EMPTY = CONTENT[INDEX], (b"", HEADER), (b"a", entry()), block([])
AT_0 = (b"a", varint(0) + varint(len(EMPTY)))  # says that an empty block is at byte 0
TOKENS, PAIRS = CONTENT["encoder.json"], CONTENT["vocab.bpe"]
NOT_JSON = ("{", "[" * 100_000, '{"n_layer": ' + "9" * 5000 + "}", "\0")


@pytest.mark.parametrize(
    "name, content, message",
    [
        *((name, content, f"{name} is missing or empty") for name in FILES for content in (None, b"")),
        (DATA, CONTENT[DATA][:-1], f"{DATA} has 409,535 bytes, not 409,536; restore it, or .for OpenAI's"),
        (DATA, CONTENT[DATA] + b"x", f"{DATA} has 409,537 bytes, not 409,536"),
        ("encoder.json", TOKENS.replace(b'"a"', b'"\\u6f22"'), "token '漢', which has a character that stands for no"),
        ("encoder.json", TOKENS[:9], r"encoder\.json is damaged: Expecting property name"),
        ("encoder.json", b"[" * 100_000, r"encoder\.json is damaged: maximum recursion"),
        ("vocab.bpe", PAIRS + b"\xff", r"vocab\.bpe is damaged: 'utf-8' codec"),
        ("encoder.json", TOKENS.replace(b'"a"', b'"bb"'), "1 tokens are missing from encoder.json, such as 'a'"),
        ("encoder.json", b"[1, 2]", r"the vocabulary in \S+ is damaged: encoder\.json is not a JSON object that maps"),
        ("encoder.json", TOKENS.replace(b"256", b'"256"'), "not a JSON object that maps tokens to ids"),
        ("encoder.json", TOKENS.replace(b": 1,", b": true,"), "not a JSON object that maps tokens to ids"),
        ("encoder.json", TOKENS.replace(b"256", b"255"), "are not 0 to 299, each once"),
        ("encoder.json", TOKENS.replace(b'"a"', b'"b"'), "are not 0 to 298, each once"),
        ("encoder.json", TOKENS.replace(b"256", b"9" * 5000), "limit"),
        ("encoder.json", TOKENS[:-1] + b', "more": 300}', "n_vocab = 300, but encoder.json has 301"),
        ("vocab.bpe", PAIRS + b"a c\n", "1 tokens are missing from encoder.json, such as 'ac'"),
        ("vocab.bpe", PAIRS + b"a b c\n", "not a pair: 'a b c'"),
        ("vocab.bpe", PAIRS + b"a" * 9999, "not a pair: '" + "a" * 40 + "'"),
        ("vocab.bpe", PAIRS + b"! !", "ends within a line, '! !'"),
        ("vocab.bpe", b"#version: 0.2\n", "300 tokens, but vocab.bpe has 0 pairs; restore vocab.bpe"),
        ("hparams.json", b"\xef\xbb\xbf{}", "n_vocab = None; a whole number"),  # (a byte order mark may come first)
        *(("hparams.json", content, "not a JSON object with n_vocab, .*restore it") for content in (b"[]", b"12")),
        *(("hparams.json", content.encode(), "cannot be read, so restore it") for content in NOT_JSON),
        ("hparams.json", hparams(n_layer=10**12), "n_layer = 1000000000000; a whole number"),
        ("hparams.json", hparams(n_layer=2**31 - 1), "n_layer = 2147483647 but only 40 tensors"),
        ("hparams.json", hparams(n_layer=2), r"12 tensors .*h2/attn/c_attn/b': expected nothing, found \(144,\)"),
        ("hparams.json", hparams(n_layer=4), r"12 tensors .*h3/attn/c_attn/b': expected \(144,\), found nothing"),
        ("hparams.json", hparams(n_layer=True), "n_layer = True"),
        ("hparams.json", hparams(n_layer=0), "n_layer = 0"),
        ("hparams.json", hparams(n_vocab=44), r"1 tensors .*'model/wte': expected \(44, 48\), found \(300, 48\)"),
        ("hparams.json", hparams(n_head=5), "n_head = 5 does not divide n_embd = 48"),
        ("hparams.json", hparams(n_ctx="64" * 99), "n_ctx = '646464646464...4646464646464'; a whole number"),
        (INDEX, GOOD[-8:], "its 8 bytes are not a LevelDB table"),
        (INDEX, GOOD[:-1] + b"x", "are not a LevelDB table"),
        (INDEX, bytes([GOOD[0] ^ 1]) + GOOD[1:], "block at 0 does not match its crc32c"),
        (INDEX, finish(seal(EMPTY, compression=1), block([AT_0])), r"block at 0 is compressed \(type 1"),
        (INDEX, finish(b"", b"\1\0\0\0"), "shorter than its restart points"),
        (INDEX, finish(seal(EMPTY), block([AT_0, AT_0])), "block at 0 overlaps"),
        (INDEX, finish(b"", block([(b"a", varint(0) + varint(35))])), "to end at byte 40, outside the file"),
        (INDEX, table([]), "no header"),
        (INDEX, table([A]), "no header"),
        (INDEX, table([(b"", number(1, 2)), A]), "several data files"),
        (INDEX, table([(b"", number(1, 1) + number(2, 1)), A]), "big-endian"),
        (INDEX, table([HEAD, A, A]), "'a' is there twice"),
        (INDEX, table([HEAD, (b"b", entry(offset=24)), A]), "'a' is there twice, or out of order"),
        (INDEX, table([HEAD, A, (b"b", entry(offset=23))]), "'a' and 'b' overlap"),
        (INDEX, table([HEAD]), "no tensors"),
        (INDEX, table([HEAD, (b"a" * 257, entry())]), "name is too long"),
        (INDEX, finish(b"", varint(1) + varint(0) * 2 + EMPTY), "reaches outside its block"),
        (INDEX, finish(b"", varint(0) * 2 + varint(1) + EMPTY), "reaches outside its block"),
        (INDEX, index_with(entry(dtype=7)), "'a' is of type 7"),
        (INDEX, index_with(entry(size=23)), "23 bytes"),
        (INDEX, index_with(entry(shape=(0,))), "0 bytes"),
        (INDEX, index_with(entry(shape=(1,) * 9)), "shape of 'a' cannot be read"),
        (INDEX, index_with(entry() + text(2, number(3, 1))), "shape of 'a' cannot be read"),
        (INDEX, index_with(entry(shape=(2**62, 2**62), size=24)), "24 bytes"),
        (INDEX, index_with(entry() + number(3, 1)), "data file 1"),
        (INDEX, index_with(entry() + text(7, b"")), "field 7 of 'a' is of the wrong kind"),
        (INDEX, index_with(entry() + number(2, 1)), "field 2 of 'a' is of the wrong kind"),
        (INDEX, index_with(b"\x0b"), "wire type 3"),
        (INDEX, index_with(entry()[:-1]), "field 6 of 'a' is cut off"),
        (INDEX, index_with(entry() + b"\x20"), "number is cut off"),
        (INDEX, index_with(b"\xff" * 10 + b"\1"), "more than 10 groups"),
    ],
)
def test_what_is_wrong_with_a_directory_is_said_in_one_line(model_dir, name, content, message):
    path = model_dir / name
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises((CheckpointError, VocabularyError), match=message) as error:
        load_encoder_hparams_and_params("target", str(model_dir.parent))
    assert "\n" not in str(error.value) and str(model_dir) in str(error.value)


def test_python_m_checkpoint_finds_one_wrong_bit_and_names_its_tensor(model_dir):
    data = bytearray(CONTENT[DATA])
    data[read_index(MICRO / INDEX)["model/h1/ln_2/g"].offset + 5] ^= 16
    for content, code, complaint in ((CONTENT[DATA], 0, ""), (data, 2, "'model/h1/ln_2/g'")):
        (model_dir / DATA).write_bytes(content)
        done = subprocess.run([sys.executable, "-m", "checkpoint", model_dir], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == code and complaint in done.stderr and "Traceback" not in done.stderr
        assert ("all numbers match" in done.stdout) == ("100%" in done.stderr) == (code == 0)
