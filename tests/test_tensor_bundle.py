"""tensor_bundle against a checkpoint that TensorFlow wrote, against published checksums, and against hostile files."""

import os
import random
import shutil
import tracemalloc

import bundle_writer as writer
import numpy as np
import pytest

import tensor_bundle
from tensor_bundle import CheckpointError, crc32c, load, read_index, verify_tensors

MICRO = os.path.join(os.path.dirname(__file__), "fixtures", "micro", "model.ckpt")
DATA = ".data-00000-of-00001"


@pytest.fixture
def prefix(tmp_path):
    """A copy of the fixture, to be damaged."""
    for end in (".index", DATA):
        shutil.copy(MICRO + end, tmp_path / ("model.ckpt" + end))
    return str(tmp_path / "model.ckpt")


def write(path, data):
    if os.path.exists(path):
        os.remove(path)  # some file systems take milliseconds to overwrite a file
    with open(path, "wb") as f:
        f.write(data)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def index_of(prefix, items):
    """Write an index of these (key, value) pairs, with all checksums right."""
    write(prefix + ".index", writer.table(writer.blocks(items, 1 << 18)))


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
    monkeypatch.setattr(tensor_bundle, "PIECE", 500_000)  # else only large data would be cut
    data = np.random.default_rng(0).integers(0, 256, 1_300_000, dtype=np.uint8)
    for n in (1, 3, 4, 5, 6776, 6777, 6778, 6781, 13_070, 13_071, 60_000, 499_999, 500_000, 500_001, 1_300_000):
        expected = 0xFFFFFFFF
        for byte in data[:n].tobytes():
            expected = tensor_bundle.TABLE[(expected ^ byte) & 255] ^ (expected >> 8)
        assert crc32c(data[:n]) == expected ^ 0xFFFFFFFF, n


# ---- Reading what is right ----


def test_reads_what_tensorflow_wrote():
    tensors = load(MICRO)
    assert len(tensors) == 3 * 12 + 4
    assert tensors["model/wte"].shape == (300, 48) and tensors["model/wte"].dtype == np.float32
    assert tensors["model/h2/mlp/c_fc/w"].shape == (1, 48, 192)
    assert not any(tensor.flags.writeable for tensor in tensors.values())
    verify_tensors(MICRO)


def test_tensors_are_views_of_the_file(prefix):
    base = load(prefix)["model/wpe"]
    while base.base is not None and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)


@pytest.mark.parametrize("n, block_size", [(1, 1 << 18), (50, 1 << 18), (50, 100), (3000, 5000)])
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
    verify_tensors(prefix, on_bytes=done.append)
    assert sum(done) == os.path.getsize(prefix + DATA)


# ---- Refusing what is wrong ----


def test_a_missing_file_is_named(prefix):
    os.remove(prefix + DATA)
    with pytest.raises(CheckpointError, match=r"data-00000-of-00001.*No such file"):
        load(prefix)
    os.remove(prefix + ".index")
    with pytest.raises(CheckpointError, match=r"index.*No such file"):
        load(prefix)


@pytest.mark.parametrize("size", [0, 1, 409_535, 409_537])
def test_a_data_file_of_another_length_is_named_with_both(prefix, size):
    write(prefix + DATA, (read(prefix + DATA) + b"x")[:size])
    with pytest.raises(CheckpointError, match=f"{size:,} bytes.*409,536"):
        load(prefix)


def test_one_wrong_bit_in_the_data_is_found_with_the_tensor(prefix):
    data = bytearray(read(prefix + DATA))
    data[read_index(prefix + ".index")["model/h1/ln_2/g"].offset + 5] ^= 16
    write(prefix + DATA, data)
    load(prefix)  # which reads nothing
    with pytest.raises(CheckpointError, match=r"'model/h1/ln_2/g'.*crc32c"):
        verify_tensors(prefix)


def test_one_wrong_bit_in_a_block_is_found(prefix):
    index = bytearray(read(prefix + ".index"))
    index[700] ^= 1
    write(prefix + ".index", index)
    with pytest.raises(CheckpointError, match="block at 0 does not match its crc32c"):
        load(prefix)


def test_a_compressed_block_is_refused(prefix):
    block = writer.end_block(b"")
    footer = (writer.varint(0) * 3 + writer.varint(len(block))).ljust(40, b"\0") + read(prefix + ".index")[-8:]
    write(prefix + ".index", writer.seal(block, compression=1) + footer)
    with pytest.raises(CheckpointError, match="compressed"):
        read_index(prefix + ".index")


