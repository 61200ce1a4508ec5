"""What functions return, as arrays, or an error that says what is needed in its place."""

import numpy as np

from exercise.tables import NAMES


class Wrong(Exception):
    """What a function returned cannot be right, whatever its distribution."""


def array(found, what, shape=None, dtype=None):
    if found is None:
        raise Wrong("it returned None; is a return missing?")
    try:
        found_array = np.array(found, dtype)
    except (TypeError, ValueError):  # an array and a number, for example
        raise Wrong(f"{what} must be an array; found {found!r:.60}") from None
    if shape is not None and found_array.shape != shape:
        raise Wrong(f"{what} must have the shape {list(shape)}; found {list(found_array.shape)}")
    return found_array


def checked_tokens(found, what, n_vocab):
    ids = array(found, what)
    if ids.size == 0:
        ids = ids.astype(int)
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or not {*ids.tolist()} <= {*range(n_vocab)}:
        needed = f"{what} must be tokens from 0 to {n_vocab - 1}{hint_for(found)}"
        raise Wrong(f"{needed}; found {found!r:.60}")
    return ids


def hint_for(found):
    return " (+ adds numbers to an array)" if isinstance(found, np.ndarray) else ""


def checked_text(found, setting, eos=None):
    ids = checked_tokens(found, "the text", len(setting.P))
    n = len(setting.prompt)
    end = n + setting.N
    may_be_shorter = eos in ids[n:].tolist()
    fits = len(ids) == end or (may_be_shorter and len(ids) < end)
    if not fits or (*ids[:n],) != setting.prompt:
        fewer = "" if eos is None else f", or fewer up to a new {NAMES[eos]}"
        needed = f"{n} + N = {end} tokens{fewer}, the prompt first"
        raise Wrong(f"the text must have {needed}; found {ids.tolist()!s:.60}")
    return ids


def checked_rows(found, what, shape):
    found_rows = array(found, what, shape, float)
    totals = np.ravel(found_rows.sum(axis=-1))
    if not (found_rows.min() >= 0 and abs(totals - 1).max() < 1e-9):
        worst = max(totals, key=lambda total: abs(total - 1))
        shown = f"{np.round(found_rows, 4).tolist()!s:.60}, with a sum of {worst:.12g}"
        raise Wrong(f"{what} must be a distribution, with a sum of 1; found {shown}")
    return found_rows


def checked_bool(found):
    if found is None:
        raise Wrong("it returned None; is a return missing?")
    if not isinstance(found, bool | np.bool_):
        raise Wrong(f"True or False is needed; found {found!r:.60}")
    return found
