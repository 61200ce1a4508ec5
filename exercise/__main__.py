"""Grade what you wrote: every path of your code is run, and its law is compared with the right one.

python -m exercise                         # all steps of exercise/mine.py
python -m exercise exercise/mine.py 3      # one step, by its number or its name
python -m exercise their_verify.py verify  # a function of another file
"""

import importlib.util
import linecache
import os
import sys
import threading
import traceback
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from enumeration import NotByRng, TooManyPaths, output_distribution, total_variation
from errors import UserError
from lab import gallery
from lab.gallery import EOS, PROMPT, TREES, VARIANTS, K, N, Variant, decode, plain, right_penalty, target_rows
from lab.trees import paths
from sampling import sample
from speculative import acceptance, autoregressive_sampling
from speculative import residual as right_residual
from terminal import Parser, report

ROOT = Path(__file__).parent.parent
LIMIT = 20  # seconds for a step, before it counts as endless
ZEROS = np.array([[[2, 1, 1], [0, 4, 0], [1, 0, 3]], [[1, 3, 0], [0, 2, 2], [2, 1, 1]]]) / 4
TABLES = [(gallery.P, gallery.Q), tuple(ZEROS)]  # rows of the draft and of the target; a mistake may hide in one pair
NAMES = "ABC"


class Wrong(Exception):
    """What a function returned cannot be right, whatever its law."""


class Step(NamedTuple):
    function: str
    decode: callable  # decode(function) -> a function of rng that returns ids
    own: callable = plain  # what it should be
    rivals: list = ()  # variants of the gallery that may have the same law
    table: bool = False  # whether the table of the README fits


# ---- What the functions are put into ----


def with_accept(function):
    def rule(drafted, p, q, rng):
        for i, token in enumerate(drafted):
            if not is_bool(function(p[i].copy(), q[i].copy(), token, rng)):
                return np.append(drafted[:i], sample(right_residual(p[i], q[i]), rng))
        return np.append(drafted, sample(q[-1], rng))

    return partial(decode, verify=rule)


def with_residual(function):
    def rule(drafted, p, q, rng):
        for i, token in enumerate(drafted):
            if not rng.random() < acceptance(p[i, token], q[i, token]):
                row = rows_of(function(p[i], q[i]), "the residual", p[i].shape)
                return np.append(drafted[:i], sample(row, rng))
        return np.append(drafted, sample(q[-1], rng))

    return partial(decode, verify=rule)


def with_verify(function):
    def rule(drafted, p, q, rng):
        emitted, most = tokens(function(drafted, p, q, rng), "the round"), len(drafted) + 1
        if not 1 <= len(emitted) <= most:
            raise Wrong(f"a round of {most - 1} guesses emits 1 to {most} tokens; found {emitted!r:.60}")
        return emitted

    return partial(decode, verify=rule)


def with_loop(function, eos=None, prompt=PROMPT, models=(gallery.draft_model, gallery.target_model)):
    def text(rng):
        found = tokens(function(np.array(prompt), *models, N, K, rng, eos=eos), "the text")
        ends = eos is not None and eos in found[len(prompt) :].tolist()
        n = len(prompt) + N
        if len(found) > n or (len(found) < n and not ends) or (*found[: len(prompt)],) != prompt:
            fewer = "" if eos is None else f", or fewer up to an eos, {eos}"
            raise Wrong(
                f"the text must have {len(prompt)} + N = {n} tokens{fewer}, the prompt first; found {found!r:.60}"
            )
        return found

    return text


def of_all(name):
    """A model of the gallery whose rows depend on all of the text, and not on its last token alone."""
    return lambda ids, n_rows=1: getattr(gallery, name)[np.cumsum(ids)[-n_rows:] % len(NAMES)]


def with_propose(function):
    def draft(x, draft_model, k, rng):
        if k == 0:
            return x[:0], np.zeros((0, len(gallery.P)))
        found = function(x, draft_model, k, rng)
        if not isinstance(found, tuple) or len(found) != 2:
            raise Wrong(f"a draft returns the guesses and their rows; found {found!r:.60}")
        drafted, p = tokens(found[0], "the guesses"), array(found[1], "p", (k, len(gallery.P)))
        favourites = [int(draft_model(np.append(x, drafted[:i]))[-1].argmax()) for i in range(k)]
        if drafted.tolist() != favourites:
            raise Wrong(f"a greedy draft guesses its favourites, {favourites} here; found {drafted.tolist()}")
        return drafted, p

    return partial(decode, propose=draft)


