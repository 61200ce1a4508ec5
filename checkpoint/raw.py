"""What both formats are made of: a file's bytes, the tensors in them, and settings in JSON."""

import json
from typing import NamedTuple

import numpy as np

WRONG_STARTS = {
    b"version https://git-lfs": "is a pointer of git-lfs; get the file with git lfs pull",
    b"\xef\xbb\xbf": "begins with a byte order mark; save it as UTF-8 without BOM",
    b"<!doctype": "is a web page; download the file itself",
    b"<html": "is a web page; download the file itself",
    b"<?xml": "is a web page; download the file itself",
}


def mapped(path):
    """The bytes of a file, read-only. ValueError if something else came in its place."""
    if path.stat().st_size == 0:
        raise ValueError(f"{path.name} is empty")
    data = np.asarray(np.memmap(path, np.uint8, "r"))
    for start, problem in WRONG_STARTS.items():
        if data[: len(start)].tobytes().lower() == start:
            raise ValueError(f"{path.name} {problem}")
    return data


# ---- Tensors ----


class Entry(NamedTuple):
    """The description of one tensor."""

    offset: int  # bytes, in the data
    size: int  # bytes
    dtype: str
    shape: tuple
    crc32c: int = 0  # of these bytes, masked


def views(data, entries):
    """uint8 [n], {name: Entry} -> {name: array}. ValueError unless they fill the data, in a row."""
    end = 0
    for entry in sorted(entries.values()):
        if entry.offset != end:
            raise ValueError(f"a tensor begins at byte {entry.offset:,} and not at {end:,}")
        end += entry.size
    if end != len(data):
        raise ValueError(f"the weights have {len(data):,} bytes, not {end:,}")
    return {name: tensor_of(data, entry) for name, entry in entries.items()}


def tensor_of(data, entry):
    """The array that an entry describes, as a view of the data."""
    part = data[entry.offset : entry.offset + entry.size]
    try:
        return part.view(entry.dtype).reshape(entry.shape)
    except ValueError:
        raise ValueError(f"a tensor of shape {entry.shape} has {entry.size:,} bytes") from None


# ---- Settings ----


def read_json(path):
    """A JSON file -> dict."""
    data = mapped(path).tobytes()
    try:
        settings = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} is damaged: {error}") from None
    if type(settings) is not dict:
        raise ValueError(f"{path.name} is damaged: it holds no names")
    return settings


def optional(folder, name):
    """The settings of a JSON file, or none if it is not there."""
    path = folder / name
    return read_json(path) if path.exists() else {}


def whole_number(place, settings, name):
    """A setting that has to be a whole number from 1 on. ValueError if it isn't."""
    value = settings.get(name)
    if type(value) is not int or not 0 < value < 2**31:  # the type of True is bool
        problem = f"{name} is {value!r:.30}; a whole number from 1 on is needed"
        raise ValueError(f"{place}: {problem}")
    return value


def only(place, settings, allowed):
    """ValueError unless each name has one of these values, the first of them if it is not there.

    What a file asks for is computed, or refused by its name.
    """
    for name, values in allowed.items():
        value = settings.get(name, values[0])
        if value not in values:
            computed = " or ".join(str(value) for value in values if value is not None)
            instead = f"but only {computed} is computed" if computed else "which is not computed"
            raise ValueError(f"{place}: {name} is {value!r:.80}, {instead} here")
