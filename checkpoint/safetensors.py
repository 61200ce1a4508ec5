"""Read safetensors, the format in which Hugging Face keeps weights.

    8 bytes: length of the header | the header | the numbers of all tensors, packed

The header is JSON: {name: {"dtype", "shape", "data_offsets": [start, stop]}}. Offsets
count from its end. Source: the format's README at github.com/huggingface/safetensors.
"""

import json
from math import prod

import numpy as np

from errors import UserError

DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "?", "U8": "u1", "I64": "<i8"}
MAX_HEADER = 100_000_000  # bytes


def load(path):
    """Open a file -> {name: read-only array}: views of the file, but BF16 becomes float32.

    A damaged file raises UserError; all of the header is checked before any of it is used.
    """
    with open(path, "rb") as f:
        length, size = int.from_bytes(f.read(8), "little"), f.seek(0, 2)
        f.seek(8)
        text = f.read(length) if 8 + length <= size and length <= MAX_HEADER else None
    try:
        if text is None or size < 8:
            raise ValueError(f"a header of {length:,} bytes in a file of {size:,}")
        places = layout(text.decode(), size - 8 - length)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path} is not a safetensors file, so restore it: {str(error)[:200]!r}") from None
    data = np.asarray(np.memmap(path, np.uint8, "r"))[8 + length :]
    tensors = {}
    for name, (start, stop, dtype, shape) in places.items():
        tensor = data[start:stop].view(DTYPES[dtype]).reshape(shape)
        tensors[name] = (tensor.astype(np.uint32) << 16).view(np.float32) if dtype == "BF16" else tensor
    return tensors


def layout(header, size):
    """The header as text, and how many bytes follow it -> {name: (start, stop, dtype, shape)}, in the file's order."""
    header = json.loads(header, object_pairs_hook=unique)
    header.pop("__metadata__", None)
    places = {name: (*t["data_offsets"], t["dtype"], tuple(t["shape"])) for name, t in header.items()}
    end = 0
    for name, (start, stop, dtype, shape) in sorted(places.items(), key=lambda place: place[1][:2]):
        if any(type(n) is not int or n < 0 for n in (start, stop, *shape)) or len(shape) > 8:
            raise ValueError(f"{name} has shape {shape} at {start} to {stop}")
        if start != end or prod(shape) * np.dtype(DTYPES[dtype]).itemsize != stop - start:
            raise ValueError(f"{name}, {dtype} of shape {shape}, cannot be bytes {start} to {stop}")
        end = stop
    if end != size:
        raise ValueError(f"it holds {size:,} bytes of numbers, not {end:,}")
    return places


def unique(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    return found
