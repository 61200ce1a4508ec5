"""More drafts, schedules, block verification, trees, theory, the trace page: `python -m lab`."""

import ending  # noqa: F401  # first, so that Ctrl-C is one line from here on
import fast  # noqa: F401  # before NumPy, so that BLAS leaves the cores to it
