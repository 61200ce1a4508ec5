"""Why x @ w is slow for a few rows, and what to do about it. Begin with product.py.

`linear` is a matrix product. `lay_out` prepares the weights for it, `whole_groups` prepares the rows, and
`matrix_kernel` says how it multiplies. `KeysAndValues` is one layer's attention over all positions so far.
`bits_are_independent` tests whether the bits of a network's logits depend on how positions are grouped into calls.
"""

from fast.attention import KeysAndValues
from fast.bits import bits_are_independent
from fast.product import lay_out, linear, matrix_kernel, whole_groups
