"""Drafts without a checkpoint of their own: n-grams, prompt lookup, the target's first layers.

`make_draft` makes a network of each, as gpt2.GPT2 is one: ids in, logits out.
"""

import math
import re
from pathlib import Path

import numpy as np

from checkpoint import UserError
from checkpoint.names import MODELS_DIR
from checkpoint.openai import EOT
from lab.ngrams import NGram, continuations, ngram, online

ORDERS = {"unigram": 1, "bigram": 2, "ngram": 3}  # how many tokens in a row are counted
TABLES = Path(MODELS_DIR, "ngrams.npz")  # counts in the text that the bundled models learned from
DRAFTS = ("model", *ORDERS, "online", "lookup")  # and early-exit:1, early-exit:2, ...


def lookup(ids, n_vocab, longest=3):
    """Prompt lookup (Saxena 2023): find an earlier copy of the last tokens, repeat what followed.

    The longest copy is best, of up to `longest` tokens, and among these the latest. The
    result is one-hot, or uniform where there is no copy. Leviathan et al. 2023 have the
    idea in section 3.6.
    """
    after = list(continuations(ids, longest))
    if len(after) < 2:
        return np.full(n_vocab, 1 / n_vocab)
    latest = after[-1][-1]
    row = np.zeros(n_vocab)
    row[ids[latest]] = 1
    return row


class AsNetwork:
    """A network made of a function row(ids) -> float64 [n_vocab]. Its logits are logarithms."""

    n_ctx = math.inf

    def __init__(self, row):
        self.row = row

    def __call__(self, ids, n_rows=1):
        ids = np.asarray(ids)
        rows = [self.row(ids[: len(ids) - i]) for i in reversed(range(n_rows))]
        with np.errstate(divide="ignore"):
            return np.log(rows)  # [n_rows, n_vocab]

    def reset(self):
        """These drafts keep nothing from call to call."""


def make_draft(name, target, encoder, corpus=None):
    """Make a draft for a target, a gpt2.GPT2 -> a network.

    Parameters
    ----------
    name : str
        One of DRAFTS but "model", or "early-exit:L" for the target's first L layers.
    corpus : str, optional
        A text file to count n-grams in. Without it they come from TABLES.
    """
    n_vocab = target.n_vocab
    early_exit = re.fullmatch("early-exit:([0-9]{1,4})", name)
    if early_exit:
        return target.first_layers(int(early_exit[1]))
    if name == "lookup":
        return AsNetwork(lambda ids: lookup(ids, n_vocab))
    if name == "online":
        return AsNetwork(lambda ids: online(ids, n_vocab))
    if name not in ORDERS:
        names = ", ".join(DRAFTS[1:])
        raise UserError(f"unknown draft {name!r}; there are {names}, early-exit:1, ...")
    if corpus is not None:
        ids = ids_of(read_texts(corpus), encoder)
        return AsNetwork(ngram(ids, n_vocab, ORDERS[name]))
    table = NGram.load(TABLES, ORDERS[name])
    if table.n_vocab != n_vocab:
        problem = "the bundled n-grams fit only the bundled models"
        raise UserError(f"{problem}; --draft {name} needs a --draft_corpus FILE")
    return AsNetwork(table)


def read_texts(path):
    """The texts of a UTF-8 file, which <|endoftext|> separates."""
    try:
        whole = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a text in UTF-8, so convert it first: {error}") from None
    texts = [text.strip("\n") for text in whole.split(EOT)]
    return [text for text in texts if text]


def ids_of(texts, encoder):
    """Several texts as one list of ids, each with the token that ends a text, if there is one."""
    ids = []
    for text in texts:
        ids += encoder.encode(text)
        ids += encoder.eos[:1]
    return ids
