"""The keys and values of one layer, and attention over them.

In each head, a position has three vectors of d numbers: a query, a key and a value. The query of a position is
multiplied by the keys of all positions up to this one. A softmax turns these products into the *shares* of the
positions. The result is the mean of the values of these positions, weighted by the shares. (In this file, q stands for
queries, k for keys and v for values.)

Positions are stored in blocks of 64. A block of keys is laid out like a tile of weights: each column is the key of one
position (see fast/product.py). So the shapes of the products do not depend on the length of the text. Positions after
the query are masked, and only add zeros to its sums. So the result has the same bits, however many positions are
computed in one call.
"""

import math
from functools import lru_cache

import numpy as np

from fast.product import GROUP, TILE, group_size, whole_groups
from fast.threads import in_parallel

BLOCK = TILE  # positions in a block; it is multiplied like a tile
LANES = 16  # numbers in a register of AVX-512


class KeysAndValues:
    """Room for the keys and values of n_ctx positions. Usually, only blocks that are written take memory.

    Parameters
    ----------
    n_ctx, n_head : int
    d : int
        The size of a head, n_embd / n_head.
    """

    def __init__(self, n_ctx, n_head, d):
        n_blocks = math.ceil((n_ctx + GROUP - 1) / BLOCK)  # the last position may be followed by padding
        # Column d of the values holds ones. So in that column, shares @ values is the sum of the shares, which is the
        # denominator of the softmax. The columns after it are padding, up to a multiple of LANES. Without the padding,
        # we saw rows whose bits depended on the size of their group.
        n_columns = LANES * math.ceil((d + 1) / LANES)
        self.keys = np.zeros((n_blocks, n_head, 1, d, BLOCK), dtype=np.float32)  # (1 is for the groups of queries)
        self.values = np.zeros((n_blocks, n_head, 1, BLOCK, n_columns), dtype=np.float32)

    def write(self, n_past, k, v):  # k and v: [n_head, n_new, d]
        """Store the keys and values of positions n_past, n_past + 1, ..."""
        _, n_new, d = k.shape
        block, first = divmod(n_past, BLOCK)
        n = min(n_new, BLOCK - first)
        self.keys[block, :, 0, :, first : first + n] = k[:, :n].swapaxes(1, 2)
        self.values[block, :, 0, first : first + n, :d] = v[:, :n]
        self.values[block, :, 0, first : first + n, d] = 1  # the column of ones
        if n < n_new:
            self.write(n_past + n, k[:, n:], v[:, n:])

    def attend(self, q, n_past):  # [n_head, n_new, d] -> [n_new, n_head * d]
        """softmax(q k^T / sqrt(d) + mask) v, for queries at positions n_past, n_past + 1, ..."""
        n_head, n_new, d = q.shape
        # A product with a block of values, [BLOCK, n_columns], has as many multiplications as one with a tile that is
        # n_columns deep.
        group = group_size(n_new, depth=self.values.shape[-1])
        q = whole_groups(q.swapaxes(0, 1), group).swapaxes(0, 1)
        n_padded, n_groups = q.shape[1], q.shape[1] // group
        q = (q / math.sqrt(d)).reshape(n_head, n_groups, group, d)
        n_blocks = math.ceil((n_past + n_padded) / BLOCK)
        masked = (small_mask if n_padded <= BLOCK else mask)(n_past % BLOCK, n_padded, group)
        heads = np.empty((n_padded, n_head, d), dtype=np.float32)

        def attend_to(some):  # a slice of the heads
            keys, values = self.keys[:n_blocks, some], self.values[:n_blocks, some]
            # order="C" as in `linear`: all groups of queries are multiplied by one block before the next block is taken
            shares = np.matmul(q[some], keys, order="C")  # [n_blocks, n_some, n_groups, group, BLOCK]
            shares[n_past // BLOCK :] += masked
            shares -= shares.max(axis=(0, 4), keepdims=True)
            np.exp(shares, out=shares)  # a softmax, except for the division, which comes last
            sums = np.matmul(shares, values, order="C").sum(axis=0)  # [n_some, n_groups, group, d + 1 and padding]
            sums = sums.reshape(len(sums), n_padded, -1).swapaxes(0, 1)  # [n_padded, n_some, ...]
            np.divide(sums[..., :d], sums[..., d : d + 1], out=heads[:, some])

        # A position has a key and a value of d float32 each: 8 d bytes, which count once per group, as in `linear`.
        in_parallel(attend_to, n_head, 8 * d * n_blocks * BLOCK * n_groups)
        return heads[:n_new].reshape(n_new, n_head * d)


def mask(first, n_rows, group):
    """0 where a query may look and -inf where it may not, for the block of the first query and all later blocks.

    The query of row i is at position first + i, counted from the beginning of that block.
    """
    n_blocks = math.ceil((first + n_rows) / BLOCK)
    later = np.arange(n_blocks * BLOCK) > first + np.arange(n_rows)[:, None]  # [n_rows, n_blocks * BLOCK]
    masked = np.where(later, np.float32(-np.inf), np.float32(0)).reshape(-1, group, n_blocks, BLOCK)
    return masked.transpose(2, 0, 1, 3)[:, None]  # [n_blocks, 1, n_groups, group, BLOCK]


small_mask = lru_cache(maxsize=256)(mask)  # at most 8 MB; a larger mask takes little time, compared with its pass
