"""Write speculative sampling yourself, and be told exactly what is wrong: see README.md."""

import fast  # noqa: F401  # before NumPy, so that BLAS leaves the cores to it
