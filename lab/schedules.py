"""How many tokens to draft in a round: schedules and stops, for `speculative_sampling`'s propose.

A schedule picks k_max before the round draws anything, from whatever happened before:
tokens, distributions, even how long a round took. A stop ends the drafting after a
token that it has seen. Both are exact for the same reason: every token that was drawn
from p is verified, and those that were never drawn cannot be favoured.

So you may stop after a guess, but not take it back. Toss the guesses you dislike, and the
survivors are no longer samples from p. It is survivorship bias, and here is its size:
with the README's p = (.2, .5, .3) and q = (.3, .2, .5), withdraw each guess whose p is
below .4, and draw from q instead. B is drafted in half of the cases, and `verify` makes it
A (.1), B (.2) or C (.2). The other half is q: A (.15), B (.1) or C (.25). The sum is
(.25, .3, .45).
"""

import numpy as np

from speculative import propose

SCHEDULES = ("fixed", "target-confidence", "draft-confidence", "heuristic")


def drafting(schedule=None, stop=None):
    """(propose, on_round) of one text, for `speculative_sampling`. Make them anew for each text.

    Parameters
    ----------
    schedule : callable, optional
        `schedule(last_round or None) -> k_max`, how many tokens a round drafts at most.
    stop : callable, optional
        `stop(row of p, token)` says that a token is the last one that its round drafts.
    """
    rounds = [None]  # only the last round

    def propose_some(x, draft_model, k_max, rng):
        if schedule is not None:
            k_max = min(k_max, schedule(rounds[-1]))
        if stop is None:
            return propose(x, draft_model, k_max, rng)
        n = len(x)
        rows = []
        is_last = False
        while len(rows) < k_max and not is_last:
            [token], [p] = propose(x, draft_model, 1, rng)
            x = np.append(x, token)
            rows.append(p)
            is_last = stop(p, token)
        return x[n:], np.array(rows)

    def on_round(r):
        rounds[:] = [r]

    return propose_some, on_round


def make_schedule(name, K, draft=None, target=None):
    """The (schedule, stop) of one of SCHEDULES. A schedule of your own is returned as it is.

    draft and target are `sampling.as_model`s, whose confidence counts. Without them, the rows
    that are sampled from count.
    """
    if callable(name):
        return name, None
    match name:
        case "fixed":
            return None, None
        case "target-confidence":
            return target_confidence(K, confidence=target and target.confidence), None
        case "draft-confidence":
            return None, draft_confidence(confidence=draft and draft.confidence)
        case "heuristic":
            return heuristic(K), None
    raise ValueError(f"unknown schedule {name!r}; there are {', '.join(SCHEDULES)}")


def target_confidence(K, threshold=0.5, confidence=None):
    """A schedule: K tokens if the target gave the last token at least threshold, else none.

    Easy positions of a text are often close together. `confidence(token, row)` answers in
    place of the rows of the round, which are one-hot at temperature 0: see
    `sampling.as_model`.
    """

    def schedule(last):
        if last is None:
            return 0
        i = len(last.emitted) - 1  # the row that the last token comes from
        token = last.emitted[i]
        sure = last.q[i, token] if confidence is None else confidence(token, i)
        return K if sure >= threshold else 0

    return schedule


def draft_confidence(threshold=0.4, confidence=None):
    """A stop: no more drafting after a token to which the draft gave less than threshold.

    `confidence(token)` answers in place of its row. 0.4 is the default of Hugging Face's
    Transformers.
    """

    def stop(p, token):
        sure = p[token] if confidence is None else confidence(token)
        return sure < threshold

    return stop


def heuristic(K):
    """A schedule: two tokens more after a round that accepted all, otherwise one fewer. First K.

    Hugging Face's Transformers has a similar rule, without a limit.
    """

    def schedule(last):
        if last is None:
            return K
        k = len(last.drafted)
        if last.n_accepted == k:
            return min(k + 2, K)
        return max(k - 1, 1)

    return schedule
