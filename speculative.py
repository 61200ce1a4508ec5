"""Speculative sampling: a small draft model guesses K tokens, a large target model checks them all in one pass.

The output is distributed exactly as if the target had been sampled one token at a time. Chen et al. 2023
(arXiv 2302.01318, "DeepMind" below) and Leviathan et al. 2023 (arXiv 2211.17192) found it independently; the notation
here is DeepMind's: the draft has distribution p, the target q, K tokens are drafted per round, N tokens are asked for.
Leviathan et al. swap p and q, and write gamma for K.

A model, here, is any callable `model(ids, n_rows=1) -> probs`: for token ids [n] it returns float64 [n_rows, n_vocab],
the next-token distributions after each of the last n_rows prefixes of ids (row -1 after all of ids, row -2 after
ids[:-1], ...). These rows are what is sampled from: temperature and the like are in the model, see `sampler`.
"""

from typing import NamedTuple

import numpy as np


class Round(NamedTuple):
    """What happened in one round: k tokens were drafted, and up to k + 1 were emitted."""

    drafted: np.ndarray  # int [k]
    p: np.ndarray  # [k, n_vocab], the rows that drafted was drawn from
    q: np.ndarray  # [k+1, n_vocab]
    emitted: np.ndarray  # int [n_accepted+1]: the accepted prefix of drafted, and one of the target (up to eos)


def max_fn(x):
    """The positive part of x, normalised: (x)_+ of Chen et al. 2023, eq. 2. ValueError if nothing is positive."""
    x = np.maximum(x, 0)
    if not x.any():
        raise ValueError("max_fn needs at least one positive entry to normalise by; found none")
    return x / x.sum()


def sample(p, rng):
    """Draw one token id from the distribution p [n_vocab]."""
    return rng.choice(len(p), p=p)


def logits_to_probs(logits, temperature=1.0, top_k=0, top_p=1.0):
    """The distribution that is sampled from, of the logits and the user's wishes.

    Parameters
    ----------
    logits : float [n_rows, n_vocab]
    temperature : float >= 0
        Divides the logits. 0 is greedy: all mass on the largest logit, the first of them if several are equal.
    top_k : int >= 0
        Keep only the top_k most probable tokens (equal ones: the lower ids); 0 keeps all.
    top_p : float in (0, 1]
        Keep only the smallest set of most probable tokens whose mass, after top_k, reaches top_p: the token that
        crosses the line is in (nucleus sampling, Holtzman et al. 2020, arXiv 1904.09751, section 3.1).

    Returns
    -------
    float64 [n_rows, n_vocab], every row sums to 1.
    """
    if temperature == 0:
        probs = np.zeros(np.shape(logits))  # no division by an epsilon
        probs[np.arange(len(probs)), np.argmax(logits, axis=-1)] = 1
        return probs
    logits = np.asarray(logits, dtype=np.float64)
    with np.errstate(over="ignore"):  # a tiny temperature sends all but the largest to -inf, as it should
        probs = np.exp((logits - logits.max(axis=-1, keepdims=True)) / temperature)
    probs /= probs.sum(axis=-1, keepdims=True)
    if top_k == 0 and top_p == 1:
        return probs

    order = np.argsort(-probs, axis=-1, kind="stable")  # most probable first, equal ones by id
    ranked = np.take_along_axis(probs, order, axis=-1)
    if top_k:
        ranked[:, top_k:] = 0
        ranked /= ranked.sum(axis=-1, keepdims=True)
    if top_p < 1:
        mass = np.cumsum(ranked, axis=-1)
        ranked[:, 1:][mass[:, :-1] >= top_p] = 0  # out: the tokens before it have reached top_p already
        ranked /= ranked.sum(axis=-1, keepdims=True)
    np.put_along_axis(probs, order, ranked, axis=-1)
    return probs


def penalised(logits, ids, penalty):
    """Make tokens that have occurred less likely: CTRL's repetition penalty (Keskar et al. 2019, section 4.1).

    Parameters
    ----------
    logits : float [n_rows, n_vocab]
        After each of the last n_rows prefixes of ids.
    ids : int [n]
    penalty : float > 0
        For the tokens of the row's own prefix, positive logits are divided by it and negative ones multiplied. So a
        drafted token counts in the rows after it, and in no other: as if the rows had been computed one by one.

    Returns
    -------
    float [n_rows, n_vocab]
    """
    n, (n_rows, n_vocab) = len(ids), np.shape(logits)
    first = np.full(n_vocab, n)  # the position where each token is met first
    first[np.asarray(ids)[::-1]] = np.arange(n)[::-1]  # (what is assigned last stays)
    seen = first < np.arange(n - n_rows + 1, n + 1)[:, None]  # [n_rows, n_vocab]
    return np.where(seen, np.where(logits > 0, logits / penalty, logits * penalty), logits)


def sampler(network, temperature=1.0, top_k=0, top_p=1.0, repetition_penalty=1.0):
    """Make a model of a network: `network(ids, n_rows) -> logits`, then `penalised`, then `logits_to_probs`.

    Losslessness is with respect to these rows, so draft and target may well be given different settings: the output
    follows the target's. Equal settings are only the ones that agree best.
    """

    def model(ids, n_rows=1):
        logits = network(ids, n_rows)  # [n] -> [n_rows, n_vocab]
        if repetition_penalty != 1:
            logits = penalised(logits, ids, repetition_penalty)
        return logits_to_probs(logits, temperature, top_k, top_p)

    return model


