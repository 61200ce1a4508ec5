"""GPT-2's forward pass in NumPy, after picoGPT, in float32, with a cache of keys and values.

Read it from the bottom up: `GPT2.__call__`, the forward pass `gpt2`, its parts; and at last `linear`, where the speed
comes from. Shapes: n_seq positions are new and n_past are cached, together n_all; a head has d = n_embd / n_head.
"""

import math
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from queue import SimpleQueue

import numpy as np
from tqdm import tqdm

from tensor_bundle import CheckpointError

TILE = 64  # columns of a tile of weights: as many as OpenBLAS's AVX-512 kernel works on at a time
DEPTH = 1600  # rows of a tile, at most
GROUP = 8  # rows of x that meet a tile at a time
MAX_GROUP = 9  # for K = 8; 9 * 64 * 1600 is still below the bound that `linear` speaks of
HEAD_START = 1_800_000  # bytes of weights that one core takes 4 rows past while it wakes another
LANES = 16  # float32 numbers in an AVX-512 register
GROWTH = 128  # positions that the cache grows by
PROMPT = 512  # positions that run through the layers together, at most, before those whose logits are wanted


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def softmax_weights(x):
    """A softmax that is yet to be divided by its sum, in place."""
    x -= x.max(axis=-1, keepdims=True)
    return np.exp(x, out=x)


def layer_norm(x, g, b, eps=1e-5):
    x = x - x.sum(axis=-1, keepdims=True) / x.shape[-1]
    variance = (x * x).sum(axis=-1, keepdims=True) / x.shape[-1]
    return x / np.sqrt(variance + eps) * g + b


