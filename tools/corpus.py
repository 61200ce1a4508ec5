"""Split the corpus of the bundled models into a training part and a held-out part, which share no tale."""

import numpy as np

from lab.drafts import read_texts


def split_tales(path):
    """Read a text file -> training tales, held-out tales. The held-out tales are the last tenth of the text."""
    tales = read_texts(path)
    ends = np.cumsum([len(tale) for tale in tales])
    n_train = int(np.searchsorted(ends, 0.9 * ends[-1]))
    return tales[:n_train], tales[n_train:]
