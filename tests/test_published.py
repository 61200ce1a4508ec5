"""Every command on a page or in a docstring can be typed as it is, and all Python there runs."""

import ast
import importlib.util
import re
import shlex
from functools import cache

import numpy as np
import pytest
from support.programs import ROOT, read, run

import gallery
import lab.__main__ as lab_main
import main

PAGES = [ROOT / "README.md", *sorted(ROOT.glob("[a-z]*/*.md"))]
FOLDERS = "* lab/* lab/*/* gallery/* exercise/* fast/* checkpoint/* enumeration/* times/*"
MODULES = [path for folder in FOLDERS.split() for path in sorted(ROOT.glob(f"{folder}.py"))]
SCRIPTS = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in MODULES
    if '\nif __name__ == "__main__"' in read(path)
]
HAS_TRANSFORMERS = importlib.util.find_spec("transformers")
COMMAND = r"(?:[A-Z_]+=\S+ )*(?:python3? |pip install |pytest\b)[^`\n]*"
HELP = """import runpy, sys
for script in sys.argv[1:]:
    print(f"@@{script}")
    sys.argv[1:] = ["--help"]
    try: runpy.run_module(script, run_name="__main__")
    except SystemExit as done: assert not done.code, script"""


def commands():
    """(place, command) for each line that begins like one, and each that stands in `...`."""
    for path in PAGES:
        text = read(path)
        blocks = re.findall(r"^```(?:sh)?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        lines = [
            line for block in blocks for line in block.split("git worktree add")[0].splitlines()
        ]
        yield from ((path, line) for line in lines if re.match(COMMAND, line))
        yield from ((path, line) for line in re.findall(f"`({COMMAND})`", text))
    for path in MODULES:
        text = ast.get_docstring(ast.parse(read(path))) or ""
        lines = map(str.strip, text.splitlines())
        yield from ((path, line) for line in lines if re.match(COMMAND, line))


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
    result = run("-c", HELP, *with_options)
    assert result.returncode == 0, result.stderr
    return dict(part.split("\n", 1) for part in result.stdout.split("@@")[1:])


def test_each_script_says_how_it_is_run():
    assert len(ALL) > 50
    for script, text in helps().items():
        name = f"-m {script.removesuffix('.__main__')}" if "." in script else f"{script}.py"
        assert f"python {name}" in text, script


@pytest.mark.parametrize(("place", "command"), ALL)
def test_a_published_command(place, command):
    words = shlex.split(command, comments=True)
    while re.match(r"[A-Z_]+=", words[0]):
        words.pop(0)
    for word in words:
        # What is in none of our folders is the reader's own, or written by the command.
        is_ours = "/" in word and (ROOT / word.split("/")[0]).is_dir()
        if is_ours and not re.match(r"exercise/mine.py", word):
            assert (ROOT / word).exists(), word
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
        text = helps()[script]
        assert all(re.search(rf"{arg}\b", text) for arg in args if arg.startswith("--")), args


def blocks(page):
    """The blocks of Python of a page."""
    return re.findall(r"^```python\n(.*?)^```", read(page), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [*filter(blocks, PAGES)], ids=lambda page: page.name)
def test_the_code_of_a_page_runs(page):
    """Blocks run in order, with the page's names: the gallery's pair, a row, a guess, an rng."""
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
    for block in blocks(page):
        if "import torch" in block and not HAS_TRANSFORMERS:
            continue
        if re.search(r">>>|my_sampler\.(so|js)", block):  # doctest and test_values.py run it
            continue
        try:
            exec(block, names)
        except AssertionError as error:  # what the page says of a mistake
            mistakes.append(str(error))
    assert mistakes == re.findall("^AssertionError: (.*)", read(page), re.MULTILINE)
