"""Grade what you wrote: every path of your code is run, and its law is compared with the right one.

python -m exercise                         # all steps of exercise/mine.py
python -m exercise exercise/mine.py 3      # one step, by its number or its name
python -m exercise their_verify.py verify  # a function of another file
"""

import importlib.util
import linecache
import os
import shutil
import sys
import threading
import time
import traceback
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from enumeration import NotByRng, TooManyPaths, output_distribution, total_variation
from errors import UserError
from lab import gallery
from lab.gallery import EOS, TREES, VARIANTS, Setting, Variant, decode, plain, right_penalty, target_rows
from lab.trees import Node, grow, paths, top_down
from lab.trees import grade as grade_tree
from sampling import sample
from speculative import acceptance, speculative_sampling, verify
from speculative import residual as right_residual
from terminal import Parser, report

ROOT = Path(__file__).parent.parent
MINE, STUBS = Path(__file__).with_name("mine.py"), Path(__file__).with_name("stubs.py")
LIMIT = 20  # seconds of computing for a step, before it counts as endless
ROUNDING = 1e-12  # distances below are rounding
NAMES = "ABCD"


def rows(*numbers):
    return np.array(numbers) / sum(numbers[0])


# The README's pair after A; one with zeros; and one in which a round has three guesses. A
# mistake may hide in any of them.
CHAINS = (
    Setting(rows([2, 5, 3], [1, 2, 7], [2, 3, 5]), rows([3, 2, 5], [5, 4, 1], [3, 5, 2])),
    Setting(rows([2, 1, 1], [0, 4, 0], [1, 0, 3]), rows([1, 3, 0], [0, 2, 2], [2, 1, 1])),
    Setting(rows([3, 2], [1, 4]), rows([1, 4], [2, 3]), N=4, K=3),
)
PAIRS = (  # for siblings: with three tokens, two that are refused leave only one to draw
    Setting(gallery.P.astype(float), gallery.Q.astype(float)),
    Setting(
        rows([1, 2, 1, 0], [0, 4, 0, 0], [1, 0, 1, 2], [1, 1, 1, 1]),
        rows([2, 1, 0, 1], [1, 1, 2, 0], [0, 2, 1, 1], [3, 0, 1, 0]),
    ),
)


class OfWholeText(Setting):
    """Rows depend on all of the text."""

    def index(self, ids):
        return np.cumsum(ids) % len(self.P)


WHOLE_TEXTS = [OfWholeText(pair.P, pair.Q, prompt=(0, 1, 0)) for pair in CHAINS[:2]]


class Wrong(Exception):
    """What a function returned cannot be right, whatever its law."""


class Step(NamedTuple):
    function: str
    decode: callable  # decode(function) -> a function of rng and a setting that returns ids
    own: callable = plain  # what it should be
    rivals: list = ()  # variants of the gallery that may have the same law
    settings: tuple = CHAINS
    readme: bool = False  # whether the table of the README fits


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
        emitted, most = tokens(function(drafted, p, q, rng), "the round", q.shape[1]), len(drafted) + 1
        if not 1 <= len(emitted) <= most:
            raise Wrong(f"a round of {most - 1} guesses emits 1 to {most} tokens; found {emitted!r:.60}")
        return emitted

    return partial(decode, verify=rule)


def with_loop(function, eos=None, calls=None):
    """calls collects how many ids the draft got, and None for each call of the target."""

    def text(rng, setting):
        def draft(ids, n_rows=1):
            if calls is not None:
                calls.append(len(ids))
            return setting.draft_model(ids, n_rows)

        def target(ids, n_rows=1):
            if calls is not None:
                calls.append(None)
            return setting.target_model(ids, n_rows)

        prompt, N = setting.prompt, setting.N
        found = function(np.array(prompt), draft, target, N, setting.K, rng, eos=eos)
        found = tokens(found, "the text", len(setting.P))
        ends = eos is not None and eos in found[len(prompt) :].tolist()
        n = len(prompt) + N
        if len(found) > n or (len(found) < n and not ends) or (*found[: len(prompt)],) != prompt:
            fewer = "" if eos is None else f", or fewer up to an eos, {eos}"
            raise Wrong(
                f"the text must have {len(prompt)} + N = {n} tokens{fewer}, the prompt first; found {found!r:.60}"
            )
        return found

    return text


