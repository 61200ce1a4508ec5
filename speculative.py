"""Speculative sampling: a small draft model guesses K tokens, and a large target model checks them all in one pass.

The output is distributed exactly as if the target had been sampled one token at a time. Chen et al. 2023
(arXiv 2302.01318) and Leviathan et al. 2023 (arXiv 2211.17192) found the algorithm independently. As in Chen et al.,
the draft has distribution p, the target has q, and K tokens are drafted per round. N tokens are decoded in all.
(Leviathan et al. swap p and q, and write gamma for K.)

A model is any callable `model(ids, n_rows=1) -> probs`. For token ids [n] it returns n_rows rows, float64
[n_rows, n_vocab]. Row -1 is the distribution of the token after all of ids, row -2 of the token after ids[:-1], and so
on. Tokens are drawn from these rows as they are; temperature, top-k and top-p are part of the model (see sampling.py).
"""

from typing import NamedTuple

import numpy as np

from sampling import logits_to_probs, penalised, sample, sampler  # (callers may import all four from here)


def autoregressive_sampling(x, model, N, rng=None, eos=None, on_round=None):
    """Decode N tokens one by one. Speculative sampling must give the same distribution, in less time.

    Parameters
    ----------
    x : int [n]
        The prompt, at least one token.
    model : callable
        `model(ids, n_rows=1) -> probs`, as described at the top of this file.
    N : int
        How many tokens to decode.
    rng : numpy.random.Generator, optional
        The only source of randomness.
    eos : int, optional
        The token that ends a text. Decoding stops after it.
    on_round : callable, optional
        Called after each token, for example to print it. Its argument is a `Round` (defined below) in which nothing was
        drafted.

    Returns
    -------
    int [n + N]: the prompt and the decoded tokens. There are fewer than N only if eos ends the text.
    """
    rng = np.random.default_rng() if rng is None else rng
    x = np.array(x, dtype=np.int64)
    for _ in range(N):
        q = model(x)  # [n] -> [1, n_vocab]
        x = np.append(x, sample(q[-1], rng))  # [n] -> [n+1]
        if on_round is not None:
            on_round(Round(drafted=x[:0], p=q[:0], q=q, emitted=x[-1:], n_accepted=0))
        if x[-1] == eos:
            break
    return x


def propose(x, draft_model, k_max, rng, stop=None):
    """Draft k_max tokens after x, or up to the first one for which the function stop(row of p, token) is true.

    The token that makes stop true is proposed too. So a stop decides only whether later tokens are drafted, and each
    proposed token is still a draw from p. If unsure tokens were withdrawn, all checked tokens would be sure ones. These
    do not have the distribution p, because some tokens of p never occur among them. But `verify` is right only for
    draws from p. For example, let p = (.5, .3, .2) and q = (.3, .6, .1) for the tokens A, B and C, and withdraw each
    token whose p is below .4. With probability .5, A is drafted, and `verify` emits A (.3) or B (.2). Otherwise the
    token is withdrawn, and the next token is drawn from q: A (.15), B (.3) or C (.05). The sum is (.45, .5, .05), which
    is not q.

    Returns
    -------
    drafted : int array [k]
    p : float64 [k, n_vocab], the rows that the tokens were drawn from (if k is 0, an empty array of shape [0])
    """
    n, p = len(x), []
    for _ in range(k_max):
        p.append(np.array(draft_model(x)[-1]))  # [n] -> [n_vocab]; a copy, in case the model reuses its array
        x = np.append(x, sample(p[-1], rng))
        if stop is not None and stop(p[-1], x[-1]):
            break
    return x[n:], np.array(p)


def verify(drafted, p, q, rng):
    """Accept drafted tokens from the left, each with probability min(1, q / p). At a rejection, stop. Add one token.

    Chen et al. 2023, Algorithm 2; Leviathan et al. 2023, Algorithm 1. After a rejection, the added token comes from
    the residual max_fn(q - p), in which only tokens with q > p have a probability above 0. If all drafted tokens are
    accepted, the added token comes from the last row of q.

    Parameters
    ----------
    drafted : int array [k]
        k may be 0. Then this is one autoregressive step.
    p : float64 [k, n_vocab]
        The distributions that the tokens were drawn from.
    q : float64 [k+1, n_vocab]
        The target's distributions, at the same positions and one more.
    rng : numpy.random.Generator

    Returns
    -------
    int [n_accepted + 1]: the accepted prefix of drafted, and exactly one more token.
    """
    for i, token in enumerate(drafted):
        accepted = rng.random() < acceptance(p[i, token], q[i, token])
        if not accepted:
            return np.append(drafted[:i], sample(residual(p[i], q[i]), rng))
    return np.append(drafted, sample(q[-1], rng))


