"""What several test files share: made-up models, exact comparisons, checkpoints, a server, the programs.

For the proof, the first two parts are enough.
"""

import contextlib
import copy
import http.server
import io
import os
import re
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from checkpoint.find import MODELS_DIR
from checkpoint.openai import FILES
from checkpoint.read import expected_shapes, nest
from checkpoint.read import read as read_model
from checkpoint.write import write_vocabulary
from enumeration import assert_same_distribution, output_distribution, total_variation
from gpt2 import GPT2
from lab.block import verify_block
from speculative import speculative_sampling, verify

ROOT = Path(__file__).parent.parent
MICRO = (
    Path(__file__).parent / "fixtures" / "micro"
)  # a GPT-2 with 3 layers, and its logits by Transformers
both_verifiers = pytest.mark.parametrize("verifier", [verify, verify_block])
DISTANCES = {float: [], Fraction: []}  # of all distributions that were compared
EXACT = (
    1e-12  # tolerance for rounding errors: the compared probabilities are computed, not estimated
)


def read(path):
    """The text of a file of this project."""
    return (ROOT / path).read_text(encoding="utf-8")


# ---- Models whose rows are made up ----

# The library Hypothesis runs a test many times, with other arguments each time. A *strategy* says how an argument is
# made up. In a function with @st.composite, draw(strategy) makes up one value. (It does not draw a token from a row.)


class Table:
    """A model with a few rows, which records its calls.

    A hash of the prefix chooses its row. So equal prefixes have the same row, and different ones often have different
    rows, as with a real model.
    """

    def __init__(self, rows):
        self.rows, self.calls = np.array(rows), []

    def __call__(self, ids, n_rows=1):
        ids = [int(token) for token in ids]
        assert 1 <= n_rows <= len(ids), (
            f"n_rows must be from 1 to {len(ids)}, the number of ids; found {n_rows}"
        )
        self.calls.append((ids, n_rows))
        return np.array([self.row(ids[: len(ids) - i]) for i in reversed(range(n_rows))])

    def __repr__(self):
        return f"Table({self.rows.tolist()})"

    def row(self, ids):
        return self.rows[hash(tuple(ids)) % len(self.rows)]


@cache  # because Hypothesis takes longer to check a new strategy than to make up a value
def rows(n_vocab, weights=(1, 2, 3, 4, 5, 0), exact=False):
    """Distributions with simple weights. Some weights are zero, and in a quarter of the rows all but one are."""
    weighted = st.lists(st.sampled_from(weights), min_size=n_vocab, max_size=n_vocab).filter(any)
    certain = st.integers(0, n_vocab - 1).map(
        lambda token: np.eye(n_vocab, dtype=int)[token].tolist()
    )
    unit = Fraction if exact else float
    return (
        st.integers(0, 3)
        .flatmap(lambda i: weighted if i else certain)
        .map(lambda w: np.array(w) / unit(sum(w)))
    )


@st.composite
def pairs(draw, sizes=(1, 2, 3, 4), **kwargs):
    """A row p of the draft and a row q of the target: independent, equal, or with no token in common."""
    n_vocab = draw(st.sampled_from(sizes))
    q = draw(rows(n_vocab, **kwargs))
    kind = draw(st.sampled_from(["independent", "independent", "independent", "equal", "disjoint"]))
    if kind == "equal":
        return q.copy(), q
    if kind == "disjoint" and not q.all():
        unit = Fraction if kwargs.get("exact") else float
        return (q == 0).astype(int) / unit((q == 0).sum()), q
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

    The probability of a text is a product over its new tokens: the probability of each in the row after all before it.
    """
    if N == 0:
        return {tuple(x): 1}
    found = {}
    for token, q in enumerate(np.asarray(model(np.array(x)))[-1].tolist()):
        if q > 0:
            rest = product_of_conditionals([*x, token], model, 0 if token == eos else N - 1, eos)
            found |= {ids: q * mass for ids, mass in rest.items()}
    return found


def assert_same(found, expected):
    """Assert that two distributions are equal, in Fractions exactly.

    pytest's last lines have the largest distance.
    """
    distance = total_variation(found, expected)
    kind = Fraction if isinstance(distance, Fraction) else float
    DISTANCES[kind].append(distance)
    assert_same_distribution(found, expected, tolerance=0 if kind is Fraction else EXACT)


def assert_lossless(drawn, N, K, eos=None, **options):
    """Assert that speculative sampling has the target's distribution. drawn: a draft, a target and a prompt."""
    draft, target, x = drawn
    decoded = output_distribution(
        lambda rng: speculative_sampling(x, draft, target, N, K, rng, eos=eos, **options)
    )
    expected = product_of_conditionals(x, target, N, eos)
    assert_same(decoded, expected)
    assert (
        decoded.keys() <= expected.keys()
    )  # no output that the target forbids, however improbable
    return decoded