def with_propose(function):
    def draft(x, draft_model, k, rng, stop=None):
        if k == 0:
            return x[:0], ()
        n, found = draft_model(x).shape[1], function(x, draft_model, k, rng)
        if not isinstance(found, tuple) or len(found) != 2:
            raise Wrong(f"a draft returns the guesses and their rows; found {found!r:.60}")
        drafted, p = tokens(found[0], "the guesses", n), array(found[1], "p", (k, n))
        favourites = [int(draft_model(np.append(x, drafted[:i]))[-1].argmax()) for i in range(k)]
        if drafted.tolist() != favourites:
            raise Wrong(f"a greedy draft guesses its favourites, {favourites} here; found {drafted.tolist()}")
        return drafted, p

    return partial(decode, propose=draft)


def with_penalty(function):
    def rows(setting, x, drafted, memory):
        q = target_rows(setting, x, drafted, memory)
        return rows_of(function(q.copy(), np.append(x, drafted)), "the rows", q.shape)

    return partial(decode, rows=rows)


def with_siblings(function):
    def rule(node, rng):
        emitted, most = function(node, rng), max(map(len, paths(node)))
        if not isinstance(emitted, list) or not 1 <= len(tokens(emitted, "the list", len(node.q))) <= most:
            raise Wrong(f"a list of 1 to {most} tokens is needed; found {emitted!r:.60}")
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


def tokens(found, what, n):
    ids = array(found, what)
    ids = ids if ids.size else ids.astype(int)
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or not {*ids.tolist()} <= {*range(n)}:
        raise Wrong(f"{what} must be tokens from 0 to {n - 1}; found {found!r:.60}")
    return ids


def rows_of(found, what, shape):
    found_rows = array(found, what, shape)
    total = found_rows.sum(axis=-1)
    if not (found_rows.min() >= 0 and np.abs(total - 1).max() < 1e-9):
        worst = max(np.ravel(total), key=lambda total: abs(total - 1))
        shown = f"{np.round(found_rows, 4).tolist()!s:.60}, with a sum of {worst:.12g}"
        raise Wrong(f"{what} must be a distribution, with a sum of 1; found {shown}")
    return found_rows


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


def about(what):
    return [v for v in VARIANTS if v.about == what]


STEPS = [
    Step("accept", with_accept, rivals=rules("verify"), readme=True),
    Step("residual", with_residual, rivals=rules("verify"), readme=True),
    Step("verify", with_verify, rivals=rules("verify"), readme=True),
    Step("speculative_sampling", with_loop, rivals=rules("verify", "propose")),
    Step("propose", with_propose, rivals=rules("propose")),
    Step("penalised", with_penalty, own=partial(plain, rows=right_penalty), rivals=about("penalty")),
    Step("siblings", with_siblings, own=gallery.plain_tree, rivals=TREES, settings=PAIRS),
]
LOOPS = {  # the fourth step is graded on these, too; an eos of the prompt ends nothing
    f"{NAMES[EOS]} is the eos": Step(
        "speculative_sampling", partial(with_loop, eos=EOS), partial(plain, eos=EOS), about("eos"), CHAINS[:2]
    ),
    "A is the eos, the prompt is A B A, and rows depend on all of the text": Step(
        "speculative_sampling", partial(with_loop, eos=0), partial(plain, eos=0), settings=WHOLE_TEXTS
    ),
}


# ---- Grading ----


def grade(step, function):
    """What is wrong with a function, in lines; [] if nothing is."""
    for setting in step.settings:
        text = step.decode(function)
        found, own = distribution(text, setting), distribution(step.own, setting)
        if (distance := total_variation(found, own)) > ROUNDING:
            n_prompt = len(setting.prompt)
            first = total_variation(*(sums(law, n_prompt + 1) for law in (found, own)))
            where = f"{shown(first)} in the first token, " if first > ROUNDING else ""
            lines = [f"wrong by {where}{shown(distance)} in the text{name_of(step, function)}"]
            lines += first_difference(found, own, setting)
            return lines + (readme_table(text.keywords["verify"]) if step.readme and setting is CHAINS[0] else [])
    return []


def distribution(text, setting):
    with np.errstate(all="ignore"):
        return output_distribution(lambda rng: text(rng, setting))


