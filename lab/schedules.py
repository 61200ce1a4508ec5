"""How many tokens to draft in a round: the arguments schedule and stop of `speculative_sampling`.

A schedule picks k_max before the round draws anything, from whatever happened before:
tokens, distributions, even how long a round took. A stop ends the drafting after a
token that it has seen. Both are exact for the same reason: every token that was drawn
from p is judged, and those that were never drawn cannot be favoured.

So you may stop after a guess, but not take it back. Toss the guesses you dislike, and the
survivors are no longer samples from p. It is survivorship bias, and here is its size:
with the README's p = (.2, .5, .3) and q = (.3, .2, .5), withdraw each guess whose p is
below .4, and draw from q instead. B is drafted in half of the cases, and `verify` makes it
A (.1), B (.2) or C (.2). The other half is q: A (.15), B (.1) or C (.25). The sum is
(.25, .3, .45).
"""

import numpy as np

from runs import chances

SCHEDULES = ("fixed", "target-confidence", "draft-confidence", "heuristic", "adaptive")
# `adaptive` begins as if it had looked at 16 guesses with a mean probability of 0.7.
# Otherwise a few early rejections could make 0 tokens seem best, and rounds that draft
# nothing would never correct that.
PRIOR, N_PRIOR = 0.7, 16
EVERY = 16  # in each 16th round, `adaptive` tries the number of tokens that seems second best


def make_schedule(name, K, costs, draft=None, target=None, **rule):
    """The (schedule, stop) of one of SCHEDULES. A schedule of your own is returned as it is.

    costs and rule are for `adaptive`. draft and target are `sampling.as_model`s, whose
    confidence counts. Without them, the rows that are sampled from count.
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
            return adaptive(K, costs, **rule), None
    raise ValueError(f"unknown schedule {name!r}; there are {', '.join(SCHEDULES)}")


def target_confidence(K, threshold=0.5, confidence=None):
    """A schedule: K tokens if the target gave the last token at least threshold, else none.

    Easy places of a text are often close together. `confidence(token, row)` answers in
    place of the rows of the round, which are one-hot at temperature 0: see
    `sampling.as_model`. So it does in `draft_confidence`.
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

    0.4 is the default of Hugging Face's Transformers.
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


def adaptive(K, costs, memory=32, chances=chances, by_place=False):
    """A schedule: the number of tokens with the best tokens per round / cost, as measured.

    Leviathan et al. 2023 suggest it in section 3.5. alpha averages what the rule says of its
    guesses, see `runs.Chances`, over about the last `memory` of them; it settles sooner than
    the share of accepted tokens. `costs(K) -> float [K+1]` are the costs of rounds with
    0 ... K drafted tokens. by_place: an alpha for each place in a round, because
    block verification has no single one.
    """
    if chances is None:
        raise ValueError("adaptive needs a rule that says which guesses it looks at")
    alphas = n_rounds = None  # set by schedule(None), the first call of each run

    def schedule(last):
        nonlocal alphas, n_rounds
        if last is None:
            alphas, n_rounds = [Alpha(PRIOR, memory)], 0
        else:
            for i, (reached, kept) in enumerate(zip(*chances(last))):
                if by_place and i == len(alphas):
                    alphas.append(Alpha(alphas[-1].mean, memory))  # it begins as the one before
                alphas[min(i, len(alphas) - 1)].see(reached, kept)
        n_rounds += 1
        means = [alpha.mean for alpha in alphas]
        means += means[-1:] * (K - len(means))
        tokens = np.cumsum(np.cumprod([1, *means[:K]]))
        ranking = np.argsort(-tokens / costs(K), kind="stable")
        # The second best may really be the best, if its cost was measured in slow
        # rounds. Only more such rounds tell.
        return int(ranking[1 if n_rounds % EVERY == 0 and K > 0 else 0])

    return schedule


class Alpha:
    """A mean of kept / reached over about the last `memory` guesses, which begins with a guess."""

    def __init__(self, mean, memory):
        self.mean, self.n, self.memory = mean, N_PRIOR, memory

    def see(self, reached, kept):
        self.n += reached
        self.mean += (kept - reached * self.mean) / min(self.n, self.memory)
