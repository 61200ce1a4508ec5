"""Write a model in OpenAI's format, as openai.py reads it.

Tensors are taken one at a time from an iterable, so a model may be larger than the memory.
"""

import json
import struct
from itertools import islice, product
from pathlib import Path

import numpy as np

from checkpoint.crc32c import crc32c, mask
from checkpoint.openai import BYTES, DATA, DTYPES, EOT, INDEX, MAGIC

NUMBER = {np.dtype(dtype): number for number, dtype in DTYPES.items()}


def write_checkpoint(folder, hparams, tensors):
    """Write hparams.json, model.ckpt.index and model.ckpt.data-00000-of-00001.

    Parameters
    ----------
    folder : str, created if it does not exist
    hparams : dict of str to int
    tensors : iterable of (str, ndarray)
        Names, and float32 or float16 arrays. The data is written in this order.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hparams.json").write_text(json.dumps(hparams))
    entries, offset = {}, 0
    with open(folder / DATA, "wb") as f:
        for name, tensor in tensors:
            tensor = np.asarray(tensor, order="C")
            f.write(tensor)
            dims = b"".join(message(2, number(1, n)) for n in tensor.shape)
            entry = number(1, NUMBER[tensor.dtype]) + message(2, dims)
            entry += number(4, offset) + number(5, tensor.nbytes)
            entry += varint(6 << 3 | 5) + struct.pack("<I", mask(crc32c(tensor)))
            entries[name.encode()] = entry
            offset += tensor.nbytes
    header = number(1, 1) + message(3, number(1, 1))  # BundleHeaderProto: one data file, version 1
    (folder / INDEX).write_bytes(table([(b"", header), *sorted(entries.items())]))


def write_vocabulary(folder, n_vocab):
    """Write a vocabulary for any text: all bytes, pairs of two bytes, and <|endoftext|>."""
    pairs = list(islice(product(BYTES.values(), repeat=2), n_vocab - 257))
    tokens = [*BYTES.values(), *map("".join, pairs), EOT]
    ids = {token: id for id, token in enumerate(tokens)}
    Path(folder, "encoder.json").write_text(json.dumps(ids))
    text = "\n".join(["#version: 0.2", *map(" ".join, pairs), ""])
    Path(folder, "vocab.bpe").write_text(text, encoding="utf-8", newline="")


def table(items):
    """Sorted (key, value) pairs -> a LevelDB table with one data block."""
    file, handles = b"", []
    for contents in block(items), block([]):  # the second is the metaindex
        handles.append(varint(len(file)) + varint(len(contents)))
        file += seal(contents)
    index = block([(items[-1][0], handles[0])])
    footer = handles[1] + varint(len(file)) + varint(len(index))
    return file + seal(index) + footer.ljust(40, b"\0") + struct.pack("<Q", MAGIC)


def block(items):
    """Sorted (key, value) pairs -> the contents of a block. Each key is written in full."""
    pairs = b""
    for key, value in items:
        pairs += varint(0) + varint(len(key)) + varint(len(value)) + key + value
    return pairs + struct.pack("<2I", 0, 1)  # one restart point, at 0


def seal(contents):
    """A block as it is in the file: not compressed, and followed by its checksum."""
    contents += b"\0"
    return contents + struct.pack("<I", mask(crc32c(contents)))


def varint(n):
    groups = [n >> shift & 127 for shift in range(0, max(n.bit_length(), 1), 7)]
    return bytes([group | 128 for group in groups[:-1]] + groups[-1:])


def number(field, n):
    return varint(field << 3) + varint(n)


def message(field, value):
    return varint(field << 3 | 2) + varint(len(value)) + value
