"""Hypothesis profiles: "ci" draws the same examples every time, --hypothesis-profile=thorough more and new ones."""

from hypothesis import settings

import fast

settings.register_profile("ci", max_examples=40, derandomize=True, deadline=None, database=None)
settings.register_profile("thorough", max_examples=1000, deadline=None)
settings.load_profile("ci")


def pytest_report_header(config):
    rows, same = fast.rows_per_product(), fast.rows_are_independent()
    return f"matrix kernel: {rows} row(s) at a time; identical bits however rows are grouped: {same}"
