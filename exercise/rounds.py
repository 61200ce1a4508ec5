"""The rounds of a loop that reports none, found from what it asks the models."""

import numpy as np

from exercise.returned import Endless, Wrong
from speculative import Round


class Rounds:
    """Calls on_round with each `Round` of a loop, whose models are those that `watched` returns.

    The draft is asked for guesses, and the target about them, in one call or several. The next
    call, which is about something else, shows the text that came of it.
    """

    def __init__(self, x, on_round, most_calls=np.inf):
        self.on_round = on_round
        self.most_calls = most_calls
        self.n_calls = 0  # calls since there was a new token
        self.n_passes = 0  # passes of the target
        self.n_vocab = max(x, default=0) + 1  # an estimate, until a row shows it
        self.q = {}  # the row of the token with this number
        self.begin(x)

    def begin(self, text):
        self.text = self.ids = text  # ids is the longest that was asked about in this round
        self.p = []  # a row for each guess
        self.is_checked = False  # whether the target was asked

    def watched(self, model, name):
        """A model that tells what it is asked, and what it answers. Its name is p or q."""

        def call(ids, n_rows=1):
            ids = np.array(ids)
            if self.is_checked and (name == "p" or not self.is_about_guesses(ids)):
                self.end(ids)
            if self.n_calls == self.most_calls:
                raise Endless(f"it called the models {self.n_calls} times without a new token")
            self.n_calls += 1
            rows = model(ids, n_rows)
            self.n_vocab = rows.shape[1]
            self.ids = max(self.ids, ids, key=len)
            if name == "p":
                self.p.append(rows[-1].copy())
            else:
                self.q.update(enumerate(rows.copy(), start=len(ids) - n_rows + 1))
                self.is_checked = True
                self.n_passes += 1
            return rows

        return call

    def is_about_guesses(self, ids):
        is_same = np.array_equal(ids[: len(self.ids)], self.ids[: len(ids)])
        return is_same and len(ids) <= len(self.text) + len(self.p)

    def end(self, ids):
        """End the round, after which the text is ids."""
        n = len(self.text)
        if not np.array_equal(ids[:n], self.text):
            raise Wrong("rounds that can't be told apart: ask the draft for each guess")
        if len(ids) > n:
            self.on_round(self.round(ids[n:]))
            self.n_calls = 0
            self.q = {}
        self.begin(ids)

    def round(self, emitted):
        n = len(self.text)
        drafted = self.ids[n:][: len(self.p)]
        m = min(len(drafted), len(emitted))
        n_accepted = np.cumprod(drafted[:m] == emitted[:m]).sum()
        q = [self.q.get(n + i, self.p[i] * np.nan) for i in range(m)]
        p, q = (np.array(rows or [[]]) for rows in (self.p[:m], q))
        return Round(drafted, p, q, emitted, n_accepted)
