"""FlashInfer: `chain_speculative_sampling`, its samplers, and what becomes of random numbers."""

import itertools
from collections import Counter
from collections.abc import Callable
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from enumeration import total_variation
from enumeration.batches import UNIT, distributions
from studies.audit import wheels
from studies.audit.cuda.build import PARTS, Library, gpu, includes_of
from studies.audit.harness import P, Q, texts_of
from studies.audit.kernels import Kernel, V, drawn, from_batches, measured_on

PACKAGE = "flashinfer-python"
VERSIONS = "0.7.2.post1", "0.7.1", "0.6.18.post1"
KINDS = "plain", "top-k", "top-p", "min-p", "top-k and top-p"
N_CHECKS = 30_000
N_CHECKS_OF_SAMPLERS = 400_000
WITH_ZEROS = (  # p and q
    np.array([[5, 0, 3, 2], [5, 5, 0, 0], [0, 10, 0, 0], [1, 2, 2, 5]]) / 10,
    np.array([[0, 5, 2, 3], [0, 0, 3, 7], [5, 5, 0, 0], [10, 0, 0, 0]]) / 10,
)


class FlashInfer:
    """The kernels, on arrays. Numbers in [0, 1) reach them as cuRAND's would, in (0, 1]."""

    def __init__(self, folder, version):
        self.folder = folder
        self.version = version

    @cached_property
    def library(self):
        wheel = wheels.unpacked(self.folder, PACKAGE, self.version, PARTS)
        return Library(wheel, "flashinfer.cu", includes_of(wheel))

    def call(self, name, numbers, *args):
        n, width = numbers.shape
        asked = np.zeros(1, np.int32)
        self.library.call(name, n, width, floats(numbers + 1 / UNIT), asked, *args)
        if asked > width:
            raise RuntimeError(f"{name} asks for {asked[0]} numbers; found {width}")

    def rounds(self, drafted, p, q, numbers):
        """Tokens [n, k+1], padded with -1, and how many drafts count as accepted and emitted."""
        n, k = drafted.shape
        tokens = np.empty((n, k + 1), np.int32)
        accepted, emitted = np.empty((2, n), np.int32)
        rows = floats(p), drafted.astype(np.int32), floats(q)
        self.call("chain", numbers, k, q.shape[-1], *rows, tokens, accepted, emitted)
        return tokens, accepted, emitted

    def chain(self, *given):
        return self.rounds(*given)[0]

    def sample(self, kind, rows, numbers, top_k=0, p=0.0):
        """A token for each row [n, d]."""
        n, d = rows.shape
        tokens = np.empty(n, np.int32)
        self.call("sample", numbers, KINDS.index(kind), d, top_k, p, floats(rows), tokens)
        return tokens


def floats(array):
    return np.ascontiguousarray(array, np.float32)


class OnGPU(NamedTuple):
    """A setting with its row of the table."""

    name: str
    row: Callable  # () -> {"distance": ...}, for example

    def measured(self):
        name, _ = gpu()  # before anything is fetched
        return self.row() | measured_on(name)


def newest(folder):
    kernels = FlashInfer(folder, VERSIONS[0])
    yield from chains(kernels)
    yield from edges(kernels)
    for kind in KINDS:
        yield OnGPU(f"{kind} sampling from probabilities", partial(sampler, kernels, kind))
    yield from faults(kernels)


def older(folder, version):
    yield from chains(FlashInfer(folder, version))


# ---- Rounds ----


def chains(kernels):
    for k in 1, 2, 3:
        yield chain(kernels, f"chain_speculative_sampling, K = {k}", [*drawn(k)], Q)


def chain(kernels, name, cases, rows):
    width = len(cases[0].drafted) + 2  # a rejection takes one more than it should
    kernel = Kernel(name, cases, from_batches(kernels.chain, width, N_CHECKS), rows)
    return OnGPU(name, kernel.measured)


