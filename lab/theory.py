"""How much speculative sampling gains: the formulas of Leviathan et al. 2023 (arXiv 2211.17192).

    beta    the probability that a token drafted after a given text is accepted
    alpha   its mean over the positions where all guesses before were accepted
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
    """The speedup: tokens per round / cost of a round. Theorem 3.8 is the case v = 1, r = 0.

    A round without guesses is a plain step, the unit, whatever v and r of the others are.
    """
    if K == 0:
        return 1.0
    return expected_tokens(alpha, K)[-1] / (K * c + v + r)


def tokens_by_position(chances, K):
    """Tokens per round with 0 ... K draft tokens: 1 + a1 + a1 a2 + ..., an alpha for each position.

    a2 is the mean of beta at the second draft token, over the rounds that got there.
    Easy and hard passages alternate, so betas are not independent. Let beta be 1 in half
    of the rounds and 0 in the others, and K = 4. Then rounds have (5 + 1) / 2 = 3 tokens,
    which is 1 + 4/2 with a1 = 1/2 and a2 = a3 = a4 = 1. But alpha is 4/5, because an
    easy round counts four times, and expected_tokens(4/5, 4) ends with 3.36. Kaplan and
    Meier 1958 estimate survival in the same way.

    Block verification never has one alpha: with p = (2/3, 1/3), q = (1/3, 2/3) and K = 4 it
    is 2/3, 5/6, 4/5 and 31/36, for a ratio above 1 makes up for one before it. A round has
    3.05 tokens.

    Parameters
    ----------
    chances : list of `runs.Chances`, one for each round
    K : int

    Returns
    -------
    float64 [K+1]; a position that no round has reached counts as never accepted
    """
    _, means = by_position(chances, K)
    return 1 + np.append(0, np.cumsum(np.cumprod(means)))


def alphas(chances):
    """The alpha of the first guess of a round, of the second, ..., and whether they really differ.

    That is a chi-squared test. If all were one alpha, the mean of n of them would be off by
    sqrt(alpha (1 - alpha) / n) at most. So the squares, in these units, add up to the number
    of positions or less. Three times as much is more than chance.
    """
    n, means = by_position(chances, max((len(found.p_accepted) for found in chances), default=0))
    if not n.sum():
        return [], False
    alpha = means @ n / n.sum()
    variance = alpha * (1 - alpha)
    chi_squared = n @ (means - alpha) ** 2  # in units of the variance, which may be 0
    return means, bool(chi_squared > 3 * len(n) * variance)


def by_position(chances, K):
    """How many rounds reached each of the first K positions, and its alpha."""
    reached = np.zeros(K)
    accepted = np.zeros(K)
    for found in chances:
        n = min(len(found.p_accepted), K)
        reached[:n] += found.p_reached[:n]
        accepted[:n] += found.p_accepted[:n]
    return reached, np.divide(accepted, reached, out=np.zeros(K), where=reached > 0)
