"""What callers may get wrong: both loops check their arguments, models, drafts and rules here.

They bring it into one form, such as an array of int64, or raise an error that says what was
needed and what was found. The algorithm in speculative.py is the same without.
"""

import inspect
import operator

import numpy as np


def prepared(x, rng, eos, *counts):
    """What both loops are called with -> int64 [n], a generator, the tokens that end a text."""
    prompt = np.array(x)
    is_list = prompt.ndim == 1 and prompt.dtype.kind in "iu" and len(prompt) > 0
    if not is_list or prompt.astype(np.int64).min() < 0:  # ids from 2^63 on become negative
        raise ValueError(f"the prompt must be token ids [n], at least one; found {x!r:.80}")
    for n in counts:
        if not isinstance(n, int | np.integer) or n < 0:
            raise ValueError(f"N and K must be whole numbers from 0 up; found {n!r}")
    if not hasattr(rng, "choice"):
        rng = np.random.default_rng(rng)
    return prompt.astype(np.int64), rng, ids_of(eos)


def ids_of(eos):
    """None, an id or several as a set. TypeError if it is something else."""
    if eos is None:
        return set()
    if np.ndim(eos) == 0 and not isinstance(eos, set):
        eos = [eos]
    return {*map(operator.index, eos)}


def checked_model(model, must_accept):
    """The model, whose rows are checked and normalised in each call.

    TypeError unless it accepts these arguments. It gets a copy of ids, and its rows are
    copied, so it may reuse its array.
    """
    if type(model).__module__.startswith("transformers."):
        advice = "docs/your_models.md has the class that does it"
        raise TypeError(f"a model of transformers has to be wrapped; {advice}")
    try:
        inspect.signature(model).bind(*must_accept)
    except TypeError:
        problem = f"{model} does not accept {' and '.join(must_accept)}"
        raise TypeError(f"{problem}; a model is model(ids, n_rows=1)") from None
    except ValueError:
        pass  # it was not written in Python, so nobody knows

    def call(ids, *n_rows):
        return checked_rows(np.array(model(ids.copy(), *n_rows)))  # [n] -> [n_rows, n_vocab]

    return call


def checked_rows(rows):
    """A model's rows, normalised. ValueError unless they are distributions, up to rounding."""
    if rows.ndim != 2 or rows.dtype.kind not in "fiuO" or not len(rows):
        problem = f"found {list(rows.shape)}"
        raise ValueError(f"a model must return probabilities [n_rows, n_vocab]; {problem}")
    if rows.dtype != object:  # Fractions stay what they are
        rows = rows.astype(np.float64, copy=False)
    total = rows.sum(axis=-1, keepdims=True)  # [n_rows, 1]
    error = abs(total - 1).max()
    if not (rows.min() >= 0 and error <= 1e-3):  # so a NaN is refused, too
        problem = f"found entries from {float(rows.min()):.3g} and sums off by {float(error):.3g}"
        advice = "sampling.as_model takes logits"
        raise ValueError(f"a model's rows must be >= 0 and sum to 1; {problem}. {advice}")
    if error < 1e-9:
        return rows
    return rows / total  # rng.choice refuses sums like 1 + 1e-7


def checked_draft(draft, k_max):
    """What a `propose` returned, as arrays. ValueError unless it is guesses and their rows."""
    if not isinstance(draft, tuple | list) or len(draft) != 2:
        raise ValueError(f"propose must return drafted and p; found {draft!r:.80}")
    drafted, p = draft
    drafted = checked_tokens("propose", drafted, 0, k_max)
    p = np.array(p)
    return drafted, checked_rows(p) if len(drafted) else p


def check_fit(drafted, p, q):
    """ValueError unless the rows of a round fit each other: [k, n_vocab] and [k+1, n_vocab]."""
    k = len(drafted)
    if len(q) != k + 1 or p.shape != q[:-1].shape:
        needed = f"[{k}, n_vocab] and [{k + 1}, n_vocab] are needed"
        raise ValueError(f"found p {p.shape} and q {q.shape}, but {needed}")
    if (drafted >= q.shape[1]).any() or not p[np.arange(k), drafted].all():
        raise ValueError(f"p must be what the guesses {drafted} were drawn from; one has p = 0")


def checked_tokens(who, returned, least, most, n_vocab=np.inf):
    """What a function returned, as an array. ValueError unless it is a list of tokens."""
    tokens = np.array(returned)
    if tokens.size == 0:
        tokens = np.zeros(0, dtype=int)
    is_list = tokens.ndim == 1 and tokens.dtype.kind in "iu" and least <= len(tokens) <= most
    if not is_list:
        needed = f"{least} to {most} tokens"
        raise ValueError(f"{who} must return {needed}; found {tokens.tolist()!s:.80}")
    outside = tokens[(tokens < 0) | (tokens >= n_vocab)]
    if len(outside):
        raise ValueError(f"{who} returned {outside[0]}, which is no token of this vocabulary")
    return tokens
