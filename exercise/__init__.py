"""Write speculative sampling yourself: exercise/README.md. `python -m exercise` tells you exactly what is wrong."""
