"""Why x @ w is slow for a few rows, and what to do about it. Begin with product.py.

`linear` is a matrix product. `lay_out` prepares the weights for it, `whole_groups` prepares the rows, and
`matrix_kernel` says how it multiplies. `KeysAndValues` is one layer's attention over all positions so far.
`rows_are_independent` tests whether a row has the same bits, whatever rows are computed beside it.
"""

from fast.attention import KeysAndValues
from fast.bits import rows_are_independent
from fast.product import lay_out, linear, matrix_kernel, whole_groups
