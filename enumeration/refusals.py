"""Errors that end a run, whatever the program does then, and what both engines refuse."""

import os
import sys

MAX_REFUSED = 10_000  # errors in one run

SEVERAL = (
    "the outcome depends on several numbers at once, as in u * v < c; "
    "if the largest or least of them wins, draw them in one call, with a race along the last axis"
)
STATE = (
    "the same numbers gave another outcome when run again, so something else decides as well; "
    "another generator, an earlier run, or memory that was never written"
)


class NotByThresholds(RuntimeError):
    """The outcomes have no parts that can be measured."""

    def __init__(self, problem):
        super().__init__(f"not by thresholds: {problem}")
        self.problem = problem


class TooManyRuns(RuntimeError):
    """More than max_runs calls of the function, or a loop without end."""


class Stop(BaseException):
    """Ends a run that has caught an error of ours, and goes on."""


class Refusals:
    """Errors of ours that end a run, even if the program catches them."""

    refused = None  # the first one
    n_refused = 0

    def refuse(self, error):
        """Raise the error, and keep it in case the program catches it."""
        self.n_refused += 1
        if self.n_refused == MAX_REFUSED:
            end_process(f"{type(error).__name__}: {error}; an except without a name catches this")
        if self.refused:
            raise Stop
        self.refused = error
        raise error


def end_process(line):
    """Print a line and end Python at once, where no error can stop the program."""
    print(line, file=sys.stderr, flush=True)
    os._exit(1)
