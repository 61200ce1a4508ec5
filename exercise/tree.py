"""The paths of a function, as a tree: what each adds to the probability of a token.

    the rows after "A": p .2 .5 .3, q .3 .2 .5
    after "A" (N = 2, K = 1)           A      B      C
    guess A .2, always accept A     .200
    guess B .5
      accept B .4                          .200
      reject B .6
        resample A .3               .090

What a path adds stands in the column of the token that it emits. A branch ends where what is
drawn behind it no longer changes this token, nor what becomes of the first guess. Where there are
too many branches, "..." closes some, but not those of the guesses that err most.
"""

import contextlib
import math
from collections import Counter
from dataclasses import replace
from itertools import takewhile
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from enumeration import EveryBranch
from exercise.tables import NAMES, quoted
from gallery.setting import decode
from sampling import sample

LINES = 16  # of branches, at most
WIDE = 44  # of a label; with four columns and the margin, a line has 76
ROUNDING = 1e-12
MOST = 10_000  # paths


# ---- Paths, in words ----


class Path(NamedTuple):
    forks: list  # "guess B", "u < .4? yes", "resample A", "bonus C", ...
    fates: list  # of guesses: "accept B", "reject A", ...
    ids: tuple
    probability: float
    slip: str = ""  # about a round with too few tokens, or too many
    token: Any = None  # behind the text that is shown, if the path begins with it

    @property
    def guesses(self):
        """Those of the first round."""
        return (*takewhile(lambda fork: fork.startswith("guess"), self.forks),)


class Noting(EveryBranch):
    """Notes what a run draws, and what becomes of its guesses.

    The models tell it what they are asked, so it works for any loop. A token that's drawn after
    a call of the draft is a guess. A call of the target is about guesses, and the text in the
    call after it shows their fates: all tokens that were added, but the last, are accepted. If
    that can't be, or a random number was compared for each guess, the comparisons say it.
    """

    def begin(self, n_vocab):
        self.n_vocab = n_vocab
        self.forks = []
        self.fates = []
        self.n_calls = 0  # of the draft, since that of the target
        self.guesses = []  # that the target was called about
        self.start = 0  # their place in the text
        self.n_forks_before = 0  # that call
        self.n_noted_before = 0
        self.below = []  # since then, whether a random number was below its limit
        self.is_rejected = False  # the guess that was compared last
        self.slip = ""

    def choice(self, a, size=None, replace=True, p=None):
        self.items = a if np.ndim(a) else range(a)
        return super().choice(a, size, replace, p)

    def take(self, branches, limit=None):
        outcome = super().take(branches, limit)
        if limit is None:
            after = "resample" if self.is_rejected else "bonus"
            verb = "guess" if self.n_calls else after if self.guesses else "draw"
            self.forks.append(f"{verb} {self.name(outcome)}")
            self.is_rejected = False
            return outcome
        self.is_rejected = outcome == self.is_flipped
        self.below.append(not self.is_rejected)
        if len(branches) > 1:
            self.forks.append(f"u < {short(limit)}? {'yes' if outcome else 'no'}")
        return outcome

    def name(self, i):
        """Of an item that was drawn. If it's no token, it has a number."""
        n = len(self.items)
        is_token = n == self.n_vocab and self.items[i] in range(n)
        return NAMES[int(self.items[i])] if is_token else f"{i + 1} of {n}"

    def draft_is_called(self, ids, n_rows):
        self.end_round(ids)
        self.n_calls += 1

    def target_is_called(self, ids, n_rows):
        self.end_round(ids)
        self.start = len(ids) - min(n_rows - 1, self.n_calls)
        self.guesses = [*ids[self.start :]]
        self.n_calls = 0
        self.n_forks_before = self.n_forks
        self.n_noted_before = len(self.forks)
        self.below = []
        self.is_rejected = False

    def end_round(self, ids, is_last=False):
        """Note the fates of guesses, now that the text with what came of them is known."""
        guesses = [NAMES[token] for token in self.guesses]
        emitted = [NAMES[token] for token in ids[self.start :]]
        self.guesses = []
        if not guesses or not emitted or self.n_forks == self.n_forks_before:
            return
        *accepted, last = emitted
        n = len(accepted)
        drawn = [fork.split()[-1] for fork in self.forks[self.n_noted_before :]]
        is_drawn = drawn[-1:] == [last]
        is_guess = not is_drawn and guesses[n : n + 1] == [last]
        fates = [True] * n + [is_guess]
        is_plain = accepted == guesses[:n] and not {*drawn[:-1]} & {*accepted}
        if not is_plain or min(n + 1, len(guesses)) <= len(self.below) <= len(guesses):
            fates = self.below
        said = [f"{'accept' if fate else 'reject'} {name}" for fate, name in zip(fates, guesses)]
        self.fates += said
        needed = [*fates[: len(said)], False].index(False) + 1
        if is_plain and is_drawn and needed <= len(said):
            self.forks[-1] = f"resample {last}"
        if said and len(emitted) != needed and not (is_last and n < needed):
            shown = f"{', '.join(said)}: the round emits {' '.join(emitted)}"
            self.slip = f"{shown}, {len(emitted)} in place of {needed}"


