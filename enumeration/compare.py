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
    lengths_of_a, lengths_of_b = lengths(a), lengths(b)
    if lengths_of_a and lengths_of_b and not lengths_of_a & lengths_of_b:
        raise ValueError(
            f"outputs of {either(lengths_of_a)} tokens are compared with outputs of "
            f"{either(lengths_of_b)}; "
            "is the prompt in one of them?"
        )
    differences = [abs(a.get(output, 0) - b.get(output, 0)) for output in outputs]
    return sum(differences) / 2


def checked(outputs):
    """{output: probability} without NumPy's dtypes, which would round.

    ValueError if the probabilities are negative, or don't have a sum of 1.
    """
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
    """A number as Python has it, because NumPy's may round or overflow."""
    return a.item() if hasattr(a, "item") else a


def lengths(outputs):
    """How many tokens the outputs have."""
    return {len(output) for output in outputs if isinstance(output, tuple)}


def either(numbers):
    return " or ".join(map(str, sorted(numbers)))


# ---- In words ----


def first_difference(distribution, expected, tolerance=1e-12, name=str):
    """The first beginning of a text after which a token has a wrong probability, in words.

    name(token) is what a token is called.
    """
    distribution, expected = beginnings(distribution), beginnings(expected)
    for ids in sorted({*distribution, *expected}, key=lambda ids: (len(ids), str(ids))):
        before = ids[:-1]
        if distribution.get(before) and expected.get(before):
            probability = distribution.get(ids, 0) / distribution[before]
            wanted = expected.get(ids, 0) / expected[before]
            if abs(probability - wanted) > tolerance:
                must_end = expected.get((*before, END)) == expected[before]
                return sentence(ids, probability, wanted, must_end, name)
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


def sentence(ids, probability, wanted, must_end, name):
    """The last of ids has this probability in place of the wanted one, in words."""
    *text, last = ids
    after = f"after {' '.join(map(name, text))}" if text else "at the beginning"
    for digits in range(4, 18):
        shown, shown_wanted = (f"{float(x):.{digits}g}" for x in (probability, wanted))
        if shown != shown_wanted:
            break
    if last == END:
        return f"{after}, the text ends with probability {shown}, but should be {shown_wanted}"
    if must_end:
        problem = f"the text should have ended, but {name(last)} follows"
        return f"{after}, {problem} with probability {shown}"
    emitted = f"{name(last)} is emitted with probability {shown}"
    return f"{after}, {emitted}, but should be {shown_wanted}"


# ---- Real runs ----


def check_real_runs(outputs, draw_once, n):
    """Raise Contradicted if n outputs of draw_once() can hardly come from a distribution."""
    counts = Counter(draw_once() for _ in range(n))
    candidates = {*outputs, *counts}

    def chance_of(output):
        p = outputs.get(output, 0)
        return chernoff(counts[output] / max(n, 1), n, p), p

    output = min(candidates, key=chance_of)
    chance, p = chance_of(output)
    if len(candidates) * chance < SURE:
        raise Contradicted(
            f"{n:,} real runs gave {output} {counts[output]:,} times, where the distribution "
            f"says {float(n * p):.4g}; a draw was misread, or is none of rng's, "
            "or memory was read that nobody has written"
        )


def chernoff(frequency, n, p):
    """An upper bound on the probability of this frequency, or one further off, in n trials."""
    divergence = 0
    for observed, probability in (frequency, p), (1 - frequency, 1 - p):
        if observed > 0:
            divergence += observed * log_ratio(observed, probability)
    return 2 * math.exp(-n * divergence)


def log_ratio(a, b):
    return math.log(a / b) if b > 0 else math.inf
