"""What studies/audit/ and studies/times/ do without extra packages."""

import importlib
import json
import shutil
import subprocess
import sys
import zipfile
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from support import read

from checkpoint import UserError
from checkpoint.openai import DATA
from enumeration import sum_over_paths, total_variation
from lab.gallery.setting import of_rounds
from speculative import one_round, speculative_sampling, verify
from studies.audit import kernels, wheels
from studies.audit.__main__ import (
    ARCHIVE,
    CLONES,
    WHEELS,
    clone,
    main,
    merged,
    run_each,
    shown,
    table,
    version_of,
)
from studies.audit.harness import K, P, Q, model, numbers_of
from studies.audit.projects import PACKAGES
from studies.times import random_checkpoint


def test_random_weights_do_not_replace_a_checkpoint(tmp_path, monkeypatch):
    folder = tmp_path / "random-124M"
    folder.mkdir()
    (folder / DATA).touch()
    monkeypatch.setattr(random_checkpoint, "MODELS_DIR", tmp_path)
    monkeypatch.setattr("sys.argv", ["random_checkpoint", "124M"])
    with pytest.raises(UserError, match="has a checkpoint already; remove it first"):
        random_checkpoint.main()
    assert len(list(folder.iterdir())) == 1


# ---- The results ----


def test_new_results_replace_old_ones():
    def rows(*keys, of):
        return [dict(zip(("package", "version", "setting"), key)) | {"of": of} for key in keys]

    old = rows("x1a", "y1a", "y1b", "y2a", of="old")
    new = rows("y1b", "y1c", of="new")
    found = rows("x1a", "y1a", of="old") + rows("y1b", of="new") + rows("y2a", of="old")
    assert merged(old, new) == found + rows("y1c", of="new")


def test_results_of_a_gpu_stay_beside_those_of_a_cpu():
    cpu = {"package": "a", "version": "1", "setting": "b", "distance": 1e-8}
    gpu = cpu | {"gpu": "NVIDIA H200, 27 November 2026"}
    newer = cpu | {"gpu": "NVIDIA B200, 1 December 2026"}
    assert merged([cpu, gpu], [newer]) == [cpu, newer]
    assert merged([cpu, gpu], [cpu]) == [cpu, gpu]
    first, _, second = table([gpu, cpu, newer]).partition("On an NVIDIA H200, 27 November 2026:")
    assert len(first.splitlines()) == 3 + 1 and "B200" in second


def test_the_results_are_of_these_projects_and_commits():
    found = {
        (row["package"], row["version"]) for row in json.loads(read("studies/audit/audit.json"))
    }
    cloned = {(name, commit) for name, (commit, _) in CLONES.items()}
    packages = {(name, version) for name, (version, _) in WHEELS.items()}
    assert found >= cloned | packages
    assert {name for name, _ in found} >= {*PACKAGES}


def test_a_small_distance_is_rounding_and_an_error_is_shown():
    assert shown({"distance": 1e-8}) == "1e-08 (rounding)"
    assert shown({"distance": 2e-6, "resolution": 6e-5}) == "2e-06 (resolution)"
    assert shown({"distance": 0.35}) == "**0.3500**"
    assert shown({"error": "ValueError: no"}) == "ValueError: no"


# ---- The pair and the rounds ----


def test_each_row_tells_a_context_from_any_other_sum():
    for rows in P, Q:
        found = [model(rows)([0, token])[-1].tolist() for token in range(len(rows))]
        assert found == rows.tolist() and len({*map(tuple, found)}) == len(rows)


def round_after(ids, rng):
    ids = np.array(ids)
    return one_round(ids, model(P), model(Q), K, rng).emitted


def test_rounds_one_after_the_other_write_the_texts_of_the_whole_loop():
    def rounds(ids):
        return sum_over_paths(partial(round_after, ids))

    def loop(rng):
        return speculative_sampling([0], model(P), model(Q), 3, K, rng)

    assert total_variation(of_rounds(rounds, (0,), 3), sum_over_paths(loop)) < 1e-12


def test_a_context_that_is_read_twice_is_seen():
    def rounds(ids, context):
        return sum_over_paths(partial(round_after, context(ids)))

    assert numbers_of(partial(rounds, context=tuple))["distance"] < 1e-12
    assert numbers_of(partial(rounds, context=lambda ids: ids + ids))["distance"] > 0.1


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
    assert found["distance"] < 1e-12
    assert abs(found["tokens_per_round"] - exact["tokens_per_round"]) < 1e-12