def paths_of(check, sampler, case):
    rng = Noting()
    found = []

    def heard(model, hear):
        def asked(ids, n_rows=1):
            hear(ids, n_rows)
            return model(ids, n_rows)

        return asked

    setting = SimpleNamespace(**vars(case))
    setting.draft_model = heard(case.draft_model, rng.draft_is_called)
    setting.target_model = heard(case.target_model, rng.target_is_called)

    def noted(rng):
        rng.begin(len(case.P))
        ids = [*sampler(rng, setting)]
        rng.end_round(ids, is_last=True)
        while check.is_round and len(ids) < len(case.prompt) + case.N:
            ids.append(sample(case.target_model(ids)[-1], rng))
        probability = math.prod(rng.probabilities())
        found.append(Path(rng.forks, rng.fates, (*ids,), probability, rng.slip))
        return 0

    with np.errstate(all="ignore"):
        rng.run_all(noted, MOST)
    return found


# ---- Which of them are shown ----


def tree(check, sampler, setting, is_right=False):
    """Lines about the smallest case of a setting that has an error, or [] if none can be run."""
    for N, K in (2, 1), (3, 2), (setting.N, setting.K):
        case = replace(setting, N=min(N, setting.N), K=min(K, setting.K))
        with contextlib.suppress(Exception):  # a function may fail in another size alone
            lines = tree_of(check, sampler, case, is_right)
            if lines:
                return lines
    return []


def tree_of(check, sampler, case, is_right):
    paths = paths_of(check, sampler, case)
    wanted = check.distribution(check.reference, case)
    n = len(case.prompt)
    for text in beginnings(wanted, n):
        marked = [path._replace(token=token_behind(text, path.ids)) for path in paths]
        sums, needed = masses_of(marked), following(wanted, text)
        errors = {token: sums[token] - needed[token] for token in sums | needed}
        if is_right or max(map(abs, errors.values())) > ROUNDING:
            then = f": {quoted(text[n:])}, and then" if text[n:] else ""
            title = f"after {quoted(case.prompt)} ({check.size(case)}){then}"
            opened = worst_guesses(marked, paths_of(check, decode, case), text)
            rows = [*few_branches(marked, opened)]
            rows += ("sum of all paths", sums), ("should be", needed)
            paths.sort(key=lambda path: path.guesses != opened)
            slips = [path.slip for path in paths if path.slip]
            return [*slips[:1], models_of(case, text, opened), *table(title, rows, errors)]
    return []


def worst_guesses(paths, right_paths, text):
    """The guesses of a first round behind which a token errs most."""
    errors = Counter()
    for path in paths:
        errors[path.guesses, path.token] += path.probability
    for path in right_paths:
        errors[path.guesses, token_behind(text, path.ids)] -= path.probability
    return max(errors, key=lambda key: abs(errors[key]))[0]


def models_of(case, text, opened):
    """The rows that a reader needs for the numbers of a tree."""
    guessed = [NAMES.find(fork[-1]) for fork in opened[:-1]]
    rows = []
    for ids in sorted({case.prompt, text, (*case.prompt, *guessed)}, key=len):
        p, q = (
            " ".join(map(short, model(ids)[-1])) for model in (case.draft_model, case.target_model)
        )
        rows.append(f"after {quoted(ids)}: p {p}, q {q}")
    return f"the rows {'; '.join(rows)}"


