"""What studies/audit/ does without extra packages."""

import argparse
import json
import shutil
import subprocess
import zipfile
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from support import read

from enumeration import sum_over_paths
from speculative import one_round, verify
from studies.audit import kernels, wheels
from studies.audit.__main__ import ARCHIVE, CLONES, WHEELS, clone, merged, name_of
from studies.audit.harness import K, P, Q, model, numbers_of
from studies.audit.projects import PACKAGES

# ---- The results ----


def test_new_results_replace_old_ones():
    """By package, and those of a GPU stay beside those of a CPU."""

    def rows(*keys, **more):
        return [dict(zip(("package", "version", "setting"), key)) | more for key in keys]

    old = rows("x1a", "y1a", "y1b", "y2a") + rows("y1b", gpu="H200")
    new = rows("y1b", "y1c", is_new=True)
    kept = rows("x1a", "y1a") + rows("y1b", is_new=True) + rows("y2a") + rows("y1b", gpu="H200")
    assert merged(old, new) == kept + rows("y1c", is_new=True)


def test_the_results_are_of_these_projects_and_commits():
    rows = json.loads(read("studies/audit/audit.json"))
    found = {(row["package"], row["version"]) for row in rows}
    assert found >= {(name, version) for name, (version, _) in (CLONES | WHEELS).items()}
    assert {name for name, _ in found} >= {*PACKAGES}


# ---- The pair and the rounds ----


def round_after(ids, rng):
    ids = np.array(ids)
    return one_round(ids, model(P), model(Q), K, rng).emitted


def test_a_context_that_is_read_twice_is_seen():
    twice = numbers_of(lambda ids: sum_over_paths(partial(round_after, ids + ids)))
    assert twice["distance"] > 0.1


# ---- Kernels ----


def test_a_rule_of_this_project_is_exact_from_its_outputs_alone():
    pytest.importorskip("enumeration.values")

    def run(draw, case):
        def choice(n, p):
            return min(int(np.sum(np.cumsum(p) <= draw())), n - 1)

        rng = SimpleNamespace(random=draw, choice=choice)
        return verify(np.array(case.drafted), case.p, case.q, rng)

    found = kernels.Kernel("verify", [*kernels.drawn()], kernels.from_outputs(run)).measured()
    exact = numbers_of(lambda ids: sum_over_paths(partial(round_after, ids)))
    assert max(found["distance"], exact["distance"]) < 1e-12
    assert abs(found["tokens_per_round"] - exact["tokens_per_round"]) < 1e-12


def test_a_bonus_that_the_caller_draws_stands_for_all_of_them():
    row = np.array([0.25, 0, 0.75, 0])
    assert kernels.with_bonus((1, kernels.BONUS), row) == {(1, 0): 0.25, (1, 2): 0.75}
    assert kernels.with_bonus((1, 3), row) == {(1, 3): 1.0}


def test_a_wheel_gives_the_files_that_are_needed(tmp_path):
    with zipfile.ZipFile(tmp_path / f"vllm-{kernels.VERSION}-any.whl", "w") as wheel:
        for name in (*kernels.FILES, "vllm/large.so"):
            wheel.writestr(name, "")
    folder = wheels.unpacked(tmp_path, "vllm", kernels.VERSION, kernels.FILES)
    found = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    assert sorted(found) == sorted(kernels.FILES)


# ---- Where the code comes from ----


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_a_clone_has_the_commit_that_it_is_named_after(tmp_path, monkeypatch):
    origin = tmp_path / "origin" / "owner" / "name"
    origin.mkdir(parents=True)
    of_nobody = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]

    def git(*command):
        done = subprocess.run(["git", *of_nobody, *command], cwd=origin, capture_output=True)
        return done.stdout.decode().strip()

    git("init", "--quiet")
    for text in "first", "second":
        (origin / "file").write_text(text)
        git("add", "file")
        git("commit", "--quiet", "-m", text)
    first = git("rev-parse", "--short", "HEAD~1")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.{tmp_path}/origin/.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "https://github.com/")
    folder = clone(tmp_path, "owner/name", first)
    assert (folder / "file").read_text() == "first"
    assert clone(tmp_path, "owner/name", first) == folder


@pytest.mark.parametrize(
    ("name", "commit"), [("SafeAILab/EAGLE", ARCHIVE), ("flashspec", "f9727f7")]
)
def test_a_result_whose_program_is_archived_says_where(name, commit):
    with pytest.raises(argparse.ArgumentTypeError, match=f"git worktree add ../audit {commit}"):
        name_of(name)
