"""How a program ends: one line on what the user can fix, and a traceback for our mistakes.

Programs import this first, so that even Ctrl-C while their modules load is one line.
"""

import os
import sys

NO_MEMORY = "there is not enough memory"
INSTALL = "run pip install -r requirements.txt"
REQUIRED = "numpy", "regex", "requests", "tqdm"


def while_loading(kind, error, trace):
    """What Python calls with an error that nobody caught. `report` catches those of `main`."""
    if kind is KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
    elif kind is MemoryError or "failed to map segment" in str(error):
        print(f"error: {NO_MEMORY}", file=sys.stderr)
    elif kind is ModuleNotFoundError and error.name in REQUIRED:
        print(f"error: {error.name} is missing: {INSTALL}", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


sys.excepthook = while_loading


def report(main, name):
    """Run a program whose errors begin with its name."""
    import signal  # imported here, so that Ctrl-C is one line even while this loads

    from checkpoint import UserError

    for number in {signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}:
        if signal.getsignal(number) is signal.SIG_DFL:  # under nohup it's another handler
            signal.signal(number, stop)
    try:
        if sys.stdout is None:
            raise UserError("standard output is closed")
        if hasattr(sys.stdout, "reconfigure"):  # not in a notebook
            sys.stdout.reconfigure(errors="replace")  # for what a terminal cannot show
        main()
        print(end="", flush=True)
    except BrokenPipeError:  # nobody reads the output any more, as with "| head"
        drop_output()
        sys.exit(1)
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        sys.exit(130)
    except (UserError, OSError, MemoryError, FloatingPointError) as error:
        drop_output()
        print(f"{name}: error: {str(error) or NO_MEMORY}", file=sys.stderr)
        sys.exit(2)


def stop(number, frame):
    """End as after an error, so that files which are half written are removed."""
    sys.exit(128 + number)


def drop_output():
    """Drop what can't be written, which would be an error once more when Python ends."""
    try:
        print(end="", flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