def beginnings(texts, n):
    """Those with n tokens or more, the short ones first."""
    found = {ids[:i] for ids in texts for i in range(n, len(ids) + 1)}
    return sorted(found, key=lambda ids: (len(ids), ids))


def following(distribution, text):
    """How probable a text is with each token behind it, or with its end."""
    masses = Counter()
    for ids, mass in distribution.items():
        masses[token_behind(text, ids)] += mass
    del masses[None]
    return masses


def token_behind(text, ids):
    n = len(text)
    if ids[:n] != text:
        return None
    return NAMES[ids[n]] if len(ids) > n else "end"


# ---- As lines ----


def few_branches(paths, opened):
    """(label, masses of tokens) of the branches, down to a depth where they are few enough."""
    for deepest in range(max(len(path.forks) for path in paths), -1, -1):
        rows = branches(paths, 0, [], deepest, opened)
        if len(rows) <= LINES:
            return rows
    return []


def branches(paths, n, known, deepest, opened):
    """(label, masses) of the branches of fork n, and indented, of those behind them."""
    rows = []
    for label, some in named(paths, n, known):
        tokens = {path.token for path in some}
        if tokens == {None}:
            continue
        fates = {(*path.fates[:1],) for path in some}
        is_certain = len(tokens) == 1 and (n > 0 or len(fates) == 1)
        is_closed = n >= deepest and opened not in {path.guesses for path in some}
        if is_certain or is_closed:
            cut = " ..." if len(tokens) > 1 else ""
            rows.append((label + cut, masses_of(some)))
            continue
        below = branches(some, n + 1, fates_of_all(some), deepest, opened)
        first, masses = below[0]
        first = f"{label}, {first}"
        if sum(row[0][0] != " " for row in below) == 1 and len(first) < WIDE:
            rows += [(first, masses), *below[1:]]
        else:
            rows.append((label, {}))
            rows += [(f"  {row}", masses) for row, masses in below]
    return rows


def named(paths, n, known):
    """(label, paths) of each branch of fork n. What decides about a guess is called by that."""
    by_words = {}
    for path in paths:
        by_words.setdefault("".join(path.forks[n : n + 1]), []).append(path)
    new = {words: fates_of_all(some)[len(known) :] for words, some in by_words.items()}
    by_name = {}
    for words, some in by_words.items():
        tokens = frozenset(path.token for path in some)
        always = ""
        if "?" not in words and " of " not in words:  # a token was drawn
            always = "".join(f", always {fate}" for fate in new[words])
        elif all(new.values()):
            words, *certain = new[words]
            always = "".join(f", always {fate}" for fate in certain)
        by_name.setdefault((words, always, tokens), []).extend(some)
    for (words, always, _), some in by_name.items():
        share = mass_of(some) / mass_of(paths)
        yield f"{words} {short(share)}{always}" if len(by_name) > 1 else words + always, some


def fates_of_all(paths):
    """Those that all paths have, up to the first that they don't."""
    fates = []
    for some in zip(*(path.fates for path in paths)):
        if len({*some}) > 1:
            break
        fates.append(some[0])
    return fates


def mass_of(paths):
    return sum(path.probability for path in paths)


def masses_of(paths):
    masses = Counter()
    for path in paths:
        masses[path.token] += path.probability
    del masses[None]
    return masses


def table(head, rows, errors):
    tokens = sorted(errors)
    lines = [(head, tokens)]
    for label, masses in rows:
        lines.append((label, [decimal(masses.get(token, 0)) for token in tokens]))
    lines.append(("error", [decimal(errors[token], "+") or "0" for token in tokens]))
    space = max(len(label) for label, _ in lines)
    found = []
    for label, cells in lines:
        row = "".join(f"{cell:>7}" for cell in cells)
        found.append(f"{label:{space}}{row}".rstrip())
    return found


def short(x):
    """.4, 1, .333"""
    digits = f"{float(x):.3g}"
    return digits[1:] if digits.startswith("0.") else digits


def decimal(x, sign=""):
    """.300, +.060, +3e-08, or nothing for 0"""
    x = float(x)
    if abs(x) < ROUNDING:
        return ""
    return f"{x:{sign}.3f}".replace("0.", ".", 1) if abs(x) > 5e-4 else f"{x:{sign}.0e}"
