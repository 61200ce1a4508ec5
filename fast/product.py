"""x @ w for a few rows of x, faster than NumPy does it. A row of x is one position.

The problem. Speculation pays well if checking K + 1 positions takes little longer than
computing one. It should: the weights w are the same, and reading them takes most of the
time. But a plain `x @ w` does not behave like that. For one row, BLAS reads w once, in
a routine called gemv. For two rows and more of a large w, it first copies all of w into
the order that its routine for matrices, gemm, wants. The copy is called packing, and
for a few rows it takes as long as the product, or longer.

The idea. Two routines, or *kernels*, do not pack: one for small matrices, and gemv. Cut
w into tiles, which are parts of its columns, and multiply a few rows at a time by each:

    for each tile of w:              # read from memory once
        for each group of rows:      # the tile is in the CPU's cache by now
            out[group, tile] = x[group] @ tile

The small-matrix kernel multiplies "groups of rows". For x86, OpenBLAS has one only for
CPUs with AVX-512, and uses it if a product has at most 10^6 multiplications. Up to 12
rows are one group, more are cut into groups of 6. A row of zeros makes their number
even, because 3 rows take longer than 4, and a single row would go to gemv, which gives
other bits. A tile is 64 columns wide. If 12 rows times a tile would make more than 10^6
multiplications, it is cut into *chunks* of equal depth, whose results are added up.

gemv multiplies "single rows", and works everywhere. The second row finds the tile in
the core's own cache, so it takes less time than the first: on one core, five rows take
about twice as long as one. The tiles are only 32 columns wide, because gemv reads several
rows of a tile at a time, and in a narrow one they lie side by side in memory. The many
rows of a long prompt are *joined* in gemm, where packing is little work.

The same bits. Greedy decoding gives the same text with and without speculation because
a row of the result has the same bits, whatever rows are computed beside it. gemv
computes each row alone. In the small-matrix kernel, each number of the result is a sum
of products, which are added up in the same order, whatever the size of the group:
`matrix_kernel` checks this before the first product, and compares the times of both
kernels. The bits of joined rows depend on their number, see `fast.gpt2.GPT2`.
"""

import math
import os
import timeit
from functools import cache
from itertools import pairwise

import numpy as np

from fast.threads import ONE_POOL, in_parallel

TILE, NARROW = 64, 32  # columns of a tile for groups of rows, and for single rows
GROUPED, SINGLE = "groups of rows", "single rows"  # what the two kernels multiply
GROUP = 6  # rows that the small-matrix kernel multiplies at a time, if there are many
MANY = 32  # single rows from which on gemm takes less time
PART = 258  # a long prompt is computed in parts of this size, so that arrays stay small
SMALL = 1_000_000  # the small-matrix kernel takes products of at most this many multiplications


class Tiles:
    """A matrix w [n_in, n_out], cut into tiles. `x @ w` is faster than NumPy's for a few rows.

    room is an array of zeros, as many as `tile_shape` says.
    """

    __array_ufunc__ = None  # so that NumPy leaves `x @ w` to this class

    def __init__(self, w, room):
        self.n_out = w.shape[1]
        self.kernel = matrix_kernel()
        self.tiles = room.reshape(tile_shape(*w.shape))
        n_tiles, _, _, width = self.tiles.shape

        def fill(part):
            for i in range(n_tiles)[part]:
                columns = w[:, i * width : (i + 1) * width]
                n = columns.shape[1]  # the last ones may be fewer, and leave some zeros
                self.tiles[i].reshape(-1, width)[:, :n] = columns

        n_bytes = 4 * self.tiles[0].nbytes  # 4, because copying is slower than reading
        in_parallel(fill, n_tiles, n_bytes)

    def __rmatmul__(self, x):  # [n_seq, n_in] -> [n_seq, n_out]
        w, n_seq = self.tiles, len(x)
        if n_seq == 0:
            return np.zeros((0, self.n_out), dtype=np.float32)
        if self.kernel == SINGLE and n_seq >= MANY:
            return self.joined(x)
        n_tiles, n_chunks, depth, width = w.shape
        x = in_groups(x)  # [n_groups, group, n_in]
        n_groups, group, _ = x.shape
        # [n_groups, group, n_in] -> [n_chunks, n_groups, group, depth]
        x = arranged(x.reshape(n_groups, group, n_chunks, depth).transpose(2, 0, 1, 3))
        out = np.empty((n_groups, group, n_tiles, width), dtype=np.float32)
        by_tile = out.transpose(2, 0, 1, 3)  # [n_tiles, n_groups, group, width]

        def multiply(part):  # a slice of the tiles
            # order="C" makes NumPy multiply all groups by one tile before it takes the next.
            if n_chunks == 1:  # [n_groups, group, depth] @ [n_some, 1, depth, width]
                np.matmul(x[0], w[part], out=by_tile[part], order="C")
            else:  # [n_some, n_chunks, n_groups, group, width], and then the chunks are added up
                np.matmul(x, w[part, :, None], order="C").sum(axis=1, out=by_tile[part])

        # The work of a tile is its bytes, once for each group. If later groups, which find
        # it in the cache, counted for less, five single rows would stay on one core.
        in_parallel(multiply, n_tiles, w[0].nbytes * n_groups)
        padded = out.reshape(n_groups * group, n_tiles * width)
        return padded[:n_seq, : self.n_out]

    def joined(self, x):  # [n_seq, n_in] -> [n_seq, n_out]
        """All rows at once, by gemm. It takes 8 tiles, copied into a wider one, at a time."""
        n_seq, n_in = x.shape
        w = self.tiles.reshape(-1, n_in, NARROW)
        out = np.empty((n_seq, len(w) * NARROW), dtype=np.float32)

        def multiply(part):  # a slice of the tiles
            for first in range(part.start, part.stop, 8):
                end = min(first + 8, part.stop)
                wider = w[first:end].swapaxes(0, 1).reshape(n_in, -1)
                np.matmul(x, wider, out=out[:, first * NARROW : end * NARROW])

        if ONE_POOL:
            in_parallel(multiply, len(w), w[0].nbytes * n_seq)
        else:  # BLAS shares it among threads of its own
            multiply(slice(0, len(w)))
        return out[:, : self.n_out]


