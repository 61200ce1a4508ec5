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
the core's own cache, so it takes less time than the first, but five rows still take
almost twice as long as one. A tile is 32 columns wide, and stored transposed. gemv reads
it faster that way, and all tiles together are the matrix w.T. So the rows of a long
prompt can be *joined* in one gemm, where packing is little work.

The same bits. Greedy decoding gives the same text with and without speculation because
a row of the result has the same bits, whatever rows are computed beside it. gemv
computes each row alone. In the small-matrix kernel, each number of the result is a sum
of products, which are added up in the same order, whatever the size of the group:
`matrix_kernel` checks this before the first product, and compares the times of both
kernels. The bits of joined rows depend on their number, see `gpt2.GPT2`.
"""

import math
import os
import timeit
from functools import cache

import numpy as np

from errors import UserError
from fast.threads import in_parallel

TILE, NARROW = 64, 32  # columns of a tile for groups of rows, and for single rows
GROUPED, SINGLE = "groups of rows", "single rows"  # what the two kernels multiply
GROUP = 6  # rows that the small-matrix kernel multiplies at a time, if there are many
MANY = 32  # single rows from which on gemm takes less time
SMALL = 1_000_000  # the small-matrix kernel takes products of at most this many multiplications


def linear(x, w, b):  # [n_groups, group, n_in], tiles of w, [n_out] -> [n_groups, group, n_out]
    """x @ w + b, where `lay_out` cut w into tiles."""
    n_groups, group, n_in = x.shape
    if matrix_kernel() == SINGLE:
        if group > 1:  # joined rows
            out = (x @ w.reshape(-1, n_in).T)[..., : len(b)]
            out += b
            return out
        w = w.swapaxes(2, 3)
    n_tiles, n_chunks, depth, width = w.shape
    # [n_groups, group, n_in] -> [n_chunks, n_groups, group, depth]
    x = arranged(x.reshape(n_groups, group, n_chunks, depth).transpose(2, 0, 1, 3))
    out = np.empty((n_groups, group, n_tiles, width), dtype=np.float32)
    by_tile = out.transpose(2, 0, 1, 3)  # [n_tiles, n_groups, group, width]

    def multiply(some):  # a slice of the tiles
        # order="C" makes NumPy multiply all groups by one tile before it takes the next.
        if n_chunks == 1:  # [n_groups, group, depth] @ [n_some, 1, depth, width] -> [n_some, n_groups, group, width]
            np.matmul(x[0], w[some], out=by_tile[some], order="C")
        else:  # [n_some, n_chunks, n_groups, group, width], and then the chunks are added up
            np.matmul(x, w[some, :, None], order="C").sum(axis=1, out=by_tile[some])

    # The work of a tile is its bytes, once for each group. If later groups, which find
    # it in the cache, counted for less, five single rows would stay on one core.
    in_parallel(multiply, n_tiles, w[0].nbytes * n_groups)
    out = out.reshape(n_groups, group, n_tiles * width)[..., : len(b)]  # without padding
    out += b
    return out


def worth_joining(n):
    """Whether n rows would be single rows, and take less time in one gemm."""
    return matrix_kernel() == SINGLE and n >= MANY


def in_groups(x, joined=False):  # [n_seq, n_in] -> [n_groups, group, n_in]
    """Cut rows into groups, and fill up the last one by rows of zeros. Or join all rows, if they would be single."""
    if matrix_kernel() == SINGLE:
        return x[None] if joined else x[:, None]
    group = len(x) + len(x) % 2 if len(x) <= 2 * GROUP else GROUP
    if n_more := -len(x) % group:
        x = np.concatenate([x, np.zeros((n_more, x.shape[1]), dtype=x.dtype)])
    return x.reshape(-1, group, x.shape[1])


def arranged(x):  # [..., group, depth] -> the same
    """x in the memory order that is fastest for this group size: by columns for multiples of 6, otherwise unchanged."""
    return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2) if x.shape[-2] % GROUP == 0 else x


@np.errstate(all="ignore")  # `matrix_kernel` may multiply here, and with some BLAS, NumPy warns without a reason
def lay_out(params):
    """A copy of nested parameters in float32, in which each matrix "w" [n_in, n_out] is cut into tiles.

    All matrices share one array, because on Linux, NumPy asks for huge pages if an array
    has 4 MB or more. Small models are up to 20 % faster with them.
    """
    # 30 MB that are allocated and freed make glibc keep up to 60 MB of freed memory.
    # Otherwise a long prompt may ask for memory in every layer, a fifth of its time.
    np.empty(30_000_000, dtype=np.uint8)
    layers = []

    def copy(tree):
        """Copy all but the matrices "w". `layers` collects their dicts, in which the last loop replaces w by tiles."""
        if isinstance(tree, list):
            return [copy(branch) for branch in tree]
        if not isinstance(tree, dict):
            return tree.astype(np.float32)
        tree = {name: branch if name == "w" else copy(branch) for name, branch in tree.items()}
        if "w" in tree:
            layers.append(tree)
        return tree

    params = copy(params)
    shapes = [tile_shape(*layer["w"].shape) for layer in layers]
    room = aligned_zeros(sum(map(math.prod, shapes)))
    for layer, shape in zip(layers, shapes):
        part, room = np.split(room, [math.prod(shape)])
        layer["w"] = tiles(layer["w"], part.reshape(shape))
    return params


def aligned_zeros(*shape):
    """float32 zeros that begin at a multiple of 64 bytes, a cache line. Otherwise gemv takes up to 15 % longer."""
    room = np.zeros(math.prod(shape) + 15, dtype=np.float32)
    first = -room.ctypes.data % 64 // 4
    return room[first : first + math.prod(shape)].reshape(shape)


def tile_shape(n_in, n_out):  # -> n_tiles, n_chunks, depth, width, or for single rows n_tiles, 1, width, depth
    if matrix_kernel() == SINGLE:
        return math.ceil(n_out / NARROW), 1, NARROW, n_in
    deepest = SMALL // (2 * GROUP * TILE)  # 1,302
    n_chunks = next(n for n in range(1, n_in + 1) if n_in % n == 0 and n_in // n <= deepest)
    return math.ceil(n_out / TILE), n_chunks, n_in // n_chunks, TILE


def tiles(w, into):  # [n_in, n_out], zeros of shape `tile_shape` -> the same, filled
    """Copy a matrix into its tiles. The last tile keeps some zeros if n_out is not a multiple of the width."""
    seen = into.swapaxes(2, 3) if matrix_kernel() == SINGLE else into  # [n_tiles, n_chunks, depth, width]
    width = seen.shape[-1]

    def fill(some):
        for i in range(len(into))[some]:
            columns = w[:, i * width : (i + 1) * width]
            seen[i].reshape(-1, width)[:, : columns.shape[1]] = columns

    in_parallel(fill, len(into), 4 * into[0].nbytes)  # 4, because copying is slower than reading
    return into


@cache
def matrix_kernel():
    """GROUPED or SINGLE. SPECULATIVE_KERNEL=groups or =single in the environment fixes it.

    It is GROUPED if two groups of 6 take less than three quarters of the time of 12
    single rows, and a row has the same bits in each group and at each place.
    """
    kernels = {"groups": GROUPED, "single": SINGLE}
    if choice := os.environ.get("SPECULATIVE_KERNEL"):
        if choice not in kernels:
            raise UserError(f"SPECULATIVE_KERNEL is {choice!r} in the environment; use groups or single, or unset it")
        return kernels[choice]
    rng = np.random.default_rng(0)
    x, tile = (rng.standard_normal(shape, dtype=np.float32) for shape in ((2 * GROUP, 768), (768, TILE)))

    def seconds(group):
        rows = arranged(x.reshape(-1, group, 768))
        out = np.matmul(rows, tile)
        return min(timeit.repeat(lambda: np.matmul(rows, tile, out=out), number=1, repeat=18))

    together = np.matmul(arranged(x), tile)
    groups = [slice(i, i + n) for n in range(2, 2 * GROUP + 1, 2) for i in range(2 * GROUP - n + 1)]
    same_bits = all(np.array_equal(np.matmul(arranged(x[group]), tile), together[group]) for group in groups)
    return GROUPED if same_bits and seconds(GROUP) < 0.75 * seconds(1) else SINGLE
