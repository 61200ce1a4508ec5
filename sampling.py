"""From logits to the distribution that is sampled from: temperature, top-k and top-p.

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
    if not 0 <= temperature < np.inf:
        raise ValueError(f"found {temperature=}, but 0 <= temperature < inf is needed")
    if not 0 < top_p <= 1:
        raise ValueError(f"found {top_p=}, but 0 < top_p <= 1 is needed")
    logits = np.asarray(logits, dtype=np.float64)
    if logits.ndim != 2:
        raise ValueError(f"logits are [n_rows, n_vocab]; found {list(logits.shape)}")
    largest = logits.max(axis=-1, keepdims=True)  # [n_rows, 1]
    if not np.isfinite(largest).all():
        raise ValueError("the largest logit of a row must be finite; found NaN or infinity")
    if temperature == 0:
        best = logits.argmax(axis=-1)
        return np.float64(np.arange(logits.shape[-1]) == best[:, None])
    with np.errstate(over="ignore"):  # where T is tiny, a quotient may be -inf, whose exp is 0
        probs = np.exp((logits - largest) / temperature)
    probs /= probs.sum(axis=-1, keepdims=True)
    for i, row in enumerate(probs):
        if 0 < top_k < np.count_nonzero(row):
            row = cut_to_top_k(row, top_k)
        if top_p < 1:
            row = cut_to_top_p(row, top_p)
        probs[i] = row
    return probs


def cut_to_top_k(row, k):
    """The k largest entries of a row, lower ids first on ties, normalised, and 0 elsewhere."""
    least = -np.partition(-row, k - 1)[k - 1]
    return only(row, largest_first(row, least)[:k])


def cut_to_top_p(row, p):
    """The largest entries of a row, as many as it takes to reach the sum p, normalised."""
    # To sort all 50,257 entries takes milliseconds. So leave out the tokens below
    # (1 - p) / n_vocab first. Together they have less than 1 - p, so the others suffice.
    tokens = largest_first(row, least=(1 - p) / len(row))
    mass = np.cumsum(row[tokens])
    return only(row, tokens[: np.searchsorted(mass, p) + 1])


def largest_first(row, least):
    """The tokens with at least this probability, the most probable first."""
    tokens = np.flatnonzero(row >= least)
    return tokens[np.argsort(-row[tokens], kind="stable")]


def only(row, tokens):
    """A row with these tokens alone, normalised."""
    kept = np.zeros(len(row))
    kept[tokens] = row[tokens] / row[tokens].sum()
    return kept


class as_model:
    """A model made of a network: `logits_to_probs` of its logits.

    It keeps the logits of its last call, for `confidence`.
    """

    def __init__(self, network, temperature=1.0, top_k=0, top_p=1.0):
        self.network = network
        self.settings = temperature, top_k, top_p

    def __call__(self, ids, n_rows=1):
        self.logits = self.network(ids, n_rows)  # [n] -> [n_rows, n_vocab]
        return logits_to_probs(self.logits, *self.settings)

    def confidence(self, token, row=-1):
        """How probable a token was in a row of the last call, at temperature 1 and uncut."""
        return logits_to_probs(self.logits[row][None])[0, token]


def seeded(model, seed):
    """A model that has drawn its tokens in advance: its rows are one-hot, at draws from the rows.

    With --same_text both loops write the same text at any temperature. Draft and target have
    one seed, and `verify` accepts a guess exactly if the target has drawn the same token.
    Averaged over seeds, the text has the target's distribution.

    A draw is a race. Token t arrives at the time E_t / q_t, where the E_t are independent
    exponential numbers, and the first to arrive is a draw from q. The E_t depend on the seed
    and the position alone. So draft and target hold nearly the same race, and often draw the
    same token.

    How often? With probability (1 - TV) / (1 + TV) or more, where TV is the total variation
    distance of p and q: Daliri et al. 2024 (arXiv 2408.07978), who call this Gumbel sampling.
    """

    def one_hot(ids, n_rows=1):
        q = np.asarray(model(ids, n_rows))  # [n_rows, n_vocab]
        if not np.allclose(q.sum(axis=-1), 1) or (q < 0).any():
            problem = f"found {q.min()} and {q.sum(axis=-1)}"
            raise ValueError(f"a row must have no negative entry and sum to 1; {problem}")
        probs = np.zeros(q.shape)
        for i, row in enumerate(q):
            position = len(ids) - n_rows + 1 + i
            noise = np.random.default_rng([seed, position]).exponential(size=len(row))
            possible = np.flatnonzero(row)
            with np.errstate(over="ignore"):  # infinity is right for a tiny probability
                arrivals = noise[possible] / row[possible]
            probs[i, possible[arrivals.argmin()]] = 1
        return probs

    return one_hot
