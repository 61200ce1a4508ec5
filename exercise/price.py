"""Where a rule like `verify` stands that is wrong on purpose: what it gains, and who would see it.

The pair is that of docs/exactness.md, where "The price of being lossy" has other rules.
"""

from functools import partial

from enumeration import output_distribution
from exercise.adapters import as_verify
from exercise.grading import ROUNDING, in_digits, problem
from gallery import P, Q, Setting
from gallery.blind import distances
from gallery.lossy import beside
from gallery.samples import in_words
from gallery.variant import Variant

FLOATS = Setting(P.astype(float), Q.astype(float))


def priced(step, function, path):
    """The lines about a function, and whether it is exact. None: it's wrong, and it runs."""
    rule = Variant("", "", verify=as_verify(function))
    try:
        output_distribution(partial(rule.text, setting=FLOATS), resolution=0)  # no other generator
        (distance, first, one_row), texts = distances(rule, FLOATS)
        ours = rule.tokens_per_round(FLOATS)
    except BaseException as error:
        return [problem(error, path)], False
    of_coin, best = beside(distance)
    numbers = {
        "what first tokens alone are wrong by": first,
        "the same if one row is for all texts": one_row,
        "tokens per round": ours,
        "verify": 1.79,
        "verify_block": 1.86,
        "a coin that is as wrong": of_coin,
        "at best": best,
    }
    lines = [f"{n:.4f}  {name}" for name, n in numbers.items()]
    if distance < ROUNDING:
        return ["exact", *lines], True
    return [f"wrong by {in_digits(distance)}", in_words(*texts, 3), *lines], None
