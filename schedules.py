"""How many tokens to draft next: what `speculative_sampling` takes as its schedule and its stop.

A round is exact for every k. Given all that came before it, what it emits, completed by the target, is distributed as
the target's own text (steps 6 and 7 of the proof in tests/test_speculative.py). So the k of the next round may follow
from anything that is over: emitted tokens, rejected ones, rows, even the time that passed. What may not be done is to
look at a drafted token and then decide whether it counts. To stop after it is another thing: it is verified all the
same, and only tokens that nobody has drawn are left out.

A fixed K needs no schedule. Those here start afresh when they are called with None, before the first round.
"""

import time
from collections import defaultdict, deque

import numpy as np

import theory
from speculative import logits_to_probs

OPENING = 3  # rounds of `adaptive` before it judges
EVERY = 16  # rounds after which it tries a K that does not seem best


def target_confidence(K, threshold=0.5, rows=None):
    """Draft K tokens only while the target is sure of what it says, and else let it take a plain step.

    Sure means: the token emitted last had at least this probability in the target's row. Before the first round there
    is no such token, and it begins with a plain step.

    Parameters
    ----------
    K : int
    threshold : float
        0 always drafts, but for the first round; above 1 never does.
    rows : callable, optional
        `rows() -> [n_rows, n_vocab]` of the target's last call, to be used instead of the rows sampled from: at
        temperature 0 these are always sure. See `Overheard`.
    """

    def schedule(last):
        if last is None:
            return 0
        i = len(last.emitted) - 1  # the row that the last token comes from
        q = last.q if rows is None else rows()
        return K if q[i, last.emitted[i]] >= threshold else 0

    return schedule


def draft_confidence(threshold=0.4, rows=None):
    """A stop: draft no further after a token that the draft gave less than this probability (Transformers has 0.4).

    rows is that of `target_confidence`, for the draft.
    """

    def stop(p, token):
        return (p if rows is None else rows()[-1])[token] < threshold

    return stop


class Overheard:
    """A network that passes on another's logits, and keeps the last ones for who wants to know how sure it was."""

    def __init__(self, network):
        self.network = network

    def __call__(self, ids, n_rows=1):
        self.logits = self.network(ids, n_rows)  # [n_rows, n_vocab]
        return self.logits

    def rows(self):
        """The distributions at temperature 1 of the last call, [n_rows, n_vocab]."""
        return logits_to_probs(self.logits)


def heuristic(K):
    """Two tokens more after a round in which all were accepted, one less after any other; K at first and at most.

    The schedule that Transformers calls "heuristic". It goes down to 1, as from 0 it could not come back.
    """
    k = K

    def schedule(last):
        nonlocal k
        if last is None:
            k = K
        elif len(last.emitted) == len(last.drafted) + 1:
            k = min(k + 2, K)
        else:
            k = max(k - 1, min(K, 1))
        return k

    return schedule


def adaptive(K, costs, memory=32):
    """The K that theory.py finds best for the alpha and the costs met so far: future work in Leviathan et al., 3.5.

    alpha is an average of beta = sum min(p, q), which a verified position shows exactly: that tells more than the one
    bit whether its token was accepted. It is known up to the first rejected token, and is not asked for beyond, where
    the draft follows a prefix that is not the text.

    Parameters
    ----------
    K : int
        At most.
    costs : callable
        `costs(K) -> c, v` as `theory.optimal_K` takes them: `measured`, or a constant.
    memory : int
        The average is over the verified positions so far, and fades exponentially when they are more than this.
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
        if n_rounds <= OPENING:  # the first reads the prompt and tells nothing of costs; then the two ends are timed
            return K if n_rounds == 2 else 0
        k = int(theory.optimal_K(alpha, *costs(K), K_max=K))
        # One more than the best, now and then: after k = 0 nothing else would show that alpha is better again.
        return min(K, k + (n_rounds % EVERY == 0))

    return schedule


def measured(draft, target):
    """The costs that `adaptive` asks for, by the clocks of two `Timed` models."""

    def costs(K):
        n_rows = sorted(target.recent)
        seconds = np.interp(np.arange(1, K + 2), n_rows, [target.typical(n) for n in n_rows])  # [K+1]
        return draft.typical(1) / seconds[0], seconds / seconds[0]

    return costs


class Timed:
    """A model that keeps the time: seconds in all, and what a call over n_rows rows takes.

    The clock is an argument so that nothing but the random generator need be random in a test.
    """

    def __init__(self, model, clock=time.perf_counter):
        self.model, self.clock, self.recent = model, clock, defaultdict(lambda: deque(maxlen=9))
        self.restart()

    def restart(self):
        """To be called before a new text: the next call reads a prompt, and tells nothing of what a step takes."""
        self.seconds, self.n_ids = 0.0, None

    def __call__(self, ids, n_rows=1):
        begun = self.clock()
        probs = self.model(ids, n_rows)
        seconds = self.clock() - begun
        self.seconds += seconds
        if self.n_ids is not None and len(ids) <= self.n_ids + n_rows + 1:  # else a prompt was read as well
            self.recent[n_rows].append(seconds)
        self.n_ids = len(ids)
        return probs

    def typical(self, n_rows):
        """The median of the last few calls, in seconds; 0 if there was none, so that it will be tried."""
        times = sorted(self.recent[n_rows]) if n_rows in self.recent else [0.0]
        return times[len(times) // 2]
