"""What serves: the kernels of vLLM, from their outputs alone.

They are compiled where PyTorch finds a GPU, and run in Triton's interpreter on a CPU elsewhere.

Kernels can't take random numbers without a value, so they get real ones, and
enumeration/values.py finds the thresholds at which the outcome of a round changes. Each
draft is a case of its own, with the probability that it is written. After this first round
the target goes on by itself, until there are K + 1 tokens.

What is replaced is what draws: torch.rand and Tensor.exponential_ in V1, tl_rand32 and
murmur3_uniform32 in V2, see given.py. Triton's interpreter lacks log1p, which is computed
as log(1 + x). Only a handful of files is unpacked. Whatever else they import is a stand-in.
"""

import contextlib
import datetime
import importlib.abc
import importlib.machinery
import itertools
import math
import os
import sys
import types
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple
from unittest import mock

import numpy as np
from tqdm import tqdm

from checkpoint import UserError
from enumeration import batches, values
from studies.audit import wheels
from studies.audit.harness import NOISE, PROMPT, K, P, Q, numbers_of

try:
    import torch
except ImportError:  # a test wants to read the names only
    torch = None

VERSION = "0.33.0"
FILES = [
    "vllm/model_executor/warmup/jit_warmup.py",
    "vllm/model_executor/warmup/jit_warmup_triton_helper.py",
    "vllm/v1/sample/rejection_sampler.py",
    "vllm/v1/spec_decode/fly.py",
    "vllm/v1/spec_decode/utils.py",
    "vllm/v1/worker/gpu/sample/gumbel.py",
    "vllm/v1/worker/gpu/spec_decode/rejection_sampler_utils.py",
]
V = len(P)
BONUS = V  # stands for any bonus, where the caller of a rule draws it
N_CHECKS = 100  # random inputs for each draft, which must agree
DEVICE = "cuda" if torch and torch.cuda.is_available() else "cpu"


# ---- Rounds ----


class Case(NamedTuple):
    """A draft, the probability that it is written, and the rows of a round."""

    drafted: tuple
    mass: float
    p: np.ndarray | None  # [k, V], or None if the draft has one choice at each place
    q: np.ndarray  # [k+1, V]


def drawn(k=K):
    """A case for each draft that the pair's draft may draw."""
    for drafted in itertools.product(range(V), repeat=k):
        p, q = rows_of(drafted)
        mass = math.prod(p[range(k), drafted])
        if mass > 0:
            yield Case(drafted, mass, p, q)


def one_hot(k=K):
    """The draft of its argmax at each position."""
    drafted = ()
    for _ in range(k):
        p, _ = rows_of((*drafted, 0))
        drafted = (*drafted, int(p[-1].argmax()))
    yield Case(drafted, 1.0, None, rows_of(drafted)[1])


def rows_of(drafted):
    sums = np.cumsum([sum(PROMPT), *drafted]) % V
    return P[sums[:-1]], Q[sums]


class Kernel(NamedTuple):
    """A rule with what it returns for each case."""

    name: str
    cases: list
    distributions: Callable  # (cases) -> {tokens of the round: probability} of each

    def measured(self):
        """The distance, and the tokens of the first round."""
        found = Counter()
        cases = tqdm(self.cases, desc=self.name, disable=False, leave=False)
        for case, outcomes in zip(self.cases, self.distributions(cases)):
            for tokens, share in outcomes.items():
                for longer, part in with_bonus(tokens, case.q[-1]).items():
                    found[longer] += case.mass * share * part

        def round_after(ids):
            return found if ids == PROMPT else one_token(Q[sum(ids) % V])

        return numbers_of(round_after, 1 + len(self.cases[0].drafted)) | where()


def where():
    return {} if DEVICE == "cpu" else measured_on(torch.cuda.get_device_name())


def measured_on(gpu):
    """Where a compiled kernel was measured, and when."""
    return {"gpu": f"{gpu}, {datetime.date.today():%-d %B %Y}"}


