"""What studies/audit/ and benchmarks/ do without extra packages."""

import json

import pytest
from support import read

from checkpoint.openai import DATA
from studies.audit.__main__ import merged
from studies.audit.projects import CLONES, PACKAGES
from studies.times import random_checkpoint


def test_random_weights_do_not_replace_a_checkpoint(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "random-124M"
    folder.mkdir()
    (folder / DATA).touch()
    monkeypatch.setattr(random_checkpoint, "MODELS_DIR", tmp_path)
    monkeypatch.setattr("sys.argv", ["random_checkpoint", "124M"])
    with pytest.raises(SystemExit, match="2"):
        random_checkpoint.main()
    assert "already" in capsys.readouterr().err and len(list(folder.iterdir())) == 1


def test_a_new_result_replaces_only_its_own_setting():
    def rows(*keys, of):
        return [dict(zip(("package", "version", "setting"), key)) | {"of": of} for key in keys]

    found = merged(rows("x1a", "y1a", "y1b", of="old"), rows("y1b", "y2b", of="new"))
    assert found == rows("x1a", "y1a", of="old") + rows("y1b", "y2b", of="new")


def test_the_results_are_of_these_projects_and_commits():
    found = {
        (row["package"], row["version"]) for row in json.loads(read("studies/audit/audit.json"))
    }
    assert {name for name, _ in found} == {*PACKAGES, *CLONES}
    assert {pair for pair in found if pair[0] in CLONES} == {
        (name, commit) for name, (commit, _) in CLONES.items()
    }
