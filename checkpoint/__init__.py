"""Download OpenAI's checkpoints and read them without TensorFlow. `python -m checkpoint DIR` checks their numbers."""
