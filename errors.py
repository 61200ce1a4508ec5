"""For the time being: see checkpoint/__init__.py."""

from checkpoint import UserError as UserError
