"""More drafts, schedules, block verification and the trace page: `python -m lab`.

Trees of guesses and the theory of the speedup are for Python: lab/trees.py and lab/theory.py.
"""

import fast  # noqa: F401  # before NumPy, so that BLAS leaves the cores to it
