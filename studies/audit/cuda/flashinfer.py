"""FlashInfer: `chain_speculative_sampling`, and a number that its sampler and torch.rand share."""

from functools import cached_property
from typing import NamedTuple

import numpy as np

from enumeration import total_variation
from enumeration.batches import UNIT, distributions
from studies.audit import wheels
from studies.audit.cuda.build import PARTS, Library, gpu, includes_of
from studies.audit.harness import P, Q
from studies.audit.kernels import Kernel, drawn, from_batches, measured_on

VERSION = "0.7.2.post1"
N_CHECKS = 30_000
PLAIN = 0  # of the samplers in flashinfer.cu


class FlashInfer:
    """The kernels, on arrays. Numbers in [0, 1) reach them as cuRAND's would, in (0, 1]."""

    def __init__(self, folder):
        self.folder = folder

    @cached_property
    def library(self):
        wheel = wheels.unpacked(self.folder, "flashinfer-python", VERSION, PARTS)
        return Library(wheel, "flashinfer.cu", includes_of(wheel))

    def call(self, name, numbers, *args):
        n, width = numbers.shape
        asked = np.zeros(1, np.int32)
        self.library.call(name, n, width, floats(numbers + 1 / UNIT), asked, *args)
        if asked > width:
            raise RuntimeError(f"{name} asks for {asked[0]} numbers; found {width}")

    def chain(self, drafted, p, q, numbers):
        """Tokens [n, k+1], padded with -1."""
        n, k = drafted.shape
        tokens = np.empty((n, k + 1), np.int32)
        counts = np.empty((2, n), np.int32)  # of accepted and of emitted drafts
        rows = floats(p), drafted.astype(np.int32), floats(q)
        self.call("chain", numbers, k, q.shape[-1], *rows, tokens, *counts)
        return tokens

    def sample(self, rows, numbers):
        """A token for each row [n, d]."""
        n, d = rows.shape
        tokens = np.empty(n, np.int32)
        self.call("sample", numbers, PLAIN, d, 0, 0.0, floats(rows), tokens)
        return tokens


def floats(array):
    return np.ascontiguousarray(array, np.float32)


class OnGPU(NamedTuple):
    """A `Kernel` or a `Guess`, on the GPU of this machine."""

    name: str
    setting: NamedTuple

    def measured(self):
        name, _ = gpu()  # before anything is fetched
        return self.setting.measured() | measured_on(name)


def settings_of(kernels):
    for k in 1, 2, 3:
        name = f"chain_speculative_sampling, K = {k}"
        launch = from_batches(kernels.chain, k + 2, N_CHECKS)  # a rejection takes one too many
        yield Kernel(name, [*drawn(k)], launch)
    yield Guess("a guess by plain sampling, tested with the next torch.rand", kernels)


def flashinfer(folder):
    for setting in settings_of(FlashInfer(folder)):
        yield OnGPU(setting.name, setting)


class Guess(NamedTuple):
    """`get_seed_and_offset` returns the offset that it has moved on to, where torch.rand begins."""

    name: str
    kernels: FlashInfer
    shared: bool = True

    def measured(self):
        (found,) = distributions(self.token, 1, 3, N_CHECKS)
        wanted = {(token,): mass for token, mass in enumerate(Q[0])}
        return {"distance": total_variation(found, wanted)}

    def token(self, case, numbers):
        p, q = floats(P[0]), floats(Q[0])
        residual = np.maximum(q - p, 0)
        p_rows, residuals = (np.tile(row, (len(case), 1)) for row in (p, residual / residual.sum()))
        guess = self.kernels.sample(p_rows, numbers[:, :1])
        test = numbers[:, 0 if self.shared else 1] + 1 / UNIT
        is_kept = test % 1 * p[guess] < q[guess]  # torch.rand turns 1 into 0
        return np.where(is_kept, guess, self.kernels.sample(residuals, numbers[:, 2:]))


WHEELS = {"flashinfer": (VERSION, flashinfer)}
