"""Hypothesis profiles: "ci" draws the same examples every time, `pytest --hypothesis-profile=thorough` new and more."""

from hypothesis import settings

settings.register_profile("ci", max_examples=40, derandomize=True, deadline=None, database=None)
settings.register_profile("thorough", max_examples=1000, deadline=None)
settings.load_profile("ci")
