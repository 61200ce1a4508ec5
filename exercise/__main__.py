"""Grade what you wrote: every path of your code is run, and its distribution compared.

python -m exercise                             # all steps of exercise/mine.py
python -m exercise exercise/mine.py 3          # one step, by its number or its name
python -m exercise their_verify.py verify      # a function of another file
python -m exercise tiny.py --price accept_all  # what a rule that is wrong on purpose gains
"""

import os
import shutil
import sys
import textwrap
from functools import partial
from pathlib import Path

from checkpoint import UserError
from exercise.grading import graded
from exercise.price import priced
from exercise.process import verdicts
from exercise.steps import STEPS
from terminal.ending import report
from terminal.options import Parser

MINE = Path(__file__).with_name("mine.py")
STUBS = Path(__file__).with_name("stubs.py")
PRICE = "what a function like verify gains by being wrong on purpose, and which tests would see it"


def show(number, name, lines, is_exact):
    """Print the lines about a step. The first is its verdict."""
    verdict, *details = lines
    verdict = wrapped(verdict, " " * 24).strip()
    if sys.stdout is not None and sys.stdout.isatty():
        verdict = {True: "\x1b[32m", False: "\x1b[31m", None: ""}[is_exact] + verdict + "\x1b[0m"
    print(f"{number} {name:21} {verdict}", flush=True)
    for line in details:
        print(wrapped(line, " " * 4), flush=True)


def wrapped(line, indent):
    """A line in lines that fit the terminal."""
    n_columns = max(shutil.get_terminal_size().columns - len(indent), 10)
    lines = textwrap.wrap(line, n_columns, break_long_words=False, break_on_hyphens=False)
    return textwrap.indent("\n".join(lines), indent)


def arguments(argv):
    """The options: a file, the name of a step or None, tree, and price."""
    parser = Parser(prog="python -m exercise", description=__doc__)
    parser.add_argument("file", nargs="?", default=str(MINE), help="your file")
    parser.add_argument("step", nargs="?", help="its number or its name; all, if left out")
    parser.add_argument("--tree", action="store_true", help="show a tree of right ones as well")
    parser.add_argument("--price", metavar="FUNCTION", help=PRICE)
    args = parser.parse_args(argv)
    names = [step.function for step in STEPS]
    by_key = {name: name for name in names}
    by_key |= {str(i): name for i, name in enumerate(names, start=1)}
    if args.step is None and args.file in by_key:
        args.file, args.step = str(MINE), args.file
    choices = f"1 to {len(names)}, or {', '.join(names)}"
    if args.step is not None and args.step not in by_key:
        raise UserError(f"there is no step {args.step!r}; there are {choices}")
    if args.file != str(MINE) and not os.path.exists(args.file):
        raise UserError(f"there is neither a file nor a step {args.file!r}; steps are {choices}")
    args.step = by_key.get(args.step)
    if args.price and (args.step or args.tree):
        raise UserError("--price goes with neither a step nor --tree")
    return args


def main(argv=None):
    args = arguments(argv)
    if args.file == str(MINE) and not MINE.exists():
        shutil.copy(STUBS, MINE)
        print(f"wrote {os.path.relpath(MINE)}, for you to fill in")
    names = [step.function for step in STEPS]
    asked = [(name, name) for name in names if args.step in (None, name)]
    judge = partial(graded, with_tree=args.tree)
    if args.price is not None:
        asked, judge = [("verify", args.price)], priced
    is_wrong = False
    for (name, function), verdict in zip(asked, verdicts(args.file, asked, judge)):
        if not verdict and len(asked) == 1:
            raise UserError(f"{args.file} has no function {function}")
        lines, is_exact = verdict or (["not in this file"], None)
        show(names.index(name) + 1, function, lines, is_exact)
        if is_exact and name == "speculative_sampling":
            file = min(args.file, os.path.relpath(args.file), key=len)
            print(f"    let it write: python main.py --mine {file}")
        is_wrong |= is_exact is False
    if is_wrong:
        sys.exit(1)


if __name__ == "__main__":
    report(main, "python -m exercise")
