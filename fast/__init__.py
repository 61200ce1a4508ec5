"""Why x @ w is slow for a few rows, and what to do about it. Read product.py."""

from fast.attention import KeysAndValues
from fast.product import Tiles, lay_out, matrix_kernel, parts
from fast.threads import alone
