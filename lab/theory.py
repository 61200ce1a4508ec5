"""How much speculative sampling gains: the formulas of Leviathan et al. 2023 (arXiv 2211.17192).

    beta    the probability that a token drafted after a given text is accepted
    alpha   its mean over the positions where all guesses before were accepted
    c       the cost of a draft step, one pass of the draft
    v       the cost of the target's pass over K + 1 positions
    r       the cost of the rest of a round: drawing and accepting

The unit of cost is a plain step, one token without speculation. The paper assumes v = 1,
which is right where a pass only waits for the weights, as on a GPU; r = 0, which is
nearly right for large models; and betas that are independent, which they are not: easy and
hard passages alternate. Let beta be 1 in half of the rounds and 0 in the others, and K = 4. Then
rounds have (5 + 1) / 2 = 3 tokens. But alpha is 4/5, because an easy round counts four times,
and expected_tokens(4/5, 4) ends with 3.36.
"""

from runs import expected_tokens


def improvement(alpha, K, c, v=1.0, r=0.0):
    """The speedup: tokens per round / cost of a round. Theorem 3.8 is the case v = 1, r = 0.

    A round without guesses is a plain step, the unit, whatever v and r of the others are.
    """
    if K == 0:
        return 1.0
    return expected_tokens(alpha, K)[-1] / (K * c + v + r)
