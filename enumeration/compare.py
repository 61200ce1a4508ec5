"""How far apart two distributions are, and where, and whether real runs contradict one."""

import math
from collections import Counter

END = math.inf  # after the last token of a text
SURE = 1e-9  # real runs less probable than this contradict a distribution
ROUNDING = 1e-6  # by which probabilities may miss a sum of 1, as in float32


class Contradicted(RuntimeError):
    """A distribution was found under which real runs are next to impossible."""


def total_variation(a, b):
    """Half the sum of |a - b| over two {output: probability}: 0 if equal, at most 1.

    No set of outputs differs by more in probability. The worst set holds every output
    to which a gives more than b does.
    """
    a, b = checked(a), checked(b)
    outputs = {*a, *b}
    if len({isinstance(output, tuple) for output in outputs}) > 1:
        problem = "some outputs are tuples, and others are not"
        raise TypeError(f"{problem}; write (0,) for a single token 0")
    one, other = lengths(a), lengths(b)
    if one and other and not one & other:
        raise ValueError(
            f"outputs of {either(one)} tokens are compared with outputs of {either(other)}; "
            "is the prompt in one of them?"
        )
    differences = [abs(a.get(output, 0) - b.get(output, 0)) for output in outputs]
    return sum(differences) / 2


def checked(outputs):
    """{output: probability} without NumPy's dtypes, which would round. ValueError if it's none."""
    outputs = {output: in_python(probability) for output, probability in outputs.items()}
    for output, probability in outputs.items():
        if not probability >= 0:  # NaN is not
            raise ValueError(f"the probability of {output} is {probability}")
    total = sum(outputs.values())
    if not abs(total - 1) <= ROUNDING:
        problem = f"the probabilities of {len(outputs)} outputs have a sum of {float(total):.10g}"
        raise ValueError(f"{problem}, not of 1")
    return outputs


def in_python(a):
    """A number of Python in place of NumPy's, which may round or overflow."""
    return a.item() if hasattr(a, "item") else a


def lengths(outputs):
    """How many tokens the outputs have."""
    return {len(output) for output in outputs if isinstance(output, tuple)}


def either(numbers):
    return " or ".join(map(str, sorted(numbers)))


# ---- In words ----


def first_difference(distribution, expected, tolerance=1e-12, name=str):
    """The first beginning of a text after which a token has a wrong probability, in words.

    name(token) says what a token is called.
    """
    distribution, expected = beginnings(distribution), beginnings(expected)
    for ids in sorted({*distribution, *expected}, key=lambda ids: (len(ids), str(ids))):
        before = ids[:-1]
        if distribution.get(before) and expected.get(before):
            one = distribution.get(ids, 0) / distribution[before]
            other = expected.get(ids, 0) / expected[before]
            if abs(one - other) > tolerance:
                ends = expected.get((*before, END)) == expected[before]
                return sentence(ids, one, other, ends, name)
    return f"no token alone by more than {tolerance:.0e}"


def beginnings(outputs):
    """The probability of each beginning of an output. A whole one ends with END."""
    probabilities = Counter()
    for output, probability in outputs.items():
        ids = output if isinstance(output, tuple) else (output,)
        ids = (*ids, END)
        for n in range(len(ids) + 1):
            probabilities[ids[:n]] += in_python(probability)
    return probabilities


def sentence(ids, one, other, ends, name):
    """The last of ids has the probability `one` in place of `other`."""
    *text, last = ids
    after = f"after {' '.join(map(name, text))}" if text else "at the beginning"
    for digits in range(4, 18):
        shown, wanted = f"{float(one):.{digits}g}", f"{float(other):.{digits}g}"
        if shown != wanted:
            break
    if last == END:
        return f"{after}, the text ends with probability {shown}, but should be {wanted}"
    if ends:
        problem = f"the text should have ended, but {name(last)} follows"
        return f"{after}, {problem} with probability {shown}"
    emitted = f"{name(last)} is emitted with probability {shown}"
    return f"{after}, {emitted}, but should be {wanted}"


# ---- Real runs ----


def check_real_runs(outputs, draw_once, n):
    """Raise Contradicted if n outputs of draw_once() can hardly come from a distribution."""
    counts = Counter(draw_once() for _ in range(n))
    candidates = {*outputs, *counts}

    def at_most(output):
        p = outputs.get(output, 0)
        return chernoff(counts[output] / max(n, 1), n, p), p

    output = min(candidates, key=at_most)
    how_probable, p = at_most(output)
    if len(candidates) * how_probable < SURE:
        raise Contradicted(
            f"{n:,} real runs gave {output} {counts[output]:,} times, where the distribution "
            f"says {float(n * p):.4g}; a draw was misread, or is none of rng's, "
            "or memory was read that nobody has written"
        )


def chernoff(frequency, n, p):
    """How probable such a frequency, or one further off, is in n trials, at most."""
    divergence = 0
    for seen, probability in (frequency, p), (1 - frequency, 1 - p):
        if seen > 0:
            divergence += seen * log_ratio(seen, probability)
    return 2 * math.exp(-n * divergence)


def log_ratio(a, b):
    return math.log(a / b) if b > 0 else math.inf
