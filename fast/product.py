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

The two kernels need different groups and tiles.

The small-matrix kernel multiplies "groups of rows". For x86, OpenBLAS has one only for
CPUs with AVX-512, and uses it if a product has at most 10^6 multiplications.

    1 row            A row of zeros is added. NumPy would use gemv for a single row, and
                     gemv gives other bits.
    2 to 12 rows     One group. An odd number gets a row of zeros, because 3 rows, for
                     example, take longer than 4.
    13 rows or more  Groups of 6. Rows of zeros fill up the last one. Groups of 12 would
                     not be faster.

A tile is 64 columns wide. The tiles lie one after the other in memory, and on each
core, one call of np.matmul runs over many of them. The *depth* of a tile is n_in, the
number of inputs. If w is deep, a whole tile and 12 rows would make more than 10^6
multiplications. So a tile deeper than 1,302 is cut into *chunks* of equal depth, whose
results are added up, always in the same order. Groups of 6 and 12 are stored column by
column, because the kernel was faster then wherever we measured it.

gemv multiplies "single rows": a group is one row. It works everywhere. The second row
finds the tile in the core's own cache, so it takes less time than the first, but five
rows still take about twice as long as one. A tile is 32 columns wide, and stored
transposed. gemv reads it faster that way, and all tiles together are the matrix w.T. So
the rows of a long prompt can be *joined* in one gemm, where packing w is little work.

The same bits. Greedy decoding gives the same text with and without speculation because,
with the routines of OpenBLAS for five kinds of CPU, a row of the result had the same
bits, whatever rows were computed beside it. gemv computes each row alone. In the
small-matrix kernel, each number of the result is a sum of products, and wherever we
looked, these are added up in the same order, whatever the size of the group. Before the
first product, `matrix_kernel` compares the bits of a row in groups of different sizes,
and the times of both kernels. It chooses groups of rows only if the bits are equal and
the groups are clearly faster. The bits of joined rows do depend on their number, so
gpt2.py joins only what both loops compute alike.
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
    n_tiles, n_chunks, depth, width = w.shape
    n_groups, group, _ = x.shape
    if group > 1 and matrix_kernel() == SINGLE:  # joined rows
        out = (x @ w.swapaxes(2, 3).reshape(-1, depth).T)[..., : len(b)]  # the tiles are one matrix
        out += b
        return out
    x = arranged(
        x.reshape(n_groups, group, n_chunks, depth).transpose(2, 0, 1, 3)
    )  # [n_chunks, n_groups, group, depth]
    out = np.empty((n_groups, group, n_tiles, width), dtype=np.float32)
    by_tile = out.transpose(2, 0, 1, 3)  # [n_tiles, n_groups, group, width]

    def multiply(some):  # a slice of the tiles
        # order="C" makes NumPy multiply all groups by one tile before it takes the next tile. Otherwise it may take
        # many tiles for one group first, and read each tile from memory again for the next group.
        if n_chunks == 1:  # [n_groups, group, depth] @ [n_some, 1, depth, width] -> [n_some, n_groups, group, width]
            np.matmul(x[0], w[some], out=by_tile[some], order="C")
        else:  # [n_some, n_chunks, n_groups, group, width], and then the chunks are added up
            np.matmul(x, w[some, :, None], order="C").sum(axis=1, out=by_tile[some])

    # The work of a tile is its bytes, once for each group, although later groups find the tile in the cache. If they
    # counted for less, five single rows would stay on one core, and take longer.
    in_parallel(multiply, n_tiles, w[0].nbytes * n_groups)
    out = out.reshape(n_groups, group, n_tiles * width)[..., : len(b)]  # without padding
    out += b
    return out


def worth_joining(n):
    """Whether n rows would be single rows, and take less time in one gemm."""
    return matrix_kernel() == SINGLE and n >= MANY


def in_groups(x, joined=False):  # [n_seq, n_in] -> [n_groups, group, n_in]
    """Cut rows into groups that are multiplied at a time, or join them if they would be single rows.

    Rows of zeros fill up the last group.
    """
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

    All matrices share one array, because on Linux, NumPy asks the system for huge pages if an array has 4 MB or more.
    Such a page has 2 MB instead of 4 KB, so the CPU has fewer addresses to look up. In one array, smaller matrices get
    huge pages too, which makes small models up to 20 % faster.
    """
    # Allocate 30 MB and free them at once. From now on, glibc, the C library of most Linux systems, keeps up to 60 MB
    # of freed memory for later arrays. Otherwise it might give back memory in every layer of a long prompt, and ask for
    # it again, which takes up to a fifth of the time. (The array is never written, so it takes no memory.)
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


def tiles(w, into):  # [n_in, n_out], zeros of shape `tile_shape` -> [n_tiles, n_chunks, depth, width]
    """Copy a matrix into its tiles. The last tile keeps some zeros if n_out is not a multiple of the width."""
    if matrix_kernel() == SINGLE:
        into = into.swapaxes(2, 3)
    width = into.shape[-1]

    def fill(some):
        for i in range(len(into))[some]:
            columns = w[:, i * width : (i + 1) * width]
            into[i].reshape(-1, width)[:, : columns.shape[1]] = columns

    in_parallel(fill, len(into), 4 * into[0].nbytes)  # 4, because copying is slower than reading
    return into


@cache
def matrix_kernel():
    """The kernel for this machine, GROUPED or SINGLE. SPECULATIVE_KERNEL=groups or =single in the environment fixes it.

    It is GROUPED if, with one tile, two groups of 6 take less than three quarters of the time of 12 single rows, and a
    row has the same bits in groups of 2, 4, ... and 12, and at each place in a group.
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
