"""sglang's tree kernel, which sees the target alone.

It sums up the target's probabilities of siblings, and accepts the first one at which the
sum is above the node's coin. So which tokens were drafted doesn't matter: a round after
each tree has the target's distribution, whoever drew it.
"""

import itertools
from collections import Counter
from functools import cached_property, partial

import numpy as np

from enumeration.batches import distributions
from studies.audit import wheels
from studies.audit.cuda import flashinfer
from studies.audit.cuda.build import PARTS, Library, includes_of
from studies.audit.cuda.flashinfer import OnGPU, floats
from studies.audit.harness import P, Q
from studies.audit.kernels import V, drawn, numbers_of_first, without_padding

VERSION = "0.5.23"
HEADERS = "sglang/kernels/jit/include"
CHAIN = "sglang/kernels/ops/speculative/reject_sampling.py"
FLASHINFER = flashinfer.VERSIONS[0]  # this sglang asks for 0.7.2
N_CHECKS = 300
TREES = {  # the parents of the nodes 1, 2, ...
    "a chain of 1": [0],
    "a chain of 2": [0, 1],
    "a chain of 3": [0, 1, 2],
    "2 children": [0, 0],
    "3 children": [0, 0, 0],
    "2 children, and 2 of the first": [0, 0, 1, 1],
    "2 children, and 1 of each": [0, 0, 1, 2],
}
DRAFTS = {"drawn drafts": P, "one-hot drafts": np.eye(V)[P.argmax(axis=1)]}
THRESHOLDS = (1, 0.9), (1, 0.5), (0.7, 1), (0.5, 1), (0.3, 1), (0.3, 0.5)


class Tree:
    """A tree of drafted tokens: node 0 is the last token of the text."""

    def __init__(self, parents):
        self.n = len(parents) + 1
        self.parents = parents
        self.children = [
            [node for node, parent in enumerate(parents, 1) if parent == i] for i in range(self.n)
        ]
        self.depth = 1 + max(map(self.depth_of, range(self.n)))

    def depth_of(self, node):
        return 0 if node == 0 else 1 + self.depth_of(self.parents[node - 1])

    def links(self):
        """The first child of each node, and its next sibling, or -1: [n], [n]"""
        first = np.full(self.n, -1)
        sibling = np.full(self.n, -1)
        for node, children in enumerate(self.children):
            if children:
                first[node] = children[0]
                sibling[children[:-1]] = children[1:]
        return first, sibling

    def drafts(self):
        """All trees of tokens, [n_drafts, n]."""
        others = itertools.product(range(V), repeat=self.n - 1)
        return np.array([(0, *tokens) for tokens in others])

    def is_distinct(self, drafts):
        """[n_drafts] whether no node has two children with the same token."""
        found = np.ones(len(drafts), bool)
        for children in self.children:
            for a, b in itertools.combinations(children, 2):
                found &= drafts[:, a] != drafts[:, b]
        return found

    def sums(self, drafts):
        """The sum of the text at each node, which says which row comes next: [n_drafts, n]"""
        sums = drafts.copy()
        for node, parent in enumerate(self.parents, 1):
            sums[:, node] += sums[:, parent]
        return sums % V


def sglang_files(folder):
    return wheels.unpacked(folder, "sglang", VERSION, [HEADERS, CHAIN])


class TreeKernel:
    """The kernel, on arrays."""

    def __init__(self, folder):
        self.folder = folder

    @cached_property
    def library(self):
        wheel = sglang_files(self.folder)
        other = wheels.unpacked(self.folder, flashinfer.PACKAGE, FLASHINFER, PARTS)
        return Library(wheel, "sglang.cu", [wheel / HEADERS, *includes_of(other)])

    def rounds(self, tree, drafts, q, numbers, single=1.0, acc=1.0):
        """The tokens that a round adds, [n, depth], padded with -1."""
        n, m = drafts.shape
        index = np.arange(n * m).reshape(n, m)
        nodes = [drafts, index, *(np.tile(links, (n, 1)) for links in tree.links())]
        nodes = [np.ascontiguousarray(each, np.int64) for each in nodes]
        rows = floats(q), floats(numbers[:, :m]), floats(numbers[:, m])
        predicts = np.empty((n, m), np.int32)
        accept_index = np.empty((n, tree.depth), np.int32)
        accepted = np.empty(n, np.int32)
        sizes = n, m, tree.depth, V
        outputs = predicts, accept_index, accepted
        self.library.call("tree", *sizes, float(single), float(acc), *nodes, *rows, *outputs)
        return path(*outputs)


def path(predicts, accept_index, accepted):
    """The tokens that a round adds, [n, depth], padded with -1.

    What is accepted follows accept_index through the nodes of the batch.
    """
    is_there = np.arange(accept_index.shape[1]) <= accepted[:, None]
    return np.where(is_there, predicts.ravel()[np.where(is_there, accept_index, 0)], -1)


def first_rounds(kernel, tree, drafts, **thresholds):
    """{tokens of the round: probability} for each draft."""
    q = floats(Q[tree.sums(drafts)])

    def launch(i, numbers):
        return kernel.rounds(tree, drafts[i], q[i], numbers, **thresholds)

    found = distributions(launch, len(drafts), tree.n + 1, N_CHECKS)
    return map(without_padding, found)


def settings(folder):
    kernel = TreeKernel(folder)
    for name, parents in TREES.items():
        tree = Tree(parents)
        drafts = tree.drafts()
        is_distinct = tree.is_distinct(drafts)
        yield worst(kernel, f"tree, {name}", tree, drafts[is_distinct])
        if name in ("2 children", "3 children"):
            yield worst(kernel, f"tree, {name}, some the same", tree, drafts[~is_distinct])
    for (single, acc), (kind, rows) in itertools.product(THRESHOLDS, DRAFTS.items()):
        name = f"tree, a chain of 2, {kind}, threshold_single = {single}, threshold_acc = {acc}"
        yield OnGPU(name, partial(mixed, kernel, rows, single=single, acc=acc))


def worst(kernel, name, tree, drafts):
    """The largest distance of all drafts, and the mean number of tokens."""

    def row():
        found = first_rounds(kernel, tree, drafts)
        numbers = [numbers_of_first(Counter(first), tree.depth) for first in found]
        distances, tokens = zip(*(each.values() for each in numbers))
        return {"distance": max(distances), "tokens_per_round": float(np.mean(tokens))}

    return OnGPU(f"{name}, the worst of {len(drafts)}", row)


def mixed(kernel, rows, **thresholds):
    """A chain of 2 that is drawn from these rows."""
    tree = Tree(TREES["a chain of 2"])
    cases = [*drawn(2, rows, Q)]
    drafts = np.array([(0, *case.drafted) for case in cases])
    found = Counter()
    for case, outcomes in zip(cases, first_rounds(kernel, tree, drafts, **thresholds)):
        for tokens, mass in outcomes.items():
            found[tokens] += case.mass * mass
    return numbers_of_first(found, tree.depth)
