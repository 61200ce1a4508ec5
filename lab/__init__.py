"""More drafts, schedules, block verification, trees, theory, the trace page: `python -m lab`."""

import fast  # noqa: F401  # before NumPy, so that BLAS leaves the cores to it
