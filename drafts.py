"""What can guess the next tokens: the draft network, n-grams, prompt lookup, or the target's own first layers.

The output has the target's distribution whatever the draft is. How often the draft is right only decides how much
time is saved. Every draft that `make_draft` makes is of the same kind as gpt2.GPT2: a network, which is called with
ids and returns logits, and which can `forget`.
"""

import numpy as np

from encoder import EOT
from errors import UserError
from ngrams import NGram, Online, each_row, ngram

ORDERS = {"unigram": 1, "bigram": 2, "ngram": 3}
DRAFTS = ("model", *ORDERS, "online", "lookup", "early-exit:L")


class Lookup:
    """Prompt lookup (Saxena 2023): what came next, the last time that the last 3 tokens (or 2, or 1) were there?

    A proposal without chance is a row with a single 1, and it is lossless like any other. A model must give a row even
    if nothing is found. Then the row is uniform, so that it can be told from the others.
    """

    def __init__(self, n_vocab, longest=3):
        self.n_vocab, self.longest = n_vocab, longest

    def row(self, ids):
        places = np.flatnonzero(ids[:-1] == ids[-1])  # where the last token was before
        if len(places) == 0:
            return np.full(self.n_vocab, 1 / self.n_vocab)
        for back in range(1, self.longest):
            longer = places[places >= back]
            longer = longer[ids[longer - back] == ids[len(ids) - 1 - back]] if len(longer) else longer
            if len(longer) == 0:
                break
            places = longer
        return np.eye(1, self.n_vocab, ids[places[-1] + 1])[0]

    __call__ = each_row(row)


class AsNetwork:
    """A network whose logits are the logarithms of a model's rows, so that a temperature can be applied to them.

    Parameters
    ----------
    model : callable
    sure : float
        Drafting stops after a token that the model gave a probability below this. It is 1 for `Lookup`, which has
        nothing more to say once it has found nothing.
    """

    def __init__(self, model, sure=0.0):
        self.model, self.sure = model, sure

    def __call__(self, ids, n_rows=1):
        with np.errstate(divide="ignore"):  # log(0) is -inf, which becomes 0 again
            return np.log(self.model(ids, n_rows))  # [n_rows, n_vocab]

    def forget(self):
        """There is nothing to forget: what `Online` keeps is taken back when the ids change."""


def make_draft(name, target, encoder, tables, corpus=None):
    """A draft that needs no checkpoint of its own.

    Parameters
    ----------
    name : str
        "unigram", "bigram", "ngram" (of order 3), "online", "lookup", or "early-exit:L" with a number for L.
    target : gpt2.GPT2
    encoder : encoder.Encoder
    tables : str
        The file with the n-grams that come with the bundled models.
    corpus : str, optional
        A text file to fit unigram, bigram or ngram on, instead of taking them from tables.

    Returns
    -------
    callable: a network

    Raises
    ------
    UserError or OSError
        If the corpus or the tables cannot be used, or if the target has fewer layers.
    """
    n_vocab = target.n_vocab
    if name.startswith("early-exit:"):
        return target.first_layers(int(name.removeprefix("early-exit:")))
    if name == "lookup":
        return AsNetwork(Lookup(n_vocab), sure=1.0)
    if name == "online":
        return AsNetwork(Online(n_vocab))
    if corpus is not None:
        return AsNetwork(ngram(ids_of(read_texts(corpus), encoder), n_vocab, ORDERS[name]))
    table = NGram.load(tables, ORDERS[name])
    if table.n_vocab != n_vocab:
        raise UserError(f"the bundled n-grams are for the bundled models only; for {name}, give a --draft_corpus FILE")
    return AsNetwork(table)


def read_texts(path):
    """The texts of a file in UTF-8, in which lines that say <|endoftext|> stand between them."""
    try:
        with open(path, encoding="utf-8") as f:
            return [text.strip("\n") for text in f.read().split(EOT)]
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a text in UTF-8: {error}") from None


def ids_of(texts, encoder):
    """The ids of several texts, each followed by <|endoftext|>."""
    return [id for text in texts for id in [*encoder.encode(text), encoder.ids[EOT]]]
