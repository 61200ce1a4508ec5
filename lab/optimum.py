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
at most q(H) + 1 - P(S inside H), and the smallest of these numbers is the `ceiling`. Above
it was that of H = {B}. The largest flow is as large as the smallest cut (Ford and
Fulkerson 1956, for guesses Hu et al. 2025, arXiv 2502.18779), so `largest_flow` reaches it.
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
    for guesses, left in S.items():
        while left > 0 and (way := shortest_way(guesses, S, flow, room)):
            _, last = way[-1]
            amount = min(left, room[last], *[flow[step] for step in way[1::2]])
            for i, step in enumerate(way):
                flow[step] += -amount if i % 2 else amount
            left -= amount
            room[last] -= amount
    return flow, room


def shortest_way(guesses, S, flow, room):
    """From a set to a glass with room: steps (set, token), which pour in, out, in, ... or None.

    If a glass is full, another set that was poured into it may move to its other token.
    """
    ways = [[(guesses, token)] for token in guesses]
    seen = set(guesses)
    for way in ways:
        _, token = way[-1]
        if room[token] > 0:
            return way
        for other in S:
            if flow[other, token] > 0:
                ways += [[*way, (other, token), (other, further)] for further in other - seen]
                seen |= other


def optimal(node, rng, S=None):
    """In place of `top_down`. S are the `sets` of the guesses, by default as `grow` draws them."""
    children = {child.token: child for child in node.children}
    if not children:
        return [sample(node.q, rng)]
    S = S or sets(lambda rng: islice(siblings(node.children[0].p, rng), len(children)))
    flow, room = largest_flow(S, node.q)
    guesses = frozenset(children)
    left = S[guesses]
    for token, child in children.items():
        if rng.random() < flow[guesses, token] / left:
            return [token, *optimal(child, rng)]
        left -= flow[guesses, token]
    return [sample(max_fn(room) if room.any() else node.q, rng)]
