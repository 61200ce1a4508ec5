"""The scripts of benchmarks/ and tools/ explain themselves, with the project's own packages alone."""

import pytest
from support import ROOT, run

SCRIPTS = sorted(
    str(path.relative_to(ROOT))
    for folder in ("benchmarks", "tools")
    for path in (ROOT / folder).glob("*.py")
    if "__main__" in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("script", SCRIPTS)
def test_help(script):
    result = run("--help", script=script)
    assert result.returncode == 0, result.stderr
    assert f"python {script}" in result.stdout


def test_a_small_run_of_each_benchmark_that_needs_nothing_else(tmp_path):
    for args in (["benchmarks/decode.py", ROOT / "models/draft", ROOT / "models/target", "--N", 12, "--K", 2],):
        script, *options = args
        result = run(*options, "--repetitions", 1, script=script)
        assert result.returncode == 0 and "| 2 | " in result.stdout, result.stderr
