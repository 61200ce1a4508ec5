"""From a network's logits to the distribution that is sampled from: temperature, top-k, top-p, repetition penalty.

A network returns logits, a model returns probabilities, and `as_model` makes a model of
a network. Draft and target may have different settings, and the output still has the
distribution of the target's rows. With equal settings they agree best.
"""

import numpy as np


def sample(p, rng):
    """Draw one token from p [n_vocab], without using the rng if a token has probability 1."""
    token = p.argmax()
    return token if p[token] == 1 else rng.choice(len(p), p=p)


def logits_to_probs(logits, temperature=1.0, top_k=0, top_p=1.0):
    """softmax(logits / temperature), cut to the most probable tokens and normalised.

    Parameters
    ----------
    logits : float [n_rows, n_vocab]
    temperature : float, 0 <= temperature < infinity
        0 is greedy: a one-hot row at the largest logit, the first one on ties.
    top_k : int
        Keep the top_k most probable tokens, lower ids first on ties. 0 keeps all.
    top_p : float in (0, 1]
        After top_k, keep the most probable tokens up to the one that reaches top_p
        (Holtzman et al. 2020, arXiv 1904.09751, section 3.1).

    Returns
    -------
    float64 [n_rows, n_vocab]
    """
    if not (0 <= temperature < np.inf and 0 < top_p <= 1):
        raise ValueError(f"found {temperature=} and {top_p=}, but 0 <= temperature < inf and 0 < top_p <= 1 are needed")
    if temperature == 0:
        logits = np.asarray(logits)
        i, best = np.arange(len(logits)), np.argmax(logits, axis=-1)  # the first NaN, if there is one
        probs = np.zeros(logits.shape)
        probs[i, best] = np.where(np.isfinite(logits[i, best]), 1, np.nan)  # so that drawing fails
        return probs
    logits = np.asarray(logits, dtype=np.float64)
    with np.errstate(over="ignore"):  # with a tiny temperature, a quotient may be -inf; its exp is 0, which is right
        probs = np.exp((logits - logits.max(axis=-1, keepdims=True)) / temperature)
    probs /= probs.sum(axis=-1, keepdims=True)
    if top_k <= 0 and top_p == 1:
        return probs

    for row in probs:
        # Sorting GPT-2's 50,257 tokens would take a quarter of a pass of 124M, so
        # tokens that cannot be kept go first: those below the top_k-th, or those so
        # improbable that all of them together have less than 1 - top_p.
        cuts = 0 < top_k < np.count_nonzero(row)
        least = -np.partition(-row, top_k - 1)[top_k - 1] if cuts else (1 - top_p) / len(row)
        tokens = np.flatnonzero(~(row < least))  # not >=, so that a NaN stays, and drawing fails
        tokens = tokens[np.argsort(-row[tokens], kind="stable")]
        if cuts:
            tokens = tokens[:top_k]
        if top_p < 1:
            mass = np.cumsum(row[tokens])
            total = mass[-1] if cuts else 1.0
            tokens = tokens[: np.searchsorted(mass, top_p * total) + 1]
        kept = row[tokens]
        row[:] = 0
        row[tokens] = kept / kept.sum()
    return probs


def penalised(logits, ids, penalty):
    """Make tokens that are already in the text less likely: the repetition penalty of CTRL.

    Keskar et al. 2019 (arXiv 1909.05858, section 4.1) divide logits by the penalty.
    Negative ones are multiplied here, as in Hugging Face's Transformers, because
    dividing would make them larger. Each row looks at its own prefix of ids: a guess
    that may yet be rejected must not change the rows before it.

    Parameters
    ----------
    logits : float [n_rows, n_vocab]
    ids : int [n]
    penalty : float > 0
    """
    if not penalty > 0:
        raise ValueError(f"found {penalty=}, but penalty > 0 is needed")
    seen = np.zeros(np.shape(logits), dtype=bool)
    for i in range(len(seen)):
        seen[i, ids[: len(ids) - len(seen) + 1 + i]] = True
    return np.where(seen, np.where(logits > 0, logits / penalty, logits * penalty), logits)


class as_model:
    """A model made of a network: `network(ids, n_rows) -> logits`, then `penalised`, then `logits_to_probs`.

    It keeps the logits of its last call, so that `confidence` can tell how sure the network was of a token.
    """

    def __init__(self, network, temperature=1.0, top_k=0, top_p=1.0, repetition_penalty=1.0):
        self.network, self.cuts, self.penalty = network, (temperature, top_k, top_p), repetition_penalty

    def __call__(self, ids, n_rows=1):
        logits = self.logits = self.network(ids, n_rows)  # [n] -> [n_rows, n_vocab]
        if self.penalty != 1:
            logits = penalised(logits, ids, self.penalty)
        return logits_to_probs(logits, *self.cuts)

    def confidence(self, token, row=-1):
        """The probability of a token in a row of the last call, at temperature 1, with nothing cut."""
        return logits_to_probs(self.logits[row][None])[0, token]


def last_rows(model):
    """Make a model of the form `model(ids) -> probs [n, n_vocab]`, as in J. Mody's blog post, take n_rows."""
    return lambda ids, n_rows=1: np.asarray(model(ids))[-n_rows:]


def seeded(model, seed):
    """The model with its dice thrown in advance: a model whose rows are one-hot, at draws from the rows of `model`.

    The token at position n is the winner of a race: with independent E_t ~ Exp(1), the
    argmin of E_t / q_t over the tokens t is a draw from q. The noise E is a function of
    (seed, n) alone. So give draft and target one seed, and both loops write the same
    text at any temperature: `verify` accepts a guess exactly if it is what the target
    draws itself. Averaged over seeds, the text has the target's distribution. A guess is
    accepted with probability (1 - TV) / (1 + TV) or more, where TV is the distance of p
    and q: Daliri et al. 2024 (arXiv 2408.07978), who call this Gumbel sampling.
    """

    def one_hot(ids, n_rows=1):
        q = np.asarray(model(ids, n_rows))  # [n_rows, n_vocab]
        if not np.allclose(q.sum(axis=-1), 1) or (q < 0).any():
            raise ValueError(f"a row must have no negative entry and sum to 1; found {q.min()} and {q.sum(axis=-1)}")
        probs = np.zeros(q.shape)
        for i, row in enumerate(q):
            noise = np.random.default_rng([seed, len(ids) - n_rows + 1 + i]).exponential(size=len(row))
            possible = np.flatnonzero(row)
            with np.errstate(over="ignore"):  # infinity is right for a tiny probability
                probs[i, possible[np.argmin(noise[possible] / row[possible])]] = 1
        return probs

    return one_hot
