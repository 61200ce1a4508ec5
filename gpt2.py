"""GPT-2's forward pass in NumPy, after picoGPT (https://github.com/jaymody/picoGPT).

Two things are different. `linear` computes x @ w + b for a few rows of x faster than
NumPy does, see fast/. And the keys and values of all positions are kept, so a call
computes only the ids that differ from those of the call before.

The parameters have OpenAI's names: wte and wpe are the embeddings of tokens and
positions, c_attn makes queries, keys and values, c_fc is the first matrix of `ffn`, and
each c_proj leads back to n_embd numbers. Where the shapes below say n_seq, the arrays
have two axes, n_groups and group: rows are multiplied in groups, and rows of zeros fill
up the last.
"""

import copy
import math
import os
import threading

import numpy as np

from errors import UserError
from fast import KeysAndValues, in_groups, lay_out, linear, worth_joining

PART = 258  # a long prompt is computed in parts of this size, so that arrays stay small


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def layer_norm(x, g, b, eps=1e-5):
    x = x - x.sum(axis=-1, keepdims=True) / x.shape[-1]  # x.mean takes up to twice as long
    # np.vecdot would be faster, but with MKL, Intel's BLAS, the bits of its result
    # depend on the array's address.
    variance = (x * x).sum(axis=-1, keepdims=True) / x.shape[-1]
    return x * (g / np.sqrt(variance + eps)) + b


def attention(x, c_attn, c_proj, n_head, past, n_past):  # [n_seq, n_embd] -> [n_seq, n_embd]
    qkv = linear(x, **c_attn).reshape(*x.shape[:-1], 3, n_head, -1)  # [n_seq, n_embd] -> [n_seq, 3, n_head, d]
    q, k, v = qkv.transpose(2, 3, 0, 1, 4)  # [n_seq, 3, n_head, d] -> 3 times [n_head, n_seq, d]
    past.write(n_past, k, v)
    heads = past.attend(q, n_past)  # softmax(q @ k^T / sqrt(d) + mask) @ v, and back to [n_seq, n_embd]
    return linear(heads, **c_proj)  # [n_seq, n_embd] -> [n_seq, n_embd]


def ffn(x, c_fc, c_proj):  # [n_seq, n_embd] -> [n_seq, n_embd]
    return linear(gelu(linear(x, **c_fc)), **c_proj)  # [n_seq, n_embd] -> [n_seq, 4*n_embd] -> [n_seq, n_embd]


def transformer_block(x, ln_1, attn, ln_2, mlp, n_head, past, n_past):  # [n_seq, n_embd] -> [n_seq, n_embd]
    x = x + attention(layer_norm(x, **ln_1), **attn, n_head=n_head, past=past, n_past=n_past)
    return x + ffn(layer_norm(x, **ln_2), **mlp)


def gpt2(ids, n_rows, wte, wpe, blocks, ln_f, head, n_head, pasts, n_past):  # [n_seq] -> [n_rows, n_vocab]
    """The logits after each of the last n_rows ids, which follow n_past positions in pasts.

    The rows of zeros get keys and values too, as if they came after the text. Masks hide
    these, and later calls overwrite them. For n_rows = 0, only pasts are filled.
    """
    n_seq, n_embd = len(ids), wte.shape[1]
    x = wte[ids].astype(np.float32) + wpe[n_past : n_past + n_seq].astype(np.float32)  # [n_seq] -> [n_seq, n_embd]
    x = in_groups(x, joined=not n_rows)
    for block, past in zip(blocks, pasts):
        x = transformer_block(x, **block, n_head=n_head, past=past, n_past=n_past)
    x = x.reshape(-1, n_embd)[n_seq - n_rows : n_seq]
    if not n_rows:
        return x
    logits = linear(in_groups(layer_norm(x, **ln_f)), **head)  # [n_rows, n_embd] -> [n_rows, n_vocab]
    return logits.reshape(-1, logits.shape[-1])[:n_rows]


def common_prefix(a, b):
    """How many ids two texts share at their beginning."""
    n = min(len(a), len(b))
    differs = a[:n] != b[:n]
    return int(differs.argmax()) if differs.any() else n


