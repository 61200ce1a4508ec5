"""Models whose rows are made up, and networks of the bundled pair or with random weights."""

import copy
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from checkpoint.names import MODELS_DIR
from checkpoint.read import expected_shapes, nest
from checkpoint.read import read as read_model
from fast import GPT2
from utils import load_models

# ---- Made-up rows ----

# Hypothesis runs a test many times, with other arguments each time. A strategy says how an
# argument is made up, and draw(strategy) makes up one value. It does not draw a token.


class Table:
    """A model with a few rows, which records its calls.

    A hash of the prefix chooses its row. So equal prefixes have the same row, and different
    ones often have different rows, as with a real model.
    """

    def __init__(self, rows):
        self.rows = np.array(rows)
        self.calls = []

    def __call__(self, ids, n_rows=1):
        ids = [int(token) for token in ids]
        assert 1 <= n_rows <= len(ids)
        self.calls.append((ids, n_rows))
        return np.array([self.row(ids[: len(ids) - i]) for i in reversed(range(n_rows))])

    def __repr__(self):
        return f"Table({self.rows.tolist()})"

    def row(self, ids):
        return self.rows[hash(tuple(ids)) % len(self.rows)]


def reusing(model):
    """The same model, but all of its results are in one array."""
    out = np.empty((5, model.rows.shape[1]))

    def call(ids, n_rows=1):
        out[:n_rows] = model(ids, n_rows)
        return out[:n_rows]

    return call


@cache  # because Hypothesis takes longer to check a new strategy than to make up a value
def rows(n_vocab, weights=(1, 2, 3, 4, 5, 0), exact=False):
    """Distributions with simple weights. In a quarter of them, all weights but one are zero."""
    weight = st.sampled_from(weights)
    weighted = st.lists(weight, min_size=n_vocab, max_size=n_vocab).filter(any)
    certain = st.sampled_from(np.eye(n_vocab, dtype=int).tolist())
    unit = Fraction if exact else float

    def normalised(weights):
        return np.array(weights) / unit(sum(weights))

    return st.one_of(weighted, weighted, weighted, certain).map(normalised)


@st.composite
def pairs(draw, sizes=(1, 2, 3, 4), **kwargs):
    """A row p of the draft and a row q of the target, often equal or without a common token."""
    n_vocab = draw(st.sampled_from(sizes))
    q = draw(rows(n_vocab, **kwargs))
    kind = draw(st.sampled_from(["independent", "independent", "independent", "equal", "disjoint"]))
    if kind == "equal":
        return q.copy(), q
    if kind == "disjoint" and not q.all():
        unit = Fraction if q.dtype == object else float
        is_left = (q == 0).astype(int)
        return is_left / unit(int(is_left.sum())), q
    return draw(rows(n_vocab, **kwargs)), q


@cache
def lists_of_pairs(n_vocab, **kwargs):
    return st.lists(pairs(sizes=[n_vocab], **kwargs), min_size=2, max_size=4)


@st.composite
def models(draw, sizes=(3, 2, 3, 2, 1), **kwargs):
    """A draft and a target with 2 to 4 rows each, and a prompt of 1 to 3 tokens."""
    n_vocab = draw(st.sampled_from(sizes))
    p, q = zip(*draw(lists_of_pairs(n_vocab, **kwargs)), strict=True)
    prompt = draw(st.lists(st.integers(0, n_vocab - 1), min_size=1, max_size=3))
    return Table(p), Table(q), np.array(prompt)


# ---- Networks ----


def random_gpt2(seed, **hparams):
    rng = np.random.default_rng(seed)
    tensors = {}
    for name, shape in expected_shapes(**hparams).items():
        tensors[name] = rng.standard_normal(shape, np.float32) * np.float32(0.1)
    return GPT2(nest(tensors, hparams["n_layer"]), hparams)


@cache
def stored_gpt2(directory):
    hparams, params = read_model(directory)
    return GPT2(params, hparams)


def bundled(name):
    """A GPT2 of its own for each test, whose weights all of them share."""
    return copy.copy(stored_gpt2(Path(MODELS_DIR) / name))


loaded = cache(load_models)


def load_once(*names, **options):
    """`utils.load_models`, whose networks share their weights with those of other tests."""
    encoder, *networks = loaded(*names, **options)
    return encoder, *map(copy.copy, networks)
