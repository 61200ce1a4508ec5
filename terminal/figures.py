"""The figures of two runs, compared."""

from typing import NamedTuple

import numpy as np

from runs import expected_tokens, speedup

NOTHING = "none: nothing was guessed"
A_BUG = "NO: a bug"
TWO_SAMPLES = "no: two samples differ, unless --same_text is given"
BELOW_1 = "a plain step is a pass and a draw"
TWO_ROWS = ", and two rows may cost less than one"
LEAST_V = 0.7  # below, other programs slowed the plain loop
BUSY = "none: other programs slowed the plain loop, so the figures don't hold; run it again"
ROUNDING = "no: x @ w rounds differently for one row and for several, and two tokens were tied"


class Figure(NamedTuple):
    """What a figure shows, and what it means."""

    text: str
    meaning: str = ""  # for a page, which has more room


def why_texts_differ(args):
    """What to say if the two texts are not the same."""
    if args.temperature > 0 and not args.same_text:
        return TWO_SAMPLES
    return ROUNDING if getattr(args, "numpy", False) else A_BUG


def figures(plain, fast, setting, if_texts_differ=A_BUG):
    """A plain run and one with guesses, compared -> {label: `Figure`}.

    setting is what the second one was run with, such as "K = 4".
    """
    if not plain.n_new:
        nothing = "none: nothing was decoded, so there is nothing to compare"
        return {"tokens per second": Figure(nothing)}
    slow, quick = plain.tokens_per_second, fast.tokens_per_second
    cost = fast.cost(plain)
    texts = {
        "tokens per second": f"{slow:.1f} target alone, {quick:.1f} speculative",
        "speedup": speedup_in_words(plain, fast),
        "acceptance rate": acceptance_rate(fast),
        "alpha": alpha(fast),
        "tokens per round": f"{fast.tokens_per_round:.2f}, with {setting}",
        "tokens per pass": tokens_per_pass(fast),
        "cost of a round": cost_of_a_round(*cost),
        "v below 1": v_below_1(plain, fast),
        "same text": same_text(plain.ids, fast.ids, if_texts_differ),
        "slower": why_slower(fast, *cost) if quick < slow else "",
    }
    return {label: Figure(text, MEANING.get(label, "")) for label, text in texts.items() if text}


MEANING = {
    "tokens per second": "Decoded tokens, divided by the time that it took to decode them.",
    "speedup": "Tokens per round, divided by the cost of a round.",
    "acceptance rate": "The share of the guesses that is in the text. Those that were never looked "
    "at count as misses.",
    "alpha": "The mean probability that a guess is accepted if all guesses before it are.",
    "tokens per round": "Tokens added per pass of the target. The plain loop adds one.",
    "cost of a round": "A plain step is one token of the plain loop. c is a step of the draft, v "
    "the target's pass over K + 1 positions, r is drawing and accepting.",
    "same text": "At temperature 0 both loops decode the same tokens. Above, they draw two samples "
    "from one distribution.",
}


def speedup_in_words(plain, fast):
    """The speedup, or why there is none."""
    if v_of(plain, fast) < LEAST_V:
        return BUSY
    middle = "median" if fast.n_turns % 2 else "lower median"
    median = f", the {middle} of {fast.n_turns} turns" if fast.n_turns > 1 else ""
    return f"{speedup(plain, fast):.2f}{median}"


def v_of(plain, fast):
    """v, with the digits that are shown."""
    _, check, _ = fast.cost(plain)
    return round(check, 2)


def v_below_1(plain, fast):
    """Why a pass over K + 1 positions costs less than a plain step, if it does."""
    if LEAST_V <= v_of(plain, fast) < 1:
        return BELOW_1 + TWO_ROWS * any(fast.n_drafted)
    return ""


def tokens_per_pass(run):
    """Tokens per pass, for a loop that asks the target several times in a round."""
    n_passes, n_rounds = len(run.target_seconds), len(run.round_seconds)
    if n_passes <= n_rounds:
        return ""
    return f"{run.n_new / n_passes:.2f}: it asks the target {n_passes} times in {n_rounds} rounds"


def cost_of_a_round(guesses, check, rest):
    """What a round costs in plain steps, and its three parts."""
    parts = f"guesses K c = {guesses:.2f}, pass v = {check:.2f}, rest r = {rest:.2f}"
    return f"{guesses + check + rest:.2f} plain steps: {parts}"


def acceptance_rate(run):
    """The share of all guesses that is in the text."""
    if run.acceptance_rate is None:
        return NOTHING
    return f"{run.acceptance_rate:.2f} of {sum(run.n_drafted)} guesses"


def alpha(run):
    """alpha, and the tokens per round that follow from it."""
    if run.alpha is None:
        return NOTHING
    expected = expected_tokens(run.alpha, max(run.n_drafted))
    of_which = f"of the {run.n_looked_at} looked at, which"
    return f"{run.alpha:.2f} {of_which} predicts {run.predicted(expected):.2f} tokens per round"


def why_slower(run, guesses, check, rest):
    """What costs most, for a loop that is slower than the plain one."""
    if not run.n_looked_at:
        return ""
    n_passes, n_rounds = len(run.target_seconds), len(run.round_seconds)
    once = check * n_rounds / max(n_passes, n_rounds)
    costs = {
        "the guesses cost most: try a smaller draft, or a smaller K": guesses,
        "it asks the target more than once a round": check - once,
        # A token costs one plain step anyway.
        "the target's passes cost most: try a smaller K, or a better draft": once - 1,
        "drawing and accepting cost most: try a smaller K": rest,
    }
    return f"because {max(costs, key=costs.get)}"


def same_text(ids, other_ids, if_texts_differ):
    """Whether two sequences of ids are equal, in words."""
    return "yes" if np.array_equal(ids, other_ids) else if_texts_differ


def printed(rows):
    """Figures, a line for each."""
    return "\n".join(f"{label:<17} {figure.text}" for label, figure in rows.items())
