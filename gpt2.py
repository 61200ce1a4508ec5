"""GPT-2's forward pass in NumPy, after picoGPT (https://github.com/jaymody/picoGPT), in float32.

Two main things are different from picoGPT. First, `linear` computes x @ w + b for a few rows of x faster than NumPy
does; fast/ explains how. Second, the keys and values of all positions are kept, one `KeysAndValues` per layer. If the
first `n_past` ids are those of the call before, their keys and values are used again. The parameters have OpenAI's
names. wte and wpe are the embeddings of tokens and positions. c_attn makes queries, keys and values. c_fc is the first
matrix of `ffn`, and each c_proj leads back to n_embd numbers.
"""

import copy
import math
import threading

import numpy as np

from errors import UserError
from fast import KeysAndValues, bits_are_independent, lay_out, linear, whole_groups

PART = 240  # a long prompt is computed in parts of this size (40 groups of 6 rows), so that arrays stay small


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def layer_norm(x, g, b, eps=1e-5):
    x = x - x.sum(axis=-1, keepdims=True) / x.shape[-1]  # mean 0 (x.mean does the same, but takes up to twice as long)
    # (np.vecdot would be faster, but with MKL, Intel's BLAS, the bits of its result depend on the array's address)
    variance = (x * x).sum(axis=-1, keepdims=True) / x.shape[-1]
    return x * (g / np.sqrt(variance + eps)) + b


