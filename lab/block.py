"""Block verification, which on average accepts no fewer tokens than `verify` does.

Sun et al. 2024 (arXiv 2403.10444).

`verify` accepts the first i draft tokens with probability min(1, a1) ... min(1, ai),
where a1, a2, ... are their ratios q/p: it limits each ratio to 1 and then multiplies.
Block verification multiplies first and limits the product, so that a ratio above 1
makes up for one below 1 that came before.

Take the README's p = (.2, .5, .3) and q = (.3, .2, .5) at both of two positions, and let
the draft say "B A". `verify` accepts B with probability .4, and then A for certain: .4 for
both. But the draft says "B A" with probability .10 and the target with .06, so .6 would
do. .4 times 1.5 is .6: block verification accepts both with .6. In return, of "B B" it
accepts both with .16 and otherwise nothing, whereas `verify` accepts at least the first B
with .4. Over all drafts, `verify` accepts 1.19 tokens here, and block verification 1.25.
"""

import numpy as np

from runs import Chances, overlap
from sampling import sample
from speculative import acceptance, residual


def verify_block(drafted, p, q, rng):
    """Use it in place of `speculative.verify` (Algorithm 2 of the paper).

    It tries to accept all tokens first, then all but the last, and so on. The paper looks
    for the longest prefix from the other end, which draws more random numbers.
    """
    w, h = block_probabilities(drafted, p, q)
    i = len(drafted)
    while i > 0 and not rng.random() < h[i]:
        i -= 1
    # If max(w q - p, 0) has no positive entry, h[i] is 0, so the loop went on to i = 0,
    # where w is 1.
    row = q[i]
    if i < len(drafted):
        row = residual(p[i], w[i] * q[i])
    return np.append(drafted[:i], sample(row, rng))


def block_probabilities(drafted, p, q):
    """w and h, two lists of k + 1 numbers. tests/lab/test_block.py proves that they are right.

    w[i] is the product so far: w[0] = 1 and w[i+1] = min(1, w[i] q/p). It is also a
    goal: the first i tokens should be accepted with probability w[i], on average over
    what is drafted after them.

    h[i] is the probability of accepting exactly i tokens once more than i were rejected.
    More than i are accepted with probability sum min(p, w q) = w - surplus, where surplus
    is sum max(w q - p, 0). So exactly i must be accepted with probability surplus, of the
    1 - (w - surplus) that is left: h[i] = surplus / (1 - w + surplus), and h[k] = w[k].
    """
    w, h = [1], []
    for i, token in enumerate(drafted):
        surplus = np.maximum(w[i] * q[i] - p[i], 0).sum()
        if surplus != surplus:
            raise ValueError("p or q contains NaN")
        rest = surplus + (1 - w[i])  # a tiny surplus must not be lost
        h.append(surplus / rest if surplus > 0 else 0)  # w = 1 and p = q would be 0 / 0
        w.append(acceptance(p[i, token], w[i] * q[i, token]))
    return w, [*h, w[-1]]


def chances_of_verify_block(r):
    """The `runs.Chances` of block verification, which looks at all guesses.

    All guesses before one are accepted with probability w, and this guess too with
    probability sum min(p, w q), which is what its own w is on average. See
    `block_probabilities`.
    """
    k = len(r.drafted)
    if r.n_accepted == len(r.emitted):  # an accepted eos ended the text
        k = len(r.emitted)
    w, _ = block_probabilities(r.drafted, r.p, r.q)
    reached = np.array(w[:k], float)
    wq = reached[:, None] * r.q[:k]
    return Chances(reached, overlap(r.p[:k], wq))
