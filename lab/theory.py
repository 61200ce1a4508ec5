"""How much speculative sampling gains: the formulas of Leviathan et al. 2023 (arXiv 2211.17192).

    beta    the probability that a token drafted after a given text is accepted
    alpha   its mean over the positions that were looked at
    c       the cost of a draft step, one pass of the draft
    v       the cost of the target's pass over K + 1 positions
    r       the cost of the rest of a round: drawing and accepting

The unit of cost is a plain step, one token without speculation. The paper assumes v = 1,
which is right where a pass only waits for the weights, as on a GPU; r = 0, which is
nearly right for large models; and betas that are independent, which they are not:
`tokens_by_position` does without that.
"""

import numpy as np

from runs import expected_tokens


def improvement(alpha, K, c, v=1.0, r=0.0):
    """The speedup: tokens per round / cost of a round. Theorem 3.8 is the case v = 1, r = 0."""
    return expected_tokens(alpha, K)[-1] / (K * c + v + r)


def tokens_by_position(betas, K):
    """Tokens per round with 0 ... K drafted tokens: 1 + a1 + a1 a2 + ..., with an alpha for each position.

    a2 is the mean of beta at the second drafted token, over the rounds that got there.
    Easy and hard passages alternate, so betas are not independent. Let beta be 1 in half
    of the rounds and 0 in the others, and K = 4. Then rounds have (5 + 1) / 2 = 3 tokens,
    which is 1 + 4/2 with a1 = 1/2 and a2 = a3 = a4 = 1. But alpha is 4/5, because an
    easy round is looked at in four places, and expected_tokens(4/5, 4) ends with 3.36. Kaplan
    and Meier 1958 estimate survival in the same way.

    Parameters
    ----------
    betas : list of float arrays, one for each round
    K : int

    Returns
    -------
    float64 [K+1]; a position that no round has reached counts as never accepted
    """
    at = by_place(betas, K)
    reached = np.cumprod([np.mean(some) if some else 0.0 for some in at])
    return 1 + np.append(0, np.cumsum(reached))


def alphas(betas):
    """The mean of beta at the first guess of a round, at the second, ..., and whether they differ by more than noise.

    If all were one alpha, the mean of n of them would be off by sqrt(alpha (1 - alpha) / n)
    at most. So the squares, in these units, add up to the number of places or less.
    """
    at = by_place(betas, max(map(len, betas), default=0))
    if not at:
        return [], False
    n, means = np.array([*map(len, at)]), np.array([*map(np.mean, at)])
    alpha = means @ n / n.sum()
    return means, bool(n @ (means - alpha) ** 2 > 3 * len(n) * alpha * (1 - alpha))


def by_place(betas, K):
    return [[b[i] for b in betas if len(b) > i] for i in range(K)]


def best_acceptance(p, q, n):
    """The most that any rule can accept of n independent guesses. [..., n_vocab] -> [...]

    It is the minimum of q(H) + 1 - p(H)^n over all sets of tokens H, and one of the
    best sets holds the tokens with the smallest q/p (SpecTr, arXiv 2310.15141, and
    Khisti et al. 2024, arXiv 2410.18234). For n = 1 it is `runs.beta`.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        order = np.argsort(q / p, axis=-1)  # 0 / 0 comes last
    p, q = (np.cumsum(np.take_along_axis(row, order, axis=-1), axis=-1) for row in (p, q))
    return (q + 1 - p**n).min(axis=-1)
