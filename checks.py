"""What a model, a generator and a rule must be, and one line about what is wrong where they are not.

A model is any callable `model(ids, n_rows=1) -> probs`: the next-token distributions
after each of the last n_rows prefixes of ids, float64 [n_rows, n_vocab]. Rows of
Fractions are taken as they are, for enumeration/ can keep them.
"""

import inspect
import random
from fractions import Fraction

import numpy as np


def checked_call(x, rng, eos, *models, **counts):
    """The arguments of a loop in the form that it needs: x [n], rng, the set of eos, and the models.

    TypeError or ValueError says what is wrong with them. counts are N and K.
    """
    prompt = np.array([] if isinstance(x, str) else x)
    is_list = prompt.ndim == 1 and prompt.dtype.kind in "iu" and len(prompt) > 0
    if not is_list or (prompt := prompt.astype(np.int64)).min() < 0:  # ids from 2^63 on become negative
        raise ValueError(f"the prompt must be token ids [n], at least one; found {x!r:.80}")
    for name, n in counts.items():
        if not isinstance(n, int | np.integer) or isinstance(n, bool) or n < 0:
            raise ValueError(f"{name} must be a whole number from 0 up; found {n!r}")
    if rng is random or isinstance(rng, random.Random):
        raise TypeError("rng must be a generator of NumPy, such as numpy.random.default_rng(0); found one of random")
    if not (hasattr(rng, "random") and hasattr(rng, "choice")):
        rng = np.random.default_rng(rng)
    ends = np.array([] if eos is None else [*eos] if isinstance(eos, set | frozenset) else eos)
    if ends.ndim > 1 or (ends.size and (ends.dtype.kind not in "iu" or ends.min() < 0)):
        raise TypeError(f"eos must be a token id, or several; found {eos!r}")
    return prompt, rng, {*ends.ravel().tolist()}, *map(checked_model, models)


def checked_model(model):
    """The model, with its rows checked in each call. It gets a copy of ids, and may reuse its array."""
    if type(model).__module__.startswith("transformers."):
        raise TypeError("a model of transformers has to be wrapped; docs/your_models.md has the fifteen lines for that")

    def call(*args):
        ids, *n_rows = args
        rows = np.array(model(ids.copy(), *n_rows))  # [n] -> [n_rows, n_vocab]
        is_exact = rows.dtype == object and all(isinstance(mass, Fraction | int) for mass in rows.flat)
        if rows.ndim != 2 or not (rows.dtype.kind in "fiu" or is_exact) or not len(rows):
            found = None if rows.ndim == 0 else list(rows.shape)
            raise ValueError(f"a model must return probabilities [n_rows, n_vocab]; found {found}")
        total = rows.sum(axis=-1, dtype=object if is_exact else np.float64)
        if not (rows.min() >= 0 and abs(total - 1).max() <= (0 if is_exact else 1e-3)):
            problem = f"found entries from {float(rows.min()):.3g}, and sums of {total[:3].astype(float)}"
            raise ValueError(f"a model's rows must be >= 0 and sum to 1; {problem}. sampling.as_model takes logits")
        # rng.choice refuses sums like 1 + 1e-7, which rows of float32 have, even as a list
        is_normal = is_exact or (rows.dtype == np.float64 and abs(total - 1).max() < 1e-9)
        return rows if is_normal else np.float64(rows / total[:, None])

    return call


def check_takes_rows(model):
    """TypeError unless the model can be called with ids and n_rows."""
    try:
        inspect.signature(model).bind([0], 2)
    except TypeError:
        raise TypeError(f"{model} does not take ids and n_rows; does sampling.last_rows(model) fit?") from None
    except ValueError:
        pass  # it was not written in Python, so nobody knows


def checked_rows(p, q, k):
    """The rows of a round: p [k, n_vocab], which nobody has given a shape if k is 0. ValueError unless they fit."""
    p = p if k else q[:0]
    if len(q) != k + 1 or p.shape != q[:-1].shape:
        raise ValueError(f"found p {p.shape} and q {q.shape}, but [{k}, n_vocab] and [{k + 1}, n_vocab] are needed")
    return p


def checked_tokens(emitted, n, n_vocab):
    """What a rule returned as an array. ValueError unless it is 1 to n tokens."""
    try:
        tokens = np.array(emitted)
    except ValueError:  # a tuple of an array and a number, for example
        tokens = np.zeros(0)
    is_list = tokens.ndim == 1 and tokens.dtype.kind in "iu" and 1 <= len(tokens) <= n
    if not is_list or tokens.min() < 0 or tokens.max() >= n_vocab:
        raise ValueError(f"verify must return 1 to {n} tokens below {n_vocab}; found {emitted!r:.80}")
    return tokens
