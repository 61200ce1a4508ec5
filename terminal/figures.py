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
    slow = plain.tokens_per_second
    quick = fast.tokens_per_second
    middle = "median" if fast.n_turns % 2 else "lower median"
    median = f", the {middle} of {fast.n_turns} turns" if fast.n_turns > 1 else ""
    guesses, check, rest = fast.cost(plain)
    cost = guesses + check + rest
    parts = f"guesses K c = {guesses:.2f}, pass v = {check:.2f}, rest r = {rest:.2f}"
    rows = {}
    rows["tokens per second"] = Figure(
        f"{slow:.1f} target alone, {quick:.1f} speculative",
        "Decoded tokens, divided by the time that it took to decode them.",
    )
    rows["speedup"] = Figure(
        BUSY if round(check, 2) < LEAST_V else f"{speedup(plain, fast):.2f}{median}",
        "Tokens per round, divided by the cost of a round.",
    )
    rows["acceptance rate"] = Figure(
        acceptance_rate(fast),
        "The share of the guesses that is in the text. Those that were never looked at count as "
        "misses.",
    )
    rows["alpha"] = Figure(
        alpha(fast),
        "The mean probability that a guess is accepted if all guesses before it are.",
    )
    rows["tokens per round"] = Figure(
        f"{fast.tokens_per_round:.2f}, with {setting}",
        "Tokens added per pass of the target. The plain loop adds one.",
    )
    n_passes, n_rounds = len(fast.target_seconds), len(fast.round_seconds)
    if n_passes > n_rounds:
        per_pass = f"{fast.n_new / n_passes:.2f}"
        rows["tokens per pass"] = Figure(
            f"{per_pass}: it asks the target {n_passes} times in {n_rounds} rounds"
        )
    rows["cost of a round"] = Figure(
        f"{cost:.2f} plain steps: {parts}",
        "A plain step is one token of the plain loop. c is a step of the draft, v the target's "
        "pass over K + 1 positions, r is drawing and accepting.",
    )
    if LEAST_V <= round(check, 2) < 1:
        rows["v below 1"] = Figure(BELOW_1 + TWO_ROWS * any(fast.n_drafted))
    rows["same text"] = Figure(
        same_text(plain.ids, fast.ids, if_texts_differ),
        "At temperature 0 both loops decode the same tokens. Above, they draw two samples from one "
        "distribution.",
    )
    if quick < slow and fast.n_looked_at:
        once = check * n_rounds / max(n_passes, n_rounds)
        rows["slower"] = Figure(why_slower(guesses, once, check - once, rest))
    return rows


def acceptance_rate(run):
    if run.acceptance_rate is None:
        return NOTHING
    return f"{run.acceptance_rate:.2f} of {sum(run.n_drafted)} guesses"


def alpha(run):
    if run.alpha is None:
        return NOTHING
    expected = expected_tokens(run.alpha, max(run.n_drafted))
    of_which = f"of the {run.n_looked_at} looked at, which"
    return f"{run.alpha:.2f} {of_which} predicts {run.predicted(expected):.2f} tokens per round"


def why_slower(guesses, check, surplus, rest):
    costs = {
        "the guesses cost most: try a smaller draft, or a smaller K": guesses,
        "it asks the target more than once a round": surplus,
        # A token costs one plain step anyway.
        "the target's passes cost most: try a smaller K, or a better draft": check - 1,
        "drawing and accepting cost most: try a smaller K": rest,
    }
    return f"because {max(costs, key=costs.get)}"


def same_text(ids, other, if_texts_differ):
    return "yes" if np.array_equal(ids, other) else if_texts_differ


def printed(rows):
    """Figures, a line for each."""
    return "\n".join(f"{label:<17} {figure.text}" for label, figure in rows.items())
