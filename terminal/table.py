"""Tables in Markdown, which can be read on a terminal, too."""


def table(header, rows, n_left=1):
    """Rows as a table, whose columns are right-aligned except for the first n_left."""
    rule = ["---" if i < n_left else "---:" for i in range(len(header))]
    return "\n".join(f"| {' | '.join(map(cell, row))} |" for row in [header, rule, *rows])


def cell(value):
    return f"{value:.2f}" if isinstance(value, float) else str(value)
