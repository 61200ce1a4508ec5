"""The tables that functions meet: a mistake may hide in any of them."""

from dataclasses import replace

import numpy as np

from gallery import Setting
from lab.trees import balanced

NAMES = "ABCD"


def quoted(ids):
    """A text such as "A B", with its quotation marks."""
    return '"' + " ".join(NAMES[id] for id in ids) + '"'


TABLES = {  # P and Q, whose rows have equal sums
    "README": (  # after A
        ((2, 5, 3), (1, 2, 7), (2, 3, 5)),
        ((3, 2, 5), (5, 4, 1), (3, 5, 2)),
    ),
    "cycle": (  # A B C A B C ..., which the draft knows nearly as well
        ((1, 8, 1), (1, 1, 8), (8, 1, 1)),
        ((2, 7, 1), (1, 2, 7), (7, 1, 2)),
    ),
    "zeros": (  # zeros, and two tokens that tie; in 14ths, which rounding changes
        ((7, 7, 0), (1, 13, 0), (6, 2, 6)),
        ((0, 8, 6), (4, 0, 10), (10, 4, 0)),
    ),
    "two tokens": (((60, 40), (0, 100)), ((20, 80), (1, 99))),
    "rare": (  # each token is rare somewhere, with p above q, and a rare replacement elsewhere
        ((2, 194, 2, 2), (2, 2, 193, 3), (2, 2, 2, 194), (193, 3, 2, 2)),
        ((1, 100, 3, 96), (95, 1, 100, 4), (3, 96, 1, 100), (100, 4, 95, 1)),
    ),
    "fine": (  # three replacements, and what only thousandths show
        ((1400, 200, 200, 200), (4, 996, 500, 500), (4, 796, 700, 500), (200, 200, 200, 1400)),
        ((200, 400, 600, 800), (3, 4, 993, 1000), (5, 797, 699, 499), (600, 800, 400, 200)),
    ),
    "twins": (  # equal rows of P beside other rows of Q, and the reverse, and ties
        ((8, 6, 2), (8, 8, 0), (8, 8, 0)),
        ((10, 2, 4), (10, 2, 4), (4, 8, 4)),
    ),
    "sparse": (
        ((1, 2, 1, 0), (0, 4, 0, 0), (1, 0, 1, 2), (1, 1, 1, 1)),
        ((2, 1, 0, 1), (1, 1, 2, 0), (0, 2, 1, 1), (3, 0, 1, 0)),
    ),
}


def setting_of(name, **sizes):
    P, Q = (np.array(table) / sum(table[0]) for table in TABLES[name])
    return Setting(P, Q, **sizes)


README = setting_of("README")
SHORT = replace(README, N=2, K=1)
CYCLE = setting_of("cycle")
ZEROS = setting_of("zeros")
LONG = setting_of("two tokens", prompt=(1, 0), N=4, K=3)
RARE = setting_of("rare")
FINE = setting_of("fine")
TWINS = setting_of("twins")
SPARSE = setting_of("sparse")
CHAINS = (README, ZEROS, LONG, TWINS)
ROUNDS = [replace(RARE, N=4, K=3), replace(FINE, N=4, K=3)]
TWO_TOKENS = replace(FINE, N=2, K=1)
SHORT_ONES = [replace(RARE, N=2, K=1), TWO_TOKENS, replace(TWO_TOKENS, prompt=(1,))]
ONE_GUESS = replace(README, N=4, K=1)
ENDED = replace(LONG, prompt=(1, 1, 0))
SIZES = [replace(LONG, N=N, K=K) for N, K in ((1, 2), (0, 2), (4, 0))]
SHAPES = (
    README,
    replace(SPARSE, shape=balanced(2, 2)),
    replace(RARE, shape=(((),),)),
    replace(RARE, shape=(((), ()), ())),
    replace(RARE, shape=((), ((), ())), prompt=(1,)),
    replace(TWINS, shape=balanced(2, 2)),
)
