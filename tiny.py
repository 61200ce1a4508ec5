"""Speculative sampling on one page, and how wrong it is: 0.

    python tiny.py

A small draft model guesses K tokens, and the large target model verifies them all in one
forward pass. The text still has the target's distribution. p is the draft's distribution,
q the target's, as in Chen et al. 2023 (arXiv 2302.01318).
"""

import sys
from collections import Counter
from fractions import Fraction

import numpy as np


# ---- The algorithm ----
# A model is a function of the text x. model(x, n=1) returns the last n rows, each the distribution
# of a token. Row -1 predicts the token after x; row -2 predicts x[-1], having read all before it.
def autoregressive_sampling(x, target, N, rng):
    for _ in range(N):
        q = target(x)[-1]  # [n_vocab]
        x = np.append(x, rng.choice(len(q), p=q))
    return x


def speculative_sampling(x, draft, target, N, K, rng, verify):
    end = len(x) + N
    while len(x) < end:
        start = len(x)
        k = min(K, end - start - 1)  # leaves room for the token that each round adds
        # Step 1: the draft guesses k tokens, one after the other.
        p = []
        for _ in range(k):
            p.append(draft(x)[-1])
            x = np.append(x, rng.choice(len(p[-1]), p=p[-1]))
        # Step 2: one pass of the target. q[i] judges guess i, and q[k] predicts what follows.
        q = target(x, k + 1)  # [k+1, n_vocab]
        # Step 3: accept guesses, which are x[start:], from the left, and add one token.
        x = np.append(x[:start], verify(x[start:], p, q, rng))
    return x


def verify(drafted, p, q, rng):
    for i, token in enumerate(drafted):
        if rng.random() < q[i][token] / p[i][token]:  # always, if q >= p
            continue
        residual = np.maximum(q[i] - p[i], 0)
        return [*drafted[:i], rng.choice(len(residual), p=residual / residual.sum())]
    bonus = q[-1]  # all were accepted, so this row is left over
    return [*drafted, rng.choice(len(bonus), p=bonus)]


# ---- Rules that look right. Write your own, and add it to RULES ----
def keep_all(drafted, p, q, rng):
    return [*drafted, rng.choice(len(q[-1]), p=q[-1])]


def keep_the_argmax(drafted, p, q, rng):  # right at temperature 0, where all rows are one-hot
    for i, token in enumerate(drafted):
        if token != q[i].argmax():
            return [*drafted[:i], rng.choice(len(q[i]), p=q[i])]
    return [*drafted, rng.choice(len(q[-1]), p=q[-1])]


def replace_from_q(drafted, p, q, rng):
    for i, token in enumerate(drafted):
        if not rng.random() < q[i][token] / p[i][token]:
            return [*drafted[:i], rng.choice(len(q[i]), p=q[i])]
    return [*drafted, rng.choice(len(q[-1]), p=q[-1])]


RULES = keep_all, keep_the_argmax, replace_from_q, verify


# ---- The check: with three tokens, we can run every path ----
class EveryBranch:
    """A fake random generator, which takes one path through the code.

    Each draw is a fork of the path. EveryBranch([0, 2]) takes branch 0 at the first fork,
    branch 2 at the second, and branch 0 at all that follow. `others` are the paths still to
    run: if a third fork has three branches, [0, 2, 1] and [0, 2, 2].
    """

    def __init__(self, path):
        self.path = path
        self.taken = []
        self.others = []
        self.probability = 1  # of the path so far

    def choice(self, n, p):
        depth = len(self.taken)
        require(depth < 100, "100 draws and no end: does a loop draw for ever?")
        require(min(p) >= 0 and abs(sum(p) - 1) < 1e-9, f"rng.choice got probabilities {list(p)}")
        possible = [i for i in range(n) if p[i] > 0]  # a branch is an index into these
        branch = 0
        if depth < len(self.path):
            branch = self.path[depth]
        else:
            self.others += [[*self.taken, other] for other in range(1, len(possible))]
        self.taken.append(branch)
        outcome = possible[branch]
        self.probability *= p[outcome]
        return outcome

    def random(self):
        return Uniform(self)


class Uniform:
    """A number in [low, high). Each `u < a` is a fork, and moves one of the two ends to a.

    `verify` compares each number once. The ends are for rules that compare it again.
    """

    def __init__(self, rng):
        self.rng = rng
        self.low = Fraction(0)
        self.high = Fraction(1)

    def __lt__(self, a):
        a = min(max(a, self.low), self.high)
        below = (a - self.low) / (self.high - self.low)
        is_below = self.rng.choice(2, p=[1 - below, below]) == 1
        if is_below:
            self.high = a
        else:
            self.low = a
        return is_below

    def __ge__(self, a):
        return not self < a

    __le__ = __lt__  # the same, because u equals a with probability 0
    __gt__ = __ge__


def every_path(function):  # -> (what function(rng) returns, probability), for each path
    paths = [[]]
    while paths:
        rng = EveryBranch(paths.pop())
        yield function(rng), rng.probability
        paths += rng.others


def distance(a, b):  # total variation: 0 if two distributions are equal, 1 if they share nothing
    return sum(abs(a[text] - b[text]) for text in {*a, *b}) / 2


def how_wrong(rule, draft, target, x, N, K):  # -> the distance, and tokens per pass of the target
    def plain(rng):
        return autoregressive_sampling(x, target, N, rng)

    def speculative(rng):
        calls = []
        counted = count_calls(target, calls)
        text = speculative_sampling(x, draft, counted, N, K, rng, checked(rule))
        return text, len(calls)

    expected = Counter()
    for text, probability in every_path(plain):
        expected[tuple(text)] += probability
    found = Counter()
    n_passes = 0  # on average
    for (text, n), probability in every_path(speculative):
        found[tuple(text)] += probability
        n_passes += n * probability
    require(abs(sum(found.values()) - 1) < 1e-9, "the paths don't add up; let rng alone decide")
    return distance(found, expected), N / n_passes


# ---- A toy: the next token depends on the last one. Fractions have no rounding ----
def bigram_model(*rows):  # in tenths
    rows = np.array(rows) * Fraction(1, 10)
    return lambda x, n=1: rows[x[-n:]]


def main():
    draft = bigram_model([2, 5, 3], [1, 2, 7], [2, 3, 5])
    target = bigram_model([3, 2, 5], [5, 4, 1], [3, 5, 2])
    x = np.array([0])
    for rule in RULES:
        wrong, per_pass = how_wrong(rule, draft, target, x, N=3, K=2)
        shown = f"{float(wrong):.4f} = {wrong}" if wrong else "0"
        print(f"{rule.__name__:16} wrong by {shown:19} {float(per_pass):.2f} tokens per pass")


# ---- Errors, each in one line ----
def require(condition, why):
    if not condition:
        sys.exit(f"tiny.py: {why}")


def count_calls(model, calls):
    def call(x, n=1):
        calls.append(n)
        require(len(calls) < 100, "100 passes and no end: does each round add a token?")
        return model(x, n)

    return call


def checked(rule):
    def call(drafted, p, q, rng):
        emitted = rule(drafted, p, q, rng)
        n = len(emitted) if isinstance(emitted, list | tuple | np.ndarray) else 0
        problem = f"{rule.__name__} returned {emitted}"
        require(
            1 <= n <= len(q), f"{problem}; {len(p)} guesses need a list of 1 to {len(q)} tokens"
        )
        return emitted

    return call


if __name__ == "__main__":
    require(len(sys.argv) == 1, "it has no options; change it, and run python tiny.py")
    main()
