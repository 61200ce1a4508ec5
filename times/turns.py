"""Engines in processes of their own, which take turns.

An engine is a function engine(*args) -> call(*args) -> (seconds, result). Engines take
turns because the memory of a shared machine may be twice as fast a minute later.
"""

import importlib
import json
import subprocess
import sys
import time

import numpy as np

from terminal.ending import report

TURNS = 12


class Engine:
    """An engine, "module:function", in a process, which ends with this one.

    With own_threads, BLAS has as many threads as it likes.
    """

    def __init__(self, engine, *args, own_threads=False):
        code = "from times.turns import main; main()"
        if own_threads:
            code = f"import numpy; {code}"  # before this project can leave BLAS one thread
        command = [sys.executable, "-c", code, engine, *args]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def ask(self, n_times, *args):
        """Call it n_times -> the median time, without the first of several, and the last result."""
        time.sleep(0.1)  # until another engine's threads, which wait in a loop for a while, sleep
        try:
            print(json.dumps([n_times, *args]), file=self.process.stdin, flush=True)
            seconds, result = json.loads(self.process.stdout.readline())
        except (BrokenPipeError, json.JSONDecodeError):
            sys.exit(2)  # it has ended, and said why
        return np.median(seconds[1:] or seconds), result


def compare(jobs):
    """Do each job, again and again -> {name: seconds [TURNS]}, {name: the last result}.

    jobs is {name: (engine, n_times, *args)}. The first turn, which is slower, does not count.
    """
    seconds = {name: [] for name in jobs}
    results = {}
    for _ in range(TURNS + 1):
        for name, (engine, *args) in jobs.items():
            taken, results[name] = engine.ask(*args)
            seconds[name].append(taken)
    return {name: np.array(times[1:]) for name, times in seconds.items()}, results


def timed(function):
    """The function as an engine's call."""

    def call(*args):
        begun = time.perf_counter()
        result = function(*args)
        return time.perf_counter() - begun, result

    return call


def main():
    """Run the jobs that another process asks for."""
    engine, *args = sys.argv[1:]
    report(lambda: serve(engine, args), engine)


def serve(engine, args):
    """For each line `[n_times, *args]` of the input, print all seconds and the last result."""
    module, name = engine.split(":")
    call = getattr(importlib.import_module(module), name)(*args)
    for line in sys.stdin:
        n_times, *args = json.loads(line)
        seconds, results = zip(*(call(*args) for _ in range(n_times)))
        print(json.dumps([seconds, results[-1]]), flush=True)
