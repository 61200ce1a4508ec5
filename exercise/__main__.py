"""Grade what you wrote: every path of your code is run, and its distribution compared.

python -m exercise                         # all steps of exercise/mine.py
python -m exercise exercise/mine.py 3      # one step, by its number or its name
python -m exercise their_verify.py verify  # a function of another file
"""

import faulthandler
import importlib.util
import os
import pickle
import random
import shutil
import signal
import sys
import traceback
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np

from checkpoint import UserError
from enumeration import (
    NotByRng,
    TooManyPaths,
    first_difference,
    output_distribution,
    total_variation,
)
from exercise.praise import praise
from exercise.steps import NAMES, README, STEPS, Wrong, first_token
from terminal import Parser, report

ROOT = Path(__file__).parent.parent
MINE = Path(__file__).with_name("mine.py")
STUBS = Path(__file__).with_name("stubs.py")
LIMIT = 20  # seconds of computing for a step, before it counts as endless
ROUNDING = 1e-12  # distances below are rounding


class Endless(BaseException):
    """It did not end in time. A program that catches every Exception does not catch this one."""


# ---- Grading ----


def grade(check, function):
    """What is wrong with a function, in lines; [] if nothing is."""
    for setting in check.settings:
        found = check.distribution(check.sampler(function), setting, output_distribution)
        wanted = check.distribution(check.reference, setting)
        distance = total_variation(found, wanted)
        if distance > ROUNDING:
            n = len(setting.prompt)
            first = total_variation(first_tokens(found, n), first_tokens(wanted, n))
            where = f"{shown(first)} in the first token, " if first > ROUNDING else ""
            headline = f"wrong by {where}{shown(distance)} in the text{name_of(check, function)}"
            return [headline, first_difference(found, wanted, ROUNDING, NAMES.__getitem__)]
    return []


def shown(distance):
    return f"{distance:.4f}" if distance > 1e-4 else f"{distance:.0e}"


def name_of(check, function):
    """The bug of the gallery with the same distributions, if there is one."""
    sampler = check.sampler(function)
    for rival in check.rivals:
        if not rival.exact and is_same(check, sampler, rival.text):
            seen = f" ({rival.seen})" if rival.seen else ""
            return f': the distribution of "{rival.name}"{seen}'
    return ""


def is_same(check, one, other):
    """Whether two samplers agree on three tables, where both can cope: all would take long."""
    for setting in check.settings[:3]:
        both = [distribution_of(check, sampler, setting) for sampler in (one, other)]
        if None not in both and total_variation(*both) > ROUNDING:
            return False
    return True


@cache
def distribution_of(check, sampler, setting):
    """None if the sampler cannot cope with the zeros of the tables."""
    try:
        return check.distribution(sampler, setting)
    except (ValueError, IndexError, Wrong):
        return None


def first_tokens(distribution, n):
    """{the token after a prompt of n tokens, or None for the end: probability}"""
    row = {}
    for ids, mass in distribution.items():
        token = ids[n] if len(ids) > n else None
        row[token] = row.get(token, 0) + mass
    return row


def readme_table(rule):
    kept, replaced = first_token(rule)
    if np.allclose(kept + replaced, README.Q[0]):
        return []  # the mistake is somewhere else
    rows = {"guessed and accepted": kept, "rejected, then": replaced}
    rows |= {"emitted": kept + replaced, "q": README.Q[0]}
    lines = [table_line("after A", NAMES[:3])]
    for name, row in rows.items():
        lines.append(table_line(name, [f"{x:.3f}" for x in row]))
    return lines


def table_line(name, cells):
    return f"{name:22}" + "".join(f"{cell:>7}" for cell in cells)


# ---- Showing ----


@contextmanager
def in_time():
    """Raise Endless after LIMIT seconds of computing.

    Where nothing can interrupt the program, Python ends and shows where it was.
    """
    has_timer = hasattr(signal, "setitimer")  # not on Windows
    faulthandler.dump_traceback_later((10 if has_timer else 3) * LIMIT, exit=True)
    if has_timer:
        signal.signal(signal.SIGVTALRM, end)
        signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT)
    try:
        yield
    finally:
        if has_timer:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        faulthandler.cancel_dump_traceback_later()


def end(*_):
    raise Endless


@in_time()
def graded(step, function, path):
    """The lines about a function, and whether it is exact. None: not written yet."""
    generators = other_generators()
    where = ""
    try:
        for check in step.checks:
            where = f", where {check.where}" if check.where else ""
            lines = grade(check, function)
            if lines:
                table = readme_table(step.as_rule(function)) if step.as_rule else []
                return [lines[0] + where, *lines[1:], *table], False
        return praise(step, function), True
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        missing = not_written(error, step)
        if missing:
            return [missing], None
        return [problem(error, path, generators) + where], False


def not_written(error, step):
    """What to say if a stub was called."""
    code = [*traceback.walk_tb(error.__traceback__)][-1][0].f_code
    if not isinstance(error, NotImplementedError) or code.co_code != stub.__code__.co_code:
        return ""
    if code.co_name == step.function:
        return "not written yet"
    return f"it calls {code.co_name}, which is not written yet"


