"""Download OpenAI's checkpoints and read them without TensorFlow. (The sampling code does not need to know how.)

    python -m checkpoint models/1558M

compares all numbers of a checkpoint with the checksums in its index.
"""
