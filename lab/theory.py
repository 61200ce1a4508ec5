"""How much speculative sampling gains: the formulas of Leviathan et al. 2023 (arXiv 2211.17192), numbered as there.

    beta    the probability that a token drafted after a given text is accepted
    alpha   its mean over the positions that were looked at
    c       the cost of a draft step, one pass of the draft
    v       the cost of the target's pass over K + 1 positions
    r       the cost of the rest of a round: drawing and accepting

The unit of cost is a plain step, one token without speculation. The paper assumes v = 1,
which is right where a pass only waits for the weights, as on a GPU; r = 0, which is
nearly right for large models; and betas that are independent, which they are not:
`tokens_by_position` does without that. Arguments broadcast unless noted.
"""

import numpy as np


def beta(p, q):
    """sum min(p, q), the probability that a draw from p is accepted: Theorem 3.5. [..., n_vocab] -> [...]"""
    return np.minimum(p, q).sum(axis=-1)


def alpha(p, q):
    """The mean of beta over the given rows: Corollary 3.6. [..., n_vocab] -> float"""
    return float(np.mean(beta(p, q)))


def expected_tokens(alpha, K):
    """Tokens per round: 1 + alpha + ... + alpha^K = (1 - alpha^(K+1)) / (1 - alpha), equation 1."""
    alpha, K = np.asarray(alpha, dtype=np.float64)[..., None], np.asarray(K)[..., None]
    i = np.arange(K.max() + 1)
    return np.where(i <= K, alpha**i, 0).sum(axis=-1)  # the fraction is inaccurate for alpha near 1


def tokens_by_position(betas, K):
    """Tokens per round with 0 ... K drafted tokens: 1 + a1 + a1 a2 + ..., with an alpha for each position.

    a2 is the mean of beta at the second drafted token, over the rounds that got there.
    Easy and hard passages alternate, so betas are not independent. Let beta be 1 in half
    of the rounds and 0 in the others, and K = 4. Then rounds have (5 + 1) / 2 = 3 tokens,
    which is 1 + 4/2 with a1 = 1/2 and a2 = a3 = a4 = 1. But alpha is 4/5, because an
    easy round is looked at in four places, and expected_tokens(4/5, 4) = 3.36. Kaplan
    and Meier 1958 estimate survival in the same way.

    Parameters
    ----------
    betas : list of float arrays, one for each round
    K : int

    Returns
    -------
    float64 [K+1]; a position that no round has reached counts as never accepted
    """
    at = [[b[i] for b in betas if len(b) > i] for i in range(K)]
    reached = np.cumprod([np.mean(some) if some else 0.0 for some in at])
    return 1 + np.append(0, np.cumsum(reached))


def improvement(alpha, K, c, v=1.0, r=0.0):
    """The speedup: tokens per round / cost of a round. Theorem 3.8 is the case v = 1, r = 0."""
    return expected_tokens(alpha, K) / (np.asarray(K) * c + v + r)


def optimal_K(alpha, c, v=1.0, K_max=32, r=0.0):
    """The K from 0 to K_max with the largest speedup, section 3.5. 0 means that drafting does not pay.

    v is one number for all K, or an array [K_max + 1]. K_max is an int.
    """
    alpha, c, r = (np.asarray(number)[..., None] for number in (alpha, c, r))
    K = np.array(range(K_max + 1))
    v_and_r = np.where(K == 0, 1.0, v + r)  # a round that drafts nothing is a plain step
    return np.argmax(improvement(alpha, K, c, v_and_r), axis=-1)


def operations(alpha, K, c_hat):
    """The factor by which arithmetic per token grows, Theorem 3.11. c_hat is the draft's arithmetic / the target's."""
    K = np.asarray(K)
    return (K * c_hat + K + 1) / expected_tokens(alpha, K)


def speedup(share, K, t_draft, t_target):
    """The speedup by J. Mody's blog post (https://jaykmody.com/blog/speculative-sampling/).

    share is tokens per round / (K + 1), the post's r. It is `improvement` with v = 1.
    """
    share, K = np.asarray(share), np.asarray(K)
    return share * (K + 1) * t_target / (K * t_draft + t_target)


def best_acceptance(p, q, n):
    """The most that any rule can accept of n independent guesses. [..., n_vocab] -> [...]

    It is the minimum of q(H) + 1 - p(H)^n over all sets of tokens H, and one of the
    best sets holds the tokens with the smallest q/p (SpecTr, arXiv 2310.15141, and
    Khisti et al. 2024, arXiv 2410.18234). For n = 1 it is `beta`.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        order = np.argsort(q / p, axis=-1)  # 0 / 0 comes last
    p, q = (np.cumsum(np.take_along_axis(row, order, axis=-1), axis=-1) for row in (p, q))
    return (q + 1 - p**n).min(axis=-1)
