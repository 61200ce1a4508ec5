"""Two guesses at one token: how often can one of them be accepted, and which rule does that?

Take the README's p = (.2, .5, .3) and q = (.3, .2, .5), and let the draft guess twice,
independently. With probability .25 both guesses are B. Then only B can be accepted, but
the target says B with no more than .2. So .05 is lost whatever the rule, and none that is
exact accepts a guess with more than .95. `top_down` accepts one with .85, and a single
guess is accepted with .70.

Think of water. A set of guesses is a jug that holds its probability, and a token is a
glass with room for its q. A jug may be poured into the glasses of its own tokens only.
What is poured is accepted, and what stays in the jugs is rejected. Then the next token
is drawn from the room that is left in the glasses, so each glass ends up full: that's
`optimal`, and why it is exact. With a single guess the glasses are filled to min(p, q),
and the room is max(q - p, 0). It's `verify`.

How much can be poured? Pick any tokens H. Jugs that have no token outside H share the
glasses of H, which hold q(H). The other jugs have 1 - P(S inside H). So what is poured is
at most q(H) + 1 - P(S inside H), and the smallest of these numbers is the `ceiling`: .95
above, where H = {B}. The largest flow is as large as the smallest cut (Ford and Fulkerson
1956, for guesses Hu et al. 2025, arXiv 2502.18779), so `largest_flow` reaches it.
"""

from collections import Counter
from fractions import Fraction
from itertools import islice, product

from enumeration import sum_over_paths
from lab.trees import siblings
from sampling import sample
from speculative import max_fn


def sets(draw):
    """{set of guesses: probability}, where draw(rng) makes the guesses."""
    S = Counter()
    for tokens, probability in sum_over_paths(lambda rng: [g.token for g in draw(rng)]).items():
        S[frozenset(tokens)] += Fraction(probability)  # it's a float if nothing was drawn
    return S


def ceiling(S, q):
    """The smallest cut: no exact rule accepts one of the guesses with more than this."""
    cuts = []
    for H in product([0, 1], repeat=len(q)):  # 1 for its tokens
        inside = sum(S[guesses] for guesses in S if all(H[token] for token in guesses))
        cuts.append(q @ H + 1 - inside)
    return min(cuts)


def largest_flow(S, q):
    """{(set, token): what is poured}, and the room that is left, [n_vocab]."""
    flow, room = Counter(), q.copy()
    for guesses, remaining in S.items():
        while remaining > 0 and (path := shortest_path(guesses, S, flow, room)):
            _, last = path[-1]
            amount = min(remaining, room[last], *[flow[step] for step in path[1::2]])
            for i, step in enumerate(path):
                flow[step] += -amount if i % 2 else amount
            remaining -= amount
            room[last] -= amount
    return flow, room


def shortest_path(guesses, S, flow, room):
    """The shortest path from a set to a glass with room, or None.

    Its steps (set, token) pour in, out, in, ... If a glass is full, another set that was
    poured into it may move to its other token.
    """
    paths = [[(guesses, token)] for token in guesses]
    visited = set(guesses)
    for path in paths:
        _, token = path[-1]
        if room[token] > 0:
            return path
        for donor in S:
            if flow[donor, token] > 0:
                paths += [[*path, (donor, token), (donor, further)] for further in donor - visited]
                visited |= donor


def optimal(node, rng, S=None):
    """A rule like `top_down`. S are the `sets` of the guesses, by default as `grow` draws them."""
    children = {child.token: child for child in node.children}
    if not children:
        return [sample(node.q, rng)]
    S = S or sets(lambda rng: islice(siblings(node.children[0].p, rng), len(children)))
    flow, room = largest_flow(S, node.q)
    guesses = frozenset(children)
    remaining = S[guesses]
    for token, child in children.items():
        if rng.random() < flow[guesses, token] / remaining:
            return [token, *optimal(child, rng)]
        remaining -= flow[guesses, token]
    return [sample(max_fn(room) if room.any() else node.q, rng)]
