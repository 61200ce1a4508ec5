"""The error that is the user's."""


class UserError(ValueError):
    """Something that the user gave, such as an option, a file or a model, cannot be used. The message says why."""
