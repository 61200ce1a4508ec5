"""vllm-ascend: its functions in PyTorch, and its Triton kernels, which run on a CPU as they are.

With `enable_block_verify`, it compares the product of the ratios with the product of the
random numbers up to the same place, where block verification has one number per stage.

The distribution of such products is known. If u is uniform, -ln u is a waiting time, so
-ln(u1 u2 ... ui) is when the ith customer of a Poisson process arrives. The product is
above c if i customers or more have arrived by -ln c. So it is at most c with probability c
for i = 1, c (1 - ln c) for i = 2, and so on.
"""

import importlib.util
import math
import sys
import types
from types import SimpleNamespace
from unittest import mock

import numpy as np

from lab.block import block_probabilities
from studies.audit import kernels
from studies.audit.harness import Unpinned, defined, python_of
from studies.audit.kernels import (
    N_CHECKS,
    Kernel,
    arguments,
    drawn,
    from_outputs,
    language_for_vllm,
    numbers_from,
    one_by_one,
    one_hot,
    outputs_of,
    tokens_of,
)

try:
    import torch
except ImportError:  # a test wants to read the names only
    torch = None

FILE = "vllm_ascend/sample/rejection_sampler.py"
KERNELS = "vllm_ascend/ops/triton/reject_sample.py"
K_OF_BLOCKS = 3  # for fewer guesses, enable_block_verify changes nothing
MENDS = {
    "pi = torch.cumprod(pi, dim=-1)": "pi = stages(draft_token_ids, draft_probs, target_probs)",
    "torch.cumprod(uniform_token_probs, dim=-1)": "uniform_token_probs",
    "use_block_verify: bool = False": "use_block_verify: bool = True",
}


def vllm_ascend(path):
    kernels.DEVICE = "cpu"  # where Ascend's Triton can be interpreted
    text = python_of(path / FILE)
    with_kernels = rounds_of(text, enable_block_verify=True, triton=kernels_in(path))
    drafts = [*one_hot(K_OF_BLOCKS)]
    name = "enable_block_verify, one-hot drafts, K = 3"
    yield Kernel(f"Triton, {name}", drafts, by_products(with_kernels))
    yield Kernel("token verification, drawn drafts", [*drawn()], from_outputs(rounds_of(text)))
    for kind, cases in ("drawn", drawn), ("one-hot", one_hot):
        name = f"enable_block_verify, {kind} drafts, K = 3"
        cases = [*cases(K_OF_BLOCKS)]
        yield Kernel(name, cases, by_products(rounds_of(text, enable_block_verify=True)))
        run = rounds_of(mended(text), enable_block_verify=True)
        yield Kernel(f"{name}, mended", cases, from_outputs(run))


def after_7808(path):
    """Of April 2026, when #7808 had taken out the products. Three guesses turn it on."""
    kernels.DEVICE = "cpu"
    run = rounds_of(python_of(path / FILE))
    name = "block verification, drawn drafts, K = 3"
    yield Kernel(name, [*drawn(K_OF_BLOCKS)], from_outputs(run))


def mended(text):
    for old, new in MENDS.items():
        if text.count(old) != 1:
            raise ValueError(f"{FILE} doesn't have {old!r} once, so it can't be mended")
        text = text.replace(old, new)
    return text


def rounds_of(text, enable_block_verify=False, triton=None):
    """run(draw, case) -> the tokens of a round of `rejection_sample`, in PyTorch or in Triton."""
    settings = SimpleNamespace(
        enable_block_verify=enable_block_verify,
        enable_entropy_verify=False,
        posterior_threshold=0.95,
        posterior_alpha=0.4,
    )
    config = SimpleNamespace(rejection_sampler_config=settings, enable_reduce_sample=False)
    names = dict(torch=Unpinned(), logger=mock.MagicMock(), stages=stages)
    names |= dict(MAX_SPEC_LEN=128, PLACEHOLDER_TOKEN_ID=-1, GREEDY_TEMPERATURE=0)
    names |= dict(RejectionSampler=object, HAS_TRITON=triton is not None)
    names |= dict(get_ascend_config=lambda: config, generate_uniform_probs=uniform)
    code = defined(text, **names, **(triton or {}))

    def run(draw, case):
        with numbers_from(draw):
            found = code.rejection_sample(*arguments(case))
        return tokens_of(found[0])

    return run


def uniform(n, *_):
    """As in vLLM, from which vllm-ascend has it."""
    return torch.rand((n,), dtype=torch.float64)


