"""Watermarks: the number that draws a token belongs to the token before it, and to a key.

    python -m studies.pages.write  # writes the table into docs/exactness.md

Whoever has the key can compute the number again, and so tell that the text was drawn with it.
That's the watermark of Aaronson, also called Gumbel, with one token of context.
"""

from dataclasses import replace
from functools import partial

import numpy as np

from enumeration import sum_over_paths, total_variation
from lab.gallery.names import picked
from lab.gallery.setting import SETTING, decode, plain
from lab.tables import shown, table
from speculative import acceptance, residual


def watermarked(draft, target, test, is_fresh, K, rng):
    """A text. The key of each is a name, or None for numbers that belong to nothing.

    is_fresh says that a context which comes again gets a new number.
    """
    text = []
    numbers = {}

    def number(key, ids):
        *before, context = ids
        if key is None or (is_fresh and context in before):
            return rng.random()
        if (key, context) not in numbers:
            numbers[key, context] = rng.random()
        return numbers[key, context]

    def propose(x, draft_model, k_max, _):
        text[:] = x.tolist()
        drafted, p = [], []
        for _ in range(k_max):
            ids = [*text, *drafted]
            p.append(draft_model(ids)[-1])
            drafted.append(picked(p[-1], number(draft, ids)))
        return drafted, p

    def verify(drafted, p, q, _):
        ids = [*text]
        for i, token in enumerate(drafted.tolist()):
            if number(test, ids) >= acceptance(p[i, token], q[i, token]):
                row = residual(p[i], q[i])
                return np.append(drafted[:i], picked(row, number(target, ids)))
            ids.append(token)
        return np.append(drafted, picked(q[-1], number(target, ids)))

    return decode(rng, replace(SETTING, K=K), verify, propose)


KEYS = {  # of draft, target and test
    "one key for both": ("a", "a", None),
    "two keys": ("a", "b", None),
    "two keys, and a third for the tests": ("a", "b", "c"),
}


def of_watermarks():
    wanted = sum_over_paths(partial(plain, setting=SETTING))

    def distances(keys, K):
        for is_fresh in (False, True):
            found = sum_over_paths(partial(watermarked, *keys, is_fresh, K))
            yield shown(total_variation(found, wanted))

    rows = [["no draft", *distances((None, "a", None), K=0)]]
    rows += [[name, *distances(keys, SETTING.K)] for name, keys in KEYS.items()]
    return table(["watermark", "one number per context", "a new one where it comes again"], rows)
