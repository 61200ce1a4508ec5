"""What the projects share: the pair, loops around a round, and ways into other people's files.

The pair is the gallery's, and its rows depend on the whole text: the sum of all tokens,
modulo their number, says which row comes next. A network that stands in for a real one
has the tokens themselves for keys and values. So whoever loses, shifts or doubles a part
of a cache sees it in the rows.
"""

import __future__

import ast
import contextlib
import importlib
import json
import re
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple
from unittest import mock

import numpy as np

import speculative
from enumeration import output_distribution, total_variation
from lab import gallery
from lab.gallery.setting import mean_length, of_rounds
from speculative import autoregressive_sampling

OWN_NAMES = "sampling", "speculative", "utils"  # of this project, and of some of these
ROOT = str(Path(__file__).resolve().parents[2])
P, Q = gallery.P.astype(float), gallery.Q.astype(float)
PROMPT, EOS = gallery.SETTING.prompt, gallery.EOS
N, K = gallery.SETTING.N, gallery.SETTING.K
MAX_RUNS = 1_000_000
N_CHECKS = 1_000  # random runs for each distribution, which must agree
NOISE = 64  # where a row of noise begins in a buffer of random numbers


class Setting(NamedTuple):
    """A decoder, and the target's plain sampling. Both draw from PyTorch or np.random."""

    name: str
    fast: Callable  # () -> the new tokens
    slow: Callable  # () -> what the target writes by itself
    raises: type[Exception] | tuple = ()  # what it ends with

    def measured(self):
        """Its distance, or its error."""
        try:
            found = drawn(self.fast)
        except self.raises as error:
            return {"error": f"{type(error).__name__}: {error}".split("\n")[0]}
        return {"distance": total_variation(found, drawn(self.slow))}


class Rounds(NamedTuple):
    """A round that depends on the text alone, so it is enumerated once after each text."""

    name: str
    one_round: Callable  # (ids) -> the tokens that it adds

    def round_after(self, ids):
        return drawn(partial(self.one_round, ids))

    def measured(self):
        """Its distance, and the tokens of its first round."""
        return numbers_of(self.round_after)


def numbers_of(round_after, n=N):
    """The distance of texts, and the tokens of the first round.

    round_after(ids) is {new tokens: probability}.
    """
    round_after = cache(round_after)
    tokens = mean_length(round_after(PROMPT))
    found = of_rounds(round_after, PROMPT, n)
    texts = {text[len(PROMPT) :]: float(mass) for text, mass in found.items()}
    wanted = output_distribution(partial(sampled, Q, n, None))
    return {"distance": total_variation(texts, wanted), "tokens_per_round": tokens}


def drawn(function):
    """{output: probability} of function(), which draws from PyTorch or np.random."""
    from enumeration.pytorch import output_distribution

    def silent():
        with contextlib.redirect_stdout(None):
            return flat(function())

    return output_distribution(silent, n_checks=N_CHECKS, max_runs=MAX_RUNS)


def flat(output):
    """A tensor, a number, or a list of these -> their numbers in a list."""
    if isinstance(output, list | tuple):
        return [number for part in output for number in flat(part)]
    if hasattr(output, "reshape"):
        return output.reshape(-1).tolist()
    return [output]


def named(name, **options):
    given = [f"{option} = {value}" for option, value in options.items()]
    return ", ".join([name, *given])


# ---- The pair ----


def model(rows):
    """A model of this project whose row is chosen by the sum of all tokens."""

    def call(ids, n_rows=1):
        sums = np.cumsum(ids)[-n_rows:]
        return rows[sums % len(rows)]

    return call


def logits(rows):
    import torch

    return torch.tensor(rows).log()


def last_rows(table, tokens, n):
    """The rows of a table after each of the last n prefixes: tokens [batch, m] -> [batch, n, V]"""
    sums = tokens.long().cumsum(-1)[:, -n:]
    return table[sums % len(table)]


class Cache:
    """The keys and values of a network that stands in for a real one are the tokens it has read."""

    def __init__(self):
        self.tokens = None  # [1, n]

    def read(self, ids):
        """All tokens, after these [1, n] have been added."""
        import torch

        known = ids[:, :0] if self.tokens is None else self.tokens
        self.tokens = torch.cat([known, ids], dim=1)
        return self.tokens

    def crop(self, length):
        self.tokens = self.tokens[:, :length]

    def get_seq_length(self):
        return 0 if self.tokens is None else self.tokens.shape[1]


class Network:
    """Stands in for a causal network of transformers."""

    def __init__(self, rows, **attributes):
        self.table = logits(rows)
        self.device = self.table.device
        self.config = SimpleNamespace(vocab_size=rows.shape[1], max_position_embeddings=99)
        vars(self).update(attributes)

    def __call__(self, input_ids, past_key_values=None, use_cache=True, **_):
        tokens = input_ids
        cache = past_key_values
        if use_cache:
            cache = Cache() if cache is None else cache
            tokens = cache.read(input_ids)
        found = last_rows(self.table, tokens, input_ids.shape[1])
        states = input_ids[..., None]  # [1, n, 1]
        return SimpleNamespace(logits=found, hidden_states=[states, states], past_key_values=cache)

    def parameters(self):
        yield self.table


# ---- Loops ----


def plain(rows=Q, n=N, eos=None):
    """Plain sampling from the target, after the prompt."""
    return partial(sampled, rows, n, eos, np.random)


def sampled(rows, n, eos, rng):
    return autoregressive_sampling(PROMPT, model(rows), n, rng, eos=eos)[len(PROMPT) :]


def by_rule(name, verify):
    """Rounds of this project with a rule verify(drafted, p, q) for tensors."""
    import torch

    draft, target = model(P), model(Q)

    def rule(drafted, p, q, rng):
        tensors = map(torch.tensor, (drafted, p, q))
        return np.array([int(token) for token in verify(*tensors)])

    def one_round(ids):
        r = speculative.one_round(np.array(ids), draft, target, K, np.random, verify=rule)
        return r.emitted

    return Rounds(name, one_round)


# ---- Code ----


def imported(path, name, unneeded=()):
    """The module from the folder path, with stand-ins for modules that decoding goes without."""
    for known in (name, *OWN_NAMES):
        sys.modules.pop(known, None)
    for other in unneeded:
        sys.modules[other] = mock.MagicMock()
    others = [folder for folder in sys.path if folder != ROOT]
    sys.path[:] = [str(path), *others]
    return importlib.import_module(name)


def definitions(path, *wanted, **names):
    """The functions and classes of a script, a notebook or a page, and nothing else of it, by name.

    They see the names. `wanted` are those that are needed, if not all are.
    """
    kinds = ast.FunctionDef | ast.ClassDef
    found = [node for node in ast.parse(python_of(path)).body if isinstance(node, kinds)]
    if wanted:
        found = [node for node in found if node.name in wanted]
    flags = __future__.annotations.compiler_flag
    exec(compile(ast.Module(found, []), "other people's code", "exec", flags), names)
    return SimpleNamespace(**names)


class Unpinned:
    """torch for a machine without a GPU, where no memory can be pinned."""

    def __getattr__(self, name):
        import torch

        found = getattr(torch, name)
        if name not in ("tensor", "arange", "zeros", "ones", "full", "empty"):
            return found
        return lambda *args, pin_memory=None, **options: found(*args, **options)


def python_of(path):
    """The Python in a file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        code = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
        return "\n".join("".join(lines) for lines in code)
    return text
