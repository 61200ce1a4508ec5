"""Read TensorFlow's checkpoint files without TensorFlow. OpenAI released GPT-2 in this format.

`model.ckpt.data-00000-of-00001` holds the numbers of all tensors in sequence,
little-endian. It is memory-mapped here, so opening 6 GB takes no memory.
`model.ckpt.index` says where each tensor is: a sorted table from names to protocol
buffers, in LevelDB's file format.

    data block, ..., metaindex block, index block, footer

The footer (48 bytes) says where the index block is, and that says where the data blocks
are. They hold one entry per tensor: type, shape, offset, size, crc32c. Each block ends
with a checksum of its own, so damage is found before anything is believed.

Sources: TensorFlow's tensor_bundle.proto, tensor_shape.proto and types.proto; LevelDB's
doc/table_format.md, and its util/crc32c.h for the masked crc32c.
"""

import json
import re
from io import BytesIO
from typing import NamedTuple

import numpy as np

from checkpoint.crc32c import crc32c, mask

INDEX, DATA = "model.ckpt.index", "model.ckpt.data-00000-of-00001"  # or model-1000.index, ... see `weights`
FILES = ("encoder.json", "vocab.bpe", "hparams.json", INDEX, DATA)
MAGIC = 0xDB4775248B80FB57  # the last 8 bytes of every LevelDB table
DTYPES = {1: "<f4", 19: "<f2"}  # DT_FLOAT, DT_HALF of types.proto
EOT = "<|endoftext|>"
PLAIN = [*range(33, 127), *range(161, 173), *range(174, 256)]  # bytes that are written as their Latin-1 characters
OTHERS = [byte for byte in range(256) if byte not in PLAIN]  # the others are written as U+0100, ...
BYTES = {byte: chr(byte) for byte in PLAIN} | {byte: chr(256 + i) for i, byte in enumerate(OTHERS)}  # in order of ids


class Entry(NamedTuple):
    """The description of one tensor."""

    dtype: str
    shape: tuple
    offset: int  # bytes, in the data
    size: int  # bytes
    crc32c: int = 0  # of these bytes, masked


def read_json(path):
    """A JSON file -> dict."""
    try:
        if type(found := json.loads(path.read_text(encoding="utf-8"))) is dict:
            return found
        raise ValueError("it holds no names")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} is damaged: {error}") from None


def hparams(folder):
    return read_json(folder / "hparams.json")


def tokenizer(folder):
    """What `encoder.Encoder` needs. The ids follow from the merges: bytes, pairs, <|endoftext|>. So compare them."""
    ids = read_json(folder / "encoder.json")
    lines = (folder / "vocab.bpe").read_text(encoding="utf-8").split("\n")[1:]
    merges = [tuple(line.split(" ")) for line in lines if line]
    tokens = [*BYTES.values(), *map("".join, merges), EOT]
    if ids != {token: id for id, token in enumerate(tokens)} or {len(pair) for pair in merges} - {2}:
        raise ValueError("encoder.json or vocab.bpe is damaged: one does not follow from the other")
    return {"merges": merges, "ids": ids, "eos": ids[EOT]}


def tensors(folder, data=None):
    """{name: array}, read-only views of the memory-mapped data. ValueError names a tensor that is damaged."""
    index, usual = weights(folder)
    entries = read_index(index)
    found = views(np.asarray(np.memmap(data or usual, np.uint8, "r")), entries)
    for name, tensor in found.items():
        if mask(crc32c(tensor)) != entries[name].crc32c:
            raise ValueError(f"{usual.name} is damaged: {name!r} does not match its crc32c")
    return found


