"""More drafts, schedules, block verification, trees, theory, measuring, the trace page. See `python -m lab --help`."""