def acceptance(p, q):
    """min(1, q / p), for two numbers. If q >= p, nothing is divided, because p may be so tiny that q / p overflows."""
    return 1.0 if q >= p else q / p


def residual(p, q):
    """max_fn(q - p), or q if q - p has no positive entry.

    In `verify`, only rounding can leave no positive entry: q is below p at the rejected token, and both rows sum to 1,
    so q must be above p at another token. (`verify_block` has a comment about its own case.)
    """
    return max_fn(q - p) if (q > p).any() else q


def max_fn(x):
    """The positive part of x, normalised: (x)_+ of Chen et al. 2023, Algorithm 2. ValueError if nothing is positive."""
    x = np.maximum(x, 0)
    if not x.any():
        raise ValueError("max_fn needs at least one positive entry to normalise by; found none")
    return x / x.sum()


class Round(NamedTuple):
    """What happened in one round: k tokens were drafted, and up to k + 1 tokens were emitted."""

    drafted: np.ndarray  # int [k]
    p: np.ndarray  # float64 [k, n_vocab]: the rows that drafted was drawn from
    q: np.ndarray  # float64 [k+1, n_vocab]: the array that the target returned, with one row more than p
    emitted: np.ndarray  # int [n_accepted+1]: what was added to the text ([n_accepted] if a drafted eos was accepted)
    n_accepted: int  # how many drafted tokens are in the text


def speculative_sampling(
    x, draft_model, target_model, N, K, rng=None, eos=None, on_round=None, verify=verify, schedule=None, stop=None
):
    """Decode N tokens with the distribution of the target. Each accepted token saves a pass of the target.

    Parameters
    ----------
    x, N, rng, eos
        As in `autoregressive_sampling`.
    draft_model, target_model : callable
        `model(ids, n_rows=1) -> probs` over the same vocabulary, as described at the top of this file.
    K : int
        How many tokens to draft per round, at most. 0 is autoregressive sampling.
    on_round : callable, optional
        Called after each round with its `Round`.
    verify : callable
        `verify` or `verify_block`, or a rule of your own with the same parameters. It returns the accepted tokens and
        exactly one more.
    schedule : callable, optional
        `schedule(last_round) -> k_max` chooses how many tokens the next round drafts at most (fewer after a stop). 0 is
        allowed. last_round is the `Round` that has just ended, or None at the first call. schedules.py says why the
        output is exact for any k_max. Without a schedule, k_max is K. In any case, it is limited to K, and near the
        end to one less than the tokens that are still wanted, because a round can add k_max + 1 tokens.
    stop : callable, optional
        `stop(row of p, token) -> bool` ends the drafting of a round early, see `propose`.

    Returns
    -------
    int [n + N], as in `autoregressive_sampling`

    Raises
    ------
    ValueError
        If the rows of the two models differ in length, or the target returns another number of rows than n_rows.
    """
    rng = np.random.default_rng() if rng is None else rng
    x = np.array(x, dtype=np.int64)
    end, last = len(x) + N, None
    while len(x) < end:
        k_max = min(K, end - len(x) - 1)  # a round adds up to k_max + 1 tokens, and end - len(x) are still wanted
        if schedule is not None:
            k_max = min(k_max, schedule(last))
        # Step 1: the draft proposes k tokens, one after the other.
        drafted, p = propose(x, draft_model, k_max, rng, stop)  # [k], [k, n_vocab]
        k = len(drafted)  # may be less than k_max after a stop
        # Step 2: one pass of the target gives q after x, and after each of the drafted tokens.
        q = target_model(np.append(x, drafted), k + 1)  # [n+k] -> [k+1, n_vocab]
        p = p if k else q[:0]  # [k, n_vocab]; if k is 0, `propose` cannot know n_vocab
        if len(q) != k + 1 or p.shape != q[:-1].shape:
            raise ValueError(f"found p {p.shape} and q {q.shape}, but [{k}, n_vocab] and [{k + 1}, n_vocab] are needed")
        # Step 3: accept drafted tokens from the left. Step 4: add one more token.
        emitted = verify(drafted, p, q, rng)  # [n_accepted+1]
        n_accepted = len(emitted) - 1
        if eos in emitted:
            emitted = emitted[: list(emitted).index(eos) + 1]
            n_accepted = min(n_accepted, len(emitted))  # the eos may have cut off accepted tokens
        x = np.append(x, emitted)
        last = Round(drafted, p, q, emitted, n_accepted)
        if on_round is not None:
            on_round(last)
        if x[-1] == eos:
            break
    return x


