"""Speculative sampling: a small draft model guesses K tokens, the target checks them in one pass.

Chen et al. 2023 (arXiv 2302.01318) and Leviathan et al. 2023 (arXiv 2211.17192) found
it independently. As in Chen et al., the draft has distribution p and the target q.
Leviathan et al. swap p and q, and write gamma for K.

A model is any callable `model(ids, n_rows=1) -> probs`: the next-token distributions
after each of the last n_rows prefixes of ids, float64 [n_rows, n_vocab]. Temperature,
top-k and top-p belong to the model, see sampling.py, where `last_rows` wraps a model
that returns all rows.
"""

from typing import NamedTuple

import numpy as np

import checks
from sampling import sample


class Round(NamedTuple):
    """One round: k tokens were drafted, and 1 to k + 1 emitted."""

    drafted: np.ndarray  # int [k]
    p: np.ndarray  # float64 [k, n_vocab]
    q: np.ndarray  # float64 [k+1, n_vocab]
    emitted: np.ndarray  # int [n_accepted+1], or [n_accepted] if an accepted eos ends the text
    n_accepted: int


def autoregressive_sampling(x, model, N, rng=None, *, eos=None, on_round=None):
    """The plain loop: decode N tokens after the prompt x, one forward pass each.

    Parameters and result are those of `speculative_sampling`.
    """
    x, rng, ends = checks.checked_call(x, rng, eos, N=N)
    model = checks.checked_model(model, [0])  # it takes ids

    for _ in range(N):
        q = model(x)[-1:]  # [n] -> [1, n_vocab]
        token = sample(q[-1], rng)
        x = np.append(x, token)  # [n] -> [n+1]
        if on_round is not None:
            on_round(Round(drafted=x[:0], p=q[:0], q=q, emitted=np.array([token]), n_accepted=0))
        if token in ends:
            break
    return x


def max_fn(x):
    """(x)_+ of Chen et al. 2023: the positive part of x, normalised.

    ValueError if nothing is positive.
    """
    x = np.maximum(x, 0)
    if not x.any():
        raise ValueError("max_fn needs at least one positive entry to normalise by; found none")
    return x / x.sum()


def acceptance(p, q):
    """min(1, q / p) for the two probabilities of a token. p may be so tiny that q / p overflows."""
    return 1 if q >= p else q / p


def residual(p, q):
    """Where q exceeds p: max_fn(q - p). It is q itself if rounding has left nothing above p."""
    return max_fn(q - p) if (q > p).any() else q


def propose(x, draft_model, k_max, rng, stop=None):
    """Draft k_max tokens after x, fewer if stop(row of p, token) says that a token is the last.

    You may stop after a guess, but you can't take it back: the token that ends the
    drafting is proposed as well. lab/schedules.py says why.

    Returns
    -------
    drafted : int [k]
    p : float64 [k, n_vocab], the distributions that they were drawn from; [0] if k is 0
    """
    n = len(x)
    rows = []
    for _ in range(k_max):
        p = draft_model(x)[-1]  # [n] -> [n_vocab]
        token = sample(p, rng)
        x = np.append(x, token)
        rows.append(p)
        if stop is not None and stop(p, token):
            break
    return x[n:], np.array(rows)


def verify(drafted, p, q, rng):
    """Accept a prefix of the drafted tokens and add one more token (Chen et al. 2023, Algorithm 2).

    Parameters
    ----------
    drafted : int [k], where k may be 0
    p, q : float64 [k, n_vocab] and [k+1, n_vocab]

    Returns
    -------
    int [n_accepted + 1]
    """
    for i, token in enumerate(drafted):
        # Accept it with probability min(1, q / p) and look at the next one.
        if rng.random() < acceptance(p[i, token], q[i, token]):
            continue
        # Otherwise replace it by a draw from the residual. The rest followed a wrong
        # token, so drop it.
        return np.append(drafted[:i], sample(residual(p[i], q[i]), rng))
    # All accepted: the last row of q gives one more token for free.
    return np.append(drafted, sample(q[-1], rng))


def one_round(
    x, draft_model, target_model, k_max, rng, verify=verify, propose=propose, stop=None, ends=()
):
    """What happens in a round after the text x -> Round. ends are the tokens that end a text."""
    # Step 1: the draft proposes k tokens, one after the other.
    drafted, p = propose(x, draft_model, k_max, rng, stop)  # [k], [k, n_vocab]
    k = len(drafted)
    # Step 2: one pass of the target gives q after x, and after each of the drafted tokens.
    q = target_model(np.append(x, drafted), k + 1)  # [n+k] -> [k+1, n_vocab]
    if k == 0:
        p = q[:0]  # no rows, but n_vocab columns
    checks.check_shapes(p, q, k)
    # Step 3: accept drafted tokens from the left. Step 4: add one more token.
    emitted = verify(drafted, p, q, rng)  # [n_accepted+1]
    emitted = checks.checked_tokens(emitted, k + 1, q.shape[1])
    n_accepted = len(emitted) - 1
    # An accepted eos, an end-of-text token, ends the text. What follows it is cut off.
    emitted = up_to_eos(emitted, ends)
    return Round(drafted, p, q, emitted, min(n_accepted, len(emitted)))


def up_to_eos(emitted, ends):
    """The tokens up to the first one that is in ends: all of them if none is."""
    for i, token in enumerate(emitted.tolist()):
        if token in ends:
            return emitted[: i + 1]
    return emitted


def speculative_sampling(
    x,
    draft_model,
    target_model,
    N,
    K,
    rng=None,
    *,
    eos=None,
    on_round=None,
    verify=verify,
    schedule=None,
    stop=None,
):
    """Decode N tokens with exactly the target's distribution, in fewer passes of the target.

    Parameters
    ----------
    x : int [n], the prompt, at least one token
    draft_model, target_model : callable
        `model(ids, n_rows=1) -> probs`, with one vocabulary.
    N : int
        How many tokens to decode.
    K : int
        How many tokens to draft per round, at most.
    rng : numpy.random.Generator, optional
        The only source of randomness: a generator, or a seed for one.
    eos : int or several, optional
        The tokens that end a text. Decoding stops after one.
    on_round : callable, optional
        Called with each `Round`.
    verify : callable
        This module's `verify`, lab.block.verify_block, or a rule of your own.
    schedule : callable, optional
        For the lab: `schedule(last_round or None) -> k_max`, how many tokens the next round
        drafts at most.
    stop : callable, optional
        For the lab, see `propose`.

    Returns
    -------
    int [n + N], fewer only if eos ends the text
    """
    x, rng, ends = checks.checked_call(x, rng, eos, N=N, K=K)
    draft_model = checks.checked_model(draft_model, [0])  # it takes ids
    target_model = checks.checked_model(target_model, [0], 2)  # it takes ids and n_rows

    end = len(x) + N
    last = None
    while len(x) < end:
        k_max = min(K, end - len(x) - 1)  # -1, as the round adds one token itself
        if schedule is not None:
            k_max = min(k_max, schedule(last))
        last = one_round(x, draft_model, target_model, k_max, rng, verify, stop=stop, ends=ends)
        x = np.append(x, last.emitted)
        if on_round is not None:
            on_round(last)
        if x[-1] in ends:
            break
    return x
