"""Drafts that are no neural network of their own: n-grams, prompt lookup, and the target's own first layers.

Any distribution will do as a draft, since the output is the target's whatever p is: only how often p is right decides
what is gained. What follows is right less often than a network, and costs next to nothing. But for `early_exit`, which
is a network, they are models as in speculative.py, and `log_probs` makes a network of one, for a temperature.
"""

import copy
import zipfile
import zlib

import numpy as np

DISCOUNT = 0.75  # taken from each count, and given to the tokens that were not seen: see `blend`


def blend(p, tokens, counts):
    """The distribution after a context where tokens were seen counts times, given p [n_vocab], that of a shorter one.

    Interpolated absolute discounting (Ney, Essen and Kneser 1994): what is taken off the counts is shared out by p.
    """
    total = counts.sum()
    p = p * (DISCOUNT * len(counts) / total)
    p[tokens] += (counts - DISCOUNT) / total
    return p


class NGram:
    """The next token given the order - 1 before it, backing off to fewer where these were not seen. A model.

    Parameters
    ----------
    n_vocab : int
    tables : list of (int64 [m], int [m])
        For n = 1 ... order: the n-grams that occur, ascending, and how often. An n-gram is one number, whose digits to
        the base n_vocab are its ids. So those that begin alike are neighbours, and a bisection finds them.
    """

    def __init__(self, n_vocab, tables):
        self.n_vocab, self.tables = n_vocab, tables
        self.unigram = blend(np.full(n_vocab, 1 / n_vocab), *tables[0])

    def __call__(self, ids, n_rows=1):
        return np.array([self.row(ids[: len(ids) - i]) for i in reversed(range(n_rows))])  # [n_rows, n_vocab]

    def row(self, ids):
        p = self.unigram
        for n, (grams, counts) in enumerate(self.tables[1 : len(ids) + 1], start=2):
            first = encode(ids[len(ids) - n + 1 :], self.n_vocab) * self.n_vocab  # the context, and then token 0
            begin, end = np.searchsorted(grams, [first, first + self.n_vocab])
            if begin == end:
                break  # what is longer was not seen either
            p = blend(p, grams[begin:end] - first, counts[begin:end])
        return p

    def save(self, path):
        """Write the tables as a .npz: of the ascending n-grams only the steps, which are small and compress well."""
        steps = {f"steps_{n}": np.diff(grams, prepend=0) for n, (grams, _) in enumerate(self.tables, start=1)}
        counts = {f"counts_{n}": counts for n, (_, counts) in enumerate(self.tables, start=1)}
        arrays = {
            name: array.astype(np.min_scalar_type(array.max(initial=0))) for name, array in (steps | counts).items()
        }
        np.savez_compressed(path, n_vocab=self.n_vocab, **arrays)

    @classmethod
    def load(cls, path, order):
        """The n-grams up to this order, of a file by `save`. ValueError if it has none so long, or is damaged."""
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as f:
                n_vocab = int(f["n_vocab"])
                grams = [np.cumsum(f[f"steps_{n}"], dtype=np.int64) for n in range(1, order + 1)]
                counts = [f[f"counts_{n}"].astype(np.int64) for n in range(1, order + 1)]
            for n, (g, c) in enumerate(zip(grams, counts, strict=True), start=1):
                bad = len(g) != len(c) or (np.diff(g, prepend=-1) <= 0).any() or (n == 1 and len(g) == 0)
                if bad or g.max(initial=0) >= n_vocab**n or c.min(initial=1) < 1:
                    raise ValueError(f"its {n}-grams are not ascending, not of {n_vocab} tokens, or not counted")
            return cls(n_vocab, list(zip(grams, counts, strict=True)))
        except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"{path} is damaged, or has no {order}-grams: {error}") from None


def ngram(ids, n_vocab, order, least=1):
    """An `NGram` fitted on ids.

    Parameters
    ----------
    ids : int [n], at least one
    n_vocab : int
    order : int
        1 for unigram, 2 for bigram, ...
    least : int
        What occurs less often is left out, single tokens excepted: a smaller table, and little is lost.

    Raises
    ------
    ValueError if there are no ids or some that are not of the vocabulary, or if an n-gram is no number of 63 bits.
    """
    ids = np.asarray(ids, dtype=np.int64)
    if len(ids) == 0:
        raise ValueError("n-grams are fitted on ids, and there are none")
    if ids.min() < 0 or ids.max() >= n_vocab:
        raise ValueError(f"ids from {ids.min()} to {ids.max()}: the vocabulary goes from 0 to {n_vocab - 1}")
    if order < 1:
        raise ValueError(f"order = {order}; a unigram has 1")
    if n_vocab**order >= 2**63:
        raise ValueError(f"order = {order} is too much for a vocabulary of {n_vocab}: its n-grams exceed 63 bits")
    tables, grams = [], np.zeros(len(ids), dtype=np.int64)
    for n in range(1, order + 1):
        grams = grams[: len(ids) - n + 1] * n_vocab + ids[n - 1 :]  # [len(ids)-n+1]
        found, counts = np.unique(grams, return_counts=True)
        kept = counts >= (least if n > 1 else 1)
        tables.append((found[kept], counts[kept]))
    return NGram(n_vocab, tables)


