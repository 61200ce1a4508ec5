"""JSON files that say what a model is. What they ask for is computed, or refused by its name."""

import json


def read_json(path):
    """A JSON file -> dict."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} is damaged: {error}") from None
    if type(found) is not dict:
        raise ValueError(f"{path.name} is damaged: it holds no names")
    return found


def optional(folder, name):
    path = folder / name
    return read_json(path) if path.exists() else {}


def whole_number(where, found, name):
    value = found.get(name)
    if type(value) is not int or not 0 < value < 2**31:  # the type of True is bool
        problem = f"{name} is {value!r:.30}; a whole number from 1 on is needed"
        raise ValueError(f"{where}: {problem}")
    return value


def only(where, found, allowed):
    """ValueError unless a dict has one of the allowed values for each name, or nothing."""
    for name, values in allowed.items():
        value = found.get(name, values[0])
        if value not in values:
            computed = " or ".join(str(value) for value in values if value is not None)
            instead = f"but only {computed} is computed" if computed else "which is not computed"
            raise ValueError(f"{where}: {name} is {value!r:.80}, {instead} here")