def weights(folder):
    """The index and the data. A trainer may have named them by its steps, which the file `checkpoint` tells."""
    name = "model.ckpt"
    if (listed := folder / "checkpoint").exists():
        text = listed.read_text(encoding="utf-8-sig", errors="replace")
        if not (found := re.search(r"""^\s*model_checkpoint_path\s*:\s*["'](.+)["']""", text, re.MULTILINE)):
            raise ValueError("the file checkpoint has no model_checkpoint_path")
        name = re.split(r"[/\\]", found[1])[-1]
    return folder / INDEX.replace("model.ckpt", name), folder / DATA.replace("model.ckpt", name)


def views(data, entries):
    """uint8 [n], {name: Entry} -> {name: array}. ValueError unless the tensors fill the data, one after the other."""
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1][2:4]):
        if entry.offset != end or entry.size < 0:
            raise ValueError(f"{name!r} begins at byte {entry.offset:,}, where {end:,} was expected")
        end += entry.size
    if end != len(data):
        raise ValueError(f"the weights have {len(data):,} bytes, not {end:,}")
    return {name: data[e.offset :][: e.size].view(e.dtype).reshape(e.shape) for name, e in entries.items()}


def read_index(path):
    """An index file -> {name: Entry}."""
    try:
        table = path.read_bytes()
        if int.from_bytes(table[-8:], "little") != MAGIC:
            raise ValueError("it is not a LevelDB table")
        footer = BytesIO(table[-48:])
        _, _, *place = (varint(footer) for _ in range(4))  # the first two are those of the metaindex, which is empty
        items = []
        for _, handle in items_of(block(table, *place)):
            handle = BytesIO(handle)
            items += items_of(block(table, varint(handle), varint(handle)))
        header = fields(items[0][1])  # BundleHeaderProto: 1 num_shards, 2 endianness
        if header.get(1) != [1] or header.get(2, [0]) != [0]:
            raise ValueError("its tensors are not in one little-endian file")
        return {name: entry_of(value) for name, value in items[1:]}
    except (ValueError, KeyError, IndexError, TypeError, OverflowError) as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from None


def block(table, offset, size):
    """The contents of a block. After it come its compression (1 byte) and its masked crc32c (4)."""
    end = offset + size
    if mask(crc32c(table[offset : end + 1])) != int.from_bytes(table[end + 1 : end + 5], "little"):
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
    f, key, end = BytesIO(block), b"", len(block) - 4 - 4 * int.from_bytes(block[-4:], "little")
    while f.tell() < end:
        shared, unshared, n_value = varint(f), varint(f), varint(f)
        key = key[:shared] + f.read(unshared)
        yield key.decode(), f.read(n_value)


def varint(f):
    """Read a number, stored in groups of 7 bits, the lowest first, with bit 7 set in all but the last."""
    number = shift = 0
    while (byte := f.read(1)[0]) & 128:
        number, shift = number | (byte & 127) << shift, shift + 7
    return number | byte << shift


def fields(message):
    """A protocol buffer -> {field number: [its values]}, ints or bytes."""
    f, found = BytesIO(message), {}
    while f.tell() < len(message):
        field, kind = divmod(varint(f), 8)
        if kind == 5:  # four bytes
            value = int.from_bytes(f.read(4), "little")
        else:
            value = f.read(varint(f)) if kind == 2 else varint(f)
        found.setdefault(field, []).append(value)
    return found


def entry_of(value):
    """A BundleEntryProto (1 dtype, 2 shape, 3 shard_id, 4 offset, 5 size, 6 crc32c) -> Entry"""
    found = fields(value)
    if found.keys() - {1, 2, 4, 5, 6}:
        raise ValueError("a tensor is in slices or in another file, which cannot be read here")
    dims = fields(found.get(2, [b""])[0]).get(2, [])  # TensorShapeProto: 2 dim, which has 1 size
    shape = tuple(fields(dim)[1][0] for dim in dims)
    if (kind := found[1][0]) not in DTYPES:
        raise ValueError(f"a tensor has TensorFlow's type {kind}; only float32 and float16, 1 and 19, are read here")
    return Entry(DTYPES[kind], shape, found.get(4, [0])[0], found[5][0], found[6][0])
