"""Why x @ w is slow for a few rows, and what to do about it. Read plain.py, then product.py."""

from fast.attention import KeysAndValues
from fast.product import in_groups, lay_out, linear, matrix_kernel, worth_joining
