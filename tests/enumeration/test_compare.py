"""What an output is, how far two distributions are apart, and what real runs contradict."""

import math
import re
from fractions import Fraction

import numpy as np
import pytest

from enumeration import (
    Contradicted,
    assert_same_distribution,
    check_real_runs,
    output_distribution,
    sum_over_paths,
    total_variation,
)

COIN = {(0,): 0.5, (1,): 0.5}


@pytest.mark.parametrize(
    ("output", "another"),
    [
        ("ab", "ab\0"),
        (b"ab", b"ab\0"),
        ([1, "a"], ["1", "a"]),
        ([[1], [2]], [[1, 2]]),
        (np.zeros((2, 3)), np.zeros((3, 2))),
        ([2**63 + 1, -1], [2**63 + 3, -1]),
        (np.array([1, 2]), (1, (2,))),
        (range(2), range(3)),
    ],
)
def test_outputs_are_compared_as_they_are(output, another):
    assert len(sum_over_paths(lambda rng: output if rng.choice(2) else another)) == 2


async def asleep():
    return 1


@pytest.mark.filterwarnings("ignore:coroutine")
@pytest.mark.parametrize(
    ("output", "advice"),
    [
        (lambda: None, "found None; return what was drawn"),
        (lambda: [1, None], "found None; return what was drawn"),
        (lambda: {1: 2}, r"found {1: 2}; return sorted\(output\.items\(\)\)"),
        (lambda: {1}, r"found \{1\}; return sorted\(output\)"),
        (lambda: (i for i in range(2)), r"found <generator .*>; return \[\*output\]"),
        (asleep, r"found <coroutine .*>; return asyncio\.run\(output\)"),
        (lambda: math.nan, "found nan"),
    ],
)
def test_an_output_that_is_none_says_what_to_return(output, advice):
    with pytest.raises(TypeError, match=f"an output is .*; {advice}"):
        output_distribution(lambda rng: output())


# ---- Comparisons ----


def test_total_variation():
    thirds = {(0,): 0.25, (1,): 0.25, (2,): 0.5}
    assert total_variation({(0,): 0.5, (1,): 0.5, (2,): 0}, thirds) == 0.5
    for another in {(0, 1): 1.0}, {0: 1.0}:
        with pytest.raises((TypeError, ValueError), match=r"others are not|compared with outputs"):
            total_variation({(1,): 1.0}, another)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({}, "0 outputs have a sum of 0, not of 1"),
        ({(0,): 0.5}, "1 outputs have a sum of 0.5, not of 1"),
        ({(0,): 1 + Fraction(1, 10**5)}, "not of 1"),
        ({(0,): np.float16(0.2), (1,): np.float16(0.8)}, "sum of 0.9997558594, not of 1"),
        ({(0,): math.nan, (1,): 1}, r"the probability of \(0,\) is nan"),
        ({(0,): 1.5, (1,): -0.5}, r"the probability of \(1,\) is -0.5"),
    ],
)
def test_what_is_no_distribution_is_not_compared(outputs, message):
    for pair in (outputs, COIN), (COIN, outputs), (outputs, outputs):
        with pytest.raises(ValueError, match=message):
            assert_same_distribution(*pair)
    for name, value in ("tolerance", math.nan), ("resolution", math.nan), ("resolution", -1):
        with pytest.raises(ValueError, match=f"{name} must be 0 or more; found {value}"):
            assert_same_distribution(COIN, COIN, **{name: value})


@pytest.mark.parametrize(
    ("wrong", "expected", "words"),
    [
        (
            {(7, 0): 0.3, (7, 1): 0.7},
            {(7, 0): 0.29, (7, 1): 0.71},
            "wrong by 0.0100; after 7, 0 is emitted with probability 0.3, but should be 0.29",
        ),
        (
            {(0,): 0.5, (1, 0): 0.1, (1, 1): 0.4},
            {(0,): 0.5, (1,): 0.5},
            "after 1, the text should have ended, but 0 follows with probability 0.2",
        ),
        (
            {(0,): 1.0},
            {(0,): 0.75, (0, 1): 0.25},
            "wrong by 0.2500; after 0, 1 is emitted with probability 0, but should be 0.25",
        ),
        (
            {(0,): 0.5, (1,): 0.5},
            {(0,): 0.5 + 1e-9, (1,): 0.5 - 1e-9},
            "at the beginning, 0 is emitted with probability 0.5, but should be 0.500000001",
        ),
        ({0: 0.5, 1: 0.5}, {0: 1.0}, "wrong by 0.5000; at the beginning, 0 is emitted"),
        (
            {(i,): 0.1 + 8e-13 * (-1) ** i for i in range(10)},
            {(i,): 0.1 for i in range(10)},
            "wrong by 4e-12; no token alone by more than 1e-12",
        ),
    ],
)
def test_a_difference_is_said_in_words(wrong, expected, words):
    with pytest.raises(AssertionError, match=re.escape(words)):
        assert_same_distribution(wrong, expected)
    assert_same_distribution(wrong, wrong, tolerance=0)
    assert_same_distribution(wrong, expected, tolerance=0.51)


def test_samplers_are_compared_and_tokens_have_names():
    assert_same_distribution(lambda rng: rng.choice(2), lambda rng: int(rng.random() < 0.5))
    with pytest.raises(AssertionError, match="after A, B is emitted with probability 0, but"):
        assert_same_distribution(lambda rng: [0, 2], lambda rng: [0, 1], name="ABC".__getitem__)


def test_real_runs_contradict_a_wrong_distribution():
    with pytest.raises(Contradicted, match=r"^100 real runs gave \(0,\) 100 times, where"):
        output_distribution(lambda rng: rng.choice(1) + (type(rng) is not np.random.Generator))
    with pytest.raises(Contradicted, match=r"gave \(2,\) 1 times, where the distribution says 0;"):
        check_real_runs({(0,): 1.0}, iter([(0,)] * 999 + [(2,)]).__next__, 1000)


@pytest.mark.parametrize("p", [0, 1e-12, 0.001, 0.3, Fraction(1, 3), 0.999, 1])
def test_real_runs_contradict_no_right_distribution(p):
    rng = np.random.default_rng(0)

    def check(claimed):
        check_real_runs({(0,): claimed, (1,): 1 - claimed}, lambda: (int(rng.random() >= p),), 5000)

    check(p)
    with pytest.raises(Contradicted):
        check(p - 0.07 if p > 0.5 else p + 0.07)
