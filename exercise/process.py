"""The user's file runs in a process of its own, because it may hang, or end Python.

Answers come through a pipe of their own, so the file may print and close what it likes. If
none comes, that is an answer, too.
"""

import contextlib
import faulthandler
import importlib.util
import linecache
import multiprocessing
import os
import re
import signal
import sys
import tempfile
from functools import partial
from pathlib import Path

from checkpoint import UserError
from exercise.grading import graded, place_of, problem
from exercise.steps import STEPS

ROOT = Path(__file__).parent.parent
LIMIT = 20  # seconds of the processor for a step, before it counts as endless
BUSY = 10  # times as many by the clock, since it may wait, or share the processor
PATIENCE = 60  # more seconds for a process that does not even end itself
HAS_TIMER = hasattr(signal, "setitimer")  # of the processor's time; Windows has none

# ---- In our process ----


def verdicts(file, asked, judge=graded):
    """The answers about (step, function) in turn. Where a process ends over one, another goes on.

    Both are names: step 3 may have any in a file. judge(step, function, path) runs in the process.
    """
    if os.path.isdir(file):
        raise UserError(f"{file} is a folder: give a file of it")
    path = os.path.abspath(file)
    asked = [*asked]
    while asked:
        with process_for(path, asked, judge) as (process, next_answer):
            lines, is_imported = next_answer()
            if not is_imported:
                raise UserError(f"{file} cannot be imported: {lines[0]}")
            while asked and process.is_alive():
                asked.pop(0)
                yield next_answer()


@contextlib.contextmanager
def process_for(path, asked, judge):
    """A process that imports a file and judges steps of it, and a function that awaits an answer.

    If none comes, the function ends the process, and says why.
    """
    spawn = multiprocessing.get_context("spawn")
    answers, sender = spawn.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        process = spawn.Process(target=answer, args=[path, asked, judge, sender, LIMIT, log])
        # The process inherits what we ignore. So Ctrl-C reaches us alone, and we end the process.
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        process.start()
        signal.signal(signal.SIGINT, handler)
        sender.close()

        def next_answer():
            try:
                if answers.poll(BUSY * LIMIT + PATIENCE):
                    return answers.recv()
            except (EOFError, OSError):
                process.join(1)
            code = process.exitcode
            end(process)
            return [why_it_ended(code, path, log)], False

        try:
            yield process, next_answer
        finally:
            end(process)


def end(process):
    process.kill()
    process.join()


def why_it_ended(code, path, log):
    """Why there is no answer. A process that took too long has logged what it was doing."""
    doing = Path(log).read_text() if os.path.exists(log) else ""
    if code is not None and not doing:
        return f"it ended Python, with exit code {code}"
    name = path.encode("ascii", "backslashreplace").decode()
    match = re.search(rf'File "{re.escape(name)}", line (\d+)', doing)
    place = ""
    if match:
        number = int(match[1])
        place = place_of(number, linecache.getline(path, number))
    return f"{place}it did not end within {LIMIT} seconds"


# ---- In the process of the file ----


def answer(path, asked, judge, answers, limit, log):
    """Send whether a file can be imported, and then the verdicts on its steps.

    After `limit` seconds without an answer the process ends by itself, and the log holds what
    it was doing.
    """
    sys.stdout = sys.stderr  # for what the file prints
    if hasattr(os, "register_at_fork"):  # a copy of this process would answer as well
        os.register_at_fork(after_in_child=partial(os._exit, 0))
    with contextlib.suppress(OSError), open(log, "w") as file:  # nobody may listen any more
        begin_clock(limit, file)
        mine, lines = imported(path)
        answers.send((lines, mine is not None))
        steps = {step.function: step for step in STEPS}
        for step, name in asked:
            begin_clock(limit, file)
            function = getattr(mine, name, None)
            answers.send(function and judge(steps[step], function, path))


def begin_clock(limit, log):
    by_the_clock = limit
    if HAS_TIMER:  # which stands still while other programs have the processor
        faulthandler.register(signal.SIGPROF, log, chain=True)
        signal.setitimer(signal.ITIMER_PROF, limit)
        by_the_clock = BUSY * limit
    faulthandler.dump_traceback_later(by_the_clock, exit=True, file=log)


def imported(path):
    """The user's file as a module, which may import its neighbours, or None and what is wrong."""
    spec = importlib.util.spec_from_file_location("mine", path)
    if spec is None:
        return None, ["it is no Python file"]
    folder = os.path.dirname(path)
    forget_namesakes(Path(folder))
    sys.path.insert(0, folder)
    sys.modules["mine"] = mine = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(mine)
    except BaseException as error:
        return None, [problem(error, path)]
    return mine, []


def forget_namesakes(folder):
    """Let a file in this folder import its neighbours, and not ours of the same names."""
    our_names = {path.stem for path in ROOT.iterdir()}
    their_names = {path.stem for path in folder.iterdir()}
    for name in [*sys.modules]:
        if folder != ROOT and name.split(".")[0] in our_names & their_names:
            del sys.modules[name]
