"""Hypothesis profiles: "ci", the default, always draws the same examples. "thorough" draws more and new examples."""

from hypothesis import settings

import fast

settings.register_profile("ci", max_examples=25, derandomize=True, deadline=None, database=None)
settings.register_profile("thorough", max_examples=1000, deadline=None)
settings.load_profile("ci")


def pytest_report_header(config):
    rows, same = fast.rows_per_product(), fast.rows_are_independent()
    return f"matrix kernel: {rows} row(s) at a time; a row has the same bits whatever rows are computed with it: {same}"
