"""Programs that ran once, for numbers that stay: docs/ tells the commit."""
