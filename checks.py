"""What a model, a generator and a rule must be, and one line about what is wrong if they are not.

A model is any callable `model(ids, n_rows=1) -> probs`: the next-token distributions
after each of the last n_rows prefixes of ids, float64 [n_rows, n_vocab]. Rows of
Fractions are taken as they are, for enumeration/ can keep them.
"""

import inspect
import random

import numpy as np


def checked_call(x, rng, eos, **counts):
    """What each loop is called with -> the prompt, a generator, the tokens that end a text."""
    x = checked_prompt(x)
    check_counts(**counts)
    return x, checked_rng(rng), checked_ends(eos)


def checked_prompt(x):
    """The prompt as int64 [n]. ValueError unless it is a list of ids."""
    prompt = np.array(x)
    is_list = prompt.ndim == 1 and prompt.dtype.kind in "iu" and len(prompt) > 0
    if not is_list or prompt.astype(np.int64).min() < 0:  # ids from 2^63 on become negative
        raise ValueError(f"the prompt must be token ids [n], at least one; found {x!r:.80}")
    return prompt.astype(np.int64)


def check_counts(**counts):
    """ValueError unless each is a whole number from 0 up."""
    for name, n in counts.items():
        if not isinstance(n, int | np.integer) or isinstance(n, bool) or n < 0:
            raise ValueError(f"{name} must be a whole number from 0 up; found {n!r}")


def checked_rng(rng):
    """A generator: rng, or numpy.random.default_rng(rng)."""
    if rng is random or isinstance(rng, random.Random):
        advice = "such as numpy.random.default_rng(0)"
        raise TypeError(f"rng must be a generator of NumPy, {advice}; found one of random")
    if hasattr(rng, "random") and hasattr(rng, "choice"):
        return rng
    return np.random.default_rng(rng)


def checked_ends(eos):
    """The tokens that end a text, as a set. TypeError unless eos is None, an id or several."""
    if eos is None:
        return set()
    ends = np.array([*eos] if isinstance(eos, set | frozenset) else eos)
    is_ids = ends.dtype.kind in "iu" or ends.size == 0
    if ends.ndim > 1 or not is_ids or (ends < 0).any():
        raise TypeError(f"eos must be a token id, or several; found {eos!r}")
    return {*ends.ravel().tolist()}


def checked_model(model, *args):
    """The model, with its rows checked in each call. TypeError unless it can be called with args.

    It gets a copy of ids, and its rows are copied: it may reuse its array.
    """
    if type(model).__module__.startswith("transformers."):
        advice = "docs/your_models.md has the fifteen lines for that"
        raise TypeError(f"a model of transformers has to be wrapped; {advice}")
    check_takes(model, *args)

    def call(ids, *n_rows):
        rows = model(ids.copy(), *n_rows)  # [n] -> [n_rows, n_vocab]
        return checked_rows(np.array(rows))

    return call


def checked_rows(rows):
    """A model's rows, normalised. ValueError unless they are distributions but for rounding."""
    if rows.ndim != 2 or rows.dtype.kind not in "fiuO" or not len(rows):
        found = None if rows.ndim == 0 else list(rows.shape)
        raise ValueError(f"a model must return probabilities [n_rows, n_vocab]; found {found}")
    if rows.dtype != object:  # Fractions stay what they are
        rows = rows.astype(np.float64, copy=False)
    total = rows.sum(axis=-1)
    error = abs(total - 1).max()
    if not (rows.min() >= 0 and error <= 1e-3):  # so a NaN is refused, too
        smallest = float(rows.min())
        problem = f"found entries from {smallest:.3g}, and sums of {total[:3].astype(float)}"
        advice = "sampling.as_model takes logits"
        raise ValueError(f"a model's rows must be >= 0 and sum to 1; {problem}. {advice}")
    if error < 1e-9:
        return rows
    # rng.choice refuses sums like 1 + 1e-7, which rows of float32 have, even as a list
    return rows / total[:, None]


def check_takes(model, *args):
    """args are ids, or ids and n_rows."""
    try:
        inspect.signature(model).bind(*args)
    except TypeError:
        what = "ids and n_rows" if len(args) == 2 else "ids alone"
        problem = f"{model} does not take {what}; a model is model(ids, n_rows=1)"
        raise TypeError(f"{problem}. Does sampling.last_rows(model) fit?") from None
    except ValueError:
        pass  # it was not written in Python, so nobody knows


def check_shapes(p, q, k):
    """ValueError unless the rows of a round fit each other: [k, n_vocab] and [k+1, n_vocab]."""
    if len(q) != k + 1 or p.shape != q[:-1].shape:
        needed = f"[{k}, n_vocab] and [{k + 1}, n_vocab] are needed"
        raise ValueError(f"found p {p.shape} and q {q.shape}, but {needed}")


def checked_tokens(emitted, n, n_vocab):
    """What a rule returned, as an array. ValueError unless it is 1 to n tokens."""
    try:
        tokens = np.array(emitted)
    except ValueError:  # a tuple of an array and a number, for example
        tokens = np.zeros(0)
    is_list = tokens.ndim == 1 and tokens.dtype.kind in "iu" and 1 <= len(tokens) <= n
    if not is_list or tokens.min() < 0 or tokens.max() >= n_vocab:
        problem = f"verify must return 1 to {n} tokens below {n_vocab}"
        raise ValueError(f"{problem}; found {emitted!r:.80}")
    return tokens
