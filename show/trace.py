"""The file that --trace writes."""

from show.page import page
from show.picture import picture, typical_round


def write_trace(path, encoder, prompt, plain, fast, rounds, figures, settings):
    """Write a page (.html) or a picture of one round (.svg). The arguments are those of `show.page.page`."""
    if path.endswith(".html"):
        text = page(encoder, prompt, plain, fast, rounds, figures, settings)
    else:
        r = typical_round(rounds)
        before = [token for earlier in rounds[: rounds.index(r)] for token in earlier.emitted]
        text = picture(encoder, [*prompt, *before], r)
    with open(path, "w", encoding="utf-8", errors="replace") as f:  # a file name on the command line may not be UTF-8
        f.write(text)
