"""The paths of a function, as a tree: what each adds to the probability of a token.

    the rows after "A": p .2 .5 .3, q .3 .2 .5
    after "A" (N = 2, K = 1)         A      B      C
    guess A .2, always accept A   .200
    guess B .5
      accept B .4                        .200
      reject B .6
        resample A .3             .090

What a path adds stands in the column of the token that it emits. A branch ends where nothing
after it can change this token, or what becomes of the first guess. If there are too many
branches, only those of the column with the largest error are shown.
"""

import contextlib
import math
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from enumeration import EveryBranch
from exercise.adapters import with_penalty, with_siblings
from exercise.tables import NAMES, quoted
from lab.trees import pruned
from sampling import sample

LINES = 16  # of branches; if there are more, only one column's
WIDE = 44  # of a label; with four columns and the margin, a line has 76
ROUNDING = 1e-12
MOST = 10_000  # paths
FATES = "accept", "reject"


# ---- Paths, in words ----


class Path(NamedTuple):
    events: list  # "guess B", "reject B", "resample A", "bonus C", ...
    slip: str  # about a round with too few rows, or with too few tokens or too many
    ids: tuple
    probability: float
    token: Any = None  # the one after the text that is shown, if the path begins with that text


class Noting(EveryBranch):
    """Notes what is guessed in a run, what becomes of the guesses, and what is drawn after them.

    The models tell it what they are asked, so it works for any loop. A token that's drawn after
    a call of the draft is a guess. A call of the target is about guesses, and the text in the
    next call shows which were accepted: those with which the new tokens begin. If a random
    number was compared for each guess, the comparisons decide.
    """

    def begin(self, n_vocab):
        self.n_vocab = n_vocab
        self.events = []
        self.slip = ""
        self.n_calls = 0  # of the draft, since the target's last call
        self.n_text = 0  # tokens of the text, when the draft was first called in this round
        self.guesses = []  # lists of guesses that the target was called about; a tree has several
        self.start = 0  # where these guesses begin in the text
        self.n_rows = 0  # that the target was asked for then
        self.n_forks_before = 0  # forks before the target was called
        self.below = []  # whether each random number after that call was below its limit
        self.drawn = None  # the last token that was drawn after that call

    def choice(self, a, size=None, replace=True, p=None):
        drawn = super().choice(a, size, replace, p)
        n = len(a) if np.ndim(a) else a
        if size is None and n == self.n_vocab and drawn in range(n):
            self.drawn = drawn
            if self.n_calls:
                self.events.append(f"guess {NAMES[drawn]}")
        return drawn

    def take(self, branches, limit=None):
        outcome = super().take(branches, limit)
        if limit is not None:
            self.below.append(outcome != self.is_flipped)
        return outcome

    def draft_is_called(self, ids, n_rows):
        self.end_round(ids)
        if not self.n_calls:
            self.n_text = len(ids)
        self.n_calls += not self.guesses

    def target_is_called(self, ids, n_rows):
        self.end_round(ids)
        if not self.guesses:
            has_all = len(ids) == self.n_text + self.n_calls
            n_guesses = self.n_calls if has_all else min(n_rows - 1, self.n_calls)
            self.start = len(ids) - n_guesses
            self.n_rows = n_rows
            self.n_forks_before = self.n_forks
            self.below = []
            self.drawn = None
            self.n_calls = 0
        guesses = [*ids[self.start :]]
        self.guesses.append(guesses)
        if not "".join(self.events[-1:]).startswith("guess"):  # they were not drawn from rng
            self.events += [f"guess {NAMES[token]}" for token in guesses]

    def end_round(self, ids, is_last=False):
        """Note what became of the guesses, now that the text with it is known."""
        emitted = [*ids[self.start :]]
        if not self.guesses or not emitted:
            return
        if self.n_forks == self.n_forks_before and len(emitted) <= len(self.guesses[0]):
            return  # the same guesses again, and not what became of them
        fates = self.fates(emitted)
        n_guesses = len(self.guesses[0])
        if len(self.guesses) == 1 and self.n_rows <= n_guesses:
            asked = f"the target is asked for {self.n_rows} of {n_guesses + 1} rows"
            self.slip = f"{asked}: each guess needs one, and so does the bonus"
        self.guesses = []
        accepted = [guess for guess, is_accepted in fates if is_accepted]
        needed = len(accepted) + 1
        names = [f"{FATES[not is_accepted]} {NAMES[guess]}" for guess, is_accepted in fates]
        least = 0 if is_last else needed  # the end may be cut
        if self.below and not self.slip and not least <= len(emitted) <= needed:
            shown = " ".join(NAMES[token] for token in emitted)
            tokens = "token" if len(emitted) == 1 else "tokens"
            numbers = f"{len(emitted)} {tokens} instead of {needed}"
            self.slip = f"{', '.join(names)}: the round emits {shown}, {numbers}"
        # What was drawn comes after the accepted guesses, or alone where a rule drops them.
        m = min(len(emitted), len(accepted))
        if emitted[:m] == accepted[:m] and (len(emitted) > m or emitted[-1] != self.drawn):
            emitted = emitted[m:]
        else:
            emitted = emitted[-1:]
        verb = "bonus" if len(accepted) == len(fates) else "resample"
        for token in emitted:
            names.append(f"{verb} {NAMES[token]}")
            verb = "bonus"
        self.events += names

    def fates(self, emitted):
        """(guess, whether it's accepted), as the emitted tokens show it.

        If a random number was compared for each, the numbers decide: a wrong rule may accept a
        guess, and not emit it. Further numbers may have drawn a token.
        """
        kept = emitted[:-1] if self.drawn == emitted[-1] else emitted
        outcomes = iter(self.below)

        def is_kept(guess, n_accepted):
            if n_accepted < len(emitted):  # or else the text ends before this guess
                return kept[n_accepted : n_accepted + 1] == [guess]

        by_text = self.judged(is_kept)
        by_number = self.judged(lambda *_: next(outcomes, None))
        accepted = [guess for guess, is_accepted in by_number if is_accepted]
        is_one_each = len(self.below) <= sum(map(len, self.guesses))
        is_judged = len(by_text) <= len(self.below) and (is_one_each or accepted == emitted[:-1])
        return by_number if is_judged else by_text

    def judged(self, judge):
        """Go down a chain or a tree of guesses, as long as judge(guess, n_accepted) isn't None."""
        fates = []
        n_accepted = 0
        chains = self.guesses
        while chains := [chain for chain in chains if chain]:
            guess = chains[0][0]
            is_accepted = judge(guess, n_accepted)
            if is_accepted is None:
                break
            fates.append((guess, is_accepted))
            n_accepted += is_accepted
            chains = [chain[is_accepted:] for chain in chains if (chain[0] == guess) == is_accepted]
        return fates


