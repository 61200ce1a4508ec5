"""Read TensorFlow's checkpoint files without TensorFlow. OpenAI released GPT-2 in this format.

Two files of a checkpoint matter here. `<prefix>.data-00000-of-00001` holds the numbers of all tensors in sequence,
little-endian. It is memory-mapped here, so opening 6 GB takes no time and no memory. `<prefix>.index` says where each
tensor is. The index is a sorted table from names to protocol buffers, in LevelDB's file format:

    data block, ..., metaindex block, index block, footer

The footer (48 bytes) says where the index block is. The index block says where the data blocks are. The data blocks
hold one entry per tensor: type, shape, offset, size, crc32c.

Sources: TensorFlow's tensor_bundle.proto, tensor_shape.proto and types.proto; LevelDB's doc/table_format.md, and
its util/crc32c.h for the masked crc32c. A file may come from anybody, so each value is checked before it is used.
Anything wrong raises a CheckpointError.
"""

from itertools import pairwise
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np

from checkpoint.crc32c import crc32c, mask
from errors import UserError

FOOTER = 48  # bytes
MAGIC = 0xDB4775248B80FB57  # the last 8 bytes of every LevelDB table
DTYPES = {1: np.dtype("<f4"), 19: np.dtype("<f2")}  # DT_FLOAT, DT_HALF of types.proto
MAX_NAME = 256  # bytes; names share prefixes, so without a limit n bytes of file could spell n^2 bytes of names
MAX_DIMS = 8
ADVICE = "restore it, or (for OpenAI's models) remove it to download it again"


class CheckpointError(UserError):
    """The files of a checkpoint are incomplete or damaged, or they contradict each other."""


class Entry(NamedTuple):
    """The description of one tensor in the index."""

    dtype: np.dtype
    shape: tuple
    offset: int  # bytes, in the data file
    size: int  # bytes
    crc32c: int  # of these bytes, masked


def load(prefix, data_path=None):
    """Open a checkpoint.

    Parameters
    ----------
    prefix : str
        The path without `.index`, such as "models/124M/model.ckpt".
    data_path : str, optional
        The data file, if its name is not `<prefix>.data-00000-of-00001` (yet).

    Returns
    -------
    dict of str to ndarray
        Read-only float32 or float16 views of the memory-mapped file. The disk is read when the numbers are used.

    Raises
    ------
    CheckpointError
        If the index is damaged, or if the data file does not have the length that the index describes.
    OSError
        If a file cannot be read.
    """
    entries = read_index(prefix + ".index")
    data_path = data_path or prefix + ".data-00000-of-00001"
    expected = max(e.offset + e.size for e in entries.values())
    found = Path(data_path).stat().st_size
    if found != expected:
        raise CheckpointError(f"{data_path} has {found:,} bytes, not {expected:,}; {ADVICE}")
    data = np.asarray(np.memmap(data_path, np.uint8, "r"))
    return {name: data[e.offset :][: e.size].view(e.dtype).reshape(e.shape) for name, e in entries.items()}


def read_index(path):
    """Read a checkpoint's `.index` file -> {name: Entry}.

    Raises CheckpointError if anything does not follow the format, or if tensors overlap, and OSError if the file cannot
    be read.
    """
    try:
        return _read_table(Path(path).read_bytes())
    except CheckpointError as error:
        raise CheckpointError(f"{path} cannot be used: {error}; {ADVICE}") from None


# ---- The table: LevelDB's format ----


def _read_table(table):
    """The bytes of an index file -> {name: Entry}."""
    if len(table) < FOOTER or int.from_bytes(table[-8:], "little") != MAGIC:
        raise CheckpointError(f"its {len(table):,} bytes are not a LevelDB table")
    # The footer: offset and size of the metaindex block (which TensorFlow leaves empty), then those of the index block
    (_, _, offset, size), _ = _varints(table[-FOOTER:], 0, 4)
    items, end = [], 0
    for _, handle in _items(_block(table, offset, size)):
        (offset, size), _ = _varints(handle, 0, 2)
        if offset < end:  # otherwise a small file could make us read one block a million times
            raise CheckpointError(f"the block at {offset:,} overlaps the one before it")
        items += _items(_block(table, offset, size))
        end = offset + size

    if not items or items[0][0] != "":
        raise CheckpointError("it has no header")
    # BundleHeaderProto: 1 num_shards, 2 endianness, 3 version
    header = dict(_fields(items[0][1], "the header", texts=(3,)))
    if header.get(1, 1) != 1 or header.get(2, 0) != 0:
        raise CheckpointError("its tensors are in several data files or big-endian, and neither can be read here")

    for (before, _), (name, _) in pairwise(items):
        if name <= before:
            raise CheckpointError(f"tensor {name!r} is there twice, or out of order")
    entries = {name: _entry(name, value) for name, value in items[1:]}
    if not entries:
        raise CheckpointError("it has no tensors")
    for (one, a), (other, b) in pairwise(sorted(entries.items(), key=lambda item: item[1].offset)):
        if a.offset + a.size > b.offset:
            raise CheckpointError(f"tensors {one!r} and {other!r} overlap")
    return entries


