"""Drafts that need no checkpoint of their own: n-grams, prompt lookup, and the target's own first layers.

As in sampling.py, a *row* is the distribution of the next token, and a *network* returns logits. The drafts of
`make_draft` can be used like a gpt2.GPT2: a call with ids returns logits, and `forget()` starts afresh.
"""

import math
import re
from pathlib import Path

import numpy as np

from encoder import EOT
from errors import UserError
from ngrams import NGram, continuations, ngram, online
from utils import MODELS_DIR

ORDERS = {"unigram": 1, "bigram": 2, "ngram": 3}  # how many tokens in a row are counted
TABLES = Path(MODELS_DIR, "ngrams.npz")  # counts in the text that the bundled models were trained on
DRAFTS = ("model", *ORDERS, "online", "lookup")  # and early-exit:1, ...; `make_draft` makes all but "model"


def lookup(ids, n_vocab, longest=3):
    """Prompt lookup (Saxena 2023): find an earlier copy of the text's last tokens, and repeat the token after it.

    Leviathan et al. 2023 have the idea in section 3.6. A copy of the last `longest` tokens is best, then a shorter one.
    Among copies of the same length, the latest is taken. The row has a single 1, at the token that followed the copy.
    Without a copy, the row is uniform.

    Parameters
    ----------
    ids : int array [n]
    n_vocab : int
    longest : int
        How many of the last tokens to look for, at most.

    Returns
    -------
    float64 [n_vocab], the row after ids
    """
    after = list(continuations(ids, longest))  # after[m]: the indices of the tokens after copies of the last m tokens
    if len(after) < 2:
        return np.full(n_vocab, 1 / n_vocab)
    row = np.zeros(n_vocab)
    row[ids[after[-1][-1]]] = 1  # the token after the latest of the longest copies
    return row


class AsNetwork:
    """A network made from a function row(ids). Its logits are the logarithms of the rows, so that `sampler` can use it.

    Parameters
    ----------
    row : callable
        Returns the row after ids, float64 [n_vocab].
    sure : float
        `pair.Pair` stops drafting after a token with a probability below this.
    """

    n_ctx = math.inf  # it takes texts of any length

    def __init__(self, row, sure=0.0):
        self.row, self.sure = row, sure

    def __call__(self, ids, n_rows=1):
        ids = np.asarray(ids)
        rows = [self.row(ids[: len(ids) - i]) for i in reversed(range(n_rows))]
        with np.errstate(divide="ignore"):  # log(0) is -inf, which `sampler` turns back into 0
            return np.log(rows)  # [n_rows, n_vocab]

    def forget(self):
        """Does nothing, because these drafts keep nothing from call to call."""


def make_draft(name, target, encoder, corpus=None):
    """Make a draft for a target -> a network.

    Parameters
    ----------
    name : str
        "unigram", "bigram" or "ngram" for n-grams of order 1, 2 or 3. "online" for n-grams of the text so far, "lookup"
        to copy from the text so far. "early-exit:L" for the first L layers of the target.
    target : gpt2.GPT2
    encoder : encoder.Encoder
    corpus : str, optional
        A text file to count the n-grams in. Without it, they come from TABLES, which only fits the bundled models.

    Raises
    ------
    UserError or OSError
        If the name is unknown, if the corpus or TABLES cannot be used, or if L is not from 1 to the number of layers.
    """
    n_vocab = target.n_vocab
    if early_exit := re.fullmatch("early-exit:([0-9]{1,4})", name):
        return target.first_layers(int(early_exit[1]))
    if name == "lookup":
        return AsNetwork(lambda ids: lookup(ids, n_vocab), sure=1.0)  # stops after a token that was not copied
    if name == "online":
        return AsNetwork(lambda ids: online(ids, n_vocab))
    if name not in ORDERS:
        raise UserError(f"unknown draft {name!r}; there are {', '.join(DRAFTS[1:])}, early-exit:1, ...")
    if corpus is not None:
        return AsNetwork(ngram(ids_of(read_texts(corpus), encoder), n_vocab, ORDERS[name]))
    table = NGram.load(TABLES, ORDERS[name])
    if table.n_vocab != n_vocab:
        raise UserError(f"the bundled n-grams fit only the bundled models; --draft {name} needs a --draft_corpus FILE")
    return AsNetwork(table)


def read_texts(path):
    """Read a UTF-8 file and split it into texts at each <|endoftext|>. Empty texts are left out."""
    try:
        texts = [text.strip("\n") for text in Path(path).read_text(encoding="utf-8").split(EOT)]
        return [text for text in texts if text]
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a text in UTF-8, so convert it first: {error}") from None


def ids_of(texts, encoder):
    """Encode several texts into one list of ids, with <|endoftext|> after each text."""
    return [id for text in texts for id in [*encoder.encode(text), encoder.ids[EOT]]]