def unigram(ids, n_vocab):
    return ngram(ids, n_vocab, order=1)


def bigram(ids, n_vocab):
    return ngram(ids, n_vocab, order=2)


def encode(ids, n_vocab):
    """The number whose digits to the base n_vocab are ids."""
    number = 0
    for token in ids:
        number = number * n_vocab + int(token)
    return number


class Online:
    """An n-gram model fitted on the very ids that it is called with: it learns the prompt, and the text as it grows.

    A pure function of these ids, like a network with a cache: the counts of the ids seen last are kept, and what of
    them is not there any more is taken back.
    """

    def __init__(self, n_vocab, order=3):
        self.n_vocab, self.order, self.ids = n_vocab, order, np.zeros(0, dtype=np.int64)
        self.counts = {}  # {context: {token: how often it came next}}, contexts being tuples of up to order - 1 ids

    def __call__(self, ids, n_rows=1):
        ids = np.asarray(ids)
        return np.array([self.row(ids[: len(ids) - i]) for i in reversed(range(n_rows))])  # [n_rows, n_vocab]

    def row(self, ids):
        n = min(len(ids), len(self.ids))
        n_same = int(np.argmin(np.append(ids[:n] == self.ids[:n], False)))
        for i in reversed(range(n_same, len(self.ids))):
            self.count(self.ids, i, -1)
        for i in range(n_same, len(ids)):
            self.count(ids, i, 1)
        self.ids = ids.copy()

        p = np.full(self.n_vocab, 1 / self.n_vocab)
        for context in contexts(ids, len(ids), self.order):
            if context not in self.counts:
                break
            nexts = self.counts[context]
            p = blend(p, np.fromiter(nexts.keys(), int, len(nexts)), np.fromiter(nexts.values(), int, len(nexts)))
        return p

    def count(self, ids, i, one):
        """Count ids[i] after each of its contexts, or with one = -1 take that back."""
        token = int(ids[i])
        for context in contexts(ids, i, self.order):
            nexts = self.counts.setdefault(context, {})
            nexts[token] = nexts.get(token, 0) + one
            if nexts[token] == 0:
                del nexts[token]
            if not nexts:
                del self.counts[context]


def contexts(ids, i, order):
    """The 0, 1, ... order - 1 ids before position i, as tuples; fewer where the text begins."""
    before = tuple(ids[max(0, i - order + 1) : i].tolist())
    return [before[len(before) - n :] for n in range(len(before) + 1)]


def lookup(n_vocab, longest=3):
    """Prompt lookup (Saxena 2023): say what came next, the last time that the last 3 tokens (or 2, or 1) were there.

    A proposal without chance is a row with a single 1, and lossless like any other. A row must be given even where
    nothing is found, and then it is uniform: knowing nothing, it can be told from the others, and with `not_found` as
    the stop the round goes no further.

    Returns
    -------
    callable, a model; it takes at least one id
    """

    def row(ids):
        places = np.flatnonzero(ids[:-1] == ids[-1])  # where the last token was before
        if len(places) == 0:
            return np.full(n_vocab, 1 / n_vocab)
        for back in range(1, longest):
            longer = places[places >= back]
            longer = longer[ids[longer - back] == ids[len(ids) - 1 - back]] if len(longer) else longer
            if len(longer) == 0:
                break
            places = longer
        return np.eye(1, n_vocab, ids[places[-1] + 1])[0]

    return lambda ids, n_rows=1: np.array([row(np.asarray(ids)[: len(ids) - i]) for i in reversed(range(n_rows))])


def not_found(p, token):
    """A stop for `lookup`: ends the round after a token that it has only guessed."""
    return p[token] < 1


def early_exit(network, n_layer):
    """The first n_layer layers of a `gpt2.GPT2`, with its final norm and embedding: a network that shares its weights.

    The cache is its own. What the two could share of it are the positions that the target was first to read: the
    prompt, and one a round. That is no time worth the entanglement.

    Raises ValueError unless the network has so many layers, and at least one is asked for.
    """
    blocks = network.weights["blocks"]
    if not 1 <= n_layer <= len(blocks):
        raise ValueError(
            f"an exit after {n_layer} layers was asked for; the target has {len(blocks)}, and it takes 1 or more"
        )
    shallow = copy.copy(network)
    shallow.weights = network.weights | {"blocks": blocks[:n_layer]}
    shallow.forget()
    return shallow


def log_probs(model):
    """A network whose logits are the logarithms of a model's rows, so that `speculative.sampler` can take it."""

    def network(ids, n_rows=1):
        with np.errstate(divide="ignore"):  # of 0: -inf, which comes back as 0
            return np.log(model(ids, n_rows))

    return network
