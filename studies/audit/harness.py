"""What the projects share: a pair of models, the loop around a round or a rule, and ways into other people's files.

The pair knows three tokens, and its rows depend on the last token only. Whatever draws,
draws inside of `drawing`, where PyTorch, Python's random and np.random all take their
numbers from the rng of the enumeration.
"""

import ast
import importlib
import json
import re
import sys
import types
from pathlib import Path
from unittest import mock

import numpy as np

from sampling import sample
from speculative import autoregressive_sampling, propose, speculative_sampling

ROOT = str(Path(__file__).resolve().parents[2])
# P[t] and Q[t] are the rows of the draft and of the target after token t.
P = np.array([[0.2, 0.5, 0.3], [0.1, 0.2, 0.7], [0.2, 0.3, 0.5]])
Q = np.array([[0.3, 0.2, 0.5], [0.5, 0.4, 0.1], [0.3, 0.5, 0.2]])
N, K = 3, 2


def drawing(function):
    """function(rng), with all that it draws drawn from rng."""
    from enumeration.pytorch import draws_from

    def draw(rng):
        with draws_from(rng):
            return function(rng)

    return draw


def mean_length(outputs):
    return sum(len(output) * mass for output, mass in outputs.items())


def named(name, **options):
    return ", ".join([name, *(f"{option} = {value}" for option, value in options.items())])


# ---- Models ----


def model(rows):
    """A model of this project."""
    return lambda ids, n_rows=1: rows[np.asarray(ids)[-n_rows:]]


def logits(rows):
    import torch

    return torch.tensor(rows).log()


def fake(call, **attributes):
    """An object that can be called, with attributes."""
    vars(call).update(attributes)
    return call


def network(rows, **attributes):
    """As PyTorch knows them: ids [1, n] -> .logits [1, n, V]"""
    table = logits(rows)

    def forward(ids=None, *args, input_ids=None, **_):
        found = table[(input_ids if ids is None else ids).long()]
        return types.SimpleNamespace(logits=found, hidden_states=[found] * 2, past_key_values=None)

    config = types.SimpleNamespace(vocab_size=len(rows), max_position_embeddings=99)
    return fake(forward, device=table.device, config=config, **attributes)


# ---- Loops, all of them decode(rng) -> new tokens ----


def plain(rows=Q, n=N, eos=None):
    """What the target writes after token 0, by itself."""
    return lambda rng: autoregressive_sampling([0], model(rows), n, rng, eos=eos)[1:]


def rounds(one_round):
    """Rounds one_round(ids, rng) -> new tokens, until there are N."""

    def decode(rng):
        ids = [0]
        while len(ids) < 1 + N:
            ids += [int(token) for token in one_round(ids, rng)]
        return ids[1 : 1 + N]

    return fake(decode, one_round=lambda rng: one_round([0], rng))


def rule(verify, needs_a_guess=True):
    """Rounds with a rule for `in_torch`."""
    verify = in_torch(verify, needs_a_guess)

    def decode(rng):
        return speculative_sampling([0], model(P), model(Q), N, K, rng, verify=verify)[1:]

    return fake(decode, one_round=lambda rng: one_round(verify, P, Q, K, rng))


def one_round(verify, P, Q, K, rng):
    """What verify(drafted, p, q, rng) returns in a round after token 0."""
    drafted, p = propose([0], model(P), K, rng)
    return verify(drafted, p, model(Q)([0, *drafted], K + 1), rng)


def in_torch(verify, needs_a_guess=True):
    """verify(drafted, p, q, rng) with tensors for arrays. Most need a guess: where there is none, q decides."""
    import torch

    def checked(drafted, p, q, rng):
        if needs_a_guess and not len(drafted):
            return [sample(q[0], rng)]
        p = p.reshape(-1, q.shape[1])
        return np.array(verify(*map(torch.tensor, (drafted, p, q)), rng))

    return checked


# ---- Code ----


def imported(path, name, unneeded=()):
    """The module from the folder path. It imports the unneeded ones too, but decoding goes without them."""
    for known in (name, "sampling", "utils"):  # this project has modules of such names
        sys.modules.pop(known, None)
    sys.modules.update({other: mock.MagicMock() for other in unneeded})
    sys.path[:] = [str(path), *(folder for folder in sys.path if folder != ROOT)]
    return importlib.import_module(name)


def functions(path, **names):
    """The functions of a script, a notebook or a page, and nothing else of it, by name. They see the names."""
    code = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(code)["cells"]
        code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    if path.suffix == ".md":
        code = "\n".join(re.findall(r"```python\n(.*?)```", code, re.DOTALL))
    found = [node for node in ast.parse(code).body if isinstance(node, ast.FunctionDef)]
    exec(compile(ast.Module(found, []), str(path), "exec"), names)
    return names
