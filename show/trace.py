"""The file that --trace writes."""

from pathlib import Path

from show.page import page
from show.picture import picture, typical_round


def write_trace(path, encoder, prompt, plain, fast, rounds, figures, command):
    """Write a page (.html) or a picture of one round (.svg). The arguments are those of `show.page.page`."""
    if path.endswith(".html"):
        text = page(encoder, prompt, plain, fast, rounds, figures, command)
    else:
        r = typical_round(rounds)
        before = [token for earlier in rounds[: rounds.index(r)] for token in earlier.emitted]
        text = picture(encoder, [*prompt, *before], r)
    # errors="replace", because a file name on the command line, which the page shows, may not be UTF-8
    Path(path).write_text(text, encoding="utf-8", errors="replace")