def edges(kernels):
    name = "chain_speculative_sampling, K = 2"
    p, q = WITH_ZEROS
    yield chain(kernels, f"{name}, rows with zeros", [*drawn(2, p, q)], q)
    yield chain(kernels, f"{name}, p = q", [*drawn(2, Q, Q)], Q)
    greedy = np.eye(V)[P.argmax(axis=1)]
    yield chain(kernels, f"{name}, one-hot drafts", [*drawn(2, greedy, Q)], Q)
    in_p = [case._replace(p=in_bf16(case.p)) for case in drawn(2)]
    yield chain(kernels, f"{name}, p in bfloat16", in_p, Q)
    rounded = in_bf16(Q).astype(float)
    target = rounded / rounded.sum(axis=1, keepdims=True)
    yield chain(kernels, f"{name}, q in bfloat16", [*drawn(2, P, rounded)], target)


def in_bf16(rows):
    """Rounded to bfloat16, whose bits are the upper half of float32's."""
    bits = floats(rows).view(np.uint32)
    to_even = 0x7FFF + ((bits >> 16) & 1)
    return ((bits + to_even) & 0xFFFF0000).view(np.float32)


# ---- Samplers ----

ROWS = (
    [0.1, 0.5, 0.1, 0.3],
    [0, 0.5, 0.2, 0.3],
    [0.25, 0.25, 0.25, 0.25],
    [0.4, 0.2, 0.2, 0.2],
    [0.01, 0.24, 0.02, 0.2, 0.3, 0.03, 0.15, 0.05],
    [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.0078125],
    [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.873],
)
OPTIONS = {
    "plain": [{}],
    "top-k": [dict(top_k=top_k) for top_k in (1, 2, 3)],
    "top-p": [dict(p=p) for p in (0.3, 0.6, 0.95, 1.0)],
    "min-p": [dict(p=p) for p in (0.09, 0.5)],
    "top-k and top-p": [dict(top_k=3, p=0.6), dict(top_k=2, p=0.9), dict(top_k=8, p=1.0)],
}


def sampler(kernels, kind):
    """The largest distance of all rows and options."""
    width = 1 if kind in ("plain", "min-p") else 8  # the others draw until a token is kept
    found = []
    for row, options in itertools.product(map(floats, ROWS), OPTIONS[kind]):

        def launch(case, numbers, row=row, options=options):
            rows = np.tile(row, (len(case), 1))
            return kernels.sample(kind, rows, numbers, **options)

        (tokens,) = distributions(launch, 1, width, N_CHECKS_OF_SAMPLERS)
        wanted = kept(kind, row, **options)
        distance = total_variation(tokens, {(token,): mass for token, mass in enumerate(wanted)})
        found.append({"distance": distance, "resolution": tokens.resolution})
    return max(found, key=lambda row: row["distance"])


def kept(kind, row, top_k=0, p=0.0):
    """The row that a sampler draws from, after FlashInfer's rules, in float32."""
    p = np.float32(p)
    above = [row[row > weight] for weight in row]
    is_kept = row > 0
    if "top-k" in kind:
        is_kept &= np.array([len(weights) for weights in above]) < top_k
    if "top-p" in kind:
        is_kept &= np.array([weights.sum() for weights in above]) < p
    if kind == "min-p":
        is_kept &= row >= row.max() * p
    weights = np.where(is_kept, row, 0).astype(float)
    return weights / weights.sum()


# ---- What is not right ----


def faults(kernels):
    chain = "chain_speculative_sampling"
    found = {
        "a guess by plain sampling, tested with the next torch.rand": guess,
        f"{chain}, two rounds of a batch of one, K = 3": two_rounds,
        "output_accepted_token_num, K = 2": counts,
        f"{chain}, p = q one-hot, a number that is 1": number_of_one,
        f"{chain}, a guess of -1 for padding": padding,
    }
    for name, row in found.items():
        yield OnGPU(name, partial(row, kernels))