def shown(distance):
    return f"{distance:.4f}" if distance > 1e-4 else f"{distance:.0e}"


def name_of(step, function):
    """The bug of the gallery with the same law on all tables, if there is one."""
    laws = [law(step.decode(function), setting) for setting in step.settings]
    for rival in step.rivals:
        others = [law_of_rival(rival, setting) for setting in step.settings]
        same = [total_variation(*both) < ROUNDING for both in zip(laws, others) if None not in both]
        if not rival.exact and same and all(same):
            return f': the law of "{rival.name}"' + f" ({rival.seen})" * bool(rival.seen)
    return ""


def law(text, setting):
    """The distribution of text(rng, setting), or None if it cannot cope with the zeros of the tables."""
    try:
        return distribution(text, setting)
    except (ValueError, IndexError, Wrong):
        return None


@cache
def law_of_rival(rival, setting):
    return law(rival.text, setting)


def first_difference(found, own, setting):
    """The first prefix after which a token has a wrong probability."""
    ended = [{(*ids, None): mass for ids, mass in law.items()} for law in (found, own)]
    n_prompt = len(setting.prompt)
    for n in range(n_prompt, n_prompt + setting.N + 1):
        before, after = ([sums(law, m) for law in ended] for m in (n, n + 1))
        for ids in sorted({*after[0], *after[1]}, key=str):
            if not all(then.get(ids[:-1]) for then in before):
                continue
            one, other = (now.get(ids, 0) / then[ids[:-1]] for now, then in zip(after, before))
            if abs(one - other) > ROUNDING:
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
    P, Q = CHAINS[0].P, CHAINS[0].Q

    def first(rng):
        token = rng.choice(3, p=P[0])
        emitted = rule(np.array([token]), P[[0]], Q[[0, token]], rng)
        return [len(emitted) == 2, emitted[0]]

    found = np.zeros((2, 3))
    for (accepted, token), mass in output_distribution(first).items():
        found[1 - accepted, token] += mass
    rows = {"guessed and accepted": found[0], "rejected, then": found[1]}
    rows |= {"emitted": found.sum(axis=0), "q": Q[0]}
    if np.allclose(rows["emitted"], rows["q"]):
        return []  # the mistake is somewhere else
    header = f"{'after A':22}" + "".join(f"{name:>7}" for name in NAMES[:3])
    return [header, *(f"{name:22}" + "".join(f"{x:7.3f}" for x in row) for name, row in rows.items())]


# ---- What a right function saves ----


def praise(step, function):
    """What to say of a function that is exact: how many tokens it yields, beside the papers' rule."""
    measure = {"verify": tokens_per_round, "siblings": tokens_per_tree, "speculative_sampling": tokens_per_pass}
    if step.function not in measure:
        return "exact"
    papers = {"verify": verify, "siblings": top_down, "speculative_sampling": papers_loop}
    setting = step.settings[0]
    own, usual = (measure[step.function](f, setting) for f in (function, papers[step.function]))
    unit = "pass of the target" if step.function == "speculative_sampling" else "round"
    said = f"{own:.2f} tokens per {unit}"
    if own < 1 + ROUNDING:
        return f"exact, but it never uses its guesses: {said}; the papers' rule has {usual:.2f}"
    if step.function == "speculative_sampling" and drafts_too_much(function, setting):
        return f"exact, with {said}, but it makes guesses for which the text has no room"
    return f"exact, with {said}" + (f"; the papers' rule has {usual:.2f}" if abs(own - usual) > 1e-9 else "")


def mean(function, count):
    return sum(mass * count(found) for found, mass in output_distribution(function).items())


def tokens_per_round(rule, setting):
    return Variant("", "", verify=rule).tokens_per_round(setting)


def tokens_per_tree(rule, setting):
    def first_round(rng):
        root = Node(children=grow(np.array(setting.prompt), setting.draft_model, setting.shape, rng))
        grade_tree(setting.prompt, setting.target_model, root)
        return rule(root, rng)

    return mean(first_round, len)


def calls_of(function, setting):
    """A function of rng that says, for each call of a model, how many ids the draft got, or -1 for the target."""

    def run(rng):
        calls = []
        with_loop(function, calls=calls)(rng, setting)
        return [-1 if n is None else n for n in calls]

    return run


