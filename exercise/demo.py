"""`python main.py --mine`: a function of yours writes the text, and the grader judges it."""

import math
import os
import signal
import traceback
from functools import partial
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from checkpoint import UserError
from exercise.grading import problem
from exercise.process import HAS_TIMER, LIMIT, ROOT, imported, verdicts
from exercise.returned import Endless, text_from
from exercise.rounds import Rounds
from exercise.steps import STEPS
from speculative import speculative_sampling
from terminal.figures import Figure

NAMES = [step.function for step in STEPS]
VERIFY, LOOP = NAMES[2:4]
PARTS = {*NAMES} - {VERIFY, LOOP}
MINE = os.path.relpath(ROOT / "exercise" / "mine.py")
ACCEPTS = "no right rule accepts more than alpha, so this one accepts what it should reject"
MOST = 100  # calls of the models without a new token, beside those that a round takes
HIDDEN = "not to be seen here, where temperature 0 or --same_text leave one token in each row"

OR_NAMED = f"; --mine takes {LOOP}, or else {VERIFY}, or a rule by its name, as in tiny.py verify"


class Mine(NamedTuple):
    """A function of a file, and what the grader says of it."""

    file: str
    name: str
    verdict: str
    is_exact: bool

    def loop(self):
        """The function, or `speculative_sampling` with this rule, and with an on_round."""
        function = getattr(imported(os.path.abspath(self.file))[0], self.name)
        if self.name != LOOP:
            function = partial(speculative_sampling, verify=function)
        return partial(run, function, self.file)

    def figures(self, args, plain, fast):
        """The last lines below two texts."""
        rows = {}
        alpha = fast.alpha or 0
        luck = 2 * math.sqrt(abs(alpha * (1 - alpha)) / max(fast.n_looked_at, 1))
        if not self.is_exact and (fast.acceptance_rate or 0) > alpha + luck:
            rows["rate above alpha"] = Figure(ACCEPTS)
        rows["the grader says"] = Figure(self.says(args, plain.ids, fast.ids))
        return rows

    def says(self, args, ids, plain_ids):
        line = f"{self.name} is {self.verdict}"
        if self.is_exact:
            return line
        if args.temperature > 0 and not args.same_text:
            return f"{line}; would you have seen that?"
        return f"{line}; {HIDDEN}" if np.array_equal(ids, plain_ids) else line


def graded(file=MINE, *names):
    """`Mine`, graded in a process of its own.

    Without a name it is step 4, or else step 3. A function of another name is a rule like step 3.
    """
    if not os.path.exists(file):
        raise UserError(f"{file!r} is not there; python -m exercise begins yours")
    if len(names) > 1 or not PARTS.isdisjoint(names):
        takes = f"a file, and one rule like {VERIFY} or a loop like {LOOP}"
        raise UserError(f"--mine takes {takes}; found {', '.join(names)}")
    advice = "" if names or file == MINE else OR_NAMED
    names = names or (LOOP, VERIFY)
    asked = [(LOOP if name == LOOP else VERIFY, name) for name in names]
    for name, answer in zip(names, verdicts(file, asked)):
        (verdict, *_), is_exact = answer or (["not in this file"], None)
        if is_exact or verdict.startswith("wrong by"):
            return Mine(file, name, verdict, is_exact)
        if is_exact is False:
            break
    raise UserError(f"{file}: {name}: {verdict}{advice}")


# ---- While it writes ----


def run(loop, file, x, draft_model, target_model, N, K, seed, on_round):
    """Run a loop that has no on_round, and end it if it is endless."""

    def without_the_clock(r):
        set_clock(0)
        on_round(r)
        set_clock(LIMIT)

    rounds = Rounds(x, without_the_clock, MOST + 2 * min(K, N))
    draft = rounds.watched(untimed(draft_model), "p")
    target = rounds.watched(untimed(target_model), "q")
    try:
        set_clock(LIMIT)
        ids = loop(x.copy(), draft, target, N, K, np.random.default_rng(seed))
        asked = SimpleNamespace(prompt=(*x.tolist(),), N=N, P=range(rounds.n_vocab))
        text = text_from(ids, asked, loop)
        rounds.end(text)
    except (Exception, Endless, SystemExit) as error:
        files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        if isinstance(error, OSError | MemoryError) and files.count(__file__) > 1:
            raise  # it comes from a model or from printing, which the loop called through us
        raise UserError(f"{file}: {problem(error, os.path.abspath(file))}") from error
    finally:
        set_clock(0)
    return text


def untimed(model):
    def call(*args):
        seconds_left = set_clock(0)
        rows = model(*args)
        set_clock(seconds_left)
        return rows

    return call


def end_it(number, frame):
    raise Endless(f"it spent {LIMIT} seconds in a round, without the models")


def set_clock(seconds):
    """Set a timer of the processor's time, which 0 stops -> how many seconds were left."""
    if not HAS_TIMER:
        return 0
    signal.signal(signal.SIGPROF, end_it)
    seconds_left, _ = signal.setitimer(signal.ITIMER_PROF, seconds, 1)
    return seconds_left
