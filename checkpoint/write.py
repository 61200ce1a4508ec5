"""Write a model in OpenAI's format, as openai.py reads it.

Tensors are taken one at a time from an iterable, so a model may be larger than the memory.
"""

import json
import struct
import tempfile
from itertools import islice, product
from pathlib import Path

import numpy as np

from checkpoint.crc32c import crc32c, mask
from checkpoint.openai import DATA, DTYPES, EOT, INDEX, MAGIC
from encoder import BYTES

NUMBER = {np.dtype(dtype): number for number, dtype in DTYPES.items()}


def write_checkpoint(folder, hparams, tensors):
    """Write hparams.json, model.ckpt.index and model.ckpt.data-00000-of-00001.

    They replace older ones when all of them are written, so tensors may be views of those.

    Parameters
    ----------
    folder : str, created if it does not exist
    hparams : dict of str to int
    tensors : iterable of (str, ndarray)
        Names, and float32 or float16 arrays. The data is written in this order.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as fresh:
        fresh = Path(fresh)
        (fresh / "hparams.json").write_text(json.dumps(hparams))
        entries = write_data(fresh / DATA, tensors)
        header = number(1, 1) + message(3, number(1, 1))  # BundleHeaderProto: one file, version 1
        (fresh / INDEX).write_bytes(table([(b"", header), *sorted(entries.items())]))
        for path in [*fresh.iterdir()]:
            path.replace(folder / path.name)


def write_data(path, tensors):
    """The tensors in sequence -> {name: BundleEntryProto}"""
    entries = {}
    with open(path, "wb") as f:
        for name, tensor in tensors:
            tensor = np.asarray(tensor, order="C")
            entries[name.encode()] = entry_of(tensor, offset=f.tell())
            f.write(tensor)
    return entries


def entry_of(tensor, offset):
    """The BundleEntryProto of a tensor, see openai.py."""
    dims = b"".join(message(2, number(1, n)) for n in tensor.shape)
    entry = number(1, NUMBER[tensor.dtype]) + message(2, dims)
    entry += number(4, offset) + number(5, tensor.nbytes)
    return entry + varint(6 << 3 | 5) + struct.pack("<I", mask(crc32c(tensor)))


def write_vocabulary(folder, n_vocab):
    """Write a vocabulary for any text: all bytes, pairs of two bytes, and <|endoftext|>."""
    pairs = [*islice(product(BYTES.values(), repeat=2), n_vocab - 257)]
    tokens = [*BYTES.values(), *map("".join, pairs), EOT]
    ids = {token: id for id, token in enumerate(tokens)}
    Path(folder, "encoder.json").write_text(json.dumps(ids))
    lines = ["#version: 0.2", *map(" ".join, pairs), ""]
    Path(folder, "vocab.bpe").write_text("\n".join(lines), encoding="utf-8", newline="")


def table(items):
    """Sorted (key, value) pairs -> a LevelDB table with one data block."""
    data = seal(block(items))
    metaindex = seal(block([]))
    index = seal(block([(items[-1][0], handle(0, data))]))
    file = data + metaindex + index
    footer = handle(len(data), metaindex) + handle(len(data + metaindex), index)
    return file + footer.ljust(40, b"\0") + struct.pack("<Q", MAGIC)


def handle(offset, sealed):
    """Where a block is, and how long without its seal."""
    return varint(offset) + varint(len(sealed) - 5)


def block(items):
    """Sorted (key, value) pairs -> the contents of a block. Each key is written in full."""
    pairs = b""
    for key, value in items:
        lengths = varint(0) + varint(len(key)) + varint(len(value))
        pairs += lengths + key + value
    return pairs + struct.pack("<2I", 0, 1)  # one restart point, at 0


def seal(contents):
    """A block as it is in the file: not compressed, and followed by its checksum."""
    contents += b"\0"
    return contents + struct.pack("<I", mask(crc32c(contents)))


def varint(n):
    found = b""
    while n > 127:
        found += bytes([n & 127 | 128])
        n >>= 7
    return found + bytes([n])


def number(field, n):
    return varint(field << 3) + varint(n)


def message(field, value):
    return varint(field << 3 | 2) + varint(len(value)) + value
