"""Write speculative sampling yourself, and be told exactly what is wrong: see README.md."""

import sys

if sys.argv[0] == "-m":  # in a program: from here on, Ctrl-C is one line
    from terminal import ending  # noqa: F401

# isort: split
import fast  # noqa: F401  # before NumPy, so that BLAS leaves the cores to it
