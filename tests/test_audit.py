"""What scripts of benchmarks/ do without extra packages."""

from support import run

from benchmarks import audit
from checkpoint.openai import DATA


def test_random_weights_do_not_replace_a_checkpoint(tmp_path):
    (tmp_path / DATA).touch()
    result = run("124M", tmp_path, script="benchmarks.random_checkpoint")
    assert result.returncode == 2 and "already" in result.stderr and len(list(tmp_path.iterdir())) == 1


# benchmarks/audit.py


def test_a_new_result_replaces_only_its_own_setting():
    def row(package, version, setting, **result):
        return {"package": package, "version": version, "setting": setting} | result

    old = [row("mlx-lm", "1", "a", distance=1), *(row("transformers", "1", s, distance=2) for s in "ab")]
    new = [row("transformers", "1", "b", error="IndexError"), row("transformers", "2", "b", distance=5)]
    found = [(result.get("distance"), result.get("error")) for result in audit.merged(old, new)]
    assert found == [(2, None), (None, "IndexError"), (5, None), (1, None)]
