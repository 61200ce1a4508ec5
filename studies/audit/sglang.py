"""sglang's chain kernel in Triton, which reads its random numbers from tensors.

So nothing has to be replaced. Without a GPU it runs in Triton's interpreter.
"""

import importlib.util
import sys
from functools import partial

import numpy as np

from studies.audit import kernels, wheels
from studies.audit.kernels import Kernel, drawn, from_batches

VERSION = "0.5.23"
FILE = "sglang/kernels/ops/speculative/reject_sampling.py"


def sglang(folder):
    launch = triton_chain(wheels.unpacked(folder, "sglang", VERSION, [FILE]) / FILE)
    for k in 1, 2, 3:
        yield chain(f"token verification, K = {k}", k, launch)
    for k in 2, 3:
        yield chain(f"block verification, K = {k}", k, partial(launch, block_verification=True))


def chain(name, k, launch):
    return Kernel(f"Triton, {name}", [*drawn(k)], from_batches(launch, k + 1))


def triton_chain(path):
    """launch(drafted, p, q, numbers, **options) -> tokens, padded with -1."""
    kernels.triton_for(kernels.DEVICE)
    import torch

    spec = importlib.util.spec_from_file_location("reject_sampling", path)
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
        found = predicts.cpu().numpy(), accept_index.cpu().numpy()
        return path_of(*found, accepted.cpu().numpy())

    return launch


def path_of(predicts, accept_index, accepted):
    """What is accepted follows accept_index through the nodes of the batch."""
    is_there = np.arange(accept_index.shape[1]) <= accepted[:, None]
    return np.where(is_there, predicts.ravel()[np.where(is_there, accept_index, 0)], -1)


WHEELS = {"sglang": (VERSION, sglang)}
