"""Write speculative sampling yourself: exercise/README.md. `python -m exercise` tells you exactly what is wrong."""

import fast  # noqa: F401  # before NumPy, so that BLAS leaves the cores to it
