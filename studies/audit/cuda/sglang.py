"""sglang: its tree kernel in CUDA, see trees.py, and its chain kernel in Triton.

The latter reads its random numbers from tensors, so nothing has to be replaced. Without a
GPU it runs in Triton's interpreter.
"""

import importlib.util
import sys
from functools import partial

import numpy as np

from studies.audit import kernels
from studies.audit.cuda import trees
from studies.audit.cuda.flashinfer import WITH_ZEROS
from studies.audit.harness import P, Q
from studies.audit.kernels import Kernel, V, drawn, from_batches


def sglang(folder):
    yield from trees.settings(folder)
    yield from chains(triton_chain(trees.sglang_files(folder)))


def triton_chain(files):
    """launch(drafted, p, q, numbers, **options) -> tokens, padded with -1."""
    kernels.triton_for(kernels.DEVICE)
    import torch

    spec = importlib.util.spec_from_file_location("reject_sampling", files / trees.CHAIN)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    to_device = partial(torch.tensor, device=kernels.DEVICE)

    def launch(drafted, p, q, numbers, **options):
        n, k = drafted.shape
        index = np.arange(n * (k + 1)).reshape(n, k + 1)
        predicts = to_device(np.full(n * (k + 1), -1, np.int32))
        accept_index = to_device(np.full((n, k + 1), -1, np.int32))
        accepted = to_device(np.zeros(n, np.int32))
        module.chain_speculative_sampling_triton(
            predicts=predicts,
            accept_index=accept_index,
            accept_token_num=accepted,
            candidates=to_device(np.pad(drafted, ((0, 0), (1, 0)))),
            retrive_index=to_device(index),
            retrive_next_token=None,
            retrive_next_sibling=None,
            uniform_samples=to_device(numbers[:, :k]),
            uniform_samples_for_final_sampling=to_device(numbers[:, k]),
            target_probs=to_device(q),
            draft_probs=to_device(p),
            threshold_single=1.0,
            threshold_acc=1.0,
            deterministic=True,
            **options,
        )
        return trees.path(*(found.cpu().numpy() for found in (predicts, accept_index, accepted)))

    return launch


def chains(launch):
    for k in 1, 2, 3:
        yield chain(launch, f"Triton, token verification, K = {k}", [*drawn(k)])
    for k in 2, 3:
        name = f"Triton, block verification, K = {k}"
        yield chain(launch, name, [*drawn(k)], block_verification=True)
    p, q = WITH_ZEROS
    with_zeros = [*drawn(2, p, q)]
    greedy = [*drawn(2, np.eye(V)[P.argmax(axis=1)], Q)]
    for kind, block in ("token", False), ("block", True):
        name = f"Triton, {kind} verification, K = 2"
        options = dict(block_verification=block)
        yield chain(launch, f"{name}, rows with zeros", with_zeros, q, **options)
        yield chain(launch, f"{name}, one-hot drafts", greedy, **options)


def chain(launch, name, cases, rows=Q, **options):
    width = len(cases[0].drafted) + 1
    launch = partial(launch, **options)
    return Kernel(name, cases, from_batches(launch, width), rows)


WHEELS = {"sglang": (trees.VERSION, sglang)}