# The algorithm ends here. What follows is another rule for steps 3 and 4, which on average accepts at least as many
# tokens as `verify`. You may skip it at first.


def verify_block(drafted, p, q, rng):
    """Block verification: Sun et al. 2024 (arXiv 2403.10444), Algorithm 2. To be used in place of `verify`.

    Let a1, a2, ... be the ratios q/p of the drafted tokens. `verify` keeps at least the first i of these tokens with
    probability min(1, a1) * ... * min(1, ai). So it limits each ratio to 1, and then multiplies. Block verification
    multiplies the ratios as they are, and after each factor limits the product so far to 1. So a ratio above 1 can make
    up for a ratio below 1 that came before it. A token that the target likes too little may be kept because of the
    tokens after it.

    For example, let p = (2/3, 1/3) and q = (1/3, 2/3) at both of two positions, and let the draft say "a b". `verify`
    keeps a with probability 1/2 and then b with probability 1, so it keeps both with probability 1/2. But the target
    says "a b" just as often as the draft does, so no rejection is needed. Block verification sees this: 1/2 times 2 is
    1, so it always keeps both.

    In return, it keeps less of "a a": both tokens with probability 1/4, and otherwise none. (`verify` keeps the first a
    with probability 1/2.) The second token is b with probability 1/3, so on average a first a is kept with probability
    1/3 * 1 + 2/3 * 1/4 = 1/2, as with `verify`. (For "b a" block verification gains nothing: the ratio 2 comes first
    and is limited to 1, so both are kept with probability 1/2.) On average over all that can be drafted, `verify`
    accepts 10/9 tokens, and block verification 11/9.

    `verify_block` tries to keep all tokens first, then all but the last, and so on. (The paper begins with the shortest
    prefix and keeps the longest one that passes. That gives the same distribution, but draws more random numbers.)
    """
    w, h = block_probabilities(drafted, p, q)  # two lists of k + 1 probabilities, explained below
    i = len(drafted)
    while i > 0 and not rng.random() < h[i]:
        i -= 1
    # If not all tokens were kept, the added token comes from max(w q - p, 0), normalised. (If this has no positive
    # entry, h[i] is 0, so the loop went on to i = 0. There w is 1, and `residual` returns q as in `verify`.)
    row = q[i] if i == len(drafted) else residual(p[i], w[i] * q[i])
    return np.append(drafted[:i], sample(row, rng))


def block_probabilities(drafted, p, q):
    """The two probabilities that block verification works with. (tests/test_proof.py explains why they are right.)

    Returns
    -------
    w : list of k + 1 floats
        w[i] is the running product of `verify_block`: w[0] is 1, and w[i+1] is min(1, w[i] q/p), where q/p is the ratio
        of the next drafted token. w[i] is also a goal: given the first i drafted tokens, the round should keep them
        (and perhaps more) with probability w[i], on average over the tokens that are drafted later. If they are kept,
        token t should come next with probability q(t). So "they are kept, and then t" should have the probability
        w[i] q(t). This product takes the place that q(t) has in `verify`.
    h : list of k + 1 floats
        If `verify_block` has refused to keep more than i tokens, it keeps exactly i with probability h[i]. h[k] is
        w[k]. For i < k, let w be w[i], let p and q be the rows p[i] and q[i], and let surplus be sum max(w q - p, 0).
        Token t is drafted next with probability p(t), and then i + 1 tokens or more are kept with probability
        w[i+1] = min(1, w q(t) / p(t)). The sum over all t is sum min(p, w q), which is w - surplus. The goal is w, so
        exactly i tokens must be kept with probability surplus. `verify_block` has refused to keep more with
        probability 1 - (w - surplus). So h[i] is surplus / (1 - w + surplus). (It is 0 if surplus is 0. h[0] is not
        used.)

    For the "a b" of `verify_block`, w is 1, 1/2, 1, and h[1] is 0 and h[2] is 1: both tokens are always kept.
    """
    w, h = [1.0], []
    for i, token in enumerate(drafted):
        surplus = np.maximum(w[i] * q[i] - p[i], 0).sum()
        h.append(surplus / (surplus + (1 - w[i])) if surplus > 0 else 0.0)  # (w = 1 and p = q would be 0 / 0)
        w.append(acceptance(p[i, token], w[i] * q[i, token]))  # min(1, w q / p)
    return w, [*h, w[-1]]  # all k tokens are tried first, so nothing was refused before