def tokens_per_pass(function, setting):
    return setting.N / mean(calls_of(function, setting), lambda calls: calls.count(-1))


def drafts_too_much(function, setting):
    """Whether it guesses the last token, or one behind it: the target gives that anyway."""
    last = len(setting.prompt) + setting.N - 1
    return mean(calls_of(function, setting), lambda calls: max(calls) >= last) > 0


def papers_loop(x, draft_model, target_model, N, K, rng, eos=None):
    return speculative_sampling(x, draft_model, target_model, N, K, rng, eos=eos)


# ---- Showing ----


def graded(step, function, path):
    """The lines about a function, and whether it is exact. None: not written yet."""
    try:
        lines = grade(step, function)
        for where, loop in LOOPS.items() if step.function == "speculative_sampling" else ():
            if not lines and (lines := grade(loop, function)):
                lines[0] += f", where {where}"
        return lines or [praise(step, function)], not lines
    except NotImplementedError as error:
        frame = [*traceback.walk_tb(error.__traceback__)][-1][0].f_code
        if frame.co_code == stub.__code__.co_code:
            whose = "not written yet" if frame.co_name == step.function else "which is not written yet"
            return [whose if frame.co_name == step.function else f"it calls {frame.co_name}, {whose}"], None
        return [crash(error, path)], False
    except (Wrong, NotByRng) as error:
        return [str(error)], False
    except TooManyPaths as error:
        problem = str(error).split(";")[0]
        return ["a loop may go on for ever" if "along one path" in problem else problem], False
    except BaseException as error:
        return [crash(error, path)], False


def stub():
    raise NotImplementedError


def crash(error, path):
    frames = [f for f in traceback.extract_tb(error.__traceback__) if os.path.abspath(f.filename) == path]
    where = f"line {frames[-1].lineno}, {frames[-1].line}: " if frames else ""
    door = "; for code that draws from PyTorch, see enumeration/pytorch.py" if "torch" in sys.modules else ""
    return f"{where}{type(error).__name__}: {error}{door}"


def in_time(step, function, path):
    """`graded`, but a loop that draws nothing is stopped."""
    found, begun = [], time.process_time()
    worker = threading.Thread(target=lambda: found.append(graded(step, function, path)), daemon=True)
    worker.start()
    while worker.is_alive() and time.process_time() - begun < LIMIT:
        worker.join(0.1)
    if found:
        return found[0]
    frame, line = sys._current_frames()[worker.ident], None
    while frame and line is None:
        line = frame.f_lineno if os.path.abspath(frame.f_code.co_filename) == path else None
        frame = frame.f_back
    where = f", near line {line}: {linecache.getline(path, line).strip()}" if line else ""
    problem = f"it did not end within {LIMIT} seconds of computing{where}; no step after it was run"
    show(STEPS.index(step) + 1, step.function, [problem], False)
    sys.exit(1)


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
    parser.add_argument("file", nargs="?", default=str(MINE), help="your file")
    parser.add_argument("step", nargs="?", help="the number or the name of a step; all, if left out")
    args = parser.parse_args(argv)
    numbers = {key: i for i, step in enumerate(STEPS, start=1) for key in (str(i), step.function)}
    if args.step is None and args.file in numbers:
        args.file, args.step = parser.get_default("file"), args.file
    names = ", ".join(step.function for step in STEPS)
    if args.step is not None and args.step not in numbers:
        raise UserError(f"there is no step {args.step!r}; there are 1 to {len(STEPS)}, or {names}")
    path = os.path.abspath(args.file)
    if path == str(MINE) and not MINE.exists():
        shutil.copy(STUBS, MINE)
        print(f"wrote {os.path.relpath(MINE)}, for you to fill in")
    spec = importlib.util.spec_from_file_location("mine", path)
    if not os.path.isfile(path):
        raise UserError(f"there is neither a file nor a step {args.file!r}; steps are 1 to {len(STEPS)}, or {names}")
    if spec is None:
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
            lines, is_exact = in_time(step, function, path) if function else (["not in this file"], None)
            show(number, step.function, lines, is_exact)
            wrong |= is_exact is False
    return sys.exit(1) if wrong else None


if __name__ == "__main__":
    report(main, "python -m exercise")