def paths_of(check, sampler, case):
    rng = Noting()
    paths = []

    def watched(model, note):
        def call(ids, n_rows=1):
            note(ids, n_rows)
            return model(ids, n_rows)

        return call

    setting = SimpleNamespace(**vars(case))
    setting.draft_model = watched(case.draft_model, rng.draft_is_called)
    setting.target_model = watched(case.target_model, rng.target_is_called)

    def noted(rng):
        rng.begin(len(case.P))
        ids = [*sampler(rng, setting)]
        rng.end_round(ids, is_last=True)
        while check.is_round and len(ids) < len(case.prompt) + case.N:
            ids.append(sample(case.target_model(ids)[-1], rng))
            rng.events.append(f"bonus {NAMES[ids[-1]]}")
        paths.append(Path(rng.events, rng.slip, (*ids,), math.prod(rng.probabilities())))
        return 0

    with np.errstate(all="ignore"):
        rng.run_all(noted, MOST)
    return paths


# ---- Which of them are shown ----


def tree(check, sampler, setting, is_right=False):
    """Lines about the smallest case of a setting that has an error, or [] if none can be run."""
    for N, K in (2, 1), (3, 2), (setting.N, setting.K):
        sizes = {"N": min(N, setting.N), "K": min(K, setting.K)}
        case = replace(setting, **sizes, shape=pruned(setting.shape, K))
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
        marked = [path._replace(token=token_after(text, path.ids)) for path in paths]
        sums, needed = masses_of(marked), following(wanted, text)
        errors = {token: sums[token] - needed[token] for token in sums | needed}
        if is_right or max(map(abs, errors.values())) > ROUNDING:
            shown_text = f": {quoted(text[n:])}, and then" if text[n:] else ""
            title = f"after {quoted(case.prompt)} ({check.size(case)}){shown_text}"
            rows = branches(marked)
            if len(rows) > LINES:
                rows = column(marked, max(errors, key=lambda token: abs(errors[token])))
            rows += ("sum of all paths", sums), ("should be", needed)
            slips = [path.slip for path in marked if path.slip and path.token]
            is_short = case.K == 1 and text == case.prompt
            return [*slips[:1], *models_of(check, case, is_short), *table(title, rows, errors)]
    return []


