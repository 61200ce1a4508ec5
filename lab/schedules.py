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

import math
from statistics import median_low

import numpy as np

from runs import chances_of_verify
from speculative import propose

SCHEDULES = ("fixed", "target-confidence", "draft-confidence", "heuristic", "adaptive")
# `adaptive` begins as if it had looked at 16 guesses with a mean probability of 0.7.
# Otherwise a few early rejections could make 0 tokens seem best, and rounds that draft
# nothing would never correct that.
PRIOR, N_PRIOR = 0.7, 16
EVERY = 16  # in each 16th round, `adaptive` tries the number of tokens that seems second best


def drafting(schedule=None, stop=None):
    """(propose, on_round) of one text, for `speculative_sampling`. Make them anew for each text.

    Parameters
    ----------
    schedule : callable, optional
        `schedule(last_round or None) -> k_max`, how many tokens a round drafts at most.
    stop : callable, optional
        `stop(row of p, token)` says that a token is the last one that its round drafts.
    """
    rounds = [None]  # the last one is at the end

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

    Easy positions of a text are often close together. `confidence(token, row)` answers in
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


class adaptive:
    """A schedule: the number of tokens with the best tokens per round / cost, as measured.

    Leviathan et al. 2023 suggest it in section 3.5. alpha averages what the rule says of its
    guesses, see `runs.Chances`, over about the last `memory` of them; it settles sooner than
    the share of accepted tokens. `costs(K) -> float [K+1]` are the costs of rounds with
    0 ... K draft tokens. by_position: an alpha for each position in a round, because
    block verification has no single one.
    """

    def __init__(self, K, costs, memory=32, chances_of=chances_of_verify, by_position=False):
        if chances_of is None:
            raise ValueError("adaptive needs a rule that says which guesses it looks at")
        self.K, self.costs, self.memory = K, costs, memory
        self.chances_of, self.by_position = chances_of, by_position
        self.alphas = [Alpha(PRIOR, memory)]
        self.n_rounds = 0

    def __call__(self, last):
        if last is not None:
            self.see(self.chances_of(last))
        self.n_rounds += 1
        means = [alpha.mean for alpha in self.alphas]
        means += means[-1:] * (self.K - len(means))
        tokens = np.cumsum(np.cumprod([1, *means[: self.K]]))
        ranking = np.argsort(-tokens / self.costs(self.K), kind="stable")
        # The second best may really be the best, if its cost was measured in slow
        # rounds. Only more such rounds tell.
        tries_second = self.n_rounds % EVERY == 0 and self.K > 0
        return int(ranking[1 if tries_second else 0])

    def see(self, found):
        for i, (reached, accepted) in enumerate(zip(*found)):
            if self.by_position and i == len(self.alphas):
                self.alphas.append(Alpha(self.alphas[-1].mean, self.memory))  # as the one before
            self.alphas[min(i, len(self.alphas) - 1)].see(reached, accepted)


class Alpha:
    """A mean of accepted / reached over about the last `memory` guesses; it begins with a guess."""

    def __init__(self, mean, memory):
        self.mean, self.n, self.memory = mean, N_PRIOR, memory

    def see(self, reached, accepted):
        self.n += reached
        self.mean += (accepted - reached * self.mean) / min(self.n, self.memory)


def costs_of(times, K):
    """What rounds with 0 ... K draft tokens cost, from `LabPair.times`, for `adaptive`.

    A k counts as timed after two rounds, because the first one with a new k is often
    slow, and costs the median of its times. Until 0 and 1 are timed, they look best, so
    that they are tried. A larger k that was not timed costs as much as one token more
    than k - 1. That is more often too low than too high, so it is tried soon.

    Returns
    -------
    float64 [K+1], in units of the first
    """
    timed = {k: median_low(seconds) for k, seconds in times.items() if len(seconds) > 1}
    if 0 not in timed:
        return np.array([1.0] + [math.inf] * K)
    none = timed[0]
    one = timed.get(1, none)
    per_token = max(one - none, 0.0) if 1 in timed else math.inf
    found = [none, one]
    for k in range(2, K + 1):
        found.append(timed.get(k, found[-1] + per_token))
    return np.array(found[: K + 1]) / none
