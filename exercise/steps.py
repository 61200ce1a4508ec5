"""The eight steps: what each function is put into, which tables it meets, and its rivals."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np

from enumeration import sum_over_paths
from exercise.adapters import (
    as_accept,
    as_residual,
    as_verify,
    where_guesses,
    with_loop,
    with_penalty,
    with_propose,
    with_siblings,
)
from exercise.slips import SLIPS
from exercise.tables import (
    CHAINS,
    ENDED,
    LONG,
    NAMES,
    ONE_GUESS,
    README,
    ROUNDS,
    SHAPES,
    SHORT_ONES,
    SIZES,
    ZEROS,
)
from gallery import EOS, GALLERY
from gallery.ends import plain_to_eos
from gallery.penalties import penalised_rows
from gallery.setting import decode, plain


@dataclass(frozen=True, eq=False)
class Check:
    """A function becomes a part of a sampler, which should write the texts of the reference."""

    sampler: Callable  # sampler(function) -> a function of rng and a setting that returns ids
    settings: list
    rivals: list = ()  # (sampler, variant of the gallery) that may have the same distribution
    reference: Callable = plain
    condition: str = ""  # what is special about the settings, as the end of a sentence
    is_round: bool = False  # whether the sampler emits one round, which the target continues

    def distribution(self, sampler, setting, compute=sum_over_paths):
        """{text: probability} of a sampler in a setting. Rounds are filled up to N tokens."""
        distribution = distribution_of(sampler, setting, compute)
        return completed({**distribution}, setting) if self.is_round else distribution

    def size(self, setting):
        """The size of a setting, such as N = 3, K = 2."""
        K = "" if self.sampler is with_siblings else f", K = {setting.K}"
        return f"N = {setting.N}{K}"

    def place(self, setting):
        """What an error says of a setting, if it's a special one."""
        size = f" ({self.size(setting)})" if setting in SIZES else ""
        return f"{size}{self.condition}"


@lru_cache(maxsize=500)  # references and rivals are asked for again and again
def distribution_of(sampler, setting, compute):
    with np.errstate(all="ignore"):
        return compute(lambda rng: sampler(rng, setting))


def completed(texts, setting):
    """Texts of N tokens: those that are shorter are continued by the target."""
    short = [ids for ids in texts if len(ids) < len(setting.prompt) + setting.N]
    if not short:
        return texts
    for ids in short:
        mass = texts.pop(ids)
        for token, q in enumerate(setting.target_model(ids)[-1].tolist()):
            longer = (*ids, token)
            if q > 0:
                texts[longer] = texts.get(longer, 0) + mass * q
    return completed(texts, setting)


# ---- The steps ----


def rivals_of(*steps):
    """The wrong rules that somebody may write in one of these steps."""
    rules = [*GALLERY.values(), *SLIPS]
    return [(v.text, v) for v in rules if v.step in steps and not v.exact]


@dataclass(frozen=True, eq=False)
class Step:
    function: str  # its name
    checks: list


def first_round(sampler):
    """The same sampler, but its texts end after a round."""
    return lambda function: partial(sampler(function), end_of=lambda new, emitted: len(new))


def step_of(name, sampler, rivals, *more_checks):
    texts = Check(sampler, CHAINS, rivals)
    rounds = Check(first_round(sampler), ROUNDS, is_round=True)
    return Step(name, [texts, rounds, *more_checks])


def with_rule(as_rule):
    return lambda function: partial(decode, verify=as_rule(function))


def verify_step():
    """Step 3. Rounds without guesses come last: many first attempts have an IndexError there."""
    sampler = with_rule(lambda function: where_guesses(as_verify(function)))
    rivals = [(sampler(variant.verify), variant) for _, variant in rivals_of("verify")]
    condition = ", where there are no guesses, and q has one row"
    last = Check(with_rule(as_verify), [replace(README, N=1)], condition=condition)
    return step_of("verify", sampler, rivals, last)


def in_each_size(check):
    for size in SIZES:
        yield replace(check, settings=[size])


def ends_at(eos, settings, place="", rivals=()):
    loop = partial(with_loop, eos=eos)
    condition = f", where {NAMES[eos]} is the eos{place}"
    return Check(loop, settings, rivals, partial(plain_to_eos, eos=eos), condition)


PARTS_OF_A_LOOP = rivals_of("verify", "propose", "speculative_sampling")
LOOPS = [
    Check(with_loop, (*CHAINS, *SHORT_ONES, ONE_GUESS), PARTS_OF_A_LOOP),
    *in_each_size(Check(with_loop, SIZES)),
]
ENDS = [
    ends_at(EOS, (README, ZEROS), rivals=rivals_of("until_eos")),
    ends_at(0, (ENDED, ZEROS), ", and the prompt ends with it"),
    ends_at(1, (LONG,), ", and the prompt begins with it"),
    *in_each_size(ends_at(1, SIZES)),
]
TREE_RULES = [(with_siblings(variant.verify), variant) for _, variant in rivals_of("siblings")]
RIGHT_PENALTY = partial(plain, rows=penalised_rows)
STEPS = [
    step_of("accept", with_rule(as_accept), rivals_of("verify")),
    step_of("residual", with_rule(as_residual), rivals_of("verify")),
    verify_step(),
    Step("speculative_sampling", LOOPS),
    Step("until_eos", ENDS),
    step_of("propose", with_propose, rivals_of("propose")),
    Step("penalised", [Check(with_penalty, CHAINS, rivals_of("penalised"), RIGHT_PENALTY)]),
    Step("siblings", [Check(with_siblings, SHAPES, TREE_RULES, is_round=True)]),
]
