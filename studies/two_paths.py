"""How many tokens a round of two paths can have: a linear program, and the rules of lab/trees.py.

    pip install scipy && python -m studies.two_paths

A set of guesses is a set of paths. An exact rule goes to one of its nodes and adds a token, and
then the target goes on, so that the text has the target's distribution. The prices (the dual) are
rounded to fractions, and in fractions they are an upper bound. SciPy's optimum reaches it to 1e-9.
"""

from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

from enumeration import sum_over_paths
from gallery.setting import SETTING, draft_model, mean_length, target_model
from lab.optimum import optimal
from lab.trees import Node, balanced, bottom_up, grow, paths, score, top_down
from studies.frontier import mass

X = np.array(SETTING.prompt)
CHAIN = (((),),)
TREES = {"chain of 2": CHAIN, "balanced(2)": balanced(2), "balanced(2, 1)": balanced(2, 1)}


def grown(shape):
    return lambda rng: grow(X, draft_model, shape, rng)


def two_chains(rng):
    return grow(X, draft_model, CHAIN, rng) + grow(X, draft_model, CHAIN, rng)


def sets(draw):
    """{set of nodes, each as the tokens that lead to it: probability}"""

    def nodes(rng):
        found = {()}
        for path in paths(Node(children=draw(rng))):
            tokens = tuple(node.token for node in path[1:])
            found |= {tokens[:i] for i in range(len(tokens) + 1)}
        seen.append(frozenset(found))
        return len(seen) - 1

    seen = []
    S = Counter()
    for (i,), probability in sum_over_paths(nodes).items():
        S[seen[i]] += Fraction(probability)
    return S


def at_best(draw):
    S = sets(draw)
    n = 1 + max(len(node) for guesses in S for node in guesses)
    texts = [*product(range(len(SETTING.P)), repeat=n)]
    gains, columns = [], []  # of each set, node of it, and token
    for k, guesses in enumerate(S):
        for node, token in product(guesses, range(len(SETTING.P))):
            begins = (*node, token)
            m = len(begins)
            ends = {i: text for i, text in enumerate(texts) if text[:m] == begins}
            gains.append(m)
            columns.append({i: mass(target_model, text, m) for i, text in ends.items()})
            columns[-1][len(texts) + k] = Fraction(1)
    b = [mass(target_model, text) for text in texts] + [*S.values()]
    entries = [(i, j, float(x)) for j, column in enumerate(columns) for i, x in column.items()]
    rows, places, values = zip(*entries)
    A = csr_array((values, (rows, places)), shape=(len(b), len(columns)))
    found = linprog([-gain for gain in gains], A_eq=A, b_eq=[float(x) for x in b], method="highs")
    y = [Fraction(-x).limit_denominator(10_000) for x in found.eqlin.marginals]
    for gain, column in zip(gains, columns):
        assert sum(y[i] * x for i, x in column.items()) >= gain
    bound = sum(map(Fraction.__mul__, y, b))
    assert abs(bound + Fraction(found.fun)) < 1e-9
    return bound


def tokens(rule, shape):
    def one_round(rng):
        root = Node(children=grow(X, draft_model, shape, rng))
        score(X, target_model, root)
        return rule(root, rng)

    return mean_length(sum_over_paths(one_round))


def main():
    for name, shape in TREES.items():
        found = [tokens(rule, shape) for rule in (top_down, optimal, bottom_up)]
        print(name, *(f"{float(x):.4f}" for x in [*found, at_best(grown(shape))]))
    print("two independent chains of 2", f"{float(at_best(two_chains)):.4f}")


if __name__ == "__main__":
    main()
