"""Write checkpoints that checkpoint/bundle.py can read.

Tensors are taken one at a time from an iterable, so a checkpoint may be larger than the memory.
"""

import json
import struct
from itertools import islice, product
from pathlib import Path

import numpy as np

from checkpoint.bundle import DTYPES, MAGIC
from checkpoint.crc32c import crc32c, mask
from encoder import EOT, bytes_to_unicode

NUMBER = {dtype: number for number, dtype in DTYPES.items()}


def write_bundle(prefix, tensors):
    """Write <prefix>.index and <prefix>.data-00000-of-00001.

    Parameters
    ----------
    prefix : str
    tensors : iterable of (str, ndarray)
        Names and float32 or float16 arrays. The data is written in this order.
    """
    entries, offset = {}, 0
    with open(f"{prefix}.data-00000-of-00001", "wb") as f:
        for name, tensor in tensors:
            tensor = np.asarray(tensor, order="C")
            f.write(tensor)
            entries[name.encode()] = entry(tensor.dtype, tensor.shape, offset, tensor.nbytes, mask(crc32c(tensor)))
            offset += tensor.nbytes
    Path(f"{prefix}.index").write_bytes(table([(b"", HEADER), *sorted(entries.items())]))


def vocabulary(n_vocab):
    """The files of a vocabulary for any text: all bytes, pairs of two bytes, and <|endoftext|> -> {name: bytes}."""
    chars = list(bytes_to_unicode().values())
    pairs = list(islice(product(chars, repeat=2), n_vocab - 257))
    tokens = [*chars, *map("".join, pairs), EOT]
    return {
        "encoder.json": json.dumps({token: id for id, token in enumerate(tokens)}).encode(),
        "vocab.bpe": "\n".join(["#version: 0.2", *map(" ".join, pairs), ""]).encode(),
    }


def entry(dtype, shape, offset, size, masked_crc):
    """A BundleEntryProto. The dtype may also be a number of types.proto."""
    dims = b"".join(text(2, number(1, n)) for n in shape)
    fields = number(1, NUMBER.get(dtype, dtype)) + text(2, dims) + number(4, offset) + number(5, size)
    return fields + varint(6 << 3 | 5) + struct.pack("<I", masked_crc)


def block(items):
    """Sorted (key, value) pairs -> the contents of a block. Each key is written in full."""
    pairs = [varint(0) + varint(len(key)) + varint(len(value)) + key + value for key, value in items]
    return b"".join(pairs) + struct.pack("<2I", 0, 1)  # one restart point, at 0


def table(items):
    """Sorted (key, value) pairs -> a LevelDB table. Each pair has a data block of its own."""
    file, handles = b"", []
    for key, value in items:
        contents = block([(key, value)])
        handles.append((key, varint(len(file)) + varint(len(contents))))
        file += seal(contents)
    return finish(file, block(handles))


def finish(file, index):
    """The data blocks as they are in the file, and the contents of the index block -> a LevelDB table."""
    handles = varint(len(file)) + varint(8)  # the metaindex, a block without items
    file += seal(block([]))
    handles += varint(len(file)) + varint(len(index))
    return file + seal(index) + handles.ljust(40, b"\0") + struct.pack("<Q", MAGIC)


def seal(contents, compression=0):
    """A block as it is in the file, followed by the number of its compression and by its checksum."""
    contents += bytes([compression])
    return contents + struct.pack("<I", mask(crc32c(contents)))


def varint(n):
    groups = [n >> shift & 127 for shift in range(0, max(n.bit_length(), 1), 7)]
    return bytes([group | 128 for group in groups[:-1]] + groups[-1:])


def number(field, n):
    return varint(field << 3) + varint(n)


def text(field, value):
    return varint(field << 3 | 2) + varint(len(value)) + value


HEADER = number(1, 1) + text(3, number(1, 1))  # BundleHeaderProto: one data file, version 1 of the format