def with_penalty(function):
    def rows(x, drafted, memory):
        q = target_rows(x, drafted, memory)
        return rows_of(function(q.copy(), np.append(x, drafted)), "the rows", q.shape)

    return partial(decode, rows=rows)


def with_siblings(function):
    def rule(node, rng):
        emitted = function(node, rng)
        if not isinstance(emitted, list) or not 1 <= len(tokens(emitted, "the list")) <= max(map(len, paths(node))):
            raise Wrong(f"a list of 1 to {max(map(len, paths(node)))} tokens is needed; found {emitted!r:.60}")
        return emitted

    return partial(gallery.tree, rule)


def array(found, what, shape=None):
    if found is None:
        raise Wrong("it returned None; is a return missing?")
    try:
        found_array = np.array(found)
    except ValueError:  # an array and a number, for example
        raise Wrong(f"{what} must be an array; found {found!r:.60}") from None
    if shape is not None and found_array.shape != shape:
        raise Wrong(f"{what} must have the shape {list(shape)}; found {list(found_array.shape)}")
    return found_array


def tokens(found, what):
    ids = array(found, what)
    ids = ids if ids.size else ids.astype(int)
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or not {*ids.tolist()} <= {*range(len(NAMES))}:
        raise Wrong(f"{what} must be tokens from 0 to {len(NAMES) - 1}; found {found!r:.60}")
    return ids


def rows_of(found, what, shape):
    rows = array(found, what, shape)
    if not (rows.min() >= 0 and np.abs(rows.sum(axis=-1) - 1).max() < 1e-9):
        total = max(rows.sum(axis=-1).ravel(), key=lambda total: abs(total - 1))
        shown = f"{np.round(rows, 4).tolist()!s:.60}, with a sum of {total:.12g}"
        raise Wrong(f"{what} must be a distribution, with a sum of 1; found {shown}")
    return rows


def is_bool(found):
    if found is None:
        raise Wrong("it returned None; is a return missing?")
    if not isinstance(found, bool | np.bool_):
        raise Wrong(f"True or False is needed; found {found!r:.60}")
    return found


def rules(*parts):
    """The variants of the gallery that differ from the right one in these parts alone."""
    usual = {name: Variant._field_defaults[name] for name in ("verify", "propose", "rows", "decode", "own")}
    return [v for v in VARIANTS if all(getattr(v, name) == value for name, value in usual.items() if name not in parts)]


PENALTIES = [v for v in VARIANTS if "penalty" in v.name]
ENDS = [v for v in VARIANTS if "eos" in v.name]
STEPS = [
    Step("accept", with_accept, rivals=rules("verify"), table=True),
    Step("residual", with_residual, rivals=rules("verify"), table=True),
    Step("verify", with_verify, rivals=rules("verify"), table=True),
    Step("speculative_sampling", with_loop, rivals=rules("verify", "propose")),
    Step("propose", with_propose, rivals=rules("propose")),
    Step("penalised", with_penalty, own=partial(plain, rows=right_penalty), rivals=PENALTIES),
    Step("siblings", with_siblings, rivals=TREES),
]
LOOPS = {  # the fourth step is graded on these, too; in the second, the prompt ends with an eos, which ends nothing
    f"{NAMES[EOS]} is the eos": Step(
        "speculative_sampling", partial(with_loop, eos=EOS), own=partial(plain, eos=EOS), rivals=ENDS
    ),
    "A is the eos, the prompt is B A, and rows depend on all of the text": Step(
        "speculative_sampling", partial(with_loop, eos=0, prompt=(1, 0), models=(of_all("P"), of_all("Q"))),
        own=lambda rng: autoregressive_sampling((1, 0), of_all("Q"), N, rng, eos=0),
    ),
}  # fmt: skip


# ---- Grading ----


