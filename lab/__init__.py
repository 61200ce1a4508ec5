"""More drafts, schedules, block verification, theory, measuring, trees of guesses, and the trace page."""
