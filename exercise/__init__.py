"""Write speculative sampling yourself, and be told exactly what is wrong: see README.md."""

from terminal import ending  # noqa: F401  # first, so that Ctrl-C is one line from here on

# isort: split
import fast  # noqa: F401  # before NumPy, so that BLAS leaves the cores to it