class GPT2:
    """A GPT-2 that remembers the keys and values of the ids that it was called with last.

    It is a network: it returns logits, and `sampling.sampler` makes a model of it. Going
    back, as after a rejected draft, is just a call with other ids.

    How positions are spread over calls does not change a bit of the logits, so both loops
    write the same text. There is one exception, without AVX-512: a call with 32 or more
    new positions before its last n_rows computes the text anew and joins these positions.
    In both loops they are the prompt without its last token.

    Parameters
    ----------
    params, hparams : dict
        From `utils.load_hparams_and_params`. Weights are copied as float32, except wte
        and wpe.
    """

    def __init__(self, params, hparams):
        head = {"w": params["wte"].T, "b": np.zeros(hparams["n_vocab"])}  # no bias, but `linear` adds one
        weights = lay_out({"blocks": params["blocks"], "ln_f": params["ln_f"], "head": head})
        sizes = {name: hparams[name] for name in ("n_head", "n_ctx", "n_vocab")}
        self.__setstate__(sizes | {"weights": {"wte": params["wte"], "wpe": params["wpe"], **weights}})

    def __getstate__(self):  # what copy, deepcopy and pickle keep
        return {name: vars(self)[name] for name in ("n_head", "n_ctx", "n_vocab", "weights")}

    def __setstate__(self, state):
        vars(self).update(state, locks={})
        self.make_room()

    def make_room(self):
        """Forget the text, and make new room for keys and values."""
        d = self.weights["wpe"].shape[1] // self.n_head
        self.pasts = [KeysAndValues(self.n_ctx, self.n_head, d) for _ in self.weights["blocks"]]
        self.ids = np.zeros(0, dtype=np.int64)

    def forget(self):
        """Forget the text, so that the next call computes all positions."""
        self.ids = self.ids[:0]

    def first_layers(self, n_layer):
        """A GPT2 of the first n_layer layers and the same final norm and head. It shares the weights."""
        blocks = self.weights["blocks"]
        if not 1 <= n_layer <= len(blocks):
            raise UserError(f"early exit after {n_layer} layers was asked for; choose 1 to {len(blocks)}")
        first = copy.copy(self)
        first.weights = self.weights | {"blocks": blocks[:n_layer]}
        first.make_room()
        return first

    def __call__(self, ids, n_rows=1):
        """The logits after each of the last n_rows prefixes of ids.

        Parameters
        ----------
        ids : int [n], 1 <= n <= n_ctx, each 0 <= id < n_vocab
        n_rows : int, 1 <= n_rows <= n

        Returns
        -------
        float32 [n_rows, n_vocab]

        Raises
        ------
        ValueError
            If n, n_rows or an id is out of these bounds.
        UserError
            If a logit is NaN or infinite.
        """
        ids = np.asarray(ids)
        if not 1 <= n_rows <= len(ids) <= self.n_ctx:
            raise ValueError(f"found {n_rows=} and {len(ids)=}, but 1 <= n_rows <= len(ids) <= {self.n_ctx} is needed")
        if ids.min() < 0 or ids.max() >= self.n_vocab:
            raise ValueError(f"found ids from {ids.min()} to {ids.max()}; they must be from 0 to {self.n_vocab - 1}")
        # A forked process gets a lock of its own: another thread may have held this
        # one, and does not exist there.
        with self.locks.setdefault(os.getpid(), threading.Lock()):
            n_before = len(ids) - n_rows  # the last n_rows are always computed
            n_past = min(common_prefix(ids, self.ids), n_before)
            if joined := worth_joining(n_before - n_past):
                n_past = 0  # so that their bits do not depend on what happens to be cached
            while n_past < n_before - (0 if joined else PART):  # a long prompt, part by part
                end = min(n_past + PART, n_before)
                self.compute(ids[:end], 0, n_past)
                n_past = end
            return self.compute(ids, n_rows, n_past)

    def compute(self, ids, n_rows, n_past):
        """The logits after each of the last n_rows prefixes of ids, whose first n_past positions are in the cache."""
        self.ids = self.ids[:n_past]  # forget what the next line overwrites, because it may be interrupted
        with np.errstate(all="ignore"):
            logits = gpt2(ids[n_past:], n_rows, **self.weights, n_head=self.n_head, pasts=self.pasts, n_past=n_past)
        if not np.isfinite(logits).all():
            self.make_room()  # a stored NaN would reach later calls even if masked, because 0 * NaN is NaN
            raise UserError("the logits are not finite: a weight of this model is NaN, infinite or far too large")
        self.ids = ids.copy()
        return logits
