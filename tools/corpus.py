"""The corpus that the bundled models and tables are fitted on, in two parts that share no tale."""

import numpy as np

EOT = "<|endoftext|>"


def split_tales(path):
    """The tales of a text file, `<|endoftext|>` alone on a line between them -> training ones, held-out ones.

    Whole tales only; those held out are the last tenth of the text.
    """
    with open(path, encoding="utf-8") as f:
        tales = [tale.strip("\n") for tale in f.read().split(EOT)]
    ends = np.cumsum([len(tale) for tale in tales])
    n_train = int(np.searchsorted(ends, 0.9 * ends[-1]))
    return tales[:n_train], tales[n_train:]
