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

from io import BytesIO
from operator import index  # an int as it is, and a TypeError for bytes

from checkpoint.crc32c import crc32c, mask
from checkpoint.raw import Entry, mapped, read_json, views, whole_number
from encoder import BYTES

INDEX = "model.ckpt.index"
DATA = "model.ckpt.data-00000-of-00001"
FILES = ("encoder.json", "vocab.bpe", "hparams.json", INDEX, DATA)
MAGIC = 0xDB4775248B80FB57  # the last 8 bytes of every LevelDB table
DTYPES = {1: "<f4", 19: "<f2"}  # DT_FLOAT, DT_HALF of types.proto
EOT = "<|endoftext|>"
HPARAMS = ("n_vocab", "n_ctx", "n_embd", "n_head", "n_layer")


class Folder:
    """The files of a model in this format. ValueError says what is wrong with one."""

    def __init__(self, folder):
        self.folder = folder
        settings = read_json(folder / "hparams.json")
        self.hparams = {name: whole_number("hparams.json", settings, name) for name in HPARAMS}
        self.index = index_in(folder)
        self.entries = read_index(self.index)

    def tokenizer(self):
        """What `encoder.Encoder` needs. The ids follow from the merges, so compare them."""
        merges = read_merges(self.folder / "vocab.bpe")
        tokens = [*BYTES.values(), *map("".join, merges), EOT]
        ids = {token: id for id, token in enumerate(tokens)}
        if ids != read_json(self.folder / "encoder.json"):
            files = "encoder.json or vocab.bpe is damaged"
            raise ValueError(f"{files}: one does not follow from the other")
        n_vocab = self.hparams["n_vocab"]
        if n_vocab != len(ids):
            raise ValueError(f"n_vocab is {n_vocab}, but the vocabulary has {len(ids)} tokens")
        return {"merges": merges, "ids": ids, "eos": (ids[EOT],)}

    def tensors(self, path=None):
        """{name: array}, views of the memory-mapped data. ValueError names one that is damaged."""
        path = path or self.index.with_suffix(".data-00000-of-00001")
        tensors = views(mapped(path), self.entries)
        for name, tensor in tensors.items():
            if mask(crc32c(tensor)) != self.entries[name].crc32c:
                raise ValueError(f"{path.name} is damaged: {name!r} does not match its crc32c")
        return tensors


def index_in(folder):
    """The index file, which a trainer may have named otherwise, such as model-1000.index."""
    paths = [*folder.glob("*.index")]
    if len(paths) != 1:
        advice = "; keep the one that the file checkpoint names" if paths else ""
        raise ValueError(f"one file like {INDEX} is needed, and there are {len(paths)}{advice}")
    return paths[0]


def read_merges(path):
    """A file with a merge on each line, such as "t he" -> list of pairs"""
    try:
        lines = mapped(path).tobytes().decode().splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name} is damaged: {error}") from None
    return pairs(line for line in lines if line and not line.startswith("#version"))


def pairs(merges):
    """Merges, each a pair or a text such as "t he" -> list of pairs"""
    split = [tuple(pair.split(" ") if isinstance(pair, str) else pair) for pair in merges]
    for pair in split:
        if len(pair) != 2:
            raise ValueError(f"a merge is {pair!r:.80}, which is not two tokens")
    return split


def read_index(path):
    """An index file -> {name: Entry}."""
    table = mapped(path).tobytes()
    try:
        if int.from_bytes(table[-8:], "little") != MAGIC:
            raise ValueError("it is not a LevelDB table")
        footer = BytesIO(table[-48:])
        _, _, *place = (varint(footer) for _ in range(4))  # after the metaindex, which is empty
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
    stored = int.from_bytes(table[end + 1 : end + 5], "little")
    if mask(crc32c(table[offset : end + 1])) != stored:
        raise ValueError(f"the block at {offset:,} does not match its crc32c")
    return table[offset:end]


def items_of(block):
    """The (key, value) pairs of a block, as (str, bytes).

    A key is stored as its difference from the key before: the length of the prefix that
    both share, the length of the rest, the length of the value, the rest, the value. The
    block ends with restart points, which are for binary search, and their number.
    """
    n_restarts = int.from_bytes(block[-4:], "little")
    f, key = BytesIO(block), b""
    while f.tell() < len(block) - 4 - 4 * n_restarts:
        shared, unshared, n_value = varint(f), varint(f), varint(f)
        key = key[:shared] + f.read(unshared)
        yield key.decode(), f.read(n_value)


def varint(f):
    """Read a number: groups of 7 bits, the lowest first, with bit 7 set in all but the last."""
    number = shift = 0
    while (byte := f.read(1)[0]) & 128:
        number |= (byte & 127) << shift
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than 64 bits")
    return number | byte << shift


def fields(message):
    """A protocol buffer -> {field number: [its values]}, ints or bytes."""
    f, values = BytesIO(message), {}
    while f.tell() < len(message):
        field, kind = divmod(varint(f), 8)
        if kind == 5:  # four bytes
            value = int.from_bytes(f.read(4), "little")
        else:
            value = f.read(varint(f)) if kind == 2 else varint(f)
        values.setdefault(field, []).append(value)
    return values


def entry_of(value):
    """A BundleEntryProto (1 dtype, 2 shape, 3 shard_id, 4 offset, 5 size, 6 crc32c) -> Entry"""
    message = fields(value)
    dims = fields(message.get(2, [b""])[0]).get(2, [])  # TensorShapeProto: 2 dim, which has 1 size
    shape = tuple(index(fields(dim)[1][0]) for dim in dims)
    [kind] = message[1]
    if kind not in DTYPES:
        raise ValueError(f"a tensor has TensorFlow's type {kind}, neither float32 nor float16")
    [offset] = map(index, message.get(4, [0]))
    [size] = map(index, message[5])
    [crc] = message.get(6, [0])
    return Entry(offset, size, DTYPES[kind], shape, crc)
