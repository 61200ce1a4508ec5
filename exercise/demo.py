"""`python main.py --mine`: a function of yours writes the text, and the grader judges it."""

import os
import signal
from functools import partial
from typing import NamedTuple

import numpy as np

from checkpoint import UserError
from exercise.grading import problem
from exercise.process import HAS_TIMER, LIMIT, ROOT, imported, verdicts
from exercise.steps import STEPS
from speculative import Round, speculative_sampling

VERIFY, LOOP = (step.function for step in STEPS[2:4])
MINE = os.path.relpath(ROOT / "exercise" / "mine.py")
MOST = 100  # calls of the models without a new token, beside those that a round takes
HIDDEN = "not to be seen here, where temperature 0 or --same_text leave one token in each row"


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

    def says(self, args, ids, others):
        """The last line below two texts."""
        said = f"{self.name} is {self.verdict}"
        if self.is_exact:
            return said
        has_one_way = args.temperature == 0 or args.same_text
        is_hidden = has_one_way and np.array_equal(ids, others)
        return f"{said}; {HIDDEN if is_hidden else 'would you have seen that?'}"


def graded(file=MINE, *names):
    """`Mine`, graded in a process of its own.

    Without a name it is step 4, or else step 3. One with another name is a rule like step 3.
    """
    if not os.path.isfile(file):
        raise UserError(f"{file} is not there; python -m exercise begins yours")
    if len(names) > 1:
        raise UserError(f"--mine takes a file and one function of it; found {', '.join(names)}")
    names = names or (LOOP, VERIFY)
    asked = [(LOOP if name == LOOP else VERIFY, name) for name in names]
    for name, found in zip(names, verdicts(file, asked)):
        (verdict, *_), is_exact = found or ([f"it has no function {name}"], None)
        if is_exact or verdict.startswith("wrong by"):
            return Mine(file, name, verdict, is_exact)
        if is_exact is False:
            break
    raise UserError(f"{file}: {verdict}")


# ---- While it writes ----


class Endless(BaseException):
    """`except Exception` in the loop does not stop it."""


def run(loop, file, x, draft_model, target_model, N, K, seed, on_round):
    """Run a loop that has no on_round, and end it if it is endless."""
    rounds = Rounds(x, on_round, MOST + 2 * min(K, N))
    models = rounds.heard(draft_model, "p"), rounds.heard(target_model, "q")
    if HAS_TIMER:
        signal.signal(signal.SIGPROF, end_it)
    try:
        set_clock(LIMIT)
        ids = loop(x.copy(), *models, N, K, np.random.default_rng(seed))
        rounds.end(np.array(ids))
    except (OSError, MemoryError):  # of the machine
        raise
    except (Exception, Endless) as error:
        raise UserError(f"{file}: {problem(error, os.path.abspath(file))}") from error
    finally:
        set_clock(0)
    return rounds.text


def end_it(number, frame):
    raise Endless(f"it spent {LIMIT} seconds in a round, without the models")


def set_clock(seconds):
    """How much was left before, of the processor's time. 0 stops it."""
    return signal.setitimer(signal.ITIMER_PROF, seconds, 1)[0] if HAS_TIMER else 0


class Rounds:
    """The rounds of a loop, found from what it asks the models.

    The draft is asked for guesses, and the target about them, in one call or several. The next
    call, which is about something else, shows the text that came of it.
    """

    def __init__(self, x, on_round, most_calls):
        self.on_round = on_round
        self.most_calls = most_calls
        self.n_calls = 0  # since there was a new token
        self.begin(x)

    def begin(self, text):
        self.text = text
        self.ids = text  # the longest that a model was asked about in this round
        self.rows = {"p": [], "q": []}

    def heard(self, model, name):
        """A model that tells what it is asked, and what it answers."""

        def call(ids, n_rows=1):
            left = set_clock(0)
            ids = np.array(ids)
            if self.rows["q"] and (name == "p" or not self.is_about_guesses(ids)):
                self.end(ids)
            if self.n_calls == self.most_calls:
                raise Endless(f"it called the models {self.n_calls} times without a new token")
            self.n_calls += 1
            found = model(ids, n_rows)
            self.rows[name].extend(found.copy())
            self.ids = max(self.ids, ids, key=len)
            set_clock(left if self.n_calls > 1 else LIMIT)
            return found

        return call

    def is_about_guesses(self, ids):
        is_same = np.array_equal(ids[: len(self.ids)], self.ids[: len(ids)])
        return is_same and len(ids) <= len(self.text) + len(self.rows["p"])

    def end(self, ids):
        """End the round, after which the text is ids."""
        n = len(self.text)
        if not np.array_equal(ids[:n], self.text):
            raise ValueError("its rounds can't be told apart: ask the draft for each guess")
        emitted = ids[n:]
        if len(emitted):
            drafted = self.ids[n:][: len(self.rows["p"])]
            m = min(len(drafted), len(emitted))
            n_accepted = np.cumprod(drafted[:m] == emitted[:m]).sum()
            p, q = (np.array(rows[:m] or [[]]) for rows in self.rows.values())
            self.on_round(Round(drafted, p, q, emitted, n_accepted))
            self.n_calls = 0
        self.begin(ids)
