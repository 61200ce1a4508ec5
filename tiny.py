"""Speculative sampling on one page, and how wrong it is: 0.

    python tiny.py

A small draft model guesses K tokens, and the large target model verifies them all in one
forward pass. The text still has the target's distribution. p is the draft's distribution,
q the target's, as in Chen et al. 2023 (arXiv 2302.01318).
"""

import signal
import sys
from collections import Counter
from fractions import Fraction

import numpy as np


# ---- The algorithm ----
def sample(p, rng):
    return rng.choice(len(p), p=p)


# model(ids, n_rows=1) reads the tokens ids, and returns n_rows rows. A row is the distribution of
# a token: row -1 predicts what follows ids, row -2 predicts ids[-1], and so on.
def autoregressive_sampling(x, target_model, N, rng):
    for _ in range(N):
        q = target_model(x)[-1]  # [n_vocab]
        x = np.append(x, sample(q, rng))
    return x


def speculative_sampling(x, draft_model, target_model, N, K, rng, verify):
    end = len(x) + N
    while len(x) < end:
        k = min(K, end - len(x) - 1)  # leaves room for the token that each round adds
        # The draft guesses k tokens, one after the other. ids is the text with them.
        ids, p = x, []
        for _ in range(k):
            p.append(draft_model(ids)[-1])
            ids = np.append(ids, sample(p[-1], rng))
        # The target reads all of it in one pass. q[i] is for guess i, and q[k] for what follows.
        q = target_model(ids, k + 1)  # [k+1, n_vocab]
        # Accept guesses from the left, and add one token.
        x = np.append(x, verify(ids[len(x) :], p, q, rng))
    return x


def verify(drafted, p, q, rng):  # drafted[i] was drawn from p[i], so its p isn't 0
    for i, token in enumerate(drafted):
        if rng.random() < q[i][token] / p[i][token]:  # always, if q >= p
            continue
        residual = np.maximum(q[i] - p[i], 0)  # q < p at this token, so q > p at another
        return [*drafted[:i], sample(residual / residual.sum(), rng)]
    return [*drafted, sample(q[-1], rng)]  # all were accepted, so the last row gives a bonus


# ---- Rules that look right. Add your own to RULES, and draw as they do ----
def accept_all(drafted, p, q, rng):
    return [*drafted, sample(q[-1], rng)]


def accept_argmax(drafted, p, q, rng):  # right if the target always writes its argmax
    for i, token in enumerate(drafted):
        if token == q[i].argmax():
            continue
        return [*drafted[:i], sample(q[i], rng)]
    return [*drafted, sample(q[-1], rng)]


def resample_from_q(drafted, p, q, rng):
    for i, token in enumerate(drafted):
        if rng.random() < q[i][token] / p[i][token]:
            continue
        return [*drafted[:i], sample(q[i], rng)]
    return [*drafted, sample(q[-1], rng)]


RULES = accept_all, accept_argmax, resample_from_q, verify

# Next: README.md, "Why it is exact". Then come back for the check.


# ---- The check: with three tokens, we can run every path ----
# `demand` and `watched` only name mistakes in a rule of yours. Skip them.
def every_path(function):  # -> (what function(rng) returns, probability), for each path
    """A path is the list of what rng draws: tokens, and for a comparison 0 for no, 1 for yes.

    Take a round with one guess, and the README's p and q. The first run takes the first
    possible outcome of each draw: A as the guess, yes, since u < 1 is always true, and A as
    the bonus. That's [0, 1, 0]. On its way it notes what else was possible: [1] and [2] at
    the guess, [0, 1, 1] and [0, 1, 2] at the bonus. Each of these begins another run, until
    none is left. [1, 0, 2], for one, guesses B, rejects it, and resamples C. There are 11
    paths, or 5 without the bonus, as in docs/tree.svg.
    """
    paths = [[]]
    while paths:
        rng = EveryBranch(paths.pop())
        yield function(rng), rng.probability
        paths += rng.others


