"""The scripts of benchmarks/ and tools/ print their help, and the quick benchmark runs, without extra packages."""

import pytest
from support import ROOT, run

from checkpoint.download import DATA

SCRIPTS = [
    path.relative_to(ROOT).as_posix()
    for path in sorted([*ROOT.glob("benchmarks/*.py"), *ROOT.glob("tools/*.py")])
    if "__main__" in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_help(script):
    result = run("--help", script=script)
    assert result.returncode == 0, result.stderr
    assert f"python {script}" in result.stdout


def test_random_weights_do_not_replace_a_checkpoint(tmp_path):
    (tmp_path / DATA).touch()
    result = run("124M", tmp_path, script="benchmarks/random_checkpoint.py")
    assert result.returncode == 2 and "already" in result.stderr and len(list(tmp_path.iterdir())) == 1


def test_a_small_run_of_the_decoding_benchmark():
    models = ROOT / "models/draft", ROOT / "models/target"
    result = run(*models, "--N", 12, "--K", 2, "--repetitions", 1, script="benchmarks/decode.py")
    assert result.returncode == 0 and "| 2 | " in result.stdout, result.stderr