def guess(kernels, shared=True):
    """`get_seed_and_offset` returns the offset that it has moved on to, where torch.rand begins."""
    p, q = floats(P[0]), floats(Q[0])
    residual = np.maximum(q - p, 0)
    rows = [p, residual / residual.sum()]

    def launch(case, numbers):
        p_rows, residuals = (np.tile(row, (len(case), 1)) for row in rows)
        guess = kernels.sample("plain", p_rows, numbers[:, :1])
        test = numbers[:, 0 if shared else 1] + 1 / UNIT
        is_kept = test % 1 * p[guess] < q[guess]  # torch.rand turns 1 into 0
        return np.where(is_kept, guess, kernels.sample("plain", residuals, numbers[:, 2:]))

    (found,) = distributions(launch, 1, 3, N_CHECKS)
    wanted = {(token,): mass for token, mass in enumerate(Q[0])}
    return {"distance": total_variation(found, wanted)}


def two_rounds(kernels, k=3, n_reserved=4):
    """A rejection takes K + 2 numbers, of which the last is the next round's first.

    Two tokens are written. The second round's first guess is what matters of its draft, and a
    case is a draft and such a guess.
    """
    cases = [*itertools.product(drawn(k), range(V))]
    drafted = np.array([case.drafted for case, _ in cases])
    p = floats([case.p for case, _ in cases])
    q = floats([case.q for case, _ in cases])
    later = np.zeros_like(drafted)
    later[:, 0] = [first for _, first in cases]

    def launch(i, numbers):
        first = kernels.chain(drafted[i], p[i], q[i], numbers[:, : k + 2])
        sums = np.cumsum(np.c_[first[:, 0], later[i]], axis=1) % V  # [B, k+1]
        rows = P[sums[:, :-1]], Q[sums]
        second = kernels.chain(later[i], *rows, numbers[:, n_reserved:])
        is_rejected = first[:, 1] < 0  # and the second round follows
        token = np.where(is_rejected, second[:, 0], first[:, 1])
        return np.stack([first[:, 0], token], axis=1)

    found = distributions(launch, len(cases), n_reserved + k + 2, n_checks=2_000)
    texts = Counter()
    for (case, first), outcomes in zip(cases, found):
        for text, mass in outcomes.items():
            texts[text] += case.mass * P[text[0] % V, first] * mass
    return {"distance": total_variation(texts, texts_of(Q, 2))}


def counts(kernels):
    """After a rejection it begins with the rejected guess, and tests it again."""
    cases = [*drawn(2)]

    def launch(drafted, p, q, numbers):
        _, accepted, _ = kernels.rounds(drafted, p, q, numbers)
        return accepted[:, None]

    found = from_batches(launch, 4, N_CHECKS)(cases)
    counted = kept = 0
    for case, outcomes in zip(cases, found):
        guesses = range(2), case.drafted
        counted += case.mass * sum(n * mass for (n,), mass in outcomes.items())
        kept += case.mass * np.minimum(case.q[guesses] / case.p[guesses], 1).sum()
    return {"error": f"counts {counted:.4f}, and {kept:.4f} would be kept"}


def number_of_one(kernels):
    """The residual is empty, and the kernel's last valid token was never set."""
    n = 512
    large = np.eye(32_000)[[-1] * n]  # leaves something behind
    kernels.sample("plain", large, np.full((n, 1), 0.5))
    certain = np.tile(np.eye(V)[1], (n, 2, 1))
    ones = np.ones((n, 3)) - 1 / UNIT
    tokens = kernels.chain(np.ones((n, 1), int), certain[:, :1], certain, ones)
    return {"error": f"returns token {tokens[0, 0]} of {V}"}


def padding(kernels):
    """Its probabilities are read in front of its row."""
    p = np.eye(V)[[0, 1]]
    q = Q[[0, 1, 2]]

    def launch(case, numbers):
        drafted = np.tile([1, -1], (len(case), 1))
        rows = [np.tile(row, (len(case), 1, 1)) for row in (p, q)]
        _, _, emitted = kernels.rounds(drafted, *rows, numbers)
        return emitted

    (found,) = distributions(launch, 1, 4, N_CHECKS)
    return {"error": f"kept in {found.get((2,), 0):.0%} of all rounds"}


WHEELS = {"flashinfer": (VERSIONS[0], newest)}
for version in VERSIONS[1:]:
    WHEELS[f"flashinfer@{version}"] = version, partial(older, version=version)
