"""OpenAI's checkpoints: downloading them, and reading them without TensorFlow. A reader may skip all of this.

    python -m checkpoint models/1558M

compares all numbers of a checkpoint with the checksums that it came with.
"""
