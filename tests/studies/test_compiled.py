"""studies/audit/cuda/ without a GPU: its kernels in NumPy, with FlashInfer's faults.

What they give on a GPU is in audit.json. Here the program has to find the same of them.
"""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from support import GRID, chain, read

from enumeration.batches import UNIT
from studies.audit.cuda import flashinfer


class InNumpy(flashinfer.FlashInfer):
    """FlashInfer's kernels, after sampling.cuh of 0.7.2.post1."""

    def __init__(self):
        super().__init__(folder=None)

    def chain(self, drafted, p, q, numbers):
        k = drafted.shape[1]
        numbers = numbers + 1 / UNIT
        emitted = (chain(drafted, p, q, numbers[:, : k + 1]) >= 0).sum(axis=1) - 1
        last = np.where(emitted < k, numbers[:, -1], numbers[:, k])
        return chain(drafted, p, q, np.c_[numbers[:, :k], last])

    def sample(self, rows, numbers):
        weights = np.cumsum(rows, axis=1)
        tokens = (weights < (numbers + 1 / UNIT) * weights[:, -1:]).sum(axis=1)
        return np.minimum(tokens, rows.shape[1] - 1)


@pytest.fixture(autouse=True)
def fewer_random_inputs(monkeypatch):
    monkeypatch.setattr(flashinfer, "N_CHECKS", 200)


def of_gpu(setting):
    """Its row of audit.json, as it was measured on a GPU."""
    rows = json.loads(read("studies/audit/audit.json"))
    return next(row for row in rows if "gpu" in row and row["setting"] == setting.name)


def test_it_finds_what_a_gpu_gave():
    k_1, k_2, _, guess = flashinfer.settings_of(InNumpy())
    for setting in k_1, k_2, guess:
        for key, value in setting.measured().items():
            assert value == pytest.approx(of_gpu(setting)[key], rel=0, abs=GRID), setting.name
    assert guess._replace(shared=False).measured()["distance"] < GRID


def test_a_kernel_that_asks_for_more_numbers_than_it_gets_is_refused():
    def call(name, n, width, numbers, asked, *_):
        asked[0] = 9

    kernels = InNumpy()
    kernels.library = SimpleNamespace(call=call)
    with pytest.raises(RuntimeError, match="sample asks for 9 numbers; found 3"):
        flashinfer.FlashInfer.sample(kernels, np.eye(4), np.zeros((4, 3)))
