"""How many tokens to draft in a round: the arguments schedule and stop of `speculative_sampling`.

A schedule picks k_max before the round draws anything, from whatever happened before:
tokens, distributions, even how long a round took. A stop ends the drafting after a
token that it has seen. Both are exact for the same reason: every token that was drawn
from p is judged, and those that were never drawn cannot be favoured.

So you may stop guessing, but not un-guess. Toss the guesses you dislike, and the
survivors are no longer samples from p. It is survivorship bias, and here is its size:
with the README's p = (.2, .5, .3) and q = (.3, .2, .5), withdraw each guess whose p is
below .4, and draw from q instead. B is drafted in half of the cases, and `verify` makes it
A (.1), B (.2) or C (.2). The other half is q: A (.15), B (.1) or C (.25). The sum is
(.25, .3, .45).
"""

import numpy as np

from runs import betas, expected_tokens

SCHEDULES = ("fixed", "target-confidence", "draft-confidence", "heuristic", "adaptive")
# `adaptive` begins as if it had verified 16 positions with a mean beta of 0.7.
# Otherwise a few early rejections could make 0 tokens seem best, and rounds that draft
# nothing would never correct that.
PRIOR, N_PRIOR = 0.7, 16
EVERY = 16  # in each 16th round, `adaptive` tries the number of tokens that seems second best


def make_schedule(name, K, costs, draft=None, target=None):
    """The (schedule, stop) of one of SCHEDULES. A schedule of your own is returned as it is.

    costs is as in `adaptive`. draft and target are `sampling.as_model`s, whose confidence
    counts. Without them, the rows that are sampled from count.
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
        case "adaptive":
            return adaptive(K, costs), None
    raise ValueError(f"unknown schedule {name!r}; there are {', '.join(SCHEDULES)}")


def target_confidence(K, threshold=0.5, confidence=None):
    """A schedule: draft K tokens if the target gave the last token a probability of at least threshold, else none.

    Easy places of a text are often close together. `confidence(token, row)` answers in
    place of the rows of the round, which are one-hot at temperature 0: see
    `sampling.as_model`. So it does in `draft_confidence`.
    """

    def schedule(last):
        if last is None:
            return 0
        i = len(last.emitted) - 1  # the row that the last token comes from
        sure = last.q[i, last.emitted[i]] if confidence is None else confidence(last.emitted[i], i)
        return K if sure >= threshold else 0

    return schedule


def draft_confidence(threshold=0.4, confidence=None):
    """A stop: no more drafting after a token to which the draft gave less than threshold.

    0.4 is the default of Hugging Face's Transformers.
    """
    return lambda p, token: (p[token] if confidence is None else confidence(token)) < threshold


def heuristic(K):
    """A schedule: two tokens more after a round that accepted all of them, otherwise one fewer. K comes first.

    Hugging Face's Transformers has a similar rule, without a limit.
    """

    def schedule(last):
        if last is None:
            return K
        k = len(last.drafted)
        return min(k + 2, K) if last.n_accepted == k else max(k - 1, 1)

    return schedule


def adaptive(K, costs, memory=32):
    """A schedule: the best number of tokens for the measured alpha and costs, of tokens per round / cost.

    Leviathan et al. 2023 suggest it in section 3.5. alpha averages beta = sum min(p, q)
    over about the last `memory` verified positions; it settles sooner than the share of
    accepted tokens. `costs(K) -> float [K+1]` are the costs of rounds with 0 ... K
    drafted tokens.
    """
    alpha = n_seen = n_rounds = None  # set by schedule(None), the first call of each run

    def schedule(last):
        nonlocal alpha, n_seen, n_rounds
        if last is None:
            alpha, n_seen, n_rounds = PRIOR, N_PRIOR, 0
        else:
            for b in betas(last):
                n_seen += 1
                alpha += (b - alpha) / min(n_seen, memory)
        n_rounds += 1
        ranking = np.argsort(-expected_tokens(alpha, K) / costs(K), kind="stable")
        # The second best may really be the best, if its cost was measured in slow
        # rounds. Only more such rounds tell.
        return int(ranking[1 if n_rounds % EVERY == 0 and K > 0 else 0])

    return schedule
