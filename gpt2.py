"""GPT-2 in NumPy: the forward pass, then a class with a cache.

After picoGPT (https://github.com/jaymody/picoGPT).

The parameters have OpenAI's names: wte and wpe are the embeddings of tokens and
positions, c_attn makes queries, keys and values, c_fc is the first matrix of `ffn`, and
each c_proj leads back to n_embd numbers.
"""

import math
from functools import partial

import numpy as np

from checkpoint import UserError
from fast import KVCache, lock, parts, tile_params


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def softmax(x):
    exp_x = np.exp(x - x.max(axis=-1, keepdims=True))
    return exp_x / exp_x.sum(axis=-1, keepdims=True)


def layer_norm(x, g, b, eps=1e-5):
    x = x - x.sum(axis=-1, keepdims=True) / x.shape[-1]  # x.mean takes up to twice as long
    variance = (x * x).sum(axis=-1, keepdims=True) / x.shape[-1]
    return x * (g / np.sqrt(variance + eps)) + b


def linear(x, w, b):  # [n_seq, n_in], [n_in, n_out], [n_out] -> [n_seq, n_out]
    return x @ w + b


def ffn(x, c_fc, c_proj):  # [n_seq, n_embd] -> [n_seq, n_embd]
    hidden = gelu(linear(x, **c_fc))  # [n_seq, n_embd] -> [n_seq, 4*n_embd]
    return linear(hidden, **c_proj)  # [n_seq, 4*n_embd] -> [n_seq, n_embd]


def attention(q, k, v):  # 3 times [n_head, n_seq, d] -> [n_head, n_seq, d]
    _, n_seq, d = q.shape
    later = 1 - np.tri(n_seq, dtype=q.dtype)  # [n_seq, n_seq]
    scores = q @ k.swapaxes(1, 2) / math.sqrt(d)
    return softmax(scores + later * -1e10) @ v  # no position sees a later one


def mha(x, c_attn, c_proj, n_head, attend):  # [n_seq, n_embd] -> [n_seq, n_embd]
    qkv = linear(x, **c_attn)  # [n_seq, n_embd] -> [n_seq, 3*n_embd]
    q, k, v = qkv.reshape(len(x), 3, n_head, -1).transpose(1, 2, 0, 3)  # 3 of [n_head, n_seq, d]
    heads = attend(q, k, v)  # -> [n_head, n_seq, d]
    x = heads.swapaxes(0, 1).reshape(x.shape)  # -> [n_seq, n_embd]
    return linear(x, **c_proj)  # [n_seq, n_embd] -> [n_seq, n_embd]


def transformer_block(x, ln_1, attn, ln_2, mlp, n_head, attend):  # [n_seq, n_embd] -> the same
    x = x + mha(layer_norm(x, **ln_1), **attn, n_head=n_head, attend=attend)
    return x + ffn(layer_norm(x, **ln_2), **mlp)


def layers(ids, wte, wpe, blocks, n_head, n_past=0, attends=None):  # [n_seq] -> [n_seq, n_embd]
    positions = wpe[n_past : n_past + len(ids)]
    x = np.add(wte[ids], positions, dtype=np.float32)  # [n_seq] -> [n_seq, n_embd]
    for block, attend in zip(blocks, attends or [attention] * len(blocks)):
        x = transformer_block(x, **block, n_head=n_head, attend=attend)
    return x


def gpt2(ids, wte, wpe, blocks, ln_f, n_head):  # [n_seq] -> [n_seq, n_vocab]
    x = layers(ids, wte, wpe, blocks, n_head)
    return layer_norm(x, **ln_f) @ wte.T  # [n_seq, n_embd] -> [n_seq, n_vocab]