def test_a_bonus_that_the_caller_draws_stands_for_all_of_them():
    row = np.array([0.25, 0, 0.75, 0])
    assert kernels.with_bonus((1, kernels.BONUS), row) == {(1, 0): 0.25, (1, 2): 0.75}
    assert kernels.with_bonus((1, 3), row) == {(1, 3): 1.0}


def unpacked_vllm(folder):
    return wheels.unpacked(folder, "vllm", kernels.VERSION, kernels.FILES)


def test_a_wheel_gives_the_files_that_are_needed(tmp_path):
    with zipfile.ZipFile(tmp_path / f"vllm-{kernels.VERSION}-any.whl", "w") as wheel:
        for name in (*kernels.FILES, "vllm/large.so"):
            wheel.writestr(name, "")
    folder = unpacked_vllm(tmp_path)
    found = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    assert sorted(found) == sorted(kernels.FILES)


def test_a_wheel_without_a_file_is_refused_again_and_again(tmp_path):
    with zipfile.ZipFile(tmp_path / f"vllm-{kernels.VERSION}-any.whl", "w") as wheel:
        wheel.writestr(kernels.FILES[0], "")
    for _ in range(2):
        with pytest.raises(KeyError, match=kernels.FILES[1]):
            unpacked_vllm(tmp_path)


def test_a_wheel_that_pip_does_not_find_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "false")  # a program that fails
    with pytest.raises(UserError, match=r"pip download --no-deps.*vllm==9.*by hand"):
        wheels.unpacked(tmp_path, "vllm", "9", [])


def test_a_missing_triton_is_asked_for_by_name(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # which is set there, and taken back here
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(UserError, match="pip install triton"):
        kernels.modules_of(tmp_path)


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
    there = {"COUNT": "1", "KEY_0": f"url.{tmp_path}/origin/.insteadOf"}
    there["VALUE_0"] = "https://github.com/"
    for key, value in there.items():
        monkeypatch.setenv(f"GIT_CONFIG_{key}", value)
    folder = clone(tmp_path, "owner/name", first)
    assert (folder / "file").read_text() == "first"
    assert clone(tmp_path, "owner/name", first) == folder
    with pytest.raises(UserError, match="git clone"):
        clone(tmp_path, "owner/nobody", first)


def test_a_missing_package_is_asked_for_by_name():
    with pytest.raises(UserError, match="pip install no-such-package"):
        version_of("no-such-package")


def audit(monkeypatch, folder, *options):
    monkeypatch.setattr("sys.argv", ["audit", "--folder", str(folder), *options])
    main()


def test_what_a_project_imports_is_asked_for_by_name(monkeypatch, tmp_path):
    def settings():
        yield importlib.import_module("no_such_module")

    monkeypatch.setattr("studies.audit.__main__.version_of", lambda package: "1")
    monkeypatch.setitem(PACKAGES, "mlx-lm", settings)
    with pytest.raises(UserError, match="found no module no_such_module"):
        audit(monkeypatch, tmp_path, "--only", "mlx-lm")


@pytest.mark.parametrize(
    ("name", "commit"), [("SafeAILab/EAGLE", ARCHIVE), ("flashspec", "f9727f7")]
)
def test_a_result_whose_program_is_archived_says_where(name, commit, monkeypatch, tmp_path):
    with pytest.raises(UserError, match=f"the program of {name} is in commit {commit}"):
        audit(monkeypatch, tmp_path, "--only", name)


def test_a_setting_that_no_project_has_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr("studies.audit.__main__.version_of", lambda package: "1")
    monkeypatch.setitem(PACKAGES, "mlx-lm", lambda: [])
    with pytest.raises(UserError, match="mlx-lm has no setting with 'V3'"):
        audit(monkeypatch, tmp_path, "--only", "mlx-lm", "--setting", "V3")
    monkeypatch.setattr("studies.audit.__main__.run_each", lambda args: None)
    with pytest.raises(UserError, match="--setting needs --only"):
        audit(monkeypatch, tmp_path, "--setting", "V3")


def test_each_project_runs_in_a_process_of_its_own(monkeypatch, tmp_path):
    asked = []

    def run(command):
        asked.append(command[-1])
        return SimpleNamespace(returncode=command[-1] == "b")

    monkeypatch.setattr("studies.audit.__main__.names", lambda: ["a", "b", "c"])
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(UserError, match="b did not run"):
        run_each(SimpleNamespace(folder=tmp_path, write=True))
    assert asked == ["a", "b", "c"]
