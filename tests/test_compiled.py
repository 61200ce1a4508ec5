"""studies/audit/cuda/ without a GPU: its kernels in NumPy, with FlashInfer's faults.

What they give on a GPU is in audit.json. Here the program has to find the same of them.
"""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from support import GRID, chain, read

from checkpoint import UserError
from enumeration.batches import UNIT
from studies.audit.__main__ import main
from studies.audit.cuda import build, flashinfer, trees
from studies.audit.kernels import V


class InNumpy(flashinfer.FlashInfer):
    """FlashInfer's kernels, after sampling.cuh of 0.7.2.post1."""

    def __init__(self):
        super().__init__(folder=None, version=None)

    def rounds(self, drafted, p, q, numbers):
        n, k = drafted.shape
        numbers = numbers + 1 / UNIT
        places = np.arange(n)[:, None], np.arange(k), drafted
        p_of, q_of = p[places], q[places]
        emitted = np.cumprod(numbers[:, :k] * p_of < q_of, axis=1).sum(axis=1)
        is_again = np.arange(k) >= emitted[:, None]  # the rejected one, and those after it
        accepted = emitted + (is_again & (numbers[:, 1 : k + 1] * p_of < q_of)).sum(axis=1)
        last = np.where(emitted < k, numbers[:, -1], numbers[:, k])
        return chain(drafted, p, q, np.c_[numbers[:, :k], last]), accepted, emitted

    def sample(self, kind, rows, numbers):
        weights = np.cumsum(rows, axis=1)
        tokens = (weights < (numbers + 1 / UNIT) * weights[:, -1:]).sum(axis=1)
        return np.minimum(tokens, rows.shape[1] - 1)


class TreesInNumpy:
    """sglang's tree kernel, after sampling.cuh of 0.5.23."""

    def rounds(self, tree, drafts, q, numbers, single=1.0, acc=1.0):
        found = np.full((len(drafts), tree.depth), -1)
        for i, (draft, rows, coins) in enumerate(zip(drafts, q, numbers)):
            tokens = one_round(tree, draft, rows, coins, single, acc)
            found[i, : len(tokens)] = tokens
        return found


def one_round(tree, draft, rows, coins, single, acc):
    tokens = []
    node = 0
    while True:
        row = rows[node].copy()
        total = 0
        for child in tree.children[node]:
            mass = rows[node, draft[child]]
            total += mass
            if mass > 0 and (coins[node] < total / acc or mass >= single):
                tokens.append(draft[child])
                node = child
                break
            row[draft[child]] = 0
        else:
            weights = np.cumsum(row)
            token = (weights <= coins[-1] * weights[-1]).sum()
            return [*tokens, min(token, V - 1)]


@pytest.fixture(autouse=True)
def fewer_random_inputs(monkeypatch):
    monkeypatch.setattr(flashinfer, "N_CHECKS", 200)
    monkeypatch.setattr(trees, "N_CHECKS", 50)


def in_table(package, setting):
    """The row of audit.json, as it was measured on a GPU."""
    rows = json.loads(read("studies/audit/audit.json"))
    (row,) = [row for row in rows if (row["package"], row["setting"]) == (package, setting)][:1]
    return row


def agree(found, wanted):
    return all(abs(found[key] - wanted[key]) < GRID for key in found)


def of_gpu(setting):
    """The row of audit.json that was measured on a GPU."""
    rows = json.loads(read("studies/audit/audit.json"))
    names = [row["setting"] for row in rows if "gpu" in row]
    return [row for row in rows if "gpu" in row][names.index(setting.name)]


def agrees(setting):
    found, recorded = setting.row(), of_gpu(setting)
    for key in found.keys() & recorded.keys():
        assert found[key] == pytest.approx(recorded[key], rel=0, abs=GRID), setting.name


# ---- What is computed ----


def test_flashinfers_rounds():
    k_1, k_2, _ = flashinfer.chains(InNumpy())
    agrees(k_1)
    agrees(k_2)


def test_edges_of_flashinfers_rounds():
    for setting in flashinfer.edges(InNumpy()):
        agrees(setting)


def test_what_is_wrong_with_flashinfers_numbers():
    shared, _, counts, _, padding = flashinfer.faults(InNumpy())
    agrees(shared)
    assert flashinfer.guess(InNumpy(), shared=False)["distance"] < GRID
    assert counts.row()["error"] == of_gpu(counts)["error"]
    assert padding.row()["error"] == of_gpu(padding)["error"]


def test_a_kernel_that_asks_for_more_numbers_than_it_gets_is_refused():
    def call(name, n, width, numbers, asked, *_):
        asked[0] = 9

    kernels = InNumpy()
    kernels.library = SimpleNamespace(call=call)
    with pytest.raises(RuntimeError, match="sample asks for 9 numbers; found 3"):
        flashinfer.FlashInfer.sample(kernels, "top-p", np.eye(V), np.zeros((V, 3)), p=0.5)


@pytest.mark.slow
def test_a_rejection_takes_a_number_that_was_not_reserved():
    _, two_rounds, *_ = flashinfer.faults(InNumpy())
    agrees(two_rounds)
    assert flashinfer.two_rounds(InNumpy(), n_reserved=5)["distance"] < GRID
    assert flashinfer.two_rounds(InNumpy(), k=2)["distance"] < GRID


@pytest.mark.slow
def test_trees(monkeypatch):
    monkeypatch.setattr(trees, "TreeKernel", lambda *_: TreesInNumpy())
    for setting in trees.settings(None):
        if "chain of 2," in setting.name or "2 children, " in setting.name:
            agrees(setting)


# ---- What a machine without a GPU says ----


@pytest.mark.parametrize("name", ["flashinfer", "flashinfer@0.7.1", "sglang"])
def test_what_is_missing_is_said_before_anything_is_fetched(name, monkeypatch, tmp_path):
    monkeypatch.setattr("studies.audit.__main__.version_of", lambda package: "1")
    monkeypatch.setattr(shutil, "which", lambda program: None)
    monkeypatch.setattr("sys.argv", ["audit", "--folder", str(tmp_path), "--only", name])
    build.gpu.cache_clear()
    with pytest.raises(UserError, match=r"found no nvidia-smi and no nvcc.*README"):
        main()
    assert not [*tmp_path.iterdir()]
