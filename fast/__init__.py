"""A GPT2 whose passes over a few positions are fast. Read product.py.

Import it before NumPy, and all threads are those of threads.py.
"""

from fast import threads  # first, because it loads NumPy

# isort: split
from fast.gpt2 import GPT2
from fast.product import matrix_kernel
