"""Engines in processes of their own, which take turns.

An engine is a function engine(*args) -> call(*args). `Turns` starts it in a process, and
asks it for times. They take turns because the memory of a shared machine may be twice as
fast a minute later.
"""

import contextlib
import importlib
import json
import subprocess
import sys
import time

import numpy as np

from terminal import report


class Turns:
    """An engine, as "module:function", in a process. With own_threads, BLAS has as many as it likes."""

    def __init__(self, engine, *args, own_threads=False):
        first = "import numpy; " * own_threads  # before this project can leave BLAS one thread
        code = f"{first}from studies.times.turns import main; main()"
        command = [sys.executable, "-c", code, engine, *map(str, args)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()

    def ask(self, n_times, *args):
        """The median time of n_times calls in seconds, without the first if there are more, and the last result."""
        time.sleep(0.1)  # until another engine's threads, which wait in a loop for a while, sleep
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps([n_times, *args]), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:  # it has ended, and said why
            sys.exit(2)
        seconds, result = json.loads(answer)
        return float(np.median(seconds[1:] or seconds)), result


def main():
    report(lambda: serve(*sys.argv[1:]), sys.argv[1])


def serve(engine, *args):
    """For each line `[n_times, *args]` on standard input, print the seconds of each call and the last result."""
    module, name = engine.split(":")
    call = getattr(importlib.import_module(module), name)(*args)
    for line in sys.stdin:
        (n_times, *args), seconds = json.loads(line), []
        for _ in range(n_times):
            begun = time.perf_counter()
            result = call(*args)
            seconds.append(time.perf_counter() - begun)
        print(json.dumps([seconds, result]), flush=True)