class EveryBranch:
    """A fake rng. It draws what its path says, and then the first possible outcome each time."""

    def __init__(self, path):
        self.path = path  # what it still has to draw
        self.drawn = []
        self.probability = 1  # of all that was drawn
        self.others = []  # the paths that it notes

    def choice(self, n, p):
        demand_probabilities(len(self.drawn), p)
        if self.path:
            outcome = self.path.pop(0)
        else:
            outcome, *rest = [i for i in range(n) if p[i] > 0]
            self.others += [[*self.drawn, other] for other in rest]
        self.drawn.append(outcome)
        self.probability *= p[outcome]
        return outcome

    def random(self):
        return Uniform(self)


class Uniform:
    """A random number u that nobody knows. u < a draws whether it is below a."""

    def __init__(self, rng):
        self.rng = rng
        self.is_new = True

    def __lt__(self, a):  # Python calls it for u < a
        demand(self.is_new, "u is compared twice; only python -m exercise can follow that")
        self.is_new = False
        a = min(max(a, 0), 1)
        return self.rng.choice(2, p=[1 - a, a]) == 1

    def __ge__(self, a):
        return not self < a

    __le__, __gt__ = __lt__, __ge__  # u equals a with probability 0


def how_wrong(rule, draft_model, target_model, x, N, K):  # -> total variation, tokens per pass
    def plain(rng):
        return autoregressive_sampling(x, target_model, N, rng)

    def speculative(rng):
        target_model.n_passes = 0
        return speculative_sampling(x, draft_model, target_model, N, K, rng, watched(rule))

    expected = Counter()
    for text, probability in every_path(plain):
        expected[tuple(text)] += probability
    found = Counter()
    n_passes = 0  # on average
    for text, probability in every_path(speculative):
        found[tuple(text)] += probability
        n_passes += target_model.n_passes * probability
    demand(abs(sum(found.values()) - 1) < 1e-9, "the paths don't add up; let rng alone decide")
    wrong = sum(abs(found[text] - expected[text]) for text in {*found, *expected}) / 2
    return wrong, N / n_passes


# ---- A toy: the next token depends on the last one. Fractions have no rounding ----
class Bigrams:
    def __init__(self, *rows):  # in tenths: what follows A, what follows B, what follows C
        self.rows = np.array(rows) * Fraction(1, 10)
        self.n_passes = 0

    def __call__(self, ids, n_rows=1):
        self.n_passes += 1
        return self.rows[ids[-n_rows:]]  # for each of the last n_rows ids, what follows it


def main():
    draft_model = Bigrams([2, 5, 3], [1, 2, 7], [2, 3, 5])
    target_model = Bigrams([3, 2, 5], [5, 4, 1], [3, 5, 2])
    x = np.array([0])  # A
    # Three tokens have three chances to go wrong, so this is more than the README's one token.
    for rule in RULES:
        wrong, per_pass = how_wrong(rule, draft_model, target_model, x, N=3, K=2)
        shown = f"{float(wrong):.4f} = {wrong}" if wrong else "0"
        print(f"{rule.__name__:16} wrong by {shown:19} {float(per_pass):.2f} tokens per pass")


# Next: README.md, "When it pays".


# ---- Mistakes in a rule, each in one line ----
def demand(condition, problem):
    if not condition:
        sys.exit(f"tiny.py: {problem}")


def demand_probabilities(n_before, p):
    demand(n_before < 100, "100 draws and no end: does a loop draw for ever?")
    demand(min(p) >= 0 and abs(sum(p) - 1) < 1e-9, f"rng.choice got probabilities {list(p)}")


def watched(rule):
    def call(drafted, p, q, rng):
        p = np.reshape(p, q[:-1].shape)  # an array, as in the exercise
        try:
            emitted = rule(drafted, p, q, rng)
        except Exception as error:
            line = (error.__traceback__.tb_next or error.__traceback__).tb_lineno
            demand(False, f"{rule.__name__}, line {line}: {type(error).__name__}: {error}")
        is_round = np.ndim(emitted) == 1 and 1 <= len(emitted) <= len(q)
        is_round = is_round and {*emitted} <= {*range(len(q[0]))}
        problem = f"{rule.__name__} returned {emitted}"
        demand(is_round, f"{problem}; {len(p)} guesses need a list of 1 to {len(q)} tokens")
        return emitted

    return call


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C and | head end it without a traceback
    signal.signal(getattr(signal, "SIGPIPE", signal.SIGINT), signal.SIG_DFL)
    demand(len(sys.argv) == 1, "it has no options; change it, and run python tiny.py")
    main()
