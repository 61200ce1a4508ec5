"""docs/vectors.json, read as somebody would who has only the file."""

import json

import numpy as np
import pytest
from support.programs import read

from gallery import GALLERY
from speculative import verify

CASES = json.loads(read("docs/vectors.json"))["cases"]
HALF_A_UNIT = 2.0**-7


class Numbers:
    """A generator of given numbers. A draw is the first token whose cumulated sum is above one."""

    def __init__(self, numbers):
        self.numbers = [*numbers]
        self.u = [0.5] * 9  # what drew the guesses, for the rules that use it again

    def random(self):
        return self.numbers.pop(0)

    def choice(self, n, p):
        u = self.random()
        return next(token for token in range(n) if sum(p[: token + 1]) > u)


def outcome(case, rule=verify, shift=0.0):
    """What a rule emits where all numbers inside of (0, 1) are shifted."""
    numbers = [u + shift if 0 < u < 0.99 else u for u in case["numbers"]]
    rows = np.array(case["p"]), np.array(case["q"])
    return rule(np.array(case["drafted"], int), *rows, Numbers(numbers)).tolist()


@pytest.mark.parametrize("shift", [-HALF_A_UNIT, 0.0, HALF_A_UNIT])
def test_verify_emits_what_is_written_and_rounding_decides_nothing(shift):
    for case in CASES:
        assert outcome(case, shift=shift) == case["emitted"], case


def fails(rule):
    try:
        return any(outcome(case, rule) != case["emitted"] for case in CASES)
    except IndexError:  # it asks for more numbers than there are
        return True


def test_wrong_rules_fail():
    edits = [id for id, variant in GALLERY.items() if variant.of is verify and variant.edit]
    wrong = [id for id in edits if not GALLERY[id].exact and GALLERY[id].verify is not verify]
    assert len(wrong) > 20
    assert [id for id in wrong if not fails(GALLERY[id].verify)] == []
