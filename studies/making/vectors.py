"""docs/vectors.json: rounds whose random numbers are given, and what must come out.

They test a `verify` in any language, see docs/your_engine.md. All probabilities are
multiples of 1/64, so float32 holds them. No number is close to a border where rounding
could decide, but for the ends of [0, 1).
"""

import itertools
import json

import numpy as np

from speculative import verify

UNIT = 64
LARGEST = 1 - 2**-24  # of float32, below 1
ENDS = 0.0, LARGEST
ABOUT = (
    "Each case is a round. p[i] and q[i] are the draft's and the target's distribution for guess "
    "i, drafted[i] is its token, and the last row of q comes after all guesses. numbers are what "
    "the round draws from [0, 1): one for each guess that is looked at, which is accepted if "
    "number < q / p, and then one for the token that is added. That is the first token whose "
    "cumulated probability is above the number, of max(q - p, 0) divided by its sum after a "
    "rejection, or of the last row of q. The number is there even if only one token is possible. "
    "emitted is what must come out."
)
ROWS = {  # of p and q, in units of 1/64
    "q is above and below p": ([16, 32, 8, 8], [24, 16, 8, 16]),
    "p = q": ([16, 32, 8, 8], [16, 32, 8, 8]),
    "p = q, one-hot": ([0, 64, 0, 0], [0, 64, 0, 0]),
    "the target forbids the first token": ([32, 16, 16, 0], [0, 32, 16, 16]),
    "one-hot draft": ([0, 64, 0, 0], [16, 16, 16, 16]),
    "one-hot target": ([16, 16, 16, 16], [0, 0, 0, 64]),
    "no token is possible for both": ([32, 32, 0, 0], [0, 0, 48, 16]),
    "the residual is the last token": ([32, 16, 16, 0], [32, 16, 0, 16]),
    "the residual has not the last token": ([16, 16, 16, 16], [32, 16, 16, 0]),
}
BONUS = [0, 16, 16, 32]  # its first token is impossible, and must not be drawn with the number 0


class Numbers:
    """A generator whose random numbers are given."""

    def __init__(self, numbers):
        self.numbers = iter(numbers)

    def random(self):
        return next(self.numbers)

    def choice(self, n, p):
        return int(np.searchsorted(np.cumsum(p), next(self.numbers), side="right"))


def in_units(rows):
    return (np.array(rows) / UNIT).tolist()


def of_tests(p, q, token):
    """Numbers on both sides of where a guess is accepted, and the ends of [0, 1)."""
    ratio = q[token] / p[token]
    if not 0 < ratio < 1:
        return ENDS
    return 0.0, ratio - 1 / UNIT, ratio + 1 / UNIT, LARGEST


def rounds():
    """(name, p, q, drafted, numbers) of each case."""
    bonus = in_units(BONUS)
    for u in 0.0, 0.375, LARGEST:
        yield "no guess", [], [bonus], [], [u]
    for name, rows in ROWS.items():
        p, q = in_units(rows)
        for token in np.flatnonzero(p).tolist():
            for test, u in itertools.product(of_tests(p, q, token), ENDS):
                yield name, [p], [q, bonus], [token], [test, u]
    below, equal, *_ = map(in_units, ROWS.values())
    for one, other in (below, equal), (equal, below):
        p, q = map(list, zip(one, other))
        for numbers in itertools.product((0.0, 0.75), (0.0, 0.75), (0.0, 0.4375, LARGEST)):
            yield "two guesses", p, [*q, bonus], [1, 1], [*numbers]


def vectors():
    """The text of the file, a case on each line."""
    lines = []
    for name, p, q, drafted, numbers in rounds():
        given = np.array(drafted, int), np.array(p), np.array(q), Numbers(numbers)
        emitted = verify(*given).tolist()
        n_tests = min(len(emitted), len(drafted))
        case = dict(case=name, p=p, q=q, drafted=drafted, numbers=numbers[: n_tests + 1])
        lines.append(json.dumps(case | {"emitted": emitted}))
    cases = ",\n".join(lines)
    return f'{{"about": {json.dumps(ABOUT)},\n"cases": [\n{cases}\n]}}\n'