class GPT2:
    """The same, but fast: it keeps the keys and values of the ids that it was called with last.

    A call computes only the ids that differ from those of the call before. Going back, as
    after a rejected guess, is just a call with other ids. Each w is cut into tiles, for
    which `x @ w` is faster than NumPy's, see fast/.

    It is a network: it returns logits, and `sampling.as_model` makes a model of it.

    The logits of a position have the same bits whether it is computed alone or beside
    others, so both loops write the same text. Without AVX-512 that holds only for a few
    positions at a time, and a long prompt would break it. So on such a CPU, many positions
    before the last n_rows get a pass of their own, which begins at the start of the text. In
    both loops these positions are the prompt without its last token, so the bits agree.

    Parameters
    ----------
    params, hparams : dict
        From `checkpoint.read.read`. Weights are copied as float32.
    """

    def __init__(self, params, hparams):
        self.n_head = hparams["n_head"]
        self.n_ctx = hparams["n_ctx"]
        self.n_vocab = hparams["n_vocab"]
        tiled = tile_params(params | {"head": {"w": params["wte"].T}})
        self.wte = tiled["wte"]
        self.wpe = tiled["wpe"]
        self.blocks = tiled["blocks"]
        self.ln_f = tiled["ln_f"]
        self.head = tiled["head"]["w"]
        self.allocate()

    def allocate(self):
        """Forget the text, and allocate a new cache."""
        d = self.wpe.shape[1] // self.n_head
        self.kv_cache = [KVCache(self.n_ctx, self.n_head, d) for _ in self.blocks]
        self.reset()

    def reset(self):
        """Forget the text, so that the next call computes all positions."""
        self.ids = np.zeros(0, dtype=np.int64)

    def __copy__(self):  # it shares the weights, and has a text of its own
        return self.first_layers(len(self.blocks))

    def first_layers(self, n_layer):
        """A GPT2 of the first n_layer layers, and the same norm and head. It shares weights."""
        if not 1 <= n_layer <= len(self.blocks):
            problem = f"early exit after {n_layer} layers was asked for"
            raise UserError(f"{problem}; choose 1 to {len(self.blocks)}")
        first = GPT2.__new__(GPT2)
        first.__dict__.update(self.__dict__)
        first.blocks = self.blocks[:n_layer]
        first.allocate()
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
        self.check(ids, n_rows)
        n_before = len(ids) - n_rows  # the last n_rows are always computed
        with lock:
            n_past = min(common_prefix(ids, self.ids), n_before)
            self.reset()  # in case this call is interrupted
            logits = []
            for begin, end in parts(
                n_past, n_before, len(ids)
            ):  # usually one part, several if it is long
                n_wanted = max(0, end - max(begin, n_before))  # the rows of this part
                logits.append(self.compute(ids[:end], begin, n_wanted))
            self.ids = ids.copy()
        if len(logits[-1]) == n_rows:  # no need to copy them
            return logits[-1]
        return np.concatenate(logits)

    def check(self, ids, n_rows):
        if not 1 <= n_rows <= len(ids) <= self.n_ctx:
            needed = f"1 <= n_rows <= len(ids) <= {self.n_ctx} is needed"
            raise ValueError(f"found {n_rows=} and {len(ids)=}, but {needed}")
        if ids.min() < 0 or ids.max() >= self.n_vocab:
            needed = f"they must be from 0 to {self.n_vocab - 1}"
            raise ValueError(f"found ids from {ids.min()} to {ids.max()}; {needed}")

    def compute(self, ids, n_past, n_rows):  # -> [n_rows, n_vocab]
        """The logits after each of the last n_rows prefixes of ids; n_past positions are cached."""
        attends = [partial(layer.attend, n_past) for layer in self.kv_cache]
        with np.errstate(all="ignore"):
            x = layers(ids[n_past:], self.wte, self.wpe, self.blocks, self.n_head, n_past, attends)
            x = layer_norm(x[len(x) - n_rows :], **self.ln_f)
            logits = x @ self.head if n_rows else np.zeros((0, self.n_vocab), np.float32)
        if not np.isfinite(logits).all():
            self.allocate()  # a stored NaN would reach later calls even if masked: 0 * NaN is NaN
            problem = "a weight of this model is NaN, infinite or far too large"
            raise UserError(f"the logits are not finite: {problem}")
        return logits


def common_prefix(a, b):
    """How many ids two texts share at their beginning."""
    n = min(len(a), len(b))
    differs = a[:n] != b[:n]
    return int(differs.argmax()) if differs.any() else n