@contextmanager
def tables(p, q):
    """Within the `with` statement, the gallery has these rows."""
    usual = gallery.P, gallery.Q
    gallery.P, gallery.Q = p, q
    try:
        yield
    finally:
        gallery.P, gallery.Q = usual


def grade(step, function):
    """What is wrong with a function, in lines; [] if nothing is."""
    for number, (p, q) in enumerate(TABLES):
        with tables(p, q), np.errstate(all="ignore"):
            found, own = output_distribution(step.decode(function)), output_distribution(step.own)
            if (distance := total_variation(found, own)) > 1e-9:
                size = f"{distance:.4f}" if distance > 1e-4 else f"{distance:.0e}"
                lines = [f"wrong by {size}{name_of(step, function)}", *first_difference(found, own)]
                if step.table and number == 0:
                    lines += readme_table(step.decode(function).keywords["verify"])
                return lines
    return []


def name_of(step, function):
    """The bug of the gallery with the same law on all tables, if there is one."""
    laws = [law(step.decode(function), number) for number in range(len(TABLES))]
    for rival in step.rivals:
        others = [law(rival.text, number) for number in range(len(TABLES))]
        same = [total_variation(*both) < 1e-9 for both in zip(laws, others) if None not in both]
        if not rival.exact and same and all(same):
            return f': the law of "{rival.name}"' + f" ({rival.seen})" * bool(rival.seen)
    return ""


@cache
def law(text, number):
    """The distribution for one of the TABLES, or None if a rule cannot cope with its zeros."""
    with tables(*TABLES[number]), np.errstate(all="ignore"):
        try:
            return output_distribution(text)
        except (ValueError, IndexError, Wrong):
            return None


def first_difference(found, own):
    """The first prefix after which a token has a wrong probability."""
    ended = [{(*ids, None): mass for ids, mass in law.items()} for law in (found, own)]
    for n in range(len(PROMPT), len(PROMPT) + N + 1):
        before, after = ([sums(law, m) for law in ended] for m in (n, n + 1))
        for ids in sorted({*after[0], *after[1]}, key=str):
            if not all(then.get(ids[:-1]) for then in before):
                continue
            one, other = (now.get(ids, 0) / then[ids[:-1]] for now, then in zip(after, before))
            if abs(one - other) > 1e-9:
                text, last = " ".join(NAMES[id] for id in ids[:-1]), ids[-1]
                what = "the text ends" if last is None else f"{NAMES[last]} is emitted"
                digits = next(n for n in range(4, 18) if f"{one:.{n}g}" != f"{other:.{n}g}")
                return [f"after {text}, {what} with probability {one:.{digits}g}, but q says {other:.{digits}g}"]
    return []


def sums(law, n):
    """The probability of each beginning of n tokens."""
    found = {}
    for ids, mass in law.items():
        if len(ids) >= n:
            found[ids[:n]] = found.get(ids[:n], 0) + mass
    return found


def readme_table(rule):
    """How the first token after A comes about, as in the README."""

    def first(rng):
        token = rng.choice(3, p=gallery.P[0])
        emitted = rule(np.array([token]), gallery.P[[0]], gallery.Q[[0, token]], rng)
        return [len(emitted) == 2, emitted[0]]

    found = np.zeros((2, 3))
    for (accepted, token), mass in output_distribution(first).items():
        found[1 - accepted, token] += mass
    rows = {"guessed and accepted": found[0], "rejected, then": found[1]}
    rows |= {"emitted": found.sum(axis=0), "q": gallery.Q[0]}
    if np.allclose(rows["emitted"], rows["q"]):
        return []  # the mistake is somewhere else
    header = f"{'after A':22}" + "".join(f"{name:>7}" for name in NAMES)
    return [header, *(f"{name:22}" + "".join(f"{x:7.3f}" for x in row) for name, row in rows.items())]


# ---- Showing ----