def with_bonus(tokens, row):
    """{tokens: probability}, with any bonus in place of BONUS."""
    *others, last = tokens
    if last != BONUS:
        return {tokens: 1.0}
    return {(*others, token): mass for (token,), mass in one_token(row).items()}


def one_token(row):
    return {(token,): float(mass) for token, mass in enumerate(row) if mass > 0}


def from_outputs(run):
    """`Kernel.distributions` for run(draw, case) -> tokens."""

    def distributions(cases):
        functions = (partial(run, case=case) for case in cases)
        return [values.output_distribution(each, n_checks=N_CHECKS) for each in functions]

    return distributions


def from_batches(launch, n_numbers, n_checks=N_CHECKS):
    """`Kernel.distributions` for launch(drafted, p, q, numbers) -> tokens, padded with -1."""

    def distributions(cases):
        cases = [*cases]
        drafted = np.array([case.drafted for case in cases])
        p = np.array([case.p for case in cases], np.float32)
        q = np.array([case.q for case in cases], np.float32)

        def of_cases(i, numbers):
            return launch(drafted[i], p[i], q[i], numbers)

        found = batches.distributions(of_cases, len(cases), n_numbers, n_checks)
        return [without_padding(outcomes) for outcomes in found]

    return distributions


def without_padding(outcomes):
    return {tuple(token for token in row if token != -1): mass for row, mass in outcomes.items()}


# ---- Loading ----


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules of vLLM that are not at hand can be imported, and do nothing."""

    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] != "vllm":
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return mock.MagicMock()

    def exec_module(self, module):
        pass


class Modules(NamedTuple):
    """Of vLLM."""

    v1: types.ModuleType
    v2: types.ModuleType


def modules_of(folder):
    """The `Modules`, from a folder for vLLM's wheel."""
    language_for_vllm()
    files = wheels.unpacked(folder, "vllm", VERSION, FILES)
    sys.path.insert(0, str(files))
    v1 = importlib.import_module("vllm.v1.sample.rejection_sampler")
    if not Path(v1.__file__).is_relative_to(files):
        raise UserError(f"found another vLLM, {v1.__file__}; use an environment without it")
    given = importlib.import_module("studies.audit.given")
    gumbel = importlib.import_module("vllm.v1.worker.gpu.sample.gumbel")
    gumbel.murmur3_uniform32, gumbel._log1p_neg_stable = given.noise, given.negative
    v2 = importlib.import_module("vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils")
    v2.tl_rand32, v2.spec_step_seed = given.number, given.same_seed
    return Modules(v1, v2)


def language_for_vllm():
    """Triton's language, which vLLM's modules can import now."""
    triton = triton_for(DEVICE)
    tl = triton.language
    utils = types.ModuleType("vllm.triton_utils")
    utils.triton, utils.tl, utils.HAS_TRITON = triton, tl, True
    if DEVICE == "cpu":
        utils.tldevice = SimpleNamespace(log1p=lambda x: tl.log(1.0 + x))
    else:
        utils.tldevice = tl.extra.libdevice
    sys.modules[utils.__name__] = utils
    sys.meta_path.append(StandIns())
    return tl


def triton_for(device):
    """Triton, which compiles kernels or interprets them. UserError if there is no Triton."""
    if device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    try:
        import triton.language.extra.libdevice
        from triton.runtime import interpreter
    except ImportError:
        advice = "install it, on Linux: pip install triton"
        raise UserError(f"found no Triton; {advice}") from None
    if device == "cpu":
        prepare_once(interpreter)
    return triton


def prepare_once(interpreter):
    """The interpreter prepares Triton's language again for each kernel, and for each function
    that a kernel calls. Once for each module is enough, and takes half the time."""
    prepare = interpreter._patch_lang
    prepared = set()

    def prepare_new(function):
        if function.__module__ not in prepared:
            prepared.add(function.__module__)
            prepare(function)
        return SimpleNamespace(restore=lambda: None)

    interpreter._patch_lang = prepare_new


