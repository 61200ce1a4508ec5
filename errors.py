"""Errors of the user are reported in one line, and ours with a traceback."""

import argparse
import os
import sys


class UserError(ValueError):
    """Something that the user gave, such as an option, a file or a model, cannot be used. The message says why."""


class Parser(argparse.ArgumentParser):
    """Options whose errors are UserErrors, with an advice."""

    def __init__(self, advice="see --help", **kwargs):
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
            conflict_handler="resolve", **kwargs,  # the lab has a --K of its own
        )  # fmt: skip
        self.advice = advice

    def error(self, message):
        raise UserError(f"{message}; {self.advice}")


def checked(type, is_good, what):
    """A type for argparse: a value for which is_good holds."""

    def parse(text):
        try:
            if is_good(value := type(text)):
                return value
        except ValueError:
            pass
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")

    return parse


def report(main, name):
    """Run a program whose errors begin with its name."""
    for stream in "stdout", "stderr":
        if getattr(sys, stream) is None:  # it was closed, as by >&-
            setattr(sys, stream, open(os.devnull, "w", encoding="utf-8"))
    if hasattr(sys.stdout, "reconfigure"):  # not in a notebook
        sys.stdout.reconfigure(errors="replace")  # a text may have characters that a terminal or a file cannot show
    try:
        main()
    except BrokenPipeError:  # nobody reads the output any more, as with "| head"
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        sys.exit(130)
    except (UserError, OSError, MemoryError) as error:
        print(f"{name}: error: {error}", file=sys.stderr)
        sys.exit(2)