def autoregressive_sampling(x, model, N, rng=None, eos=None, on_round=None):
    """Decode N tokens one by one: what speculative sampling has to be equal to, and faster than.

    Parameters
    ----------
    x : int [n]
        The prompt, at least one token.
    model : callable
        `model(ids, n_rows=1) -> probs`, see the top of this file.
    N : int
        How many tokens to decode.
    rng : numpy.random.Generator, optional
        The only source of randomness.
    eos : int, optional
        Stop after this token.
    on_round : callable, optional
        Called with each `Round` when it is done; here all have k = 0.

    Returns
    -------
    int [n + N]: prompt and decoded tokens; fewer only where eos ends it.
    """
    rng = np.random.default_rng() if rng is None else rng
    x = np.array(x, dtype=np.int64)
    for _ in range(N):
        q = model(x)  # [n] -> [1, n_vocab]
        x = np.append(x, sample(q[-1], rng))  # [n] -> [n+1]
        if on_round is not None:
            on_round(Round(x[:0], q[:0], q, x[-1:]))
        if x[-1] == eos:
            break
    return x


def propose(x, draft_model, k, rng, stop=None):
    """Draft up to k tokens after x; stop early after the first token with stop(its row of p, token).

    The token that made it stop is still proposed: to withdraw a token after it was drawn would bias what is kept.

    Returns
    -------
    drafted : int [k]
    p : float64 [k, n_vocab], the rows that the tokens were drawn from (just empty if k is 0)
    """
    n, p = len(x), []
    for _ in range(k):
        p.append(draft_model(x)[-1])
        x = np.append(x, sample(p[-1], rng))
        if stop is not None and stop(p[-1], x[-1]):
            break
    return x[n:], np.array(p)


def verify(drafted, p, q, rng):
    """Accept drafted tokens from the left, each with probability min(1, q / p); then add one from the target.

    Chen et al. 2023, Algorithm 2; Leviathan et al. 2023, Algorithm 1. Where a token is rejected, the one that is
    added comes from the residual max_fn(q - p), which makes up for exactly what rejection took away; where all are
    accepted, from the last row of q.

    Parameters
    ----------
    drafted : int [k]
        k may be 0: then this is one autoregressive step.
    p : float64 [k, n_vocab]
        The distributions that drafted was drawn from.
    q : float64 [k+1, n_vocab]
        The target's, at the same positions and one more.
    rng : numpy.random.Generator

    Returns
    -------
    int [n_accepted + 1]: the accepted prefix of drafted, and exactly one token more.
    """
    for i, token in enumerate(drafted):
        if not rng.random() < acceptance(q[i, token], p[i, token]):
            return np.append(drafted[:i], sample(residual(q[i], p[i]), rng))
    return np.append(drafted, sample(q[-1], rng))


def verify_block(drafted, p, q, rng):
    """Judge the drafted tokens jointly: the longest accepted prefix wins, never shorter in expectation than `verify`'s.

    Sun et al. 2024 (arXiv 2403.10444), Algorithm 2. Parameters and returns are those of `verify`.
    """
    w = [1.0]  # w[i]: the weight q / p of the first i drafted tokens, never above 1
    for i, token in enumerate(drafted):
        w.append(acceptance(w[i] * q[i, token], p[i, token]))
    k = len(drafted)
    for i in range(k, 0, -1):  # from the longest, so that the first to be accepted is the one
        if i < k:
            surplus = np.maximum(w[i] * q[i] - p[i], 0).sum()
            h = surplus / (surplus + (1 - w[i])) if surplus > 0 else 0.0
        else:
            h = w[k]
        if rng.random() < h:
            break
    else:
        i = 0
    return np.append(drafted[:i], sample(residual(w[i] * q[i], p[i]) if i < k else q[k], rng))


def acceptance(q, p):
    """min(1, q / p), where a p so small that q / p overflows does no harm."""
    return 1.0 if q >= p else q / p


def residual(q, p):
    """max_fn(q - p). Where rounding alone led to a rejection nothing of it is left, and then q is the same as p."""
    return max_fn(q - p) if (q > p).any() else q


def speculative_sampling(
    x, draft_model, target_model, N, K, rng=None, eos=None, on_round=None, verify=verify, schedule=None, stop=None
):
    """Decode N tokens with the distribution of the target, calling the target about N / (tokens per round) times.

    Parameters
    ----------
    x : int [n]
        The prompt, at least one token.
    draft_model, target_model : callable
        `model(ids, n_rows=1) -> probs` over the same vocabulary, see the top of this file.
    N : int
        How many tokens to decode.
    K : int
        How many tokens to draft per round, at most. 0 is autoregressive sampling.
    rng, eos, on_round
        As in `autoregressive_sampling`.
    verify : callable
        `verify` or `verify_block`.
    schedule : callable, optional
        `schedule(last_round) -> k`, the number of tokens to draft next (K if it is more), called with None before the
        first round. Without it k is K.
    stop : callable, optional
        `stop(p_row, token) -> bool`, ends the drafting of a round early, see `propose`.

    Returns
    -------
    int [n + N]: prompt and decoded tokens; fewer only where eos ends it.
    """
    rng = np.random.default_rng() if rng is None else rng
    x = np.array(x, dtype=np.int64)
    end, last = len(x) + N, None
    while len(x) < end:
        k = min(K, end - len(x) - 1)  # a round adds up to k + 1 tokens, and no more than N are wanted
        if schedule is not None:
            k = min(k, schedule(last))
        drafted, p = propose(x, draft_model, k, rng, stop)  # [k], [k, n_vocab]
        q = target_model(np.append(x, drafted), len(drafted) + 1)  # [n+k] -> [k+1, n_vocab]
        emitted = verify(drafted, p, q, rng)  # [n_accepted+1]
        if eos is not None and eos in emitted:
            emitted = emitted[: list(emitted).index(eos) + 1]
            end = len(x) + len(emitted)
        x = np.append(x, emitted)
        last = Round(drafted, p, q, emitted)
        if on_round is not None:
            on_round(last)
    return x
