"""The files of this project, and its programs: run in this process, or in one of their own."""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def read(path):
    """The text of a file of this project."""
    return (ROOT / path).read_text(encoding="utf-8")


def printed_by(program, *args):
    """What main.main or lab.__main__.main prints, run in this process, which saves a second."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        program.main([*map(str, args)])
    return output.getvalue()


def texts_of(output):
    text = r" Decode\n-+\nTime = [\d.]+s\nText = (.*?)\n\n"
    pattern = f"Autoregressive{text}Speculative{text}(?:tokens|nothing)"
    return re.search(pattern, output, re.DOTALL).groups()


def run(*args, **env):
    """Run Python with these arguments, in a process of its own."""
    env = os.environ | {"PYTHONPATH": str(ROOT)} | env
    command = [sys.executable, *args]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