def _block(table, offset, size):
    """The contents of one block, checked. After the block come its compression (1 byte) and its masked crc32c (4)."""
    end = offset + size
    if end + 5 > len(table) - FOOTER:
        raise CheckpointError(f"a block is said to end at byte {end + 5:,}, outside the file")
    if mask(crc32c(table[offset : end + 1])) != int.from_bytes(table[end + 1 : end + 5], "little"):
        raise CheckpointError(f"the block at {offset:,} does not match its crc32c")
    if table[end] != 0:
        raise CheckpointError(f"the block at {offset:,} is compressed (type {table[end]}), which cannot be read here")
    return table[offset:end]


def _items(block):
    """The (key, value) pairs of a block, as (str, bytes).

    A key is stored as its difference from the key before. Each pair consists of three lengths (the prefix that both
    keys share, the rest of the key, the value), then the rest of the key, then the value. The block ends with restart
    points, which are for binary search, and their number, each in 4 bytes.
    """
    end = len(block) - 4 - 4 * int.from_bytes(block[-4:], "little")
    if end < 0:
        raise CheckpointError("a block is shorter than its restart points")
    items, key, position = [], b"", 0
    while position < end:
        (shared, unshared, n_value), position = _varints(block, position, 3)
        if shared > len(key) or shared + unshared > MAX_NAME or position + unshared + n_value > end:
            raise CheckpointError("an entry reaches outside its block, or its name is too long")
        key = key[:shared] + block[position : position + unshared]
        position += unshared + n_value
        items.append((key.decode("latin-1"), block[position - n_value : position]))  # any bytes are valid Latin-1
    return items


# ---- The values: protocol buffers ----


def _varints(data, position, count):
    """Read `count` numbers -> (list of int, position after them).

    A number is stored in groups of 7 bits, the lowest group first. Bit 7 is set in all groups but the last.
    """
    numbers, number, shift = [], 0, 0
    while len(numbers) < count:
        if position >= len(data) or shift == 70:  # 10 groups hold any number of 64 bits
            raise CheckpointError("a number is cut off, or has more than 10 groups of 7 bits")
        number |= (data[position] & 127) << shift
        shift += 7
        if data[position] < 128:
            numbers.append(number)
            number = shift = 0
        position += 1
    return numbers, position


def _fields(message, name, texts=()):
    """The (field number, value) pairs of a protocol buffer. Fields in texts are bytes, and all others are ints.

    The name says in error messages whose buffer this is.
    """
    position = 0
    while position < len(message):
        (tag,), position = _varints(message, position, 1)
        field, kind = tag >> 3, tag & 7
        if (kind == 2) != (field in texts):
            raise CheckpointError(f"field {field} of {name!r} is of the wrong kind")
        if kind == 0:
            (value,), position = _varints(message, position, 1)
        elif kind == 2:  # a length, then as many bytes
            (length,), position = _varints(message, position, 1)
            value, position = message[position : position + length], position + length
        elif kind == 5:  # four bytes
            value, position = int.from_bytes(message[position : position + 4], "little"), position + 4
        else:
            raise CheckpointError(f"field {field} of {name!r} is of the unknown wire type {kind}")
        if position > len(message):
            raise CheckpointError(f"field {field} of {name!r} is cut off")
        yield field, value


def _entry(name, value):
    """A BundleEntryProto (1 dtype, 2 shape, 3 shard_id, 4 offset, 5 size, 6 crc32c) -> Entry. 7, slices, is refused."""
    fields = dict(_fields(value, name, texts=(2,)))
    dims = list(_fields(fields.get(2, b""), name, texts=(2,)))  # TensorShapeProto: 2 dim, repeated (1 size, 2 name)
    if len(dims) > MAX_DIMS or any(field != 2 for field, _ in dims):
        raise CheckpointError(f"the shape of {name!r} cannot be read")
    shape = tuple(dict(_fields(dim, name, texts=(2,))).get(1, 0) for _, dim in dims)
    if fields.get(1) not in DTYPES:
        raise CheckpointError(f"{name!r} is of type {fields.get(1)}; only DT_FLOAT (1) and DT_HALF (19) can be read")
    if fields.get(3, 0) != 0:
        raise CheckpointError(f"{name!r} is said to be in data file {fields[3]}, but there is only one")
    dtype, size = DTYPES[fields[1]], fields.get(5, 0)
    if prod(shape) * dtype.itemsize != size or size == 0:
        raise CheckpointError(f"{name!r} is {list(shape)} of {dtype}, which does not make {size:,} bytes")
    return Entry(dtype, shape, fields.get(4, 0), size, fields.get(6, 0))