# ---- Checkpoints and networks ----


def random_gpt2(seed, **hparams):
    rng = np.random.default_rng(seed)
    shapes = expected_shapes(**hparams)
    tensors = {
        name: rng.standard_normal(shape, np.float32) * np.float32(0.1)
        for name, shape in shapes.items()
    }
    return GPT2(nest(tensors, hparams["n_layer"]), hparams)


@cache
def stored_gpt2(directory):
    hparams, params = read_model(directory)
    return GPT2(params, hparams)


def bundled(name):
    """A GPT2 of its own for each test. All of them share the weights, because it takes 50 ms to lay them out."""
    return copy.copy(stored_gpt2(Path(MODELS_DIR) / name))


def files_of(directory):
    return {path.name: path.read_bytes() for path in Path(directory).iterdir()}


with tempfile.TemporaryDirectory() as fresh:
    write_vocabulary(fresh, 300)
    # The files of a model: the micro checkpoint, and a vocabulary of 300 tokens that fits it
    CONTENT = {
        name: file for name, file in (files_of(MICRO) | files_of(fresh)).items() if name in FILES
    }
BLOCK = 4096  # bytes that the server sends and the client receives at a time


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves CONTENT, or misbehaves. server.plan[name] is a list with one entry for each request of this file.

    The last entry also holds for all later requests.

    An entry may have content and status (to send instead), headers (to send in addition, or None to leave one
    out), stall and freeze (seconds to wait before and after), hang_up, ranges=False (to ignore Range), drop (hang up
    after so many bytes, rounded up to a BLOCK) and before (a function to call first).
    """

    def do_GET(self):
        name, asked = self.path.rpartition("/")[2], self.headers.get("Range")
        plan = self.server.plan.get(name, [{}])
        wrong = plan.pop(0) if len(plan) > 1 else plan[0]
        self.server.log.append((name, asked))
        time.sleep(wrong.get("stall", 0))
        wrong.get("before", int)()
        compressed = (
            self.headers["Accept-Encoding"] != "identity"
        )  # a length would not be that of the file
        if (
            wrong.get("hang_up") or "//" in self.path or compressed
        ):  # ("//": an address that was put together wrongly)
            return
        content, status, start, headers = (
            wrong.get("content", CONTENT[name]),
            wrong.get("status", 200),
            0,
            {},
        )
        if asked and wrong.get("ranges", True) and status == 200:
            start = int(asked[len("bytes=") : -1])
            status, span = (
                (206, f"{start}-{len(content) - 1}") if start < len(content) else (416, "*")
            )
            headers["Content-Range"] = f"bytes {span}/{len(content)}"
        body = b"nothing is left" if status == 416 else content[start:]
        self.send_response(status)
        for key, value in (
            headers | {"Content-Length": str(len(body))} | wrong.get("headers", {})
        ).items():
            if value is not None:
                self.send_header(key, value)
        self.end_headers()
        for i in range(0, min(len(body), wrong.get("drop", len(body))), BLOCK):
            self.wfile.write(body[i : i + BLOCK])
        time.sleep(wrong.get("freeze", 0))

    def log_message(self, *args):
        pass


# ---- The programs ----


def printed_by(program, *args):
    """What main.main or lab.__main__.main prints, run in this process, which saves the second that Python starts in."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        program.main([*map(str, args)])
    return output.getvalue()


def texts_of(output):
    text = r" Decode\n-+\nTime = [\d.]+s\nText = (.*?)\n\n"
    return re.search(
        f"Autoregressive{text}Speculative{text}(?:tokens|nothing)", output, re.DOTALL
    ).groups()


def run(*args, cwd=ROOT, script="main.py", **env):
    """Run main.py in its own process, as a user does, or with `script` a module, as in `python -m lab`."""
    path = [str(ROOT / script)] if script.endswith(".py") else ["-m", script] if script else []
    env = os.environ | {"PYTHONPATH": str(ROOT)} | env
    return subprocess.run(
        [sys.executable, *path, *map(str, args)],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
