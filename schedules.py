"""How many tokens to draft next: the schedule and the stop that `speculative_sampling` takes.

A *schedule* decides on k before a round. It may look at anything that is over: emitted tokens, rejected tokens, rows,
even the time that passed. That is exact because a round is exact for every k: given all that came before the round,
what it adds to the text has the target's distribution.

A *stop* ends the drafting of a round early. It may look at the token that was just drafted, because that token is
verified all the same. The tokens that are left out were never drawn, so nothing can be wrong with them.

What must not be done is to look at a drafted token and then to withdraw it. The tokens that remain would no longer be
draws from p, and the rule that accepts them relies on p.
"""

import theory
from sampling import logits_to_probs

SCHEDULES = ("fixed", "target-confidence", "draft-confidence", "heuristic", "adaptive")
OPENING = 3  # rounds of `adaptive` before it judges
EVERY = 16  # rounds after which it tries a K that does not seem best


def make_schedule(name, K, costs, threshold=None, draft_rows=None, target_rows=None, sure=0.0):
    """The schedule and the stop for a name.

    Parameters
    ----------
    name : str
        One of SCHEDULES.
    K : int
        How many tokens to draft per round, at most.
    costs : callable
        For `adaptive`.
    threshold : float, optional
        For `target_confidence` (0.5 without it) and `draft_confidence` (0.4 without it).
    draft_rows, target_rows : callable, optional
        The rows for `draft_confidence` and `target_confidence`.
    sure : float
        Stop after a token that the draft gave less probability than this, whatever the schedule is.

    Returns
    -------
    schedule, stop : callable or None
    """
    threshold = {} if threshold is None else {"threshold": threshold}
    schedule = {
        "target-confidence": lambda: target_confidence(K, **threshold, rows=target_rows),
        "heuristic": lambda: heuristic(K),
        "adaptive": lambda: adaptive(K, costs),
    }.get(name, lambda: None)()
    if sure > 0:
        return schedule, draft_confidence(sure, draft_rows)
    return schedule, draft_confidence(**threshold, rows=draft_rows) if name == "draft-confidence" else None


def target_confidence(K, threshold=0.5, rows=None):
    """A schedule: draft K tokens while the target is sure of what it says, and otherwise let it take a plain step.

    The target is sure if the token that was emitted last had at least this probability in the target's row. Before the
    first round there is no such token, and the first round is a plain step.

    Parameters
    ----------
    K : int
    threshold : float
        0 always drafts, except in the first round. A threshold above 1 never drafts.
    rows : callable, optional
        `rows() -> [n_rows, n_vocab]` of the target's last call, to be used instead of the rows that were sampled from.
        At temperature 0 those would always be sure. See `Overheard`.
    """

    def schedule(last):
        if last is None:
            return 0
        i = len(last.emitted) - 1  # the row that the last token comes from
        q = last.q if rows is None else rows()
        return K if q[i, last.emitted[i]] >= threshold else 0

    return schedule


def draft_confidence(threshold=0.4, rows=None):
    """A stop: draft no further after a token that the draft gave less than this probability.

    0.4 is the default of Hugging Face's Transformers. rows is like that of `target_confidence`, for the draft.
    """

    def stop(p, token):
        return (p if rows is None else rows()[-1])[token] < threshold

    return stop


class Overheard:
    """A network that passes on another's logits, and keeps the last ones to show how sure the other network was."""

    def __init__(self, network):
        self.network = network

    def __call__(self, ids, n_rows=1):
        self.logits = self.network(ids, n_rows)  # [n_rows, n_vocab]
        return self.logits

    def rows(self):
        """The rows of the last call at temperature 1, [n_rows, n_vocab]."""
        return logits_to_probs(self.logits)


def heuristic(K):
    """A schedule: two tokens more after a round in which all were accepted, one fewer after any other round.

    It begins with K, and goes neither above K nor below 1. This is the schedule that Transformers calls "heuristic".
    """
    k = K

    def schedule(last):
        nonlocal k
        if last is None:
            k = K
        elif last.n_accepted == len(last.drafted):
            k = min(k + 2, K)
        else:
            k = max(k - 1, min(K, 1))
        return k

    return schedule


def adaptive(K, costs, memory=32):
    """A schedule: the K that theory.py finds best, for the alpha and the costs seen so far.

    Leviathan et al. 2023 suggest this as future work, in section 3.5. alpha is estimated by an average of
    beta = sum min(p, q), which is known at every verified position. That tells more than the single bit whether the
    token was accepted.

    Parameters
    ----------
    K : int
        At most this many.
    costs : callable
        `costs(K) -> c, v` as `theory.optimal_K` takes them.
    memory : int
        The average is over the verified positions so far. When there are more than this, older ones fade.
    """
    alpha, n_seen, n_rounds = 0.0, 0, 0

    def schedule(last):
        nonlocal alpha, n_seen, n_rounds
        if last is None:
            alpha, n_seen, n_rounds = 0.0, 0, 0
        else:
            for b in theory.betas([last]):
                n_seen += 1
                alpha += (b - alpha) / min(n_seen, memory)
        n_rounds += 1
        if n_rounds <= OPENING:  # the first round reads the prompt, so it shows no costs; then 0 and K are timed
            return K if n_rounds == 2 else 0
        k = int(theory.optimal_K(alpha, *costs(K), K_max=K))
        # Now and then one more than the best. Otherwise k = 0 would be for ever, because alpha is only seen for k > 0.
        return min(K, k + (n_rounds % EVERY == 0))

    return schedule