OTHER_ROWS = {
    with_penalty: " before the penalty",
    with_siblings: "; a second guess is drawn from p without the first",
}


def models_of(check, case, is_short):
    """The rows that a reader needs for the numbers of a tree."""
    texts = [case.prompt]
    if not is_short:
        texts += [(*case.prompt, token) for token in range(1, len(case.P))]
    for ids in texts:
        i = case.index(ids)[-1]
        p, q = (" ".join(map(short, rows[i])) for rows in (case.P, case.Q))
        yield f"the rows after {quoted(ids)}: p {p}, q {q}{OTHER_ROWS.get(check.sampler, '')}"


def beginnings(texts, n):
    """The beginnings of texts that have n tokens or more, the short ones first."""
    begun = {ids[:i] for ids in texts for i in range(n, len(ids) + 1)}
    return sorted(begun, key=lambda ids: (len(ids), ids))


def following(distribution, text):
    """How probable a text is with each token after it, or with its end."""
    masses = Counter()
    for ids, mass in distribution.items():
        masses[token_after(text, ids)] += mass
    del masses[None]
    return masses


def token_after(text, ids):
    n = len(text)
    if ids[:n] != text:
        return None
    return NAMES[ids[n]] if len(ids) > n else "end"


# ---- As lines ----


def column(paths, token):
    """(label, masses of tokens) of the branches that lead to one token, and of all the others."""
    other_paths = [path for path in paths if path.token != token]
    marked = [path if path.token == token else path._replace(token=None) for path in paths]
    return [*branches(marked), ("paths to other tokens", masses_of(other_paths))]


def branches(paths, n=0):
    """(label, masses of tokens) of the branches at event n, and of their own, indented."""
    by_event = {}
    for path in paths:
        event = "".join(path.events[n : n + 1]) or "the round ends"
        by_event.setdefault(event, []).append(path)
    rows = []
    for event, group in by_event.items():
        tokens = {path.token for path in group}
        if tokens == {None}:
            continue
        always = "always " * event.startswith(FATES)
        label = f"{event} {short(mass_of(group) / mass_of(paths))}"
        if len(by_event) == 1:
            label = always + event
        fates = {first_fate(path) for path in group}
        is_certain = len(tokens) == 1 and (n > 0 or len(fates) == 1)
        if is_certain or n + 1 >= max(len(path.events) for path in group):
            if n == 0 and event not in fates:
                label += "".join(f", always {fate}" for fate in fates if fate)
            rows.append((label, masses_of(group)))
            continue
        inner = branches(group, n + 1)
        first, masses = inner[0]
        first = f"{label}, {first}"
        if sum(row[0] != " " for row, _ in inner) == 1 and len(first) < WIDE:
            rows += [(first, masses), *inner[1:]]
        else:
            rows.append((label, {}))
            rows += [(f"  {row}", masses) for row, masses in inner]
    return rows


def first_fate(path):
    return next((event for event in path.events if event.startswith(FATES)), "")


def mass_of(paths):
    return sum(path.probability for path in paths)


def masses_of(paths):
    masses = Counter()
    for path in paths:
        masses[path.token] += path.probability
    del masses[None]
    return masses


def table(head, rows, errors):
    """Lines with a column for each token."""
    tokens = sorted(errors)
    lines = [(head, tokens)]
    for label, masses in rows:
        lines.append((label, [decimal(masses.get(token, 0)) for token in tokens]))
    lines.append(("error", [decimal(errors[token], "+") or "0" for token in tokens]))
    space = max(len(label) for label, _ in lines)
    shown = []
    for label, cells in lines:
        row = "".join(f"{cell:>7}" for cell in cells)
        shown.append(f"{label:{space}}{row}".rstrip())
    return shown


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
