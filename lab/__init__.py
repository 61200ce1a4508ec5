"""More drafts, schedules, block verification, trees, theory, measuring, the trace page. See `python -m lab --help`."""

import fast  # noqa: F401  # before NumPy, so that BLAS leaves the cores to it
