"""Speculative sampling: a small draft model guesses K tokens, the target verifies them in one pass.

This is the loop of tiny.py again, with an end of text, and with two parts that can be
exchanged: `propose` makes the guesses of a round, and `verify` accepts some of them.

Chen et al. 2023 (arXiv 2302.01318) and Leviathan et al. 2023 (arXiv 2211.17192) found
it independently. As in Chen et al., the draft has distribution p and the target q.
Leviathan et al. swap p and q, and write gamma for K.

A model is any callable `model(ids, n_rows=1) -> probs`, float64 [n_rows, n_vocab]. Row -1 is
the distribution of the token after ids, row -2 that of ids[-1] given those before it, and so on.
Temperature, top-k and top-p belong to the model, see sampling.py. So does a cache: after a
rejection, the model drops what it has kept of the rejected guesses, see gpt2.py.

checks.py has `prepared`, and all functions with check in their names. They copy what a caller
hands in, normalise rows and raise errors. Without them the algorithm is the same.
"""

from typing import NamedTuple

import numpy as np

from checks import check_fit, checked_draft, checked_model, checked_tokens, prepared
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
    x, rng, eos_ids = prepared(x, rng, eos, N)
    model = checked_model(model, must_accept=["ids"])

    for _ in range(N):
        q = model(x)[-1:]  # [n] -> [1, n_vocab]
        token = sample(q[-1], rng)
        x = np.append(x, token)  # [n] -> [n+1]
        if on_round is not None:
            on_round(Round(drafted=x[:0], p=q[:0], q=q, emitted=np.array([token]), n_accepted=0))
        if token in eos_ids:
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
    """min(1, q / p) for a token's two probabilities."""
    return 1 if q >= p else q / p  # q / p alone may overflow


def residual(p, q):
    """max_fn(q - p): what q has beyond p, normalised.

    Both sum to 1, so if q exceeds p nowhere, they are equal up to rounding. Then it's q.
    """
    return max_fn(q - p) if (q > p).any() else q


def propose(x, draft_model, k_max, rng):
    """Guess k_max tokens after x, one after the other. Another `propose` may guess fewer.

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
        # Otherwise resample it from the residual, and drop the later guesses, which followed it.
        return np.append(drafted[:i], sample(residual(p[i], q[i]), rng))
    # All accepted: the last row of q gives one more token, the bonus.
    return np.append(drafted, sample(q[-1], rng))


def one_round(x, draft_model, target_model, k_max, rng, *, propose=propose, verify=verify):
    """Run a round after the text x -> `Round`."""
    # Step 1: the draft guesses k tokens, one after the other.
    draft = propose(x.copy(), draft_model, k_max, rng)
    drafted, p = checked_draft(draft, k_max)  # [k], [k, n_vocab]
    k = len(drafted)
    # Step 2: one pass of the target gives q after x, and after each of the drafted tokens.
    q = target_model(np.append(x, drafted), k + 1)  # [n+k] -> [k+1, n_vocab]
    if k == 0:
        p = q[:0]  # [0, n_vocab]
    check_fit(drafted, p, q)
    # Step 3: accept drafted tokens from the left, and add one token.
    emitted = verify(drafted, p, q, rng)  # [n_accepted+1]
    emitted = checked_tokens("verify", emitted, 1, k + 1, n_vocab=q.shape[1])
    return Round(drafted, p, q, emitted, len(emitted) - 1)


def up_to_eos(r, eos_ids):
    """A round without what follows a token that ends the text, if it has one."""
    for n, token in enumerate(r.emitted.tolist(), start=1):
        if token in eos_ids:
            # If this eos was an accepted guess, so were all n tokens up to it.
            n_accepted = min(r.n_accepted, n)
            return r._replace(emitted=r.emitted[:n], n_accepted=n_accepted)
    return r


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
    propose=propose,
    verify=verify,
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
    propose, verify : callable
        How a round guesses, and which guesses it accepts: the functions above, those of
        lab/schedules.py and lab/block.py, or your own.

    Returns
    -------
    int [n + N], fewer only if eos ends the text
    """
    x, rng, eos_ids = prepared(x, rng, eos, N, K)
    draft_model = checked_model(draft_model, must_accept=["ids"])
    target_model = checked_model(target_model, must_accept=["ids", "n_rows"])

    end = len(x) + N
    while len(x) < end:
        k_max = min(K, end - len(x) - 1)  # leaves room for the resampled token or the bonus
        r = one_round(x, draft_model, target_model, k_max, rng, propose=propose, verify=verify)
        r = up_to_eos(r, eos_ids)
        x = np.append(x, r.emitted)
        if on_round is not None:
            on_round(r)
        if x[-1] in eos_ids:
            break
    return x
