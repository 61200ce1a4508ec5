"""An error that main.py reports as one line, without a traceback, like OSError and MemoryError."""


class UserError(ValueError):
    """Something that the user gave, such as an option, a file or a model, cannot be used. The message says why."""
