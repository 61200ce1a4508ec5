"""From logits to the row that is sampled from: temperature, top-k, top-p and repetition penalty.

A *row* is a probability distribution over the vocabulary, float64 [n_vocab]. A *network* returns *logits*, one number
for each token. At temperature T, the probability of a token is proportional to exp(logit / T) (this is the softmax of
logits / T). Below 1, a temperature makes the most probable tokens more probable. Above 1, it makes the row flatter. At
0, the largest logit gets all probability. A *model* returns rows: `sampler` turns a network into a model. Draft and
target may have different settings. The output always has the distribution of the target's rows. With equal settings,
the two usually agree best, so decoding is fastest.
"""

import numpy as np


def sample(p, rng):
    """Draw one token from the row p [n_vocab]. A token with probability 1 is returned at once, for speed."""
    token = p.argmax()
    is_certain = p[token] == 1 == p.sum()  # (a row like (1, .5) is a mistake, and rng.choice raises a ValueError)
    return token if is_certain else rng.choice(len(p), p=p)


def logits_to_probs(logits, temperature=1.0, top_k=0, top_p=1.0):
    """The rows that are sampled from.

    Parameters
    ----------
    logits : float [n_rows, n_vocab]
    temperature : float, 0 <= temperature < infinity
        Divides the logits. 0 is greedy: all probability is on the largest logit, the first of them on ties.
    top_k : int
        Keep only the top_k most probable tokens, the lower ids on ties. 0 or less keeps all.
    top_p : float in (0, 1]
        Nucleus sampling (Holtzman et al. 2020, arXiv 1904.09751, section 3.1): go from the most probable
        token downwards, until the kept tokens have a total probability of top_p or more. top_k comes first, and its
        result is normalised.

    Returns
    -------
    float64 [n_rows, n_vocab]; every row sums to 1.

    Raises
    ------
    ValueError
        If the temperature or top_p is out of its bounds.
    """
    if not (0 <= temperature < np.inf and 0 < top_p <= 1):
        raise ValueError(f"found {temperature=} and {top_p=}, but 0 <= temperature < inf and 0 < top_p <= 1 are needed")
    if temperature == 0:
        probs = np.zeros(np.shape(logits))  # one-hot rows: no division by a tiny number is needed
        probs[np.arange(len(probs)), np.argmax(logits, axis=-1)] = 1
        return probs
    logits = np.asarray(logits, dtype=np.float64)
    with np.errstate(over="ignore"):  # with a tiny temperature, a quotient may be -inf; its exp is 0, which is right
        probs = np.exp((logits - logits.max(axis=-1, keepdims=True)) / temperature)
    probs /= probs.sum(axis=-1, keepdims=True)
    if top_k <= 0 and top_p == 1:
        return probs

    for row in probs:
        # Tokens with a probability below `least` cannot be kept, so they are not sorted. This saves time: sorting all
        # 50,257 tokens of GPT-2 would take a quarter of a pass of 124M. With top_k, `least` is the top_k-th largest
        # probability. With top_p alone, it is (1 - top_p) / n_vocab. There are at most n_vocab tokens below that, so
        # together they have less than 1 - top_p. The other tokens have more than top_p, so they reach it alone.
        cuts = 0 < top_k < np.count_nonzero(row)  # otherwise top_k leaves out only zeros, or nothing
        least = -np.partition(-row, top_k - 1)[top_k - 1] if cuts else (1 - top_p) / len(row)
        tokens = np.flatnonzero(~(row < least))  # (not >=, so that a NaN stays, and drawing fails)
        tokens = tokens[np.argsort(-row[tokens], kind="stable")]  # most probable first, lower ids first on ties
        if cuts:
            tokens = tokens[:top_k]
        if top_p < 1:
            mass = np.cumsum(row[tokens])
            total = mass[-1] if cuts else 1.0  # (without top_k, it is that of the whole row)
            tokens = tokens[: np.searchsorted(mass, top_p * total) + 1]  # with the token that reaches top_p
        kept = row[tokens]
        row[:] = 0
        row[tokens] = kept / kept.sum()
    return probs


def penalised(logits, ids, penalty):
    """A repetition penalty makes tokens that are already in the text less likely. (If it is below 1, more likely.)

    It comes from the language model CTRL (Keskar et al. 2019, arXiv 1909.05858, section 4.1), which divides the logits
    of these tokens by the penalty, whatever their sign. Here negative logits are multiplied instead, as in Hugging
    Face's Transformers, because division would make their tokens more likely.

    Parameters
    ----------
    logits : float [n_rows, n_vocab]
        Row -1 is for the token after all of ids, row -2 for the token after ids[:-1], and so on.
    ids : int [n]
    penalty : float > 0
        In each row, the logits of the tokens of its own prefix are divided by the penalty if they are positive, and
        multiplied by it if they are negative. So a drafted token changes only the rows after it. (A row that depended
        on later tokens, which may be rejected, would not be the row of plain sampling.)

    Returns
    -------
    float [n_rows, n_vocab]

    Raises
    ------
    ValueError
        If the penalty is not above 0.
    """
    if not penalty > 0:
        raise ValueError(f"found {penalty=}, but penalty > 0 is needed")
    seen = np.zeros(np.shape(logits), dtype=bool)  # seen[i, token]: whether the prefix of row i has the token
    for i in range(len(seen)):
        seen[i, ids[: len(ids) - len(seen) + 1 + i]] = True
    return np.where(seen, np.where(logits > 0, logits / penalty, logits * penalty), logits)


def sampler(network, temperature=1.0, top_k=0, top_p=1.0, repetition_penalty=1.0):
    """Turn a network into a model: `network(ids, n_rows) -> logits`, then `penalised`, then `logits_to_probs`."""

    def model(ids, n_rows=1):
        logits = network(ids, n_rows)  # [n] -> [n_rows, n_vocab]
        if repetition_penalty != 1:
            logits = penalised(logits, ids, repetition_penalty)
        return logits_to_probs(logits, temperature, top_k, top_p)

    return model