def in_groups(x):  # [..., n_seq, n] -> [..., n_groups, group, n]
    """Cut rows into groups, and fill up the last one by rows of zeros."""
    *leading, n_seq, n = x.shape
    if matrix_kernel() == SINGLE:
        group = n_seq if n_seq >= MANY else 1
    else:
        group = n_seq + n_seq % 2 if n_seq <= 2 * GROUP else GROUP
    if n_more := -n_seq % group:
        x = np.concatenate([x, np.zeros((*leading, n_more, n), dtype=x.dtype)], axis=-2)
    return x.reshape(*leading, -1, group, n)


def parts(n_past, n_before, n):
    """How to compute positions n_past ... n - 1, if logits are wanted from n_before on.

    -> [(begin, end), ...]

    Where rows would be single, many positions before n_before are joined, from the
    beginning of the text, so that their bits do not depend on what happens to be cached.
    Those that follow stay single, however many they are.
    """
    if matrix_kernel() == GROUPED:
        begins = [*range(n_past, max(n_before, n_past + 1), PART)]
    elif n_before - n_past < MANY:
        begins = [*range(n_past, n, MANY - 1)]
    else:
        begins = [*range(0, n_before, PART), *range(n_before, n, MANY - 1)]
    return [*pairwise([*begins, n])]


def arranged(x):  # [..., group, depth] -> the same
    """x in the memory order that is fastest for this group size: by columns for multiples of 6."""
    if x.shape[-2] % GROUP:
        return x
    return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)


@np.errstate(all="ignore")  # a weight may be too large for float32; gpt2.py checks the logits
def tile_params(params):
    """A copy of nested parameters in float32, in which each matrix "w" is cut into `Tiles`.

    All matrices share one array, because on Linux, NumPy asks for huge pages if an array
    has 4 MB or more. Small models are up to 20 % faster with them.
    """
    # 30 MB that are allocated and freed make glibc keep up to 60 MB of freed memory.
    # Otherwise a long prompt may ask for memory in every layer, a fifth of its time.
    np.empty(30_000_000, dtype=np.uint8)
    layers = []

    def copy(tree):
        """Copy all but the matrices "w". `layers` collects the dicts that have one."""
        if isinstance(tree, list):
            return [copy(branch) for branch in tree]
        if not isinstance(tree, dict):
            return tree.astype(np.float32)
        tree = {name: branch if name == "w" else copy(branch) for name, branch in tree.items()}
        if "w" in tree:
            layers.append(tree)
        return tree

    params = copy(params)
    sizes = [math.prod(tile_shape(*layer["w"].shape)) for layer in layers]
    rooms = np.split(aligned_zeros(sum(sizes)), np.cumsum(sizes)[:-1])
    for layer, room in zip(layers, rooms):
        layer["w"] = Tiles(layer["w"], room)
    return params


def aligned_zeros(*shape):
    """float32 zeros that begin at a cache line (64 bytes), or gemv takes up to 15 % longer."""
    room = np.zeros(math.prod(shape) + 15, dtype=np.float32)
    first = -room.ctypes.data % 64 // 4
    return room[first : first + math.prod(shape)].reshape(shape)


def tile_shape(n_in, n_out):
    """-> n_tiles, n_chunks, depth, width"""
    width = TILE if matrix_kernel() == GROUPED else NARROW
    deepest = SMALL // (2 * GROUP * TILE)  # 1,302
    n_chunks = next(n for n in range(1, n_in + 1) if n_in % n == 0 and n_in // n <= deepest)
    return math.ceil(n_out / width), n_chunks, n_in // n_chunks, width


@cache
@np.errstate(all="ignore")  # with some BLAS, NumPy warns without a reason
def matrix_kernel():
    """GROUPED or SINGLE. SPECULATIVE_KERNEL=groups or =single in the environment fixes it.

    It is GROUPED if two groups of 6 take less than three quarters of the time of 12
    single rows, and a row has the same bits in each group and at each place.
    """
    kernels = {"groups": GROUPED, "single": SINGLE}
    if choice := os.environ.get("SPECULATIVE_KERNEL"):
        if choice not in kernels:
            problem = f"SPECULATIVE_KERNEL is {choice!r} in the environment"
            raise OSError(f"{problem}; use groups or single, or unset it")
        return kernels[choice]
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2 * GROUP, 768), dtype=np.float32)
    tile = rng.standard_normal((768, TILE), dtype=np.float32)

    def seconds(group):
        rows = arranged(x.reshape(-1, group, 768))
        out = np.matmul(rows, tile)
        return min(timeit.repeat(lambda: np.matmul(rows, tile, out=out), number=1, repeat=18))

    together = np.matmul(arranged(x), tile)
    for n in range(2, 2 * GROUP + 1, 2):
        for i in range(2 * GROUP - n + 1):
            group = np.matmul(arranged(x[i : i + n]), tile)
            if not np.array_equal(group, together[i : i + n]):
                return SINGLE
    return GROUPED if seconds(GROUP) < 0.75 * seconds(1) else SINGLE
