"""How many tokens a round can have if its texts may be off by δ: a linear program, in fractions.

    pip install scipy && python -m studies.frontier

A round of the gallery's pair has K = 2 guesses. It keeps some from the left and adds one token.
Behind it the target goes on, up to three tokens. What it does is a mass for each path of guesses,
number of kept ones, and token. With δ = 0 the texts are the target's own.

SciPy finds the optimum and its prices (the dual), as floats. Both are rounded to fractions, and
then it's shown without rounding that they obey all constraints. So what is printed is proved: the
dual of each line is an upper bound for all δ, and the ends of the lines are reached.

The second part lets the rounds behind it make up for the first one. Then no program is needed:
the first i guesses are kept, all of them, with at most 1 - TV_i + δ, where TV_i is how far draft
and target are apart in i tokens. For the text begins as the guesses do only where both agree.
"""

import math
from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
from scipy.optimize import linprog

from gallery.setting import SETTING, draft_model, target_model

V, K = len(SETTING.P), SETTING.K
TEXTS = [*product(range(V), repeat=K + 1)]
PATHS = [*product(range(V), repeat=K)]
MOVES = [(i, n, t) for i in range(len(PATHS)) for n in range(K + 1) for t in range(V)]


@cache
def mass(model, text, start=0):
    """The probability of a text, from a place on."""
    rows = {i: model((*SETTING.prompt, *text[:i]))[-1] for i in range(start, len(text))}
    return math.prod((rows[i][text[i]] for i in rows), start=Fraction(1))


def program():
    """objective, A x <= b + δ e, B x = c, for the moves and the surplus of each text."""
    n_moves, n_texts = len(MOVES), len(TEXTS)
    zeros = np.full(n_moves + n_texts, Fraction(0))
    gains = zeros.copy()
    A = np.array([zeros] * (n_texts + 1))
    B = np.array([zeros] * len(PATHS))
    for j, (i, n, t) in enumerate(MOVES):
        begins = (*PATHS[i][:n], t)
        gains[j] = n + 1
        B[i, j] = 1
        for k, text in enumerate(TEXTS):
            if text[: n + 1] == begins:
                A[k, j] = mass(target_model, text, n + 1)
    for k in range(n_texts):
        A[k, n_moves + k] = -1
        A[n_texts, n_moves + k] = 1
    b = np.array([mass(target_model, text) for text in TEXTS] + [Fraction(0)])
    c = np.array([mass(draft_model, path) for path in PATHS])
    return gains, A, b, B, c


def fractions(floats, denominator=100_000):
    return np.array([Fraction(float(x)).limit_denominator(denominator) for x in floats])


def solved(δ, gains, A, b, B, c):
    b = np.array([*b[:-1], b[-1] + δ])
    floats = [array.astype(float) for array in (-gains, A, b, B, c)]
    found = linprog(*floats, bounds=(0, None), method="highs")
    x, y, z = map(fractions, (found.x, -found.ineqlin.marginals, -found.eqlin.marginals))
    assert (x >= 0).all() and (A @ x <= b).all() and (B @ x == c).all()
    assert (y >= 0).all() and (y @ A + z @ B >= gains).all()
    assert gains @ x == y @ b + z @ c
    return gains @ x, y @ b + z @ c - δ * y[-1], y[-1]


def main():
    parts = program()
    print("at most a + b δ tokens, if the target goes on")
    lines = {}
    for hundredths in (5, 15, 35, 53):
        _, a, slope = solved(Fraction(hundredths, 100), *parts)
        lines[a, slope] = f"{float(a):.2f} + {float(slope):.1f} δ"
    print(*lines.values(), sep="\n")
    for hundredths in (0, 10, 20, 50, 56, 60):
        δ = Fraction(hundredths, 100)
        tokens, *_ = solved(δ, *parts)
        assert tokens == min(K + 1, *(a + slope * δ for a, slope in lines))
        print(f"reached at {float(δ):.2f}: {float(tokens):.2f}")
    print("at most so many, if the rounds behind it make up for it")
    for i in range(1, K + 1):
        texts = [*product(range(V), repeat=i)]
        apart = sum(abs(mass(draft_model, t) - mass(target_model, t)) for t in texts) / 2
        print(f"TV of {i} tokens: {apart}")


if __name__ == "__main__":
    main()
