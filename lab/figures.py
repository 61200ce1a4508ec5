"""The figures of a run, each with its meaning: the lab prints them, and the page of --trace explains them."""

import numpy as np

from lab.measure import predicted


def figures(plain, fast, K, schedule, temperature):
    """The figures of a `pair.Run` without and one with speculation: [(name, value, meaning), ...]."""
    if fast.n_new == 0:
        return [("tokens per second", "nothing was decoded, so there is nothing to compare", "")]
    n, prediction, formula = fast.n_drafted.sum(), predicted([plain], [fast]), ""
    if prediction is None:
        formula = "; too little was drafted for the formula"
    elif temperature > 0 or schedule != "fixed":  # otherwise the formula only repeats the measurement
        formula = "; by the formula {:.2f} (alpha = {:.2f}, c = {:.2f}, v = {:.2f}, r = {:.2f})".format(*prediction)
    else:
        formula = "; costs: c = {:.2f}, v = {:.2f}, r = {:.2f}".format(*prediction[2:])
    if plain.n_new != fast.n_new:
        formula += (
            f"; the texts have {plain.n_new} and {fast.n_new} tokens, and the shorter one pays more for the prompt"
        )
    drafting, checking = (100 * calls.sum() / fast.seconds for calls in (fast.steps, fast.passes))
    return [
        ("tokens per second", f"{plain.tokens_per_second:.1f} target alone, {fast.tokens_per_second:.1f} speculative",
         "Decoded tokens, divided by the time that it took to decode them."),
        ("speedup", f"{fast.tokens_per_second / plain.tokens_per_second:.2f}{formula}",
         "The formula is the expected number of tokens per round, divided by the cost of a round, K c + v + r. Costs "
         "are in plain steps: c is a draft step, v the target's pass over K + 1 positions, r the rest. alpha is the "
         "mean probability that a guess is accepted, over those that were looked at."),
        ("time", f"{drafting:.0f} % draft, {checking:.0f} % target, {100 - drafting - checking:.0f} % the rest",
         "Where the time of the speculative loop went. The rest is drawing tokens and accepting them."),
        ("acceptance rate", f"{fast.acceptance_rate:.2f} of {n} drafted tokens" if n else "nothing was drafted",
         "The share of the drafted tokens that is in the text. Guesses that were never looked at count as misses."),
        ("tokens per round", f"{fast.tokens_per_round:.2f}, with K = {K}, {schedule}",
         "Tokens added per pass of the target. The plain loop adds one."),
        ("same text", verdict(plain.ids, fast.ids, temperature > 0),
         "At temperature 0 both loops decode the same tokens. Above, they draw two samples from one distribution."),
    ]  # fmt: skip


def verdict(ids, fast_ids, are_samples):
    if np.array_equal(ids, fast_ids):
        return "yes"
    return "no: two samples from one distribution, unless --same_text is given" if are_samples else "NO: a bug"


def best_K_figure(K, speedups):
    """The figure that --K auto adds. K and speedups are those of `measure.best_K`."""
    if not speedups[1:].any():
        return "best K", f"unknown, because the pilot run was too short; {K} was used", "Found by a short pilot run."
    estimates = ", ".join(f"{speedup:.2f} (K = {k})" for k, speedup in enumerate(speedups) if speedup)
    meaning = "Found by a short pilot run. Each estimate comes from a few rounds, so the largest is usually too high."
    return "best K", f"{K}; rough estimates of the speedup: {estimates}", meaning
