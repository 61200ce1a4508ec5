"""More drafts, schedules, block verification, theory, measuring, and the trace page. `python -m lab --help` uses all."""
