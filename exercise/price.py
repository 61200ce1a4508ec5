"""What a rule like `verify` gains by being wrong on purpose, and which tests would see it.

The pair is that of docs/exactness.md, where "The price of being lossy" has other rules.
"""

from functools import partial

from enumeration import output_distribution
from exercise.adapters import as_verify
from exercise.grading import ROUNDING, failed, in_digits
from gallery import P, Q, Setting
from gallery.blind import distances
from gallery.lossy import BLOCK, CHAIN, beside
from gallery.samples import in_words
from gallery.setting import decode
from gallery.variant import Variant

PAIR = Setting(P.astype(float), Q.astype(float))
MODELS = "with the models of docs/exactness.md; step 3 has others, and other distances"
TESTS = """\
a test of the first token alone would say: {}
a test whose models return one row for all texts would say: {}
{}
"""
TOKENS = """\
tokens per round:
{:.4f}  this rule
{:.4f}  verify, which is exact
{:.4f}  verify_block of lab/block.py, which is exact"""
COIN = "\n{:.4f}  a coin as wrong, tossed once per text: no check, or verify_block"
NO_COIN = "\n3.0000  no check at all, which is wrong by 0.5600"
AT_BEST = (
    "\n{:.4f}  at best, if a round accepts guesses and adds one token, "
    "and the target alone writes what follows{}"
)
EMITS_OTHERS = "; this rule emits other tokens, too, so it may have more"
LATER = "; this rule has more because later rounds undo a part of the error"


def priced(step, function, path):
    """The lines about a rule, and whether it is exact with these models."""
    differences = []
    # With a decode that is not the gallery's, whole texts are run: a rule may remember its rounds.
    rule = Variant("", "", verify=noting(function, differences), decode=partial(decode))
    try:
        # It refuses other generators.
        output_distribution(partial(rule.text, setting=PAIR), resolution=0)
        (distance, *easier), texts = distances(rule, PAIR)
        tokens = [variant.tokens_per_round(PAIR) for variant in (rule, CHAIN, BLOCK)]
    except BaseException as error:
        return failed(error, step, path)
    of_coin, best = beside(distance)
    why = EMITS_OTHERS * any(differences) or LATER * (tokens[0] > best + ROUNDING)
    text = TOKENS.format(*tokens)
    is_exact = distance < ROUNDING
    if not is_exact:
        tests = TESTS.format(*map(verdict, easier), in_words(*texts, PAIR.N))
        text = tests + text + (COIN.format(of_coin) if of_coin else NO_COIN)
    text += AT_BEST.format(best, why)
    return [verdict(distance), MODELS, *text.splitlines()], is_exact


def verdict(distance):
    return "exact" if distance < ROUNDING else f"wrong by {in_digits(distance)}"


def noting(function, differences):
    """The rule that a function is. It notes how rounds differ from guesses and one more token."""
    rule = as_verify(function)

    def noted(drafted, p, q, rng):
        emitted = rule(drafted.copy(), p, q, rng)
        *accepted, _ = emitted
        differences.extend(accepted - drafted[: len(accepted)])
        return emitted

    return noted
