"""Random programs, which draw and branch and draw again: each engine finds their distribution.

A program is a tree. An inner node compares a number with a limit, or draws with weights, by a
choice or by a race, and goes on with one of its branches. A leaf is the outcome. What an engine
finds is compared with what the tree says.
"""

import itertools
from collections import Counter
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from support.exact import EXACT, GRID

import enumeration
from enumeration import batches, total_variation, values

N_NUMBERS, N_TOKENS = 3, 3


def program(rng, kinds, depth=4):
    """A random tree: an outcome, or (kind, what, branches)."""
    if depth == 0 or rng.random() < 0.1:
        return int(rng.integers(4))
    kind = rng.choice(kinds)
    if kind == "number":
        parameter = rng.integers(N_NUMBERS), rng.integers(1, 16) / 16
        n_branches = 2
    else:
        parameter = rng.permutation([0, *rng.integers(1, 5, size=N_TOKENS - 1)]) + rng.integers(2)
        n_branches = N_TOKENS
    return kind, parameter, [program(rng, kinds, depth - 1) for _ in range(n_branches)]


def distribution(tree, box=((0, 1),) * N_NUMBERS):
    """{outcome: probability}, where each number lies in its side of the box."""
    if isinstance(tree, int):
        return {(tree,): 1.0}
    kind, parameter, branches = tree
    if kind == "number":
        i, limit = parameter
        low, high = box[i]
        limit = min(max(limit, low), high)
        sides = (low, limit), (limit, high)
        shares = [(b - a) / (high - low) for a, b in sides]
        boxes = [(*box[:i], side, *box[i + 1 :]) for side in sides]
    else:
        shares = parameter / parameter.sum()
        boxes = itertools.repeat(box)
    masses = Counter()
    for share, branch, inner in zip(shares, branches, boxes):
        if share > 0:
            for outcome, mass in distribution(branch, inner).items():
                masses[outcome] += share * mass
    return masses


def run(tree, source, eager=False):
    """The outcome. An eager program draws numbers and a row of noise before it needs them."""
    numbers = [source.number() for _ in range(N_NUMBERS)]
    rows = [source.noise(N_TOKENS)] if eager else []
    while not isinstance(tree, int):
        kind, parameter, branches = tree
        if kind == "number":
            i, limit = parameter
            branch = 0 if numbers[i] < limit else 1
        elif kind == "choice":
            branch = source.choice(parameter / parameter.sum())
        else:
            noise = rows.pop() if rows else source.noise(N_TOKENS)
            branch = np.argmax(parameter / noise)
        tree = branches[int(branch)]
    return tree


def of_numpy(rng):
    return SimpleNamespace(number=rng.random, choice=lambda p: rng.choice(len(p), p=p))


def of_values(draw):
    return SimpleNamespace(number=draw, choice=draw.choice, noise=draw.exponential)


@pytest.mark.parametrize("seed", range(10))
def test_by_branches(seed):
    tree = program(np.random.default_rng(seed), ["number", "choice"])
    computed = enumeration.output_distribution(lambda rng: run(tree, of_numpy(rng)))
    assert total_variation(computed, distribution(tree)) < EXACT


@pytest.mark.parametrize("seed", range(2))
def test_by_branches_and_values(seed):
    tree = program(np.random.default_rng(seed), ["number", "choice"])

    def draw(rng):
        source = of_numpy(rng)
        source.number = lambda: float(rng.random())
        return run(tree, source)

    computed = enumeration.output_distribution(draw, resolution=0.05)
    assert total_variation(computed, distribution(tree)) < EXACT
    assert 0 < computed.resolution < 0.05


SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 15))]


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_by_values(seed, eager):
    tree = program(np.random.default_rng(seed), ["number", "choice", "race"])

    def sampler(draw):
        return run(tree, of_values(draw), eager)

    computed = values.output_distribution(sampler, n_checks=500)
    assert total_variation(computed, distribution(tree)) < EXACT


def test_by_batches():
    rng = np.random.default_rng(0)
    trees = [program(rng, ["number"]) for _ in range(10)]

    def outcome(case, numbers):
        return run(trees[case], SimpleNamespace(number=iter(numbers).__next__))

    def launch(cases, numbers):
        return np.array([*map(outcome, cases, numbers)])

    computed = batches.distributions(launch, len(trees), N_NUMBERS, n_checks=300)
    for tree, outcomes in zip(trees, computed):
        assert total_variation(outcomes, distribution(tree)) < GRID


@pytest.mark.parametrize("seed", range(2))
def test_by_pytorch(seed):
    torch = pytest.importorskip("torch")
    from enumeration import pytorch

    source = SimpleNamespace(
        number=partial(torch.rand, 1),
        choice=lambda p: torch.multinomial(torch.tensor(p), 1),
        noise=lambda n: torch.empty(n, dtype=torch.float64).exponential_().numpy(),
    )
    tree = program(np.random.default_rng(seed), ["number", "choice", "race"], depth=3)
    computed = pytorch.output_distribution(lambda: run(tree, source, eager=seed % 2), n_checks=200)
    assert total_variation(computed, distribution(tree)) < GRID
