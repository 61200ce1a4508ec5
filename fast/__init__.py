"""Why x @ w is slow for a few rows, and what to do about it. Read product.py.

Import it before NumPy, and all threads are those of threads.py.
"""

from fast import threads  # first, because it loads NumPy

# isort: split
from fast.attention import KeysAndValues
from fast.product import Tiles, lay_out, matrix_kernel, parts
from fast.threads import lock
