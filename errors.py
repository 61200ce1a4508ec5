"""Errors of the user are reported in one line, and ours with a traceback."""

import os
import sys


class UserError(ValueError):
    """Something that the user gave, such as an option, a file or a model, cannot be used. The message says why."""


def report(main, name):
    """Run a program whose errors begin with its name."""
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