def attention(x, c_attn, c_proj, n_head, past, n_past):  # [n_seq, n_embd] -> [n_seq, n_embd]
    n_seq, n_embd = x.shape
    qkv = linear(x, **c_attn).reshape(n_seq, 3, n_head, n_embd // n_head)  # d = n_embd / n_head
    q, k, v = qkv.transpose(1, 2, 0, 3)  # [n_seq, 3, n_head, d] -> 3 times [n_head, n_seq, d]
    past.write(n_past, k, v)
    heads = past.attend(q, n_past)  # softmax(q k^T / sqrt(d) + mask) v over all positions so far, [n_seq, n_embd]
    return linear(heads, **c_proj)  # [n_seq, n_embd] -> [n_seq, n_embd]


def ffn(x, c_fc, c_proj):  # [n_seq, n_embd] -> [n_seq, n_embd]
    return linear(gelu(linear(x, **c_fc)), **c_proj)  # [n_seq, n_embd] -> [n_seq, 4*n_embd] -> [n_seq, n_embd]


def transformer_block(x, ln_1, attn, ln_2, mlp, n_head, past, n_past):  # [n_seq, n_embd] -> [n_seq, n_embd]
    x = x + attention(layer_norm(x, **ln_1), **attn, n_head=n_head, past=past, n_past=n_past)
    return x + ffn(layer_norm(x, **ln_2), **mlp)


def gpt2(ids, n_rows, wte, wpe, blocks, ln_f, head, n_head, pasts, n_past):  # [n_seq] -> [n_rows, n_vocab]
    """The logits after each of the last n_rows of the ids. The ids follow n_past positions, which are in pasts."""
    n_seq = len(ids)
    x = wte[ids].astype(np.float32) + wpe[n_past : n_past + n_seq].astype(np.float32)  # [n_seq] -> [n_seq, n_embd]
    # `linear` multiplies whole groups of rows (see fast/product.py). Rows of zeros are added here, so that it seldom
    # has to add its own in each layer. They get keys and values too, as if they came after the text. Masks hide these,
    # and later calls overwrite them.
    x = whole_groups(x)  # [n_seq and up to 5 more, n_embd]
    for block, past in zip(blocks, pasts):
        x = transformer_block(x, **block, n_head=n_head, past=past, n_past=n_past)
    return linear(layer_norm(x[n_seq - n_rows : n_seq], **ln_f), **head)  # [n_rows, n_embd] -> [n_rows, n_vocab]


class GPT2:
    """A GPT-2 that remembers the keys and values of the ids that it was called with last.

    It is a network: it returns logits, and `sampling.sampler` makes a model of it. It behaves like a pure function: the
    logits depend on the ids alone. With the routines of OpenBLAS for five kinds of CPU, the logits had the same bits,
    however positions were grouped into calls (see fast/). Going back, as after a rejected draft, is just a call with
    other ids. Threads may share a GPT2, because one call waits for the other. But it is faster to give each thread a
    copy: `copy.copy(network)` shares the weights.

    Parameters
    ----------
    params, hparams : dict
        As `utils.load_hparams_and_params` returns them (but it returns hparams first). wte and wpe are used as they
        are. All other weights are copied as float32, and so is wte.T, for the output layer.
    bit_identical : bool
        Raise UserError if a short test finds that, on this machine, the last bits of the logits depend on how positions
        are grouped into calls (or that the logits are not finite).
    """

    def __init__(self, params, hparams, bit_identical=False):
        self.n_head, self.n_ctx, self.n_vocab = hparams["n_head"], hparams["n_ctx"], hparams["n_vocab"]
        head = {"w": params["wte"].T, "b": np.zeros(self.n_vocab)}  # (no bias, but `linear` adds one)
        self.weights = {"wte": params["wte"], "wpe": params["wpe"]}
        self.weights |= lay_out({"blocks": params["blocks"], "ln_f": params["ln_f"], "head": head})
        self.lock = threading.RLock()  # reentrant, because a call with a long prompt calls itself
        self.make_room()
        if bit_identical and not bits_are_independent(self):
            raise UserError("here, the last bits of logits depend on the size of a call; run without bit_identical")

    def make_room(self):
        """Forget the text, and make new room for keys and values. (`forget` keeps the old room.)"""
        d = self.weights["wpe"].shape[1] // self.n_head
        self.ids = np.zeros(0, dtype=np.int64)
        self.pasts = [KeysAndValues(self.n_ctx, self.n_head, d) for _ in self.weights["blocks"]]

    def forget(self):
        """Forget the text, so that the next call computes all positions. (A call in another thread may undo this.)"""
        self.ids = self.ids[:0]

    def __copy__(self):
        other = object.__new__(type(self))
        vars(other).update(vars(self), lock=threading.RLock())  # all attributes, but a lock of its own
        other.make_room()
        return other

    def first_layers(self, n_layer):
        """A GPT2 that has only the first n_layer layers, and the same final norm and head. It shares the weights."""
        blocks = self.weights["blocks"]
        if not 1 <= n_layer <= len(blocks):
            raise UserError(f"early exit after {n_layer} layers was asked for; choose 1 to {len(blocks)}")
        first = copy.copy(self)
        first.weights = self.weights | {"blocks": blocks[:n_layer]}
        first.pasts = first.pasts[:n_layer]
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
            If a logit is NaN or infinite. The message names the tensor with the largest weight.
        """
        ids = np.asarray(ids)
        if not 1 <= n_rows <= len(ids) <= self.n_ctx:
            raise ValueError(f"found {n_rows=} and {len(ids)=}, but 1 <= n_rows <= len(ids) <= {self.n_ctx} is needed")
        if ids.min() < 0 or ids.max() >= self.n_vocab:
            raise ValueError(f"found ids from {ids.min()} to {ids.max()}; they must be from 0 to {self.n_vocab - 1}")
        with self.lock, np.errstate(all="ignore"):  # the logits are checked for overflow below
            n_past = min(common_prefix(ids, self.ids), len(ids) - n_rows)  # the last n_rows are always computed
            while n_past + PART < len(ids) - n_rows:  # a long prompt, part by part
                n_past += PART
                self(ids[:n_past])  # keeps keys and values; the calls before have kept those of the earlier parts
            self.ids = self.ids[:n_past]  # forget what the next line overwrites, because it may be interrupted
            logits = gpt2(ids[n_past:], n_rows, **self.weights, n_head=self.n_head, pasts=self.pasts, n_past=n_past)
            if not np.isfinite(logits).all():
                self.make_room()  # a stored NaN would reach later calls even if masked, because 0 * NaN is NaN
                worst, name = largest(self.weights)
                raise UserError(f"the logits are not finite; is {name} damaged? It has a weight of {worst:.3g}")
            self.ids = ids.copy()
            return logits


def largest(weights, name="model"):
    """The largest absolute value of all weights, and the name of its tensor. NaN counts as larger than any number."""
    if isinstance(weights, np.ndarray):
        return np.abs(weights).max(), name
    if isinstance(weights, list):
        weights = {f"h{i}": block for i, block in enumerate(weights)}
    found = [largest(branch, name if key == "blocks" else f"{name}/{key}") for key, branch in weights.items()]
    return max(found, key=lambda one: (np.isnan(one[0]), one[0]))


def common_prefix(a, b):
    """How many ids two texts share at their beginning."""
    n = min(len(a), len(b))
    differs = a[:n] != b[:n]
    return int(differs.argmax()) if differs.any() else n
