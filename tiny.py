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
        x = np.append(x, verify(ids[len(x) :], np.array(p), q, rng))
    return x


def verify(drafted, p, q, rng):  # drafted[i] was drawn from p[i], so its p isn't 0
    for i, token in enumerate(drafted):
        if rng.random() < q[i][token] / p[i][token]:  # always, if q >= p
            continue
        residual = np.maximum(q[i] - p[i], 0)  # q > p somewhere: the sum isn't 0
        return [*drafted[:i], sample(residual / residual.sum(), rng)]
    return [*drafted, sample(q[-1], rng)]  # all were accepted, so the last row gives a bonus


# ---- Rules that look right. Write your own, add it to RULES, and draw as they do ----
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


# ---- The check: with three tokens, we can run every path ----
def every_path(function):  # -> (what function(rng) returns, probability), for each path
    """A list of outcomes tells a run how to begin. When the list is used up, the run takes the
    first possible outcome of each draw. For every other outcome it notes a list: what was drawn
    so far, and then that outcome. Each of these lists is told to a later run.

    A round with one guess, where p = .2, .5, .3 and q = .3, .2, .5, has 11 runs. Here are three,
    each told what an earlier one noted:

        told      guess   accepted?   resampled, or bonus   notes
        nothing   A       yes         A                     B; C; A yes B; A yes C
        B         B       no          A                     B yes; B no C
        B no C    B       no          C

    In the code, A, B and C are 0, 1 and 2, no is 0 and yes is 1, so "B no C" is [1, 0, 2]. A is
    always accepted, so no run is told "A no". The 11 are three bonuses for each guess, and
    two tokens in place of B. docs/tree.svg leaves out the bonus, and has 5.
    """
    todo = [[]]
    while todo:
        rng = EveryBranch(todo.pop())
        result = function(rng)
        yield result, rng.probability
        todo += rng.noted


class EveryBranch:
    """A fake rng. It draws what it's told, and then the first possible outcome each time."""

    def __init__(self, path):
        self.told = path  # and not drawn yet
        self.drawn = []
        self.probability = 1  # of all that was drawn
        self.noted = []  # what to tell later runs

    def choice(self, n, p):
        assert abs(sum(p) - 1) < 1e-9, f"rng.choice got probabilities {list(p)}"
        assert len(self.drawn) < 100, "100 draws and no end"
        if self.told:
            outcome = self.told.pop(0)
        else:
            outcome, *rest = [i for i in range(n) if p[i] > 0]
            self.noted += [[*self.drawn, other] for other in rest]
        self.drawn.append(outcome)
        self.probability *= p[outcome]
        return outcome

    def random(self):
        return Uniform(self)


class Uniform:
    """A random number u without a value. u < a draws whether it is below a."""

    def __init__(self, rng):
        self.rng = rng
        self.is_new = True

    def __lt__(self, a):  # Python calls it for u < a
        assert self.is_new, "u is compared twice, which is too much for this page"
        self.is_new = False
        a = min(max(a, 0), 1)
        return self.rng.choice(2, p=[1 - a, a]) == 1

    def __ge__(self, a):
        return not self < a

    __le__, __gt__ = __lt__, __ge__  # u equals a with probability 0


def how_wrong(rule, draft_model, target_model, x, N, K):  # -> total variation, tokens per pass
    """Both are computed from the same paths: each has a text, and a number of passes."""

    def plain(rng):
        return autoregressive_sampling(x, target_model, N, rng)

    def speculative(rng):
        passes = []

        def target(ids, n_rows):  # counts its passes
            passes.append(n_rows)
            return target_model(ids, n_rows)

        text = speculative_sampling(x, draft_model, target, N, K, rng, rule)
        return text, len(passes)

    gaps = Counter()  # how much too often each text comes
    for text, probability in every_path(plain):
        gaps[tuple(text)] -= probability
    mean_passes = 0
    for (text, n_passes), probability in every_path(speculative):
        gaps[tuple(text)] += probability
        mean_passes += n_passes * probability
    assert abs(sum(gaps.values())) < 1e-9, "the paths don't add up; let rng alone decide"
    return sum(map(abs, gaps.values())) / 2, N / mean_passes


# ---- A toy: the next token depends on the last one. Fractions have no rounding ----
def bigrams(*rows):  # in tenths: what follows A, what follows B, what follows C
    rows = np.array(rows) * Fraction(1, 10)
    return lambda ids, n_rows=1: rows[ids[-n_rows:]]  # what follows each of the last n_rows ids


def main():
    draft_model = bigrams([2, 5, 3], [1, 2, 7], [2, 3, 5])
    target_model = bigrams([3, 2, 5], [5, 4, 1], [3, 5, 2])
    x = np.array([0])  # A
    # Three tokens have three chances to go wrong: .06 for one is .0924 for a text of three.
    for rule in RULES:
        try:
            wrong, per_pass = how_wrong(rule, draft_model, target_model, x, N=3, K=2)
        except Exception as error:
            more = f"python main.py --mine tiny.py {rule.__name__} says more"
            sys.exit(f"tiny.py: {rule.__name__}: {type(error).__name__}: {error}; {more}")
        shown = f"{float(wrong):.4f} = {wrong}" if wrong else "0"
        print(f"{rule.__name__:16} wrong by {shown:19} {float(per_pass):.2f} tokens per pass")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C and | head end it without a traceback
    signal.signal(getattr(signal, "SIGPIPE", signal.SIGINT), signal.SIG_DFL)
    main()

# Next: README.md, "When it pays".
