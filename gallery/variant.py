"""What an entry of the gallery is: most are a small edit of a function that is right."""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import NamedTuple

from enumeration import sum_over_paths, total_variation
from gallery import names
from gallery.setting import (
    SETTING,
    decode,
    mean_length,
    plain,
    round_distribution,
    target_rows,
    text_distribution,
)
from lab.block import verify_block
from speculative import propose, verify

# What many edits replace in `verify`.
RATIO = "acceptance(p[i, token], q[i, token])"
ACCEPTED = f"rng.random() < {RATIO}"
RESAMPLED = "sample(residual(p[i], q[i]), rng)"
LOOP = "speculative_sampling"

REPOSITORY = re.compile(r"([\w.-]+/([\w.-]+))(?:#(\d+))?")  # owner/name, or owner/name#1


class Place(NamedTuple):
    """A function that a rule replaces, and the parts of a variant with such a rule.

    One part is the step of the exercise in which somebody may write the rule.
    """

    function: Callable
    parts: Callable  # parts(rule) -> {name: part}


VERIFY = Place(verify, lambda rule: {"verify": rule, "step": "verify"})
BLOCK = Place(verify_block, lambda rule: {"verify": rule, "step": "verify"})
PROPOSE = Place(propose, lambda rule: {"propose": rule, "step": "propose"})
ROWS = Place(target_rows, lambda rule: {"rows": rule, "step": LOOP})
DECODE = Place(decode, lambda rule: {"decode": rule, "step": LOOP})


def edited(function, edit, **more_names):
    """A function with other code, see `edited_source`."""
    namespace = vars(names) | function.__globals__ | more_names
    # This exec is fine: it runs what is written down in this project, with edits that are
    # written down here as well. No text of a user gets here.
    exec(edited_source(function, edit), namespace)
    return namespace[function.__name__]


def unchecked(loop, edit=()):
    """A loop that trusts its models, because checks take as long as all the rest."""
    return edited(loop, edit, checked_model=lambda model, must_accept: model)


source_of = cache(inspect.getsource)


def edited_source(function, edit):
    """The code of a function with changes: edit is old, new, old, new, and so on.

    ValueError unless each old text occurs exactly once.
    """
    source = source_of(function)
    for old, new in replacements(edit):
        if source.count(old) != 1:
            raise ValueError(f"{function.__name__} must contain {old!r} once, or the edit is stale")
        source = source.replace(old, new)
    return source


def replacements(edit):
    """(old, new) of each place that an edit changes."""
    return zip(edit[::2], edit[1::2])


@cache
def texts_of(reference, setting=SETTING):
    """The distribution of a reference, kept because many variants have the same."""
    return sum_over_paths(partial(reference, setting=setting))


@dataclass(frozen=True, eq=False)
class Variant:
    """A rule, where it was seen, and what it should write: see `entry`."""

    id: str
    name: str
    looks: str = ""  # in words, what no edit shows
    seen: str = ""  # where it was seen
    edit: tuple = ()  # old, new, old, new ...: how its code differs from that of `of`
    of: Callable = verify
    formula: tuple = ()  # accept with, resample from: what docs/play.html computes
    verify: Callable = verify
    propose: Callable = propose
    rows: Callable = target_rows
    decode: Callable = decode  # makes a text with these three
    reference: Callable = plain  # reference(rng, setting) -> ids: a text as it should be
    step: str = ""  # the step of the exercise whose wrong solutions may have this distribution
    exact: bool = False

    def text(self, rng, setting=SETTING):
        """A text of this rule, drawn with rng."""
        parts = {"verify": self.verify, "propose": self.propose, "rows": self.rows}
        return self.decode(rng, setting, **parts)

    @property
    def seen_in_words(self):
        """Threads as people call them: "vllm #1"."""
        return re.sub(r"[\w.-]+/([\w.-]+)#", r"\1 #", self.seen)

    @cached_property
    def distance(self):
        """The total variation distance between its texts and those that it should write."""
        return total_variation(self.distribution(), texts_of(self.reference))

    def distribution(self, setting=SETTING):
        """{text: probability} of this rule."""
        if self.decode is decode:  # without a memory
            return text_distribution(setting, self.verify, self.propose, self.rows)
        return sum_over_paths(partial(self.text, setting=setting))

    def round_distribution(self, setting=SETTING):
        """{text after a round: probability} of this rule."""
        return round_distribution(self.verify, self.propose, self.rows, setting)

    def tokens_per_round(self, setting=SETTING):
        """How many tokens a round adds after the prompt, on average."""
        return mean_length(self.round_distribution(setting))


def entry(id, name, rule=(), of=VERIFY, **parts):
    """A `Variant`. Its rule is an edit of the function of a `Place`, or one in its place.

    An edit says what to replace in the source of that function, and by what. `verify` resamples
    a rejected token from residual(p[i], q[i]). Here it takes q[i]:

    >>> wrong = entry("from-target", "resamples from the target", ("residual(p[i], q[i])", "q[i]"))
    >>> print(wrong.distance)
    181/1000
    >>> print(wrong.tokens_per_round())
    179/100
    """
    right = of.function
    if callable(rule):
        rule_parts = of.parts(rule)
    else:
        rule_parts = of.parts(edited(right, rule) if rule else right) | {"edit": rule}
    if of is VERIFY and "propose" in parts:  # a rule for another draft
        rule_parts["step"] = LOOP
    return Variant(id, name, **{"of": right} | rule_parts | parts)
