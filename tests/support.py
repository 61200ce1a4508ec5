"""What several test files share: models, exact comparisons, checkpoints, a server, the programs."""

import contextlib
import copy
import http.server
import io
import os
import re
import subprocess
import sys
import time
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from checkpoint.names import MODELS_DIR
from checkpoint.openai import FILES
from checkpoint.read import expected_shapes, nest
from checkpoint.read import read as read_model
from enumeration import assert_same_distribution, sum_over_paths, total_variation
from fast import GPT2
from lab.block import verify_block
from speculative import speculative_sampling, verify
from utils import load_models

ROOT = Path(__file__).parent.parent
MICRO = ROOT / "tests" / "fixtures" / "micro"  # a GPT-2, and its logits by Transformers
both_verifiers = pytest.mark.parametrize("verifier", [verify, verify_block])
DISTANCES = {float: [], Fraction: []}  # of all distributions that were compared
GRID = 1e-6  # the same for numbers that are multiples of 2^-24
EXACT = 1e-12  # tolerance for rounding errors: probabilities are computed, not estimated


def read(path):
    """The text of a file of this project."""
    return (ROOT / path).read_text(encoding="utf-8")


# ---- Models whose rows are made up ----

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
        others = (q == 0).astype(int)
        return others / unit(int(others.sum())), q
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


# ---- Exact comparisons ----


def product_of_conditionals(x, model, N, eos=None):
    """The distribution of N decoded tokens by definition, as {ids: probability}.

    The probability of a text is a product over its new tokens: the probability of each in
    the row after all before it.
    """
    if N == 0:
        return {tuple(x): 1}
    found = {}
    for token, q in enumerate(np.asarray(model(np.array(x)))[-1].tolist()):
        if q > 0:
            n_left = 0 if token == eos else N - 1
            rest = product_of_conditionals([*x, token], model, n_left, eos)
            found |= {ids: q * mass for ids, mass in rest.items()}
    return found


def assert_same(found, expected):
    """Assert that two distributions are equal, in Fractions exactly.

    pytest's last lines have the largest distance.
    """
    distance = total_variation(found, expected)
    is_rounded = any(isinstance(mass, float) for mass in expected.values())
    kind = float if is_rounded else Fraction
    DISTANCES[kind].append(kind(distance))
    assert_same_distribution(found, expected, tolerance=0 if kind is Fraction else EXACT)


def assert_lossless(drawn, N, K, eos=None, parts=dict, **options):
    """Assert that speculative sampling has the target's distribution.

    drawn is a draft, a target and a prompt. parts() are options made anew for each text.
    """
    draft, target, x = drawn

    def sampler(rng):
        return speculative_sampling(x, draft, target, N, K, rng, eos=eos, **options, **parts())

    decoded = sum_over_paths(sampler)
    expected = product_of_conditionals(x, target, N, eos)
    assert_same(decoded, expected)
    # No output that the target forbids, however improbable
    assert decoded.keys() <= expected.keys()


# ---- Checkpoints and networks ----


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


def files_of(directory):
    return {path.name: path.read_bytes() for path in Path(directory).iterdir()}


CONTENT = {name: (MICRO / name).read_bytes() for name in FILES}
BLOCK = 4096  # bytes that the server sends and the client receives at a time


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves CONTENT, or misbehaves.

    server.plan[name] is a list with an entry for each request of this file. The last one
    also holds for all later requests. An entry may have
    - content, status, headers, to send instead. A header that is None is left out.
    - stall, freeze, seconds to wait before and after
    - hang_up, before anything is sent
    - drop, to hang up after so many bytes, rounded up to a BLOCK
    - ranges=False, to ignore Range, or if_range=False, to ignore If-Range alone
    - before, a function to call first
    """

    def do_GET(self):
        name = self.path.rpartition("/")[2]
        asked = self.headers.get("Range")
        plan = self.server.plan.get(name, [{}])
        wrong = plan.pop(0) if len(plan) > 1 else plan[0]
        self.server.log.append((name, asked))
        time.sleep(wrong.get("stall", 0))
        if "before" in wrong:
            wrong["before"]()
        is_wrong_url = "//" in self.path
        may_be_compressed = self.headers["Accept-Encoding"] != "identity"  # which has no length
        if wrong.get("hang_up") or is_wrong_url or may_be_compressed:
            return
        status = wrong.get("status", 200)
        body = wrong.get("content", CONTENT[name])
        headers = {}
        tag = wrong.get("headers", {}).get("ETag")
        is_same = self.headers["If-Range"] == tag or not wrong.get("if_range", True)
        is_asked = asked and "x-ms-version" in self.headers  # which OpenAI's server wants
        if is_asked and status == 200 and wrong.get("ranges", is_same):
            start = int(asked[len("bytes=") : -1])
            status, headers, body = part_of(body, start)
        headers |= {"Content-Length": str(len(body))} | wrong.get("headers", {})
        self.send_response(status)
        for key, value in headers.items():
            if value is not None:
                self.send_header(key, value)
        self.end_headers()
        for i in range(0, min(len(body), wrong.get("drop", len(body))), BLOCK):
            self.wfile.write(body[i : i + BLOCK])
        time.sleep(wrong.get("freeze", 0))

    def log_message(self, *args):
        pass


def part_of(body, start):
    """Status, headers and body of an answer that begins with byte `start`."""
    n = len(body)
    if start >= n:
        return 416, {"Content-Range": f"bytes */{n}"}, b"nothing is left"
    return 206, {"Content-Range": f"bytes {start}-{n - 1}/{n}"}, body[start:]


# ---- The programs ----


def printed_by(program, *args):
    """What main.main or lab.__main__.main prints, run in this process, which saves a second."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        program.main([*map(str, args)])
    return output.getvalue()


def texts_of(output):
    text = r" Decode\n-+\nTime = [\d.]+s\nText = (.*?)\n\n"
    both = f"Autoregressive{text}Speculative{text}(?:tokens|nothing)"
    return re.search(both, output, re.DOTALL).groups()


def run(*args, **env):
    """Run Python with these arguments, in a process of its own."""
    env = os.environ | {"PYTHONPATH": str(ROOT)} | env
    command = [sys.executable, *args]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
