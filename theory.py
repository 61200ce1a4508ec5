"""What speculative sampling gains, by the formulas of Leviathan et al. 2023 (arXiv 2211.17192) and Chen et al. 2023.

The letters are ours (see speculative.py): the draft has distribution p, the target q, K tokens are drafted per round.
Leviathan et al. write q for p, p for q and gamma for K. beta is how often a drafted token is accepted after one given
prefix, alpha the mean of beta, and the formulas take the beta of different positions to be independent and alike.
Costs are in plain target steps: c is that of a draft step, v that of the target's pass over K + 1 rows. The papers have
v = 1, as on a GPU that is waiting for its memory anyway; on a CPU the rows cost something too.

Everywhere numbers and arrays are welcome, and broadcast.
"""

import numpy as np


def beta(p, q):
    """How often a token drawn from p is accepted by q: sum min(p, q), Theorem 3.5. [..., n_vocab] -> [...]"""
    return np.minimum(p, q).sum(axis=-1)


def alpha(p, q):
    """The mean of beta over all rows, Corollary 3.6. [..., n_vocab] -> float"""
    return float(np.mean(beta(p, q)))


def betas(rounds):
    """beta at each verified position, up to the first rejected token, of some `speculative.Round`s -> [n_verified]"""
    return np.array([b for r in rounds if len(r.p) for b in beta(r.p, r.q[:-1])[: len(r.emitted)]])


def expected_tokens(alpha, K):
    """Tokens that a round emits on average: 1 + alpha + ... + alpha^K = (1 - alpha^(K+1)) / (1 - alpha), equation 1."""
    alpha, K = np.asarray(alpha, dtype=np.float64), np.asarray(K)
    certain = alpha == 1
    a = np.where(certain, 0.5, alpha)  # 0.5: anything that can be divided by, not looked at
    with np.errstate(divide="ignore"):  # the logarithm of 0 is -inf, and that is right
        powers = (K + 1) * np.log(a)  # expm1 and not 1 - a ** (K + 1), of which nothing is left where a is almost 1
    return np.where(certain, K + 1.0, -np.expm1(powers) / (1 - a))


def improvement(alpha, K, c, v=1.0):
    """How many times sooner the text is there, Theorem 3.8 (of v = 1).

    Parameters
    ----------
    alpha : float, 0 to 1
    K : int
    c : float
        What a draft step costs, in target steps.
    v : float
        What the target's pass over K + 1 rows costs, in target steps (which are passes over one row).
    """
    return expected_tokens(alpha, K) / (np.asarray(K) * c + v)


def optimal_K(alpha, c, v=1.0, K_max=32):
    """The K of 0 ... K_max that improves most, section 3.5; of equal ones the smallest, so 0 where drafting is no gain.

    With v = 1 it is 0 just where alpha <= c (Corollary 3.9), but for rounding where they are equal.

    Parameters
    ----------
    alpha, c : as in `improvement`
    v : float or array [K_max + 1]
        As in `improvement`, the same for every K or one for each. K = 0 is the plain step, and costs 1.
    K_max : int
        Where alpha is 1 or c is 0 there may be no best K but the largest.
    """
    alpha, c, K = np.asarray(alpha)[..., None], np.asarray(c)[..., None], np.arange(K_max + 1)
    return np.argmax(improvement(alpha, K, c, np.where(K == 0, 1.0, v)), axis=-1)


def operations(alpha, K, c_hat):
    """How many times more arithmetic is done than without speculation, Theorem 3.11.

    c_hat is the arithmetic of a draft step per token, in that of a target step.
    """
    K = np.asarray(K)
    return (K * c_hat + K + 1) / expected_tokens(alpha, K)


def speedup(r, K, t_draft, t_target):
    """The estimate r (K+1) t_target / (K t_draft + t_target) of J. Mody's blog post, of the times of a step of each.

    r is the share of the K + 1 tokens a round could emit that it did emit, on average (Chen et al. 2023, section 2):
    expected_tokens(alpha, K) / (K + 1). So this is `improvement` with c = t_draft / t_target and v = 1.
    """
    r, K = np.asarray(r), np.asarray(K)
    return r * (K + 1) * t_target / (K * t_draft + t_target)
