"""Two requests at once: each text is exact, and yet the two of them may be wrong together.

    python -m studies.pages.write  # writes the table into docs/exactness.md

An engine that gives two requests one stream of random numbers writes two texts that know
of each other. Whoever looks at one of them finds nothing.
"""

from collections import Counter
from functools import partial
from itertools import product
from types import SimpleNamespace

import numpy as np

from enumeration import sum_over_paths, total_variation
from lab.gallery.noise import Stream
from lab.gallery.setting import SETTING, decode, emitted, plain
from lab.tables import shown, table
from sampling import sample


def one_stream(numbers, rng):
    """A text, all of whose random numbers come from a list."""
    return decode(Stream(numbers, rng), SETTING)


def one_row_of_tests(numbers, rng):
    """A first token: the u that tests the guess comes from a list, and draws are its own."""
    tests = SimpleNamespace(random=Stream(numbers, rng).random, choice=rng.choice)
    return emitted(np.array(SETTING.prompt), 1, tests, SETTING)[:1]


def first_of_plain(rng):
    return sample(SETTING.target_model(SETTING.prompt)[-1], rng)


REQUESTS = {  # what two of them share: the request, what it should do alone
    "all numbers, in texts of three tokens": (one_stream, partial(plain, setting=SETTING)),
    "the u of each test, in first tokens": (one_row_of_tests, first_of_plain),
}


def alone(request, rng):
    return request([], rng)


def both(request, rng):
    numbers = []
    return [*request(numbers, rng), *request(numbers, rng)]


def independent(distribution):
    """The distribution of two outputs that know nothing of each other."""
    found = Counter()
    for (one, share), (other, chance) in product(distribution.items(), repeat=2):
        found[one + other] += share * chance
    return found


def of_requests():
    rows = []
    for name, (request, own) in REQUESTS.items():
        each = sum_over_paths(partial(alone, request))
        wanted = sum_over_paths(own)
        pair = sum_over_paths(partial(both, request))
        off = total_variation(each, wanted), total_variation(pair, independent(wanted))
        rows.append([name, *map(shown, off)])
    return table(["two requests share", "each alone", "both"], rows)
