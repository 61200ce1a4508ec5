"""GPT-2 in NumPy: the forward pass, and a class that remembers what it has read.

After picoGPT (https://github.com/jaymody/picoGPT). fast/ has the same class, faster.

The parameters have OpenAI's names: wte and wpe are the embeddings of tokens and
positions, c_attn makes queries, keys and values, c_fc is the first matrix of `ffn`, and
each c_proj leads back to n_embd numbers. A head has d = n_embd / n_head of them. n_past
positions were computed by earlier calls, and n_seq are new.
"""

import math
from functools import partial

import numpy as np


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


def attention(q, k, v):  # [n_head, n_seq, d], 2 times [n_head, n_past+n_seq, d] -> as q
    n_seq, n_all = q.shape[1], k.shape[1]
    scores = q @ k.swapaxes(1, 2) / math.sqrt(q.shape[2])  # [n_head, n_seq, n_past+n_seq]
    # Row i is position n_past + i, and sees positions 0 to n_past + i, but no later one.
    is_seen = np.tri(n_seq, n_all, n_all - n_seq, dtype=bool)
    return softmax(np.where(is_seen, scores, -np.inf)) @ v


def mha(x, c_attn, c_proj, n_head, attend):  # [n_seq, n_embd] -> [n_seq, n_embd]
    qkv = linear(x, **c_attn)  # [n_seq, n_embd] -> [n_seq, 3*n_embd]
    q, k, v = qkv.reshape(len(x), 3, n_head, -1).transpose(1, 2, 0, 3)  # 3 of [n_head, n_seq, d]
    heads = attend(q, k, v)  # -> [n_head, n_seq, d]
    x = heads.swapaxes(0, 1).reshape(x.shape)  # -> [n_seq, n_embd]
    return linear(x, **c_proj)  # [n_seq, n_embd] -> [n_seq, n_embd]


def transformer_block(x, ln_1, attn, ln_2, mlp, n_head, attend):  # [n_seq, n_embd] -> the same
    x = x + mha(layer_norm(x, **ln_1), **attn, n_head=n_head, attend=attend)
    return x + ffn(layer_norm(x, **ln_2), **mlp)


class KVCache:
    """The keys and values of one layer, for all positions so far: [n_head, n_past, d]."""

    def __init__(self):
        self.k = self.v = None

    def attend(self, n_past, q, k, v):  # 3 times [n_head, n_seq, d] -> [n_head, n_seq, d]
        """Attention of new positions. What is kept after n_past, such as a rejected guess, goes."""
        if n_past > 0:
            k = np.append(self.k[:, :n_past], k, axis=1)
            v = np.append(self.v[:, :n_past], v, axis=1)
        self.k, self.v = k, v
        return attention(q, k, v)


class GPT2:
    """A network: ids in, logits out. `sampling.as_model` makes a model of it.

    It keeps the keys and values of the ids that it was called with last, and a call computes
    only the ids that differ from these. Going back, as after a rejected guess, is just a call
    with other ids.

    Parameters
    ----------
    params, hparams : dict
        From `checkpoint.read.read`. Weights are copied as float32.
    """

    def __init__(self, params, hparams):
        params = self.laid_out(params)
        self.wte = params["wte"]
        self.wpe = params["wpe"]
        self.blocks = params["blocks"]
        self.ln_f = params["ln_f"]
        self.head = params["head"]["w"]
        self.n_head = hparams["n_head"]
        self.n_ctx = hparams["n_ctx"]
        self.n_vocab = hparams["n_vocab"]
        self.allocate()

    def laid_out(self, params):
        """The parameters as products need them, and the head, which shares the weights of wte."""
        params = as_float32(params)
        return params | {"head": {"w": params["wte"].T}}

    def allocate(self):
        """Forget the text, and begin a new cache."""
        self.kv_cache = [KVCache() for _ in self.blocks]
        self.reset()

    def reset(self):
        """Forget the text, so that the next call computes all positions."""
        self.ids = np.zeros(0, dtype=np.int64)

    def __copy__(self):  # it shares the weights, and has a text of its own
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.allocate()
        return other

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
        FloatingPointError
            If a logit is NaN or infinite.
        """
        ids = np.array(ids)
        self.check(ids, n_rows)
        # Where a guess was rejected, ids differ from those of the last call. All that was kept
        # from there on is dropped: that's rolling back.
        n_past = min(common_prefix(ids, self.ids), len(ids) - n_rows)
        self.reset()  # in case this call is interrupted
        logits = self.forward(ids, n_past, n_rows)
        self.ids = ids
        return logits

    def check(self, ids, n_rows):
        if not 1 <= n_rows <= len(ids) <= self.n_ctx:
            needed = f"1 <= n_rows <= len(ids) <= {self.n_ctx} is needed"
            raise ValueError(f"found {n_rows=} and {len(ids)=}, but {needed}")
        if ids.min() < 0 or ids.max() >= self.n_vocab:
            needed = f"they must be from 0 to {self.n_vocab - 1}"
            raise ValueError(f"found ids from {ids.min()} to {ids.max()}; {needed}")

    @np.errstate(all="ignore")  # the logits are checked
    def forward(self, ids, n_past, n_rows):  # [n_past+n_seq] -> [n_rows, n_vocab]
        """What `__call__` returns. The first n_past positions are in the cache."""
        x = self.wte[ids[n_past:]] + self.wpe[n_past : len(ids)]  # [n_seq] -> [n_seq, n_embd]
        for block, kv_cache in zip(self.blocks, self.kv_cache):
            attend = partial(kv_cache.attend, n_past)
            x = transformer_block(x, **block, n_head=self.n_head, attend=attend)
        x = layer_norm(x[len(x) - n_rows :], **self.ln_f)  # -> [n_rows, n_embd]
        logits = x @ self.head  # -> [n_rows, n_vocab]
        if not np.isfinite(logits).all():
            self.allocate()  # a NaN among the keys or values would reach later calls
            problem = "a weight of this model is NaN, infinite or far too large"
            raise FloatingPointError(f"the logits are not finite: {problem}")
        return logits


def as_float32(tree):
    """A copy of nested parameters in float32."""
    if isinstance(tree, dict):
        return {name: as_float32(branch) for name, branch in tree.items()}
    if isinstance(tree, list):
        return [as_float32(branch) for branch in tree]
    return np.array(tree, dtype=np.float32)


def common_prefix(a, b):
    """How many ids two texts share at their beginning."""
    n = min(len(a), len(b))
    differs = a[:n] != b[:n]
    return int(differs.argmax()) if differs.any() else n