@pytest.mark.parametrize("offset, size", [(0, 1360), (2**63, 8), (1366, 0), (8, 2**64 - 1)])
def test_a_block_outside_the_file_is_refused(prefix, offset, size):
    footer = (writer.varint(0) * 2 + writer.varint(offset) + writer.varint(size)).ljust(40, b"\0")
    index = read(prefix + ".index")
    write(prefix + ".index", index[:-48] + footer + index[-8:])
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


def test_offset_beyond_the_data_is_refused(prefix):
    index_of(prefix, [HEAD, (b"a", entry(offset=2**63))])
    with pytest.raises(CheckpointError, match="its index describes 9,223,372,036,854,775,832"):
        load(prefix)


def test_memory_follows_the_file_and_not_the_numbers_in_it(prefix):
    deep = [HEAD] + [(b"%06d" % i, entry(offset=24 * i)) for i in range(3000)]
    [(last, block)] = writer.blocks(deep, 1 << 30)
    shared = b"\0\xff\x01\0" + b"n" * 255 + b"\xff\x01\x01\0n" * 50_000  # each name as long as can be
    bombs = [
        writer.table([(last, block)] * 3),
        writer.table([(b"", writer.end_block(shared))]),
        writer.table([(b"", b"\0\xff\xff\xff\xff\x0f\xff\xff\xff\xff\x0f" + writer.end_block(b""))]),
        writer.table([(b"", writer.end_block(b"")[:-4] + b"\xff" * 4)]),
    ]
    data, handle = writer.seal(block), writer.varint(0) + writer.varint(len(block))
    [(_, index)] = writer.blocks([(b"%06d" % i, handle) for i in range(10_000)], 1 << 30)
    footer = writer.varint(0) * 2 + writer.varint(len(data)) + writer.varint(len(index))
    bombs.append(data + writer.seal(index) + footer.ljust(40, b"\0") + bombs[0][-8:])
    for bomb in bombs:
        write(prefix + ".index", bomb)
        tracemalloc.start()
        with pytest.raises(CheckpointError):
            load(prefix)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 200 * len(bomb) + 1e6


def mutate(data, rng):
    """A few bytes changed, cut out, repeated, or replaced by numbers that are as large as can be."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        i, n = rng.randrange(len(data) + 1), rng.choice((1, 2, 4, 10, rng.randrange(len(data) + 1)))
        kind = rng.randrange(6)
        if kind == 0 and i < len(data):
            data[i] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[i:]
        elif kind == 2:
            del data[i : i + n]
        elif kind == 3:
            j = rng.randrange(len(data) + 1)
            data[i : i + rng.choice((0, n))] = data[j : j + n]
        elif kind == 4:
            data[i : i + n] = b"\xff" * n
        else:
            data[i : i + 1] = writer.varint(rng.choice((0, 1, 127, 2**31, 2**32 - 1, 2**63, 2**64 - 1, 2**70 - 1)))
    return bytes(data)


def test_a_mutated_index_is_an_error_or_a_checkpoint(prefix):
    rng, refused = random.Random(0), 0
    original = read(prefix + ".index")
    items = [(name.encode(), writer.entry(*e)) for name, e in read_index(prefix + ".index").items()]
    blocks = writer.blocks([HEAD, *items], 400)
    assert len(blocks) > 2
    for i in range(12_000):
        mutant = mutate(original, rng)
        if i % 3 == 1:  # only a block, its checksum made right again: checksums would find everything else
            j = rng.randrange(len(blocks))
            mutant = writer.table([*blocks[:j], (blocks[j][0], mutate(blocks[j][1], rng)), *blocks[j + 1 :]])
        elif i % 3 == 2:  # only an entry
            (one, value), other = sorted(rng.sample(items, 2))
            mutant = writer.table(writer.blocks([HEAD, (one, mutate(value, rng)), other], 1 << 18))
        write(prefix + ".index", mutant)
        try:
            tensors = load(prefix)
            for tensor in rng.sample(sorted(tensors.items()), min(3, len(tensors))):
                tensor[1].sum()
        except CheckpointError as error:
            refused += 1
            assert "\n" not in str(error)
    assert 6000 < refused < 12_000
