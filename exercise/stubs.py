"""Your own speculative sampling, in eight steps, see exercise/README.md.

`python -m exercise` grades it.
"""

import numpy as np  # noqa: F401


def accept(p, q, token, rng):
    """Step 1: whether to accept a guess.

    p and q are rows [n_vocab], and the token was drawn from p -> bool
    """
    raise NotImplementedError


def residual(p, q):
    """Step 2: the distribution from which a token is resampled when a guess was rejected.

    float64 [n_vocab] and [n_vocab] -> float64 [n_vocab]
    """
    raise NotImplementedError


def verify(drafted, p, q, rng):
    """Step 3: a round of k guesses, where k may be 0.

    int [k], float64 [k, n_vocab] and [k+1, n_vocab] -> int [n_accepted + 1]
    """
    raise NotImplementedError


def speculative_sampling(x, draft_model, target_model, N, K, rng):
    """Step 4: the loop.

    The prompt x, int [n] -> int [n + N], the prompt and N new tokens
    """
    end = len(x) + N
    while len(x) < end:
        # How many guesses? Draw them one after the other, and keep the row of each.
        # One pass of the target, for all its rows.
        # Verify, and append what comes out to x.
        raise NotImplementedError
    return x


def until_eos(x, draft_model, target_model, N, K, rng, eos):
    """Step 5: the loop again, for a text that ends with its first new eos.

    The prompt x, int [n], and a token, eos -> int [n + N], or fewer
    """
    raise NotImplementedError


def propose(x, draft_model, k, rng):
    """Step 6: a greedy draft.

    k guesses after x, and the rows they were drawn from -> int [k], float64 [k, n_vocab]
    """
    raise NotImplementedError


def penalised(rows, ids):
    """Step 7: rows with a penalty.

    rows [n_rows, n_vocab] after the last n_rows prefixes of ids -> the same shape
    """
    raise NotImplementedError


def siblings(node, rng):
    """Step 8: verify two guesses at one token.

    A `lab.trees.Node` -> the tokens that are emitted, a list
    """
    raise NotImplementedError