def stub():
    raise NotImplementedError


def problem(error, path, generators):
    """One line about an error. generators is what `other_generators` found before."""
    if isinstance(error, Wrong):
        return str(error)
    if isinstance(error, NotByRng):
        drawn = [name for name, state in other_generators().items() if state != generators[name]]
        return f"it draws from {' and '.join(drawn)}; draw from rng alone" if drawn else str(error)
    if isinstance(error, TooManyPaths):
        words = str(error).split(";")[0]
        return "a loop may go on for ever" if "along one path" in words else words
    where = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if os.path.abspath(frame.filename) == path:
            where = f"line {frame.lineno}, {frame.line.rstrip(':')}: "
    if isinstance(error, Endless):
        return f"{where}it did not end within {LIMIT} seconds of computing"
    door = "; for code that draws from PyTorch, see enumeration/pytorch.py"
    return f"{where}{type(error).__name__}: {error}{door if 'torch' in sys.modules else ''}"


def other_generators():
    states = {"np.random": np.random.get_state(), "random": random.getstate()}
    return {name: pickle.dumps(state) for name, state in states.items()}


def wrong_parts(step, mine, path):
    """Lines about functions of the file that this one calls, and that are wrong themselves."""
    lines = []
    names = getattr(getattr(mine, step.function), "__code__", stub.__code__).co_names
    for part in STEPS:
        function = getattr(mine, part.function, None)
        if part is not step and part.function in names and function is not None:
            _, is_exact = graded(part, function, path)
            if is_exact is False:
                lines.append(f"your {part.function}, which is wrong, is part of this")
    return lines


def show(number, name, lines, is_exact):
    verdict = lines[0]
    if sys.stdout.isatty():
        verdict = {True: "\x1b[32m", False: "\x1b[31m", None: ""}[is_exact] + verdict + "\x1b[0m"
    print(f"{number} {name:21} {verdict}")
    for line in lines[1:]:
        print(f"    {line}")


# ---- The file ----


def imported(file):
    """The user's file as a module. It may import its own neighbours."""
    path = os.path.abspath(file)
    spec = importlib.util.spec_from_file_location("mine", path)
    if spec is None:
        raise UserError(f"{file} is no Python file")
    folder = os.path.dirname(path)
    forget_namesakes(Path(folder))
    sys.path.insert(0, folder)
    sys.modules["mine"] = mine = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(mine)
    except (Exception, SystemExit) as error:
        raise UserError(f"{file} cannot be imported: {type(error).__name__}: {error}") from None
    return mine


def forget_namesakes(folder):
    """Let a file in this folder import its neighbours, and not ours of the same names."""
    ours = {path.stem for path in ROOT.iterdir()} - {"enumeration"}  # it is at work
    theirs = {path.stem for path in folder.iterdir()}
    for name in [*sys.modules]:
        if folder != ROOT and name.split(".")[0] in ours & theirs:
            del sys.modules[name]


def arguments(argv):
    """The file, and the name of a step or None."""
    parser = Parser(prog="python -m exercise", description=__doc__)
    parser.add_argument("file", nargs="?", default=str(MINE), help="your file")
    parser.add_argument("step", nargs="?", help="its number or its name; all, if left out")
    args = parser.parse_args(argv)
    names = [step.function for step in STEPS]
    by_key = {name: name for name in names}
    by_key |= {str(i): name for i, name in enumerate(names, start=1)}
    if args.step is None and args.file in by_key:
        return str(MINE), by_key[args.file]
    known = f"1 to {len(names)}, or {', '.join(names)}"
    if args.step is not None and args.step not in by_key:
        raise UserError(f"there is no step {args.step!r}; there are {known}")
    if args.file != str(MINE) and not os.path.isfile(args.file):
        raise UserError(f"there is neither a file nor a step {args.file!r}; steps are {known}")
    return args.file, by_key.get(args.step)


def main(argv=None):
    file, wanted = arguments(argv)
    if file == str(MINE) and not MINE.exists():
        shutil.copy(STUBS, MINE)
        print(f"wrote {os.path.relpath(MINE)}, for you to fill in")
    mine = imported(file)
    path = os.path.abspath(file)
    is_wrong = False
    if wanted and not hasattr(mine, wanted):
        raise UserError(f"{file} has no function {wanted}")
    for number, step in enumerate(STEPS, start=1):
        if wanted in (None, step.function):
            lines, is_exact = ["not in this file"], None
            if hasattr(mine, step.function):
                lines, is_exact = graded(step, getattr(mine, step.function), path)
            if is_exact is False:
                lines[1:1] = wrong_parts(step, mine, path)
            show(number, step.function, lines, is_exact)
            is_wrong |= is_exact is False
    if is_wrong:
        sys.exit(1)


if __name__ == "__main__":
    report(main, "python -m exercise")
