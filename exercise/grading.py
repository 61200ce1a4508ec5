"""What is right or wrong with a function of a step, in words."""

import contextlib
import os
import sys
import traceback
from functools import partial

import enumeration
from enumeration import (
    NotByRng,
    TooManyPaths,
    output_distribution,
    sum_over_paths,
    total_variation,
)
from exercise.praise import praise
from exercise.returned import Endless, Wrong, names_in
from exercise.tables import ONE_GUESS, SHORT
from exercise.tree import tree
from gallery.samples import in_words

ROUNDING = 1e-12  # distances below are rounding


# ---- A verdict ----


def graded(step, function, path, with_tree=False):
    """The lines about a function, and whether it is exact, or None if it isn't written yet.

    If it's wrong, a tree is among them, and with_tree if it's right as well.
    """
    place = ""
    try:
        for check in step.checks:
            place = check.place(check.settings[0])
            lines = compared(check, function)
            if lines:
                return lines, False
        lines = [praise(step, function)]
        if with_tree:
            check = step.checks[0]
            lines += tree(check, check.sampler(function), check.settings[0], is_right=True)
        return lines, True
    except BaseException as error:
        return failed(error, step, path, place)


def compared(check, function):
    """What is wrong with the distribution of a function, in lines; [] if nothing is."""
    sampler = check.sampler(function)
    compute = partial(output_distribution, resolution=0)  # once, as it looks for other generators
    for setting in check.settings:
        distribution = check.distribution(sampler, setting, compute)
        compute = sum_over_paths
        wanted = check.distribution(check.reference, setting)
        distance = total_variation(distribution, wanted)
        if distance > ROUNDING:
            name = name_of(check, sampler) or seed_in(function)
            headline = (
                f"wrong by {in_digits(distance)} ({check.size(setting)}){check.condition}{name}"
            )
            lines = tree(check, sampler, setting)
            return [headline, *lines, in_words(distribution, wanted, setting.N)]
    return []


def in_digits(distance):
    """A distance with four digits, or with one if it is tiny."""
    return f"{distance:.4f}" if distance > 1e-4 else f"{distance:.0e}"


def name_of(check, sampler):
    """The bug of the gallery with the same distributions, if there is one."""
    for rival, variant in check.rivals:
        if is_same(check, sampler, rival):
            place = f" ({variant.seen_in_words})" if variant.seen else ""
            return f': the distribution of "{variant.name}"{place}'
    return ""


def seed_in(function):
    """What to say of a function that calls default_rng."""
    return OWN_SEED * ("default_rng" in names_in(function))


OWN_SEED = "; default_rng with a seed draws the same numbers each time, so draw from rng alone"


def is_same(check, sampler, rival):
    """Whether two samplers agree in four settings, or in those that both of them can run.

    All settings would take long. Short rounds come first, because nearly all rules differ there.
    """
    for setting in (SHORT, ONE_GUESS, *check.settings[:2]):
        with contextlib.suppress(Exception):  # for a row that holds zeros
            distribution = check.distribution(sampler, setting)
            if total_variation(distribution, check.distribution(rival, setting)) > ROUNDING:
                return False
    return True


# ---- An error, in one line ----


FOR_EVER = "a loop may go on for ever: is the text longer after each round?"


def failed(error, step, path, place=""):
    """The result of `graded` for a function that raised an error."""
    missing = not_written(error, step)
    if missing:
        return [missing], None
    return [problem(error, path) + place], False


def not_written(error, step):
    """What to say if a stub was called."""
    if not isinstance(error, NotImplementedError) or error.args:
        return ""
    name = traceback.extract_tb(error.__traceback__)[-1].name
    if name == step.function:
        return "not written yet"
    return f"it calls {name}, which is not written yet"


def problem(error, path):
    """An error of a function, in one line, with its place in the file."""
    words = in_one_line(error)
    if isinstance(error, NotByRng):
        door = "; enumeration/pytorch.py is for code that draws from PyTorch"
        return words + door if "torch" in sys.modules else words
    frames = traceback.extract_tb(error.__traceback__)
    place = ""
    for frame in frames:
        if os.path.abspath(frame.filename) == path:
            place = place_of(frame.lineno, frame.line)
    if isinstance(error, Wrong | Endless):
        return place + words
    if isinstance(error, TooManyPaths):
        words = words.split(";")[0]
        return place + FOR_EVER if "along one path" in words else words
    if isinstance(error, TypeError) and frames[-1].filename.startswith(CHECKER):
        return f"{place}{words.split(';')[0]}; {INSTEAD}"  # rng cannot do that
    kind = type(error).__name__
    return f"{place}{kind}: {words}" if words else f"{place}{kind}"


CHECKER = os.path.dirname(enumeration.__file__)
INSTEAD = "write rng.random() < a or rng.choice(len(p), p=p)"


def place_of(number, source):
    """How an error about a line of a file begins."""
    return f"line {number}, {source.strip().rstrip(':')}: "


def in_one_line(error):
    """The text of an error in one line, even if its text is an error, too."""
    try:
        return " ".join(str(error).split())
    except BaseException:
        return "(an error in its own text)"