def graded(step, function, path):
    """The lines about a function, and whether it is exact. None: not written yet."""
    try:
        lines = grade(step, function)
        for where, loop in LOOPS.items() if step.function == "speculative_sampling" else ():
            if not lines and (lines := grade(loop, function)):
                lines[0] += f", where {where}"
        if not lines and step.function == "verify":
            return [f"exact, with {Variant('', '', verify=function).tokens_per_round():.2f} tokens per round"], True
        return lines or ["exact"], not lines
    except NotImplementedError as error:
        name = traceback.extract_tb(error.__traceback__)[-1].name
        return [f"it calls {name}, which is not written yet" if name != step.function else "not written yet"], None
    except (Wrong, NotByRng) as error:
        return [str(error)], False
    except TooManyPaths as error:
        problem = str(error).split(";")[0]
        return ["a loop may go on for ever" if "along one path" in problem else problem], False
    except BaseException as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if os.path.abspath(f.filename) == path]
        where = f"line {frames[-1].lineno}, {frames[-1].line}: " if frames else ""
        return [f"{where}{type(error).__name__}: {error}"], False


def in_time(step, function, path):
    """`graded`, but a loop that draws nothing is stopped."""
    found = []
    worker = threading.Thread(target=lambda: found.append(graded(step, function, path)), daemon=True)
    worker.start()
    worker.join(LIMIT)
    if found:
        return found[0]
    frame, line = sys._current_frames()[worker.ident], None
    while frame:
        if os.path.abspath(frame.f_code.co_filename) == path:
            line = frame.f_lineno
            break
        frame = frame.f_back
    where = f", near line {line}: {linecache.getline(path, line).strip()}" if line else ""
    problem = f"it did not end within {LIMIT} seconds{where}; no step after it was run"
    show(STEPS.index(step) + 1, step.function, [problem], False)
    sys.stdout.flush()
    os._exit(1)  # the loop would go on


def show(number, name, lines, is_exact):
    colour = {True: "\x1b[32m", False: "\x1b[31m", None: ""}[is_exact] if sys.stdout.isatty() else ""
    print(f"{number} {name:21} {colour}{lines[0]}{colour and chr(27) + '[0m'}")
    for line in lines[1:]:
        print(f"    {line}")


def forget_namesakes(folder):
    """Let a file in this folder import its neighbours, and not the modules of this project that have their names."""
    for name, module in [*sys.modules.items()]:
        is_ours = name != "__main__" and Path(getattr(module, "__file__", None) or "/").is_relative_to(ROOT)
        if is_ours and Path(folder) != ROOT and importlib.machinery.PathFinder.find_spec(name.split(".")[0], [folder]):
            del sys.modules[name]


def main(argv=None):
    parser = Parser(prog="python -m exercise", description=__doc__)
    parser.add_argument("file", nargs="?", default=str(Path(__file__).with_name("mine.py")), help="your file")
    parser.add_argument("step", nargs="?", help="the number or the name of a step; all, if left out")
    args = parser.parse_args(argv)
    numbers = {key: i for i, step in enumerate(STEPS, start=1) for key in (str(i), step.function)}
    if args.step is None and args.file in numbers:
        args.file, args.step = parser.get_default("file"), args.file
    if args.step is not None and args.step not in numbers:
        names = ", ".join(step.function for step in STEPS)
        raise UserError(f"there is no step {args.step!r}; there are 1 to {len(STEPS)}, or {names}")
    path = os.path.abspath(args.file)
    spec = importlib.util.spec_from_file_location("mine", path)
    if spec is None or not os.path.isfile(path):
        raise UserError(f"{args.file} is no Python file")
    forget_namesakes(os.path.dirname(path))
    sys.path.insert(0, os.path.dirname(path))
    sys.modules["mine"] = mine = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(mine)
    except (Exception, SystemExit) as error:
        raise UserError(f"{args.file} cannot be imported: {type(error).__name__}: {error}") from None
    wrong = False
    for number, step in enumerate(STEPS, start=1):
        if args.step is None or numbers[args.step] == number:
            function = getattr(mine, step.function, None)
            if function is None and args.step is not None:
                raise UserError(f"{args.file} has no function {step.function}")
            lines, is_exact = in_time(step, function, path) if function else (["not written yet"], None)
            show(number, step.function, lines, is_exact)
            wrong |= is_exact is False
    return sys.exit(1) if wrong else None


if __name__ == "__main__":
    report(main, "python -m exercise")
