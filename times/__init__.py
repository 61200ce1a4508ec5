"""How fast it is, and how fast others are. Each script says what it prints."""

from terminal import ending  # noqa: F401  # first, so that Ctrl-C is one line from here on

# isort: split
import fast  # noqa: F401  # before NumPy, so that BLAS leaves the cores to it
