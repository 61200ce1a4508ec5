"""Does a row have the same bits, whatever rows are computed beside it?"""

import numpy as np

from fast.attention import KeysAndValues
from fast.product import TILE, lay_out, linear

N_ROWS = 20  # so that there are groups of all sizes, and several groups


@np.errstate(all="ignore")  # because some BLAS warn without a reason
def rows_are_independent():
    """Test products with a matrix of 800 rows and with one of 3,200 (`lay_out` cuts it), and attention."""
    rng = np.random.default_rng(0)

    def product(n_in):
        x, w = (rng.standard_normal(shape, dtype=np.float32) for shape in ((N_ROWS, n_in), (n_in, TILE + 1)))
        layer = lay_out({"w": w, "b": np.zeros(TILE + 1)})
        return lambda i, j: linear(x[i:j], **layer)

    q, k, v = rng.standard_normal((3, 1, N_ROWS, 64), dtype=np.float32)  # three times [n_head, n_seq, d]
    past = KeysAndValues(N_ROWS, 1, 64)
    past.write(0, k, v)
    return all(map(same_bits, [product(800), product(3200), lambda i, j: past.attend(q[:, i:j], i)]))


def same_bits(compute):
    """Whether compute(i, j), which computes rows i to j - 1, gives the same as compute(0, N_ROWS) there."""
    together = compute(0, N_ROWS)
    return all(np.array_equal(compute(i, j), together[i:j]) for j in range(1, N_ROWS + 1) for i in range(j))
