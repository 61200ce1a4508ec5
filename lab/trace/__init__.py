"""The trace page: rounds.py records a run, page.py writes it as a page of its own."""
