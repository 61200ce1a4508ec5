"""How many tokens to draft in a round: the arguments schedule and stop of `speculative_sampling`.

A *schedule* chooses k_max, the largest number of tokens to draft, before a round. It may use everything that happened
in earlier rounds: emitted tokens, rejected tokens, rows, even how long a round took. The output keeps the target's
distribution, because k_max is fixed before the round draws fresh random numbers. Given the text so far, the next tokens
have the target's distribution, whatever was rejected before. k_max only limits how many tokens this round can add.

A *stop* ends the drafting of a round early. It may look at the token that was just drafted, because that token is
proposed like the others, whatever the stop decides. The tokens after it are never drawn, so stopping cannot favour any
of them.

One thing is forbidden: to look at a drafted token and then withdraw it before the check. `speculative.propose` has an
example of what goes wrong.
"""

import numpy as np

import theory
from sampling import logits_to_probs

# The names for --schedule. "fixed" drafts K tokens, if no stop ends a round. "draft-confidence" is a stop.
SCHEDULES = ("fixed", "target-confidence", "draft-confidence", "heuristic", "adaptive")
# `adaptive` begins as if it had verified 16 positions with a mean beta of 0.7 (see theory.py). With fewer positions, a
# few early rejections could make 0 tokens seem best. Rounds without drafted tokens verify nothing, so alpha would
# hardly be corrected.
PRIOR, N_PRIOR = 0.7, 16
EVERY = 16  # in each 16th round, `adaptive` tries the number of tokens that seems second best


def make_schedule(name, K, costs, threshold=None, draft_rows=None, target_rows=None):
    """Make the schedule and the stop that belong to a name.

    Parameters
    ----------
    name : str or callable
        One of SCHEDULES, or a schedule, which is then returned as it is.
    K : int
        How many tokens to draft per round, at most.
    costs : callable
        As in `adaptive`.
    threshold : float, optional
        For `target_confidence` (default 0.5) and `draft_confidence` (default 0.4).
    draft_rows, target_rows : callable, optional
        The argument rows of `draft_confidence` and `target_confidence`.

    Returns
    -------
    schedule, stop : callable or None

    Raises
    ------
    ValueError
        If the name is not one of SCHEDULES.
    """
    options = {} if threshold is None else {"threshold": threshold}
    if callable(name):
        return name, None
    match name:
        case "fixed":
            return None, None
        case "target-confidence":
            return target_confidence(K, **options, rows=target_rows), None
        case "draft-confidence":
            return None, draft_confidence(**options, rows=draft_rows)
        case "heuristic":
            return heuristic(K), None
        case "adaptive":
            return adaptive(K, costs), None
    raise ValueError(f"unknown schedule {name!r}; there are {', '.join(SCHEDULES)}")


def target_confidence(K, threshold=0.5, rows=None):
    """A schedule: draft K tokens if the target is sure of the last token, and none otherwise.

    The target is sure if the last token had at least the probability `threshold` in the target's row. The idea is that
    easy places of a text are often close together. In the first round, the target has no row yet, so nothing is
    drafted.

    Parameters
    ----------
    K : int
    threshold : float
    rows : callable, optional
        `rows() -> [n_rows, n_vocab]`, to be used instead of the rows that the target sampled from. Temperature 0 needs
        this, because there every sampled token has probability 1. See `KeepsLogits.rows`.
    """

    def schedule(last):
        if last is None:
            return 0
        i = len(last.emitted) - 1  # the row that the last token comes from
        q = last.q if rows is None else rows()
        return K if q[i, last.emitted[i]] >= threshold else 0

    return schedule


def draft_confidence(threshold=0.4, rows=None):
    """A stop: end the drafting after a token whose probability in the draft's row is below the threshold.

    0.4 is the default of Hugging Face's Transformers. rows is as in `target_confidence`, but for the draft.
    """

    def stop(p, token):
        return (p if rows is None else rows()[-1])[token] < threshold

    return stop


class KeepsLogits:
    """A network that calls another network and keeps the logits of the last call, from which `rows` is computed."""

    def __init__(self, network):
        self.network = network

    def __call__(self, ids, n_rows=1):
        self.logits = self.network(ids, n_rows)  # [n_rows, n_vocab]
        return self.logits

    def rows(self):
        """The last call's rows as they would be at temperature 1 without top-k, top-p and penalty. [n_rows, n_vocab]"""
        return logits_to_probs(self.logits)


def heuristic(K):
    """A schedule: two tokens more than in the last round if it accepted all drafted tokens, otherwise one fewer.

    It asks for K tokens in the first round, and for 1 to K later (0 if K is 0). Hugging Face's Transformers has a
    similar rule, without a limit K. That rule counts from the number that was planned, not from the number drafted.
    """

    def schedule(last):
        if last is None:
            return K
        k = len(last.drafted)
        return min(k + 2, K) if last.n_accepted == k else max(k - 1, 1)

    return schedule


def adaptive(K, costs, memory=32):
    """A schedule: draft the number of tokens that is best for the measured alpha and costs, like `theory.optimal_K`.

    Leviathan et al. 2023 suggest this as future work in section 3.5. alpha is the average of beta = sum min(p, q) over
    the verified positions. At temperatures above 0, it settles sooner than an average of accepted tokens.

    Parameters
    ----------
    K : int
        How many tokens to draft, at most.
    costs : callable
        `costs(K) -> float [K+1]`: the costs of rounds with 0 ... K drafted tokens, divided by the first of them.
    memory : int
        The average is over about this many positions. The weight of older positions fades.
    """
    alpha = n_seen = n_rounds = None  # set by schedule(None), the first call of each run

    def schedule(last):
        nonlocal alpha, n_seen, n_rounds
        if last is None:
            alpha, n_seen, n_rounds = PRIOR, N_PRIOR, 0
        else:
            for b in theory.betas(last):
                n_seen += 1
                alpha += (b - alpha) / min(n_seen, memory)
        n_rounds += 1
        tokens = np.cumsum(alpha ** np.arange(K + 1))  # per round, for 0 ... K: as theory.expected_tokens, but faster
        ranking = np.argsort(-tokens / costs(K), kind="stable")  # the best number of tokens first
        # The second best may really be the best, if its cost was measured in a few slow rounds. Only more rounds
        # of that length can show it. (And if 0 seems best, alpha is measured only in such rounds.)
        return int(ranking[1 if n_rounds % EVERY == 0 and K > 0 else 0])

    return schedule