def linear(x, w, b):  # [n_seq, n_in], tiles of w, [n_out] -> [n_seq, n_out]
    """x @ w + b at the speed of the memory bus, for a w that `tiles` has laid out.

    Speculation pays only if K + 1 rows take little longer than one: the weights that have to be read are the same.
    With a plain x @ w they take 2.5 to 3 times as long, as for two rows and more BLAS first copies ("packs") all of w
    into the order that its kernel wants. OpenBLAS leaves that out for products of at most 100^3 multiplications. So w
    is stored as tiles that small, each one contiguous and in the order in which this kernel reads, and one np.matmul
    runs over all of them. Of a long prompt, GROUP rows at a time meet a tile, while it is in the cache. This path of
    OpenBLAS has one thread, but NumPy releases the interpreter lock, so each core can take its share of the tiles: the
    calling one the largest, as the others have to be woken first.

    The kernel adds up every element of the result one product after the other, along the depth. So a row comes out
    the same to the last bit whatever rows stand beside it; `row_padding` sees to it that one always does.
    """
    n_tiles, n_chunks, depth, _ = w.shape
    group = len(x) if len(x) <= MAX_GROUP else GROUP
    x = x.reshape(-1, group, n_chunks, depth).swapaxes(1, 2)  # [n_groups, n_chunks, group, depth]
    out = np.empty((len(x), group, n_tiles, TILE), dtype=np.float32)

    def share(some):
        into = out.transpose(2, 0, 1, 3)[some]  # [n_some, n_groups, group, TILE]
        if n_chunks == 1:
            np.matmul(x[:, 0], w[some], out=into)
        else:
            np.matmul(x, w[some, None]).sum(axis=2, out=into)

    in_parallel(share, n_tiles, w[0].nbytes * len(x) * -(-group // 4))  # the kernel takes 4 rows at a time
    return out.reshape(-1, n_tiles * TILE)[:, : len(b)] + b


def tiles(*matrices):  # each [n_in, n_out] -> each [n_tiles, n_chunks, depth, TILE]
    """Lay weights out for `linear`: TILE columns to a tile, and a depth that is too much for one tile in chunks.

    All are views of one array: for arrays of 4 MB and more NumPy asks for huge pages, and a model whose matrices are
    smaller becomes up to 20 % faster.
    """
    shapes = []
    for n_in, n_out in (w.shape for w in matrices):
        n_chunks = next(n for n in range(1, n_in + 1) if n_in % n == 0 and n_in // n <= DEPTH)
        shapes.append((-(-n_out // TILE), n_chunks, n_in // n_chunks, TILE))
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    parts = np.split(np.zeros(ends[-1], dtype=np.float32), ends[:-1])
    tiled = [part.reshape(shape) for part, shape in zip(parts, shapes)]
    with ThreadPoolExecutor(n_cores()) as pool:
        done = pool.map(copy_tiles, tiled, matrices)
        list(tqdm(done, total=len(tiled), desc="Loading weights", unit="matrix", leave=False))
    return tiled


def copy_tiles(tiled, w):
    for i, tile in enumerate(tiled):
        columns = w[:, i * TILE : (i + 1) * TILE]
        tile.reshape(-1, TILE)[:, : columns.shape[1]] = columns


def row_padding(n):
    """How many rows to add to n: never 1 (NumPy has another kernel for it), never 3 (which take as long as 5)."""
    return int(n in (1, 3)) if n <= MAX_GROUP else -n % GROUP


@cache
def rows_are_independent():
    """Whether this machine's BLAS keeps the promise of `linear`: the same bits for a row whatever rows are beside it.

    It does where OpenBLAS has its kernels for small matrices: with AVX-512, as far as we have seen.
    """
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2 * GROUP, DEPTH), np.float32), rng.standard_normal((DEPTH, TILE + 1), np.float32)
    b = np.zeros(TILE + 1, dtype=np.float32)
    (w,) = tiles(w)
    all_rows = linear(x, w, b)
    return all(np.array_equal(linear(x[:n], w, b), all_rows[:n]) for n in range(2, MAX_GROUP + 1))


@cache
def n_cores():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def in_parallel(function, n, n_bytes):
    """function(slice) for slices of range(n), n_bytes to read for each: on all cores, where that is worth their waking.

    The calling core, which need not be woken, gets the largest slice. What function returns must be None.
    """
    ahead = HEAD_START // n_bytes
    if n <= 2 * ahead or n_cores() == 1:
        return function(slice(n))
    n_helpers = n_cores() - 1
    n_own = n - (n - ahead) * n_helpers // n_cores()
    bounds = [n_own + (n - n_own) * i // n_helpers for i in range(n_cores())]
    results = SimpleQueue()
    for some in map(slice, bounds, bounds[1:]):
        helpers().put((function, some, results))
    function(slice(n_own))
    for _ in range(n_helpers):
        if error := results.get():
            raise error


@cache
def helpers():
    """The queue of work for the other cores. (concurrent.futures does more, and would slow a pass at 124M by 5 %.)"""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=helpers.cache_clear)  # a forked process has the queue, but not the threads
    work = SimpleQueue()
    for _ in range(n_cores() - 1):
        threading.Thread(target=help_with, args=(work,), daemon=True).start()
    return work


def help_with(work):
    np.seterr(all="ignore")  # `GPT2.__call__` tells of NaN
    while True:
        function, some, results = work.get()
        try:
            results.put(function(some))
        except BaseException as error:
            results.put(error)
        del function, some, results  # they keep a model's weights in memory


def attention(x, c_attn, c_proj, n_head, k, v, n_past, mask):  # [n_seq, n_embd] -> [n_seq, n_embd]
    n_seq, n_embd = x.shape
    n_groups, group, n_new = mask.shape
    n_all, d = n_past + n_new, n_embd // n_head

    qkv = linear(x, **c_attn)  # [n_seq, n_embd] -> [n_seq, 3*n_embd]
    q, k_new, v_new = qkv.reshape(n_seq, 3, n_head, d).transpose(1, 2, 0, 3)  # 3 times [n_head, n_seq, d]
    k[:, :, n_past : n_past + n_seq] = k_new.swapaxes(1, 2)  # [n_head, d, n_all]
    v[:, n_past : n_past + n_seq, :d] = v_new  # [n_head, n_all, d_padded]
    q = (q / math.sqrt(d)).reshape(n_head, n_groups, group, d)
    heads = np.empty_like(q)

    # The columns of v from d on are all ones, and so give the sum that the softmax has to be divided by. Added up by
    # the matrix product it is the same to the last bit however many masked positions, which are zeros, come after.
    def share(some):
        weights = q[some] @ k[some, None, :, :n_all]  # [n_some, n_groups, group, n_all]
        weights[..., n_past:] += mask
        sums = softmax_weights(weights) @ v[some, None, :n_all]  # [n_some, n_groups, group, d_padded]
        np.divide(sums[..., :d], sums[..., d : d + 1], out=heads[some])

    in_parallel(share, n_head, 8 * d * n_all * n_groups * -(-group // 4))  # bytes of k and v, as `linear` counts them
    return linear(heads.reshape(n_head, n_seq, d).swapaxes(0, 1).reshape(n_seq, n_embd), **c_proj)


def ffn(x, c_fc, c_proj):  # [n_seq, n_embd] -> [n_seq, n_embd]
    return linear(gelu(linear(x, **c_fc)), **c_proj)


def transformer_block(x, ln_1, attn, ln_2, mlp, **past):  # [n_seq, n_embd] -> [n_seq, n_embd]
    x = x + attention(layer_norm(x, **ln_1), **attn, **past)
    return x + ffn(layer_norm(x, **ln_2), **mlp)


def gpt2(ids, n_rows, wte, wpe, blocks, ln_f, head, n_head, past, n_past):  # [n_seq] -> [n_rows, n_vocab]
    """The logits after each of the last n_rows of the ids, which follow n_past positions whose k and v are in past."""
    n_seq = len(ids) + row_padding(len(ids))  # added after the last position, where no other one sees them
    n_new = n_seq + -(n_past + n_seq) % LANES  # keys up to a whole register, as the kernel treats odd ends differently
    mask = np.where(np.arange(n_new) > np.arange(n_seq)[:, None], np.float32(-np.inf), np.float32(0))
    mask = mask.reshape(-1, n_seq if n_seq <= MAX_GROUP else GROUP, n_new)  # [n_groups, group, n_new]

    x = np.zeros((n_seq, wte.shape[1]), dtype=np.float32)
    x[: len(ids)] = wte[ids].astype(np.float32) + wpe[n_past : n_past + len(ids)]  # [n_seq] -> [n_seq, n_embd]
    for block, (k, v) in zip(blocks, past):
        x = transformer_block(x, **block, n_head=n_head, k=k, v=v, n_past=n_past, mask=mask)
    x = x[len(ids) - n_rows : len(ids)]  # [n_seq, n_embd] -> [n_rows, n_embd]
    x = np.concatenate([x, x[: row_padding(n_rows)]])
    return linear(layer_norm(x, **ln_f), **head)[:n_rows]  # [n_rows, n_embd] -> [n_rows, n_vocab]


class GPT2:
    """A GPT-2 as a pure function of the ids so far, which keeps the keys and values of the ids it was called with last.

    Called again, it computes only what comes after the longest common prefix (and the last n_rows positions in any
    case). So going back, as after a rejected draft, is just a call with other ids. Threads may share it, as one call
    waits for the other, but each should have its own: every change of ids costs a prompt.

    Parameters
    ----------
    params, hparams : dict
        As `utils.load_encoder_hparams_and_params` returns them. Weights are copied, in float32; wte and wpe, of which
        a pass takes a few rows, also stay what they are.
    bit_identical : bool
        Insist that the logits of a prefix are the same to the last bit however its positions were grouped into calls,
        so that greedy decoding gives the same text with and without speculation, near-ties and all. It costs nothing
        and is so anyway where the BLAS allows it; where it does not, RuntimeError.
    """

    def __init__(self, params, hparams, bit_identical=False):
        if bit_identical and not rows_are_independent():
            raise RuntimeError(
                "bit_identical needs a BLAS whose rows do not depend on each other, and NumPy's here is none"
            )
        self.n_head, self.n_ctx, self.n_vocab = hparams["n_head"], hparams["n_ctx"], hparams["n_vocab"]
        blocks, ln_f = [as_float32(block) for block in params["blocks"]], as_float32(params["ln_f"])
        head = {"w": params["wte"].T, "b": np.zeros(self.n_vocab, dtype=np.float32)}
        layers = [layer for block in blocks for part in ("attn", "mlp") for layer in block[part].values()] + [head]
        for layer, w in zip(layers, tiles(*[layer["w"] for layer in layers])):
            layer["w"] = w
        self.weights = dict(wte=params["wte"], wpe=params["wpe"], blocks=blocks, ln_f=ln_f, head=head)
        self.lock = threading.RLock()  # which `forget` may take within a call
        self.forget()

    def forget(self):
        """Empty the cache."""
        d = self.weights["wpe"].shape[1] // self.n_head
        k = np.zeros((self.n_head, d, 0), dtype=np.float32)
        v = np.ones((self.n_head, 0, d + 1 + -(d + 1) % LANES), dtype=np.float32)
        with self.lock:
            self.ids, self.past = np.zeros(0, dtype=np.int64), [(k, v) for _ in self.weights["blocks"]]

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
        ValueError if n, n_rows or an id is out of these bounds; CheckpointError, with the tensor that is to blame, if a
        logit is NaN or infinite.
        """
        ids = np.asarray(ids)
        if not 1 <= n_rows <= len(ids) <= self.n_ctx:
            raise ValueError(
                f"{len(ids)} ids and n_rows = {n_rows}: it takes 1 <= n_rows <= ids <= n_ctx = {self.n_ctx}"
            )
        if ids.min() < 0 or ids.max() >= self.n_vocab:
            raise ValueError(f"ids from {ids.min()} to {ids.max()}: the vocabulary goes from 0 to {self.n_vocab - 1}")
        with self.lock, np.errstate(over="ignore", invalid="ignore"):
            n = min(len(ids), len(self.ids))
            n_past = min(int(np.argmin(np.append(ids[:n] == self.ids[:n], False))), len(ids) - n_rows)
            if n_past + PROMPT < len(ids) - n_rows:  # piece by piece, as what goes from layer to layer takes memory too
                self(ids[: n_past + PROMPT])
                return self(ids, n_rows)
            self.ids = self.ids[:n_past]  # should we be interrupted: the rest is about to be overwritten
            n_max = min(-(-len(ids) // GROWTH) * GROWTH, self.n_ctx) + 2 * LANES  # positions, and padding after them
            for i, (k, v) in enumerate(self.past):  # one by one, so that only one layer's are there twice
                self.past[i] = grown(k, v, n_max)
            logits = gpt2(ids[n_past:], n_rows, **self.weights, n_head=self.n_head, past=self.past, n_past=n_past)
            if not np.isfinite(logits).all():
                self.forget()  # a NaN times a weight of zero is a NaN: even masked positions would spread it
                worst, name = largest(self.weights)
                raise CheckpointError(f"the logits are not finite; look at {name}, which has a weight of {worst:.3g}")
            self.ids = ids.copy()
            return logits


def largest(weights, name="model"):
    """The largest absolute value among weights, where a NaN counts as larger than all, and the tensor that has it."""
    if isinstance(weights, np.ndarray):
        return np.abs(weights).max(), name
    if isinstance(weights, list):
        weights = {f"h{i}": block for i, block in enumerate(weights)}
    found = [largest(branch, name if key == "blocks" else f"{name}/{key}") for key, branch in weights.items()]
    return max(found, key=lambda one: (np.isnan(one[0]), one[0]))


def as_float32(params):
    """A copy of a layer's parameters, but for the matrices, which are left to `tiles`."""
    if isinstance(params, dict):
        return {name: value if name == "w" else as_float32(value) for name, value in params.items()}
    return params.astype(np.float32)


def grown(k, v, n_max):
    """k [n_head, d, n_max] and v [n_head, n_max, d_padded], with room for n_max positions at least."""
    more = n_max - v.shape[1]
    if more <= 0:
        return k, v
    return np.pad(k, ((0, 0), (0, 0), (0, more))), np.pad(v, ((0, 0), (0, more), (0, 0)), constant_values=1)
