"""docs/audit.md agrees with docs/audit.json, and the example in it runs."""

import json
import math
import re

from support import ROOT

from benchmarks import audit

PAGE = (ROOT / "docs/audit.md").read_text(encoding="utf-8")
RESULTS = json.loads((ROOT / "docs/audit.json").read_text(encoding="utf-8"))


def test_the_table_of_the_page_is_that_of_the_results():
    header = audit.table([]).splitlines()[0]
    tables = [block for block in PAGE.split("\n\n") if block.startswith(header)]
    assert tables == [audit.table(RESULTS)]


def test_the_results_contain_no_path():
    """An error message could show a path of the computer that ran the audit."""
    assert not [text for row in RESULTS for text in row.values() if isinstance(text, str) and re.search(r"[/\\]", text)]


def test_the_example_prints_what_the_page_says(capsys):
    section = PAGE.split("## Your own sampler")[1]
    code, printed = re.search(r"```python\n(.*?)```.*?```text\n(.*?)```", section, re.DOTALL).groups()
    exec(code, {})
    assert capsys.readouterr().out == printed


def test_a_new_result_replaces_only_its_own_setting():
    def row(package, version, setting, **result):
        return {"package": package, "version": version, "setting": setting} | result

    old = [row("mlx-lm", "1", "a", distance=1), *(row("transformers", "1", s, distance=2, samples=9) for s in "abc")]
    new = [row("transformers", "1", "b", distance=4), row("transformers", "2", "b", distance=5)]
    new += [row("transformers", "1", "a", distance=2 + 1e-9), row("transformers", "1", "c", error="IndexError")]
    found = [(result.get("distance"), result.get("samples"), result.get("error")) for result in audit.merged(old, new)]
    assert found == [(2 + 1e-9, 9, None), (4, None, None), (None, None, "IndexError"), (5, None, None), (1, None, None)]


def test_distance_by_chance_of_a_fair_coin():
    n = 1000
    exact = sum(math.comb(n, heads) / 2**n * abs(heads / n - 1 / 2) for heads in range(n + 1))
    assert abs(audit.distance_by_chance({(0,): 0.5, (1,): 0.5}, n) - exact) < 0.001 * exact
