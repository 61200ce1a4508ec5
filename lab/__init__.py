"""More drafts, schedules, block verification and the trace page: `python -m lab`.

Trees of guesses and the theory of the speedup are for Python: lab/trees.py and lab/theory.py.
"""

import sys

if sys.argv[0] == "-m":  # in a program: from here on, Ctrl-C is one line
    from terminal import ending  # noqa: F401

# isort: split
import fast  # noqa: F401  # before NumPy, so that BLAS leaves the cores to it