def kernels_in(path):
    """Its Triton kernels and what starts them. `get_element`, of Ascend's own Triton, is ours."""
    tl = language_for_vllm()

    def get_element(row, index):
        return tl.sum(tl.where(tl.arange(0, row.shape[0]) == index[0], row, 0))

    utils = types.ModuleType("vllm_ascend.ops.triton.triton_utils")
    utils.get_element, utils.get_vectorcore_num = get_element, lambda: 1
    sys.modules[utils.__name__] = utils
    spec = importlib.util.spec_from_file_location("reject_sample", path / KERNELS)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return {name: value for name, value in vars(module).items() if not name.startswith("_")}


def stages(drafted, p, q):
    """One probability per stage, as in `lab.block.verify_block`: [1, k]"""
    p = torch.eye(q.shape[1])[drafted.long()] if p is None else p
    _, h = block_probabilities(drafted.tolist(), p.numpy(), q.numpy())
    return torch.tensor([h[1:]])


# ---- Products of random numbers ----


class Numbers:
    """A draw with given numbers, whose noise is drawn."""

    def __init__(self, numbers, exponential=np.ones):
        self.numbers, self.exponential = iter(numbers), exponential

    def __call__(self):
        return next(self.numbers)


def by_products(run):
    """`Kernel.distributions` for rules that compare u1 ... ui with a limit at each place i."""

    def distribution(case):
        limits = limits_of(run, case)
        check(run, case, limits)
        found = {}
        edges = [1, *limits, 0]
        for n, mass in enumerate(kept(limits)):
            if edges[n] > edges[n + 1]:
                product = (edges[n] + edges[n + 1]) / 2  # with which n guesses are kept
                for tokens, share in replacements(run, case, product).items():
                    found[tokens] = mass * share
        return found

    return one_by_one(distribution)


def ones_after(number, case):
    """Random numbers whose products are all this number."""
    return [number] + [1.0] * (len(case.drafted) - 1)


def limits_of(run, case):
    """[k]: guess i is kept where u1 ... ui is at most limits[i - 1], alone or with later ones."""

    def n_kept(draw):
        numbers = Numbers(ones_after(draw(), case))
        return len(run(numbers, case)) - 1

    found = outputs_of(n_kept)
    masses = [found.get((n,), 0) for n in range(len(case.drafted) + 1)]
    return np.cumsum(masses[::-1])[::-1][1:]


def replacements(run, case, product):
    """{tokens: probability} for given products of random numbers."""

    def one_round(draw):
        numbers = Numbers(ones_after(product, case), draw.exponential)
        return run(numbers, case)

    return outputs_of(one_round)


def check(run, case, limits, seed=0):
    """RuntimeError unless random numbers lead where their products say."""
    rng = np.random.default_rng(seed)
    for _ in range(N_CHECKS):
        numbers = rng.random(len(limits))
        below = np.cumprod(numbers) <= limits
        n = len(run(Numbers(numbers.tolist()), case)) - 1
        if n != max(np.flatnonzero(below) + 1, default=0):
            raise RuntimeError(f"not by products of random numbers: {numbers} keep {n} guesses")


def kept(limits):
    """The probability that 0, 1, ... k guesses are kept, for limits that do not rise.

    Kept are all up to the last guess i with u1 ... ui <= limits[i - 1].
    """
    k = len(limits)
    times = [-math.log(max(limit, 1e-300)) for limit in limits]
    none_from = [none_is_late(times, i) for i in range(k + 1)]  # no place after the first i is kept
    return np.diff([0, *none_from])


def none_is_late(times, i):
    """The probability that customer j has come by times[j - 1], for each j above i."""
    k = len(times)
    now = 0.0
    counts = np.eye(k + 1)[0]  # nobody has come yet; k stands for k or more
    for j in range(i, k):
        counts = np.convolve(counts, arrivals(times[j] - now, k))
        counts = np.append(counts[:k], counts[k:].sum())
        counts[: j + 1] = 0
        now = times[j]
    return counts.sum()


def arrivals(time, k):
    """The probability that 0, 1, ... k - 1 customers come in this time, and k or more."""
    few = [math.exp(-time) * time**n / math.factorial(n) for n in range(k)]
    return np.array([*few, 1 - sum(few)])


CLONES = {
    "vllm-project/vllm-ascend": ("182b75e", vllm_ascend),
    "vllm-project/vllm-ascend@2f4d55e": ("2f4d55e", after_7808),
}
