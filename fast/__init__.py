"""Why x @ w is slow for a few rows, and what to do about it. Read product.py.

Import it before NumPy, and all threads are those of threads.py.
"""

from fast import threads  # first, because it loads NumPy

# isort: split
from fast.attention import KVCache
from fast.product import Tiles, matrix_kernel, parts, tile_params
from fast.threads import lock
