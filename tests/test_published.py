"""Every command on a page or in a docstring can be typed as it is, and all Python there runs."""

import ast
import importlib.util
import re
import shlex
import shutil
import subprocess
from functools import cache

import numpy as np
import pytest
from support import ROOT, read, run

import gallery
import lab.__main__ as lab_main
import main

FOLDERS = (
    "*",
    "lab/*",
    "lab/*/*",
    "gallery/*",
    "exercise/*",
    "fast/*",
    "checkpoint/*",
    "enumeration/*",
    "times/*",
)
PAGES = [
    ROOT / "README.md",
    *sorted(ROOT.glob("[a-z]*/*.md")),
]
MODULES = [path for folder in FOLDERS for path in sorted(ROOT.glob(f"{folder}.py"))]
SCRIPTS = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in MODULES
    if '\nif __name__ == "__main__"' in read(path)
]
COMMAND = r"(?:[A-Z_]+=\S+ )*(?:python3? |pip install |pytest\b)[^`\n]*"
HELP = """import runpy, sys
for script in sys.argv[1:]:
    print(f"@@{script}")
    sys.argv[1:] = ["--help"]
    try: runpy.run_module(script, run_name="__main__")
    except SystemExit as done: assert not done.code, script"""


def commands():
    """(where, command) for each line that begins like one, and each that stands in `...`."""
    for path in PAGES:
        text = read(path)
        blocks = re.findall(r"^```(?:sh)?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        blocks = [block.split("git worktree add")[0] for block in blocks]  # what follows is history
        found = [line for block in blocks for line in block.splitlines() if re.match(COMMAND, line)]
        yield from ((path, line) for line in found + re.findall(f"`({COMMAND})`", text))
    for path in MODULES:
        text = ast.get_docstring(ast.parse(read(path))) or ""
        yield from (
            (path, line.strip()) for line in text.splitlines() if re.match(COMMAND, line.strip())
        )


ALL = sorted(
    {
        (str(path.relative_to(ROOT)), part.strip())
        for path, line in commands()
        for part in line.split("&&")
    }
)


@cache
def helps():
    """{script: what it prints with --help}, from one process: each takes a second to start."""
    with_options = [script for script in SCRIPTS if script != "tiny"]
    result = run("-c", HELP, *with_options, script="")
    assert result.returncode == 0, result.stderr
    return dict(part.split("\n", 1) for part in result.stdout.split("@@")[1:])


def test_each_script_says_how_it_is_run():
    assert len(ALL) > 50
    for script, text in helps().items():
        name = f"-m {script.removesuffix('.__main__')}" if "." in script else f"{script}.py"
        assert f"python {name}" in text, script


def packages(path):
    """What a file of requirements asks for, with those of the files that it names after -r."""
    found = []
    for line in read(path).splitlines():
        other = line.removeprefix("-r ")
        found += [line] if other == line else packages(path.parent / other)
    return found


@pytest.mark.parametrize(("where", "command"), ALL)
def test_a_published_command(where, command):
    words = shlex.split(command, comments=True)
    while re.match(r"[A-Z_]+=", words[0]):
        words.pop(0)
    for word in words:
        # What is in none of our folders is the reader's own, or written by the command.
        ours = "/" in word and (ROOT / word.split("/")[0]).is_dir()
        if ours and not re.match(r"exercise/mine.py", word):
            assert (ROOT / word).exists(), word
    if words[:3] == ["pip", "install", "-r"]:
        assert packages(ROOT / words[3])
    if words[0] != "python":
        return
    if words[1] == "-m":
        words.pop(1)
    script, *args = words[1:]
    script = script.removesuffix(".py")
    script = next(name for name in (script, f"{script}.__main__") if name in SCRIPTS)
    if "--help" in args:
        return
    if script == "main":
        main.arguments(args)
    elif script == "lab.__main__":
        lab_main.arguments(args)
    elif args:
        known = helps()[script]
        assert all(re.search(rf"{arg}\b", known) for arg in args if arg.startswith("--")), args


def history():
    """COMMIT:path of each file of an older commit that a page names, or a program there."""
    for text in map(read, PAGES):
        yield from re.findall(r"\b([0-9a-f]{7}:[\w./]+)", text)
        for commit, commands in re.findall(r"git worktree add \S+ (\w+)([^`]+)", text):
            yield from (f"{commit}:{path}" for path in re.findall(r"-r (\S+)", commands))
            for module in re.findall(r"python -m (\S+)", commands):
                yield f"{commit}:{module.replace('.', '/')}"


def git(*command):
    return subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@pytest.mark.parametrize("name", sorted({*history()}))
def test_history_has_what_a_page_says_of_it(name):
    commit, path = name.split(":")
    if git("cat-file", "-e", commit).returncode:
        pytest.skip("a ZIP and a shallow clone have no history")
    files = git("ls-tree", "-r", "--name-only", commit).stdout.splitlines()
    assert any(file.startswith(path) for file in files)


def blocks():
    """The blocks of Python of each page."""
    return {
        path: re.findall(r"^```python\n(.*?)^```", read(path), re.MULTILINE | re.DOTALL)
        for path in PAGES
    }


@pytest.mark.parametrize(
    "page", [path for path, found in blocks().items() if found], ids=lambda page: page.name
)
def test_the_code_of_a_page_runs(page):
    """In order, with the names of its text: the gallery's pair, its rows, a guess, an rng."""
    setting = gallery.Setting(gallery.P.astype(float), gallery.Q.astype(float))
    names = {
        "np": np,
        "x": np.array([0]),
        "N": 3,
        "q": gallery.Q[0].astype(float),
        "draft_model": setting.draft_model,
        "target_model": setting.target_model,
        "children": [1, 0],
        "guess": 1,
        "rng": np.random.default_rng(0),
    }
    mistakes = []
    for block in blocks()[page]:
        if "import torch" in block and not importlib.util.find_spec("transformers"):
            continue
        if ">>>" in block:  # doctest runs it
            continue
        if "my_sampler.so" in block or "my_sampler.js" in block:  # test_values.py runs it
            continue
        try:
            exec(block, names)
        except AssertionError as error:  # what the page says of a mistake
            mistakes.append(str(error))
    assert mistakes == re.findall("^AssertionError: (.*)", read(page), re.MULTILINE)
