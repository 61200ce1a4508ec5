"""The one kind of error that main.py prints as a single line."""


class UserError(ValueError):
    """Something that the user gave, such as an option, a file or a model, cannot be used. The message says why."""
