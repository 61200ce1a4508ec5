"""What functions return, as arrays, or an error that says what they should have returned."""

import numpy as np

from exercise.tables import NAMES


class Wrong(Exception):
    """What a function returned cannot be right, whatever its distribution."""


class Endless(BaseException):
    """A loop without end. It's no Exception, so that `except Exception` doesn't catch it."""


def array_from(returned, name, shape=None, dtype=None):
    """What a function returned, as an array of this shape. `Wrong` if it isn't one."""
    if returned is None:
        raise Wrong("it returned None; is a return missing?")
    try:
        array = np.array(returned, dtype)
    except (TypeError, ValueError):  # an array and a number, for example
        raise Wrong(f"{name} must be an array; found {returned!r:.60}") from None
    if shape is not None and array.shape != shape:
        raise Wrong(f"{name} must have the shape {list(shape)}; found {list(array.shape)}")
    return array


SUMS = "cumsum", "searchsorted"
BEYOND_ALL = "; np.cumsum may end just below 1, so use rng.choice"


def tokens_from(returned, name, n_vocab, function):
    """What a function returned, as tokens [n]. `Wrong` if it isn't a list of tokens."""
    ids = array_from(returned, name)
    if ids.size == 0:
        ids = ids.astype(int)
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or not {*ids.tolist()} <= {*range(n_vocab)}:
        tokens = f"a list of tokens, whole numbers from 0 to {n_vocab - 1}"
        is_beyond = n_vocab in ids and not names_in(function).isdisjoint(SUMS)
        shown = f"{ids.tolist()!s:.60}{BEYOND_ALL * is_beyond}"
        raise Wrong(f"{name} must be {tokens}{hint_for(returned)}; found {shown}")
    return ids


def hint_for(returned):
    """What often goes wrong with a NumPy array, if it is one, in brackets."""
    if not isinstance(returned, np.ndarray):
        return ""
    return f" ({FLOATS if returned.dtype.kind == 'f' else ADDS})"


FLOATS = "np.append to an empty array gives floats"
ADDS = "+ adds numbers to an array"


def names_in(function):
    """The names that the code of a function uses."""
    return {*getattr(getattr(function, "__code__", None), "co_names", ())}


def text_from(returned, setting, function, eos=None):
    """What a loop returned, as ids. `Wrong` if the prompt or the length isn't right."""
    ids = tokens_from(returned, "the text", len(setting.P), function)
    n = len(setting.prompt)
    end = n + setting.N
    may_be_shorter = eos in ids[n:].tolist()
    fits = len(ids) == end or (may_be_shorter and len(ids) < end)
    if not fits or (*ids[:n],) != setting.prompt:
        fewer = "" if eos is None else f", or fewer up to a new {NAMES[eos]}"
        needed = f"{n} + N = {end} tokens{fewer}, the prompt first"
        raise Wrong(f"the text must have {needed}; found {len(ids)}: {ids.tolist()!s:.60}")
    return ids


def rows_from(returned, name, shape):
    """What a function returned, as probabilities of this shape."""
    rows = array_from(returned, name, shape, float)
    totals = np.ravel(rows.sum(axis=-1))
    if not (rows.min() >= 0 and abs(totals - 1).max() < 1e-9):
        worst = max(totals, key=lambda total: abs(total - 1))
        shown = f"{np.round(rows, 4).tolist()!s:.60}, with a sum of {worst:.12g}"
        raise Wrong(f"{name} must be a distribution, with a sum of 1; found {shown}")
    return rows


def bool_from(returned):
    """What a function returned, if that's True or False."""
    if returned is None:
        raise Wrong("it returned None; is a return missing?")
    if not isinstance(returned, bool | np.bool_):
        raise Wrong(f"True or False is needed; found {returned!r:.60}")
    return returned
