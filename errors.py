"""The only kind of error that main.py reports as one line, without a traceback."""


class UserError(ValueError):
    """Something that the user gave, such as an option, a file or a model, cannot be used. The message says why."""
