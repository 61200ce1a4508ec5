"""How fast it is, and how fast others are. Each script says what it prints."""

import fast  # noqa: F401  # before NumPy, so that BLAS leaves the cores to it
