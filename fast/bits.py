"""Do the logits of a position have the same bits, however positions are grouped into calls?"""

import itertools

import numpy as np


def bits_are_independent(network):
    """Whether one call of a GPT2 for 91 positions gives the same logits as calls for 1, 2, 3, ... and 13 positions.

    With the kernel "groups of rows", this covers all sizes of groups: 1 to 12 positions usually make one group, and
    more make groups of 6. 91 positions also need two blocks of keys. With a smaller n_ctx, the last calls are left out.
    """
    ends = [end for end in np.cumsum(range(14)) if end <= network.n_ctx]  # 0, 1, 3, 6, ... 91
    ids = np.arange(ends[-1]) % network.n_vocab
    together = network(ids, len(ids))
    # ids[:i] are in the cache from the call before, so each call below computes positions i to j - 1.
    return all(np.array_equal(network(ids[:j], j - i), together[i:j]) for i, j in itertools.pairwise(ends))
