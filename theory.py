"""How much speculative sampling gains: mostly formulas of Leviathan et al. 2023 (arXiv 2211.17192).

As in speculative.py, the draft has distribution p, the target has q, and each round drafts K tokens. (Leviathan et al.
swap p and q, and write gamma for K. Theorems, equations and sections are numbered as in their paper.)

    beta    the probability that a token drafted after a given text is accepted
    alpha   the mean of beta over the verified positions: the accepted tokens and, if there is one, the rejected token
    c       the cost of a draft step, which is one pass of the draft
    v       the cost of the target's pass over K + 1 positions
    r       the cost of the rest of a round: drawing tokens (the drafted ones too) and accepting them

The unit of cost is a plain step, which adds one token without speculation. The paper makes three assumptions:

- Checking K tokens takes as long as computing one, so v = 1. This is right if a pass only waits for the weights to be
  read, as on a GPU. On a CPU, v usually grows with K. (For a small K, v may be just below 1, because v is only a pass,
  and a plain step is a pass and the drawing of a token.)
- The rest takes no time, so r = 0. This is almost right if the models are large.
- The betas of different positions are independent and have the same distribution. `tokens_by_position` does
  without this assumption.

All of this is about rounds. Both loops also read the prompt, which speculation does not make faster, so the speedup of
a whole run is a little smaller (Amdahl 1967). `predicted` in pair.py adds that cost.

Where a formula takes a number, it also takes an array, and arrays are broadcast. There are three exceptions: K_max and
the K of `tokens_by_position` are single numbers, and an array v of `optimal_K` has one entry for each K.
"""

import numpy as np


def beta(p, q):
    """The probability that a token drawn from p is accepted: sum min(p, q), Theorem 3.5. [..., n_vocab] -> [...]"""
    return np.minimum(p, q).sum(axis=-1)


def alpha(p, q):
    """The mean of beta over the given rows, Corollary 3.6. [..., n_vocab] -> float"""
    return float(np.mean(beta(p, q)))


def betas(a_round):
    """beta at each verified position of a `Round`: the accepted tokens and the rejected one. -> [n_verified]"""
    # After a rejection, a round that emits m tokens has looked at m positions. If all k tokens were accepted, the round
    # emits k + 1 tokens and has looked at k positions. `verify_block` looks at all k positions, but here too, only the
    # kept tokens and the first one that was not kept count. Positions after an eos do not count.
    return beta(a_round.p, a_round.q[:-1])[: len(a_round.emitted)]


def expected_tokens(alpha, K):
    """The mean number of tokens per round: 1 + alpha + ... + alpha^K = (1 - alpha^(K+1)) / (1 - alpha), equation 1."""
    alpha, K = np.asarray(alpha, dtype=np.float64)[..., None], np.asarray(K)[..., None]
    i = np.arange(K.max() + 1)
    return np.where(i <= K, alpha**i, 0).sum(axis=-1)  # the sum, because the fraction is inaccurate for alpha near 1


def tokens_by_position(betas, K):
    """The mean number of tokens per round, for 0, 1, ... K drafted tokens, with an alpha for each position.

    It is 1 + a1 + a1 a2 + a1 a2 a3 + ... Here a2 is the mean of beta at the second drafted token, over the rounds that
    accepted the first one and drafted a second one, and so on. This does not assume that betas are independent. They
    are not, because easy and hard passages of a text alternate. For example, let beta be 1 in half of the rounds and 0
    in the others, and K = 4. The mean number of tokens is (5 + 1) / 2 = 3. Here a1 is 1/2, and a2, a3 and a4 are 1, so
    this function gives 1 + 4/2 = 3. But an easy round verifies 4 positions, each with beta 1, and a hard one verifies
    only 1, with beta 0. So alpha is 4/5, and expected_tokens(4/5, 4) = 3.36 is too high. (Kaplan and Meier 1958
    estimate survival in the same way.)

    Parameters
    ----------
    betas : list of float arrays
        For each round, beta at each verified position.
    K : int

    Returns
    -------
    float64 [K+1], for 0 ... K drafted tokens. A position that no round has verified counts as if its alpha were 0.
    """
    at = [[b[i] for b in betas if len(b) > i] for i in range(K)]  # at[i]: all betas at position i
    alphas = [np.mean(some) if some else 0.0 for some in at]
    reached = np.cumprod(alphas)  # the probability that the first 1, 2, ... K tokens are all accepted
    return 1 + np.append(0, np.cumsum(reached))


def improvement(alpha, K, c, v=1.0, r=0.0):
    """The speedup over plain decoding: tokens per round / cost of a round. Theorem 3.8 is the case v = 1, r = 0.

    Parameters
    ----------
    alpha : float, 0 to 1
    K : int
    c, v, r : float
        Costs of a draft step, of the target's pass over K + 1 positions and of the rest of a round, in plain steps.
    """
    return expected_tokens(alpha, K) / (np.asarray(K) * c + v + r)


def optimal_K(alpha, c, v=1.0, K_max=32, r=0.0):
    """The K from 0 to K_max with the largest speedup, section 3.5. (If several are equal, rounding decides.)

    The result is 0 if drafting does not pay. With v = 1 and r = 0 it pays if alpha > c (Corollary 3.9).

    Parameters
    ----------
    alpha, c, r : float
        As in `improvement`.
    v : float or array [K_max + 1]
        As in `improvement`: one number for all K, or an array with an entry for each K from 0 to K_max. The entry for
        K = 0 is not used, because a round that drafts nothing is a plain step, which costs 1.
    K_max : int
        The limit is needed because the speedup can grow with K forever, for example if alpha = 1.
    """
    alpha, c, r = (np.asarray(number)[..., None] for number in (alpha, c, r))
    K = np.array(range(K_max + 1))  # (if an r is given in place of K_max by mistake, range raises a TypeError)
    v_and_r = np.where(K == 0, 1.0, v + r)
    return np.argmax(improvement(alpha, K, c, v_and_r), axis=-1)


def operations(alpha, K, c_hat):
    """The factor by which speculation increases the arithmetic operations per token, Theorem 3.11.

    c_hat is the number of operations that the draft needs for a token, divided by the number that the target needs.
    """
    K = np.asarray(K)
    return (K * c_hat + K + 1) / expected_tokens(alpha, K)


def speedup(share, K, t_draft, t_target):
    """The speedup by J. Mody's blog post (https://jaykmody.com/blog/speculative-sampling/).

    This project grew from that post. share is the r of the post, which is not the r above. It is the mean number of
    tokens per round divided by K + 1, the most that is possible. So the result is `improvement` with c = t_draft /
    t_target and v = 1.
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
