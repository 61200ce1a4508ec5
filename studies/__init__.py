"""What no user of the demo runs: other people's code, how fast it is, and how models and pictures were made."""
