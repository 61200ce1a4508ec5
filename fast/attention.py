"""The keys and values of one layer, and attention over them.

Positions are stored in blocks of 64. A block of keys is laid out like a tile of
weights: each column is the key of one position. So the shapes of the products do not
depend on the length of the text. Positions after the query are masked and only add
zeros, so the bits do not depend on how many positions are computed in one call.
"""

import math
from functools import lru_cache

import numpy as np

from fast.product import GROUP, TILE, aligned_zeros, in_groups
from fast.threads import in_parallel

BLOCK = TILE  # positions in a block; it is multiplied like a tile
STEP = 60  # queries at a time, because all of them compute as many scores as the last one
LANES = 16  # numbers in a register of AVX-512


class KVCache:
    """Room for the keys and values of n_ctx positions. Usually, only written blocks take memory."""

    def __init__(self, n_ctx, n_head, d):  # d = n_embd / n_head
        n_blocks = math.ceil(n_ctx / BLOCK) + 1  # the last query may be followed by padding
        # Column d of the values holds ones, so that shares @ values has the denominator
        # of the softmax there. The columns after it are padding. Without it, we saw
        # rows whose bits depended on the size of their group.
        n_columns = LANES * math.ceil((d + 1) / LANES)
        self.keys = aligned_zeros(n_blocks, n_head, 1, d, BLOCK)  # 1 is for the groups of queries
        self.values = aligned_zeros(n_blocks, n_head, 1, BLOCK, n_columns)

    def attend(self, n_past, q, k, v):  # 3 times [n_head, n_seq, d] -> [n_head, n_seq, d]
        """`gpt2.attention` for positions n_past, n_past + 1, ... whose k and v are stored."""
        n_head, n_seq, d = q.shape
        if n_seq > STEP:
            steps = []
            for begin in range(0, n_seq, STEP):
                part = slice(begin, begin + STEP)
                steps.append(self.attend(n_past + begin, q[:, part], k[:, part], v[:, part]))
            return np.concatenate(steps, axis=1)
        self.write(n_past, k, v)
        q = in_groups(q / math.sqrt(d))  # [n_head, n_groups, group, d]
        _, n_groups, group, _ = q.shape
        n_blocks = math.ceil((n_past + n_groups * group) / BLOCK)
        masked = mask(n_past % BLOCK, n_groups, group)
        heads = np.empty((n_groups, group, n_head, d), dtype=np.float32)

        def attend_to(part):  # a slice of the heads
            # order="C" as in `Tiles` -> [n_blocks, n_some, n_groups, group, BLOCK]
            scores = np.matmul(q[part], self.keys[:n_blocks, part], order="C")
            scores[n_past // BLOCK :] += masked
            # First over the blocks: axis=(0, 4) takes up to three times as long
            scores -= scores.max(axis=0).max(axis=-1, keepdims=True)
            shares = np.exp(scores, out=scores)  # a softmax but for the division, which comes last
            sums = np.matmul(shares, self.values[:n_blocks, part], order="C").sum(axis=0)
            sums = sums.transpose(1, 2, 0, 3)  # [n_groups, group, n_some, d + 1 and padding]
            np.divide(sums[..., :d], sums[..., d : d + 1], out=heads[:, :, part])

        # 8 d bytes for the key and the value of a position, once for each GROUP queries
        in_parallel(attend_to, n_head, 8 * d * n_blocks * BLOCK * math.ceil(n_seq / GROUP))
        return heads.reshape(-1, n_head, d)[:n_seq].swapaxes(0, 1)

    def write(self, n_past, k, v):  # twice [n_head, n_seq, d]
        """Keep the keys and values of new positions, after the first n_past."""
        n_seq, d = k.shape[1:]
        begin = 0
        while begin < n_seq:
            block, first = divmod(n_past + begin, BLOCK)
            end = min(n_seq, begin + BLOCK - first)
            new = slice(first, first + end - begin)
            self.keys[block, :, 0, :, new] = k[:, begin:end].swapaxes(1, 2)
            self.values[block, :, 0, new, :d] = v[:, begin:end]
            self.values[block, :, 0, new, d] = 1  # the column of ones
            begin = end


@lru_cache(maxsize=256)  # of up to 30 kB
def mask(first, n_groups, group):
    """0 where a query may look and -inf where it may not.

    The first query is at position `first` of its block.
    """
    n_seq = n_groups * group
    n_blocks = math.ceil((first + n_seq) / BLOCK)
    queries = first + np.arange(n_seq)
    later = np.arange(n_blocks * BLOCK) > queries[:, None]  # [n_seq, n_blocks * BLOCK]
    masked = np.where(later, np.float32(-np.inf), np.float32(0))
    masked = masked.reshape(n_groups, group, n_blocks, BLOCK)
    return masked.transpose(2, 0, 1, 3)[:, None]  # [n_blocks, 1, n_groups, group, BLOCK]
