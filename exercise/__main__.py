"""Grade what you wrote: every path of your code is run, and its distribution compared.

python -m exercise                         # all steps of exercise/mine.py
python -m exercise exercise/mine.py 3      # one step, by its number or its name
python -m exercise their_verify.py verify  # a function of another file
"""

import os
import shutil
import sys
from pathlib import Path

from checkpoint import UserError
from exercise.process import verdicts
from exercise.steps import STEPS
from terminal.ending import report
from terminal.options import Parser

MINE = Path(__file__).with_name("mine.py")
STUBS = Path(__file__).with_name("stubs.py")


def show(number, name, lines, is_exact):
    verdict = lines[0]
    if sys.stdout is not None and sys.stdout.isatty():
        verdict = {True: "\x1b[32m", False: "\x1b[31m", None: ""}[is_exact] + verdict + "\x1b[0m"
    print(f"{number} {name:21} {verdict}", flush=True)
    for line in lines[1:]:
        print(f"    {line}", flush=True)


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
    names = [step.function for step in STEPS]
    asked = [wanted] if wanted else names
    is_wrong = False
    for name, verdict in zip(asked, verdicts(file, asked)):
        if verdict is None and wanted:
            raise UserError(f"{file} has no function {wanted}")
        lines, is_exact = verdict or (["not in this file"], None)
        show(names.index(name) + 1, name, lines, is_exact)
        is_wrong |= is_exact is False
    if is_wrong:
        sys.exit(1)


if __name__ == "__main__":
    report(main, "python -m exercise")
