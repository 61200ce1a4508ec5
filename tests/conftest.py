"""Hypothesis profiles, the order of the tests, and fixtures for networks and a server.

The profile "ci", the default, always draws the same examples. "thorough" draws more of them,
and new ones.
"""

import fast  # noqa: F401  # before NumPy, so that BLAS leaves the cores to it

# isort: split
import os
import sys
from fractions import Fraction

import pytest
from hypothesis import settings
from support.exact import DISTANCES
from support.models import load_once
from support.server import server  # noqa: F401

import gpt2
import main
import runs
from fast import product
from lab import pair

os.environ.pop("PYTHONSAFEPATH", None)  # so that programs that tests start find this folder
runs.SECONDS = 0  # programs run each loop once, unless a test has time for more
main.load_models = pair.load_models = load_once

settings.register_profile("ci", max_examples=25, derandomize=True, deadline=None, database=None)
settings.register_profile("thorough", max_examples=1000, deadline=None)
settings.load_profile("ci")


def pytest_configure(config):
    if sys.platform == "darwin":  # Apple's BLAS warns without a reason (numpy #28687)
        config.addinivalue_line("filterwarnings", "ignore:.*encountered in matmul:RuntimeWarning")


def pytest_collection_modifyitems(items):
    """Run the tests of the claim first. `pytest -m exact` runs no others."""
    items.sort(key=lambda item: item.get_closest_marker("exact") is None)


def pytest_report_header(config):
    return f"matrix kernel: {product.matrix_kernel()}"


def pytest_terminal_summary(terminalreporter):
    exact = DISTANCES[Fraction]
    rounded = DISTANCES[float]
    if exact and rounded:
        terminalreporter.line(
            f"{len(exact):,} exact distributions in fractions: distance {max(exact)}; "
            f"{len(rounded):,} in float64: at most {max(rounded):.0e}"
        )


def pytest_sessionfinish(session):
    """The processes of `pytest -n auto` (pytest-xdist) tell the first one their distances."""
    if hasattr(session.config, "workeroutput"):
        for kind, distances in DISTANCES.items():
            session.config.workeroutput[kind.__name__] = [*map(str, distances)]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    if error is None:
        for kind, distances in DISTANCES.items():
            distances += map(kind, node.workeroutput[kind.__name__])


@pytest.fixture(params=dict.fromkeys([product.SINGLE, product.matrix_kernel()]))
def kernel(request, monkeypatch):
    """Each kernel that this machine has, for models that are made in the test."""
    monkeypatch.setattr(product, "matrix_kernel", lambda: request.param)
    return request.param


@pytest.fixture
def n_computed(monkeypatch):
    """A list to which each forward pass adds the number of its positions."""
    numbers = []
    original = gpt2.GPT2.forward

    def forward(self, ids, n_past, n_rows):
        numbers.append(len(ids) - n_past)
        return original(self, ids, n_past, n_rows)

    monkeypatch.setattr(gpt2.GPT2, "forward", forward)
    return numbers