# ---- V1 ----


def f32(rows):
    return torch.tensor(np.asarray(rows), dtype=torch.float32, device=DEVICE).contiguous()


def i32(numbers):
    return torch.tensor(numbers, dtype=torch.int32, device=DEVICE)


def arguments(case):
    """The arguments of `rejection_sample` for a batch of one text, in V1."""
    k = len(case.drafted)
    drafts = i32(case.drafted), [k], k, i32([k])
    p = None if case.p is None else f32(case.p)
    logits = f32(np.log(case.q[:-1]))
    sampled = dict(all_greedy=False, all_random=True, temperature=f32([1]), generators={})
    return *drafts, p, logits, i32([[BONUS]]), SimpleNamespace(**sampled)


@contextlib.contextmanager
def numbers_from(draw):
    """Within the `with` statement, torch.rand and exponential_ take their numbers from draw."""

    def rand(size, dtype=None, device=None):
        numbers = [draw() for _ in range(math.prod(size))]
        return torch.tensor(numbers, dtype=dtype, device=device).reshape(size)

    def exponential_(tensor):
        rows = [draw.exponential(tensor.shape[1]) for _ in tensor]
        return tensor.copy_(torch.tensor(np.array(rows)))

    with mock.patch.object(torch, "rand", rand):
        with mock.patch.object(torch.Tensor, "exponential_", exponential_):
            yield


def tokens_of(row):
    """Without the places that are left empty."""
    return [token for token in row.tolist() if token >= 0]


def by_v1(modules, **options):
    def run(draw, case):
        with numbers_from(draw):
            return tokens_of(modules.v1.rejection_sample(*arguments(case), **options)[0])

    return from_outputs(run)


# ---- V2 ----


def by_v2(modules, **options):
    buffer = f32(np.ones(NOISE + V))

    def run(draw, case):
        k = len(case.drafted)
        q = f32(np.log(case.q))
        p = None if case.p is None else f32(np.log(case.p))[None]
        drafts = torch.tensor([0, *case.drafted], device=DEVICE)
        edges = i32([0, k + 1])  # of the texts in a batch, which is one
        places = torch.arange(k + 1, device=DEVICE)
        texts = torch.zeros_like(places)  # the text that each place belongs to
        rows = q, p, drafts, edges, places, texts[:1], texts, places
        buffer[:k] = f32([draw() for _ in range(k)])
        buffer[NOISE:] = f32(draw.exponential(V))
        seed = torch.tensor([buffer.data_ptr()], device=DEVICE)
        tokens, n = modules.v2.rejection_sample(*rows, f32([1]), seed, k, **options)
        return tokens[0, : int(n[0])].tolist()

    return from_outputs(run)


def vllm(folder):
    """Token and block verification, FLy and synthetic rates."""
    modules = modules_of(folder)
    fly = dict(fly_window_size=1, fly_entropy_threshold=0.3)
    rates = dict(synthetic_conditional_rates=f32([0.7] * K))
    block = dict(use_block_verification=True)
    drafts = {"drawn drafts": [*drawn()], "one-hot drafts": [*one_hot()]}

    for kind, cases in drafts.items():
        yield Kernel(f"V1, token verification, {kind}", cases, by_v1(modules))
        yield Kernel(f"V2, token verification, {kind}", cases, by_v2(modules))
        yield Kernel(f"V2, block verification, {kind}", cases, by_v2(modules, **block))
    cases = drafts["drawn drafts"]
    yield Kernel("V1, FLy, window 1, entropy from 0.3 up", cases, by_v1(modules, **fly))
    yield Kernel("V2, FLy, window 1, entropy from 0.3 up", cases, by_v2(modules, **fly))
    synthetic = by_v1(modules, synthetic_mode=True, **rates)
    yield Kernel("V1, synthetic, accepted at a rate of 0.7", cases, synthetic)


WHEELS = {"vllm": (VERSION, vllm)}
