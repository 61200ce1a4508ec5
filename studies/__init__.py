"""What no user of the demo runs: other people's code, times, and how models were made."""
