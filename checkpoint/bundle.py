"""Read TensorFlow's checkpoint files without TensorFlow. OpenAI released GPT-2 in this format.

`<prefix>.data-00000-of-00001` holds the numbers of all tensors in sequence, little-endian.
It is memory-mapped here, so opening 6 GB takes no time and no memory. `<prefix>.index`
says where each tensor is: a sorted table from names to protocol buffers, in LevelDB's
file format.

    data block, ..., metaindex block, index block, footer

The footer (48 bytes) says where the index block is, and that says where the data blocks
are. They hold one entry per tensor: type, shape, offset, size, crc32c. Each block ends
with a checksum. It is compared before anything else is read, so what damage remains is
in files that somebody made, and whatever they make the parser raise becomes one line.

Sources: TensorFlow's tensor_bundle.proto, tensor_shape.proto and types.proto; LevelDB's
doc/table_format.md, and its util/crc32c.h for the masked crc32c.
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
ADVICE = "restore it, or remove it to download it again"


class Entry(NamedTuple):
    """The description of one tensor in the index."""

    dtype: np.dtype
    shape: tuple
    offset: int  # bytes, in the data file
    size: int  # bytes
    crc32c: int  # of these bytes, masked


def load(prefix, data_path=None):
    """Open the checkpoint <prefix>.index -> {name: array}, read-only views of the memory-mapped data.

    data_path is the data file, if it does not have its usual name yet. UserError names a
    file that is damaged or does not fit the other one.
    """
    entries = read_index(prefix + ".index")
    data_path = data_path or prefix + ".data-00000-of-00001"
    expected = max(e.offset + e.size for e in entries.values())
    found = Path(data_path).stat().st_size
    if found != expected:
        raise UserError(f"{data_path} has {found:,} bytes, not {expected:,}; {ADVICE}")
    data = np.asarray(np.memmap(data_path, np.uint8, "r"))
    return {name: data[e.offset :][: e.size].view(e.dtype).reshape(e.shape) for name, e in entries.items()}


def read_index(path):
    """Read an `.index` file -> {name: Entry}. Tensors do not overlap."""
    table = Path(path).read_bytes()
    try:
        return read_table(table)
    except (ValueError, IndexError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be used: {error or 'it is damaged'}; {ADVICE}") from None


def read_table(table):
    """The bytes of an index file -> {name: Entry}."""
    if int.from_bytes(table[-8:], "little") != MAGIC:
        raise ValueError(f"its {len(table):,} bytes are not a LevelDB table")
    handles = varints(table[-FOOTER:], 0, 4)[0][2:]  # the first two are those of the metaindex, which is empty
    items, end = [], 0
    for _, handle in items_of(block(table, *handles)):
        offset, size = varints(handle, 0, 2)[0]
        if offset < end:  # or else a small file could make us read one block a million times
            raise ValueError("blocks overlap")
        items += items_of(block(table, offset, size))
        end = offset + size
    (name, header), *items = items
    header = fields(header)  # BundleHeaderProto: 1 num_shards, 2 endianness
    if name or header.get(1, [1]) != [1] or header.get(2, [0]) != [0]:
        raise ValueError("its tensors are not in one little-endian file")
    entries = {name: entry_of(value) for name, value in items}
    if not entries or len(entries) < len(items):
        raise ValueError("it has no tensors, or one of them twice")
    for a, b in pairwise(sorted(entries.values(), key=lambda entry: entry.offset)):
        if a.offset + a.size > b.offset:
            raise ValueError("tensors overlap")
    return entries


def block(table, offset, size):
    """The contents of a block. After it come its compression (1 byte) and its masked crc32c (4)."""
    end = offset + size
    if end + 5 > len(table) or mask(crc32c(table[offset : end + 1])) != int.from_bytes(
        table[end + 1 : end + 5], "little"
    ):
        raise ValueError(f"the block at {offset:,} does not match its crc32c")
    if table[end] != 0:
        raise ValueError("it is compressed, which cannot be read here")
    return table[offset:end]


def items_of(block):
    """The (key, value) pairs of a block, as (str, bytes).

    A key is stored as its difference from the key before: the length of the prefix that
    both share, the length of the rest, the length of the value, the rest, the value. The
    block ends with restart points, which are for binary search, and their number.
    """
    end = len(block) - 4 - 4 * int.from_bytes(block[-4:], "little")
    items, key, position = [], b"", 0
    while position < end:
        (shared, unshared, n_value), position = varints(block, position, 3)
        key = key[:shared] + block[position : position + unshared]
        position += unshared + n_value
        if position > end or len(key) > 256:  # names could otherwise grow with the square of the file
            raise ValueError("an entry reaches outside its block, or has a long name")
        items.append((key.decode("latin-1"), block[position - n_value : position]))
    return items


def varints(data, position, count):
    """Read numbers, stored in groups of 7 bits, the lowest first, with bit 7 set in all but the last -> numbers, end"""
    numbers = []
    for _ in range(count):
        number = shift = 0
        while data[position] & 128 and shift < 63:
            number |= (data[position] & 127) << shift
            position, shift = position + 1, shift + 7
        numbers.append(number | data[position] << shift)
        position += 1
    return numbers, position


def fields(message):
    """A protocol buffer -> {field number: [its values]}, ints or bytes."""
    found, position = {}, 0
    while position < len(message):
        (tag,), position = varints(message, position, 1)
        if tag & 7 == 5:  # four bytes
            value, position = int.from_bytes(message[position : position + 4], "little"), position + 4
        else:
            (value,), position = varints(message, position, 1)
            if tag & 7 == 2:  # a length, then as many bytes
                value, position = message[position : position + value], position + value
            elif tag & 7 != 0:
                raise ValueError(f"a field has the unknown wire type {tag & 7}")
        found.setdefault(tag >> 3, []).append(value)
    if position > len(message):
        raise ValueError("a field is cut off")
    return found


def entry_of(value):
    """A BundleEntryProto (1 dtype, 2 shape, 3 shard_id, 4 offset, 5 size, 6 crc32c) -> Entry"""
    found = fields(value)
    if found.keys() - {1, 2, 4, 5, 6} and found.get(3) != [0]:
        raise ValueError("a tensor is in slices or in another file, which cannot be read here")
    [dtype], [size] = found[1], found[5]
    dims = fields(found.get(2, [b""])[0]).get(2, [])  # TensorShapeProto: 2 dim, which has 1 size
    shape = tuple(fields(dim).get(1, [0])[0] for dim in dims)
    if dtype not in DTYPES or len(shape) > 8 or prod(shape) * DTYPES[dtype].itemsize != size or size == 0:
        raise ValueError(f"a tensor of type {dtype} and shape {shape} in {size} bytes cannot be read here")
    return Entry(DTYPES[dtype], shape, found.get(4, [0])[0], size, found.get(6, [0])[0])
