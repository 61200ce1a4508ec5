"""The figures of a run, each with its meaning: main.py prints them, and the page of --trace explains them."""

import numpy as np

from fast import matrix_kernel
from pair import predicted


def figures(plain, fast, draft, target, K, schedule, temperature):
    """The figures of two `pair.Run`s of the same pair, as a list of (name, value, meaning), all str.

    plain is without speculation, and fast is with it. The other arguments come from the options of main.py.
    """
    found = [
        ("models", f'target "{target}", draft "{draft}"', "The draft guesses tokens. The text is the target's."),
        ("matrix kernel", f"{matrix_kernel()} (see fast/product.py)",
         "Whether several positions of the text are multiplied by the weights at a time (groups of rows), or one "
         "(single rows). A short test on this computer decides it."),
    ]  # fmt: skip
    if fast.n_new == 0:
        return [*found, ("tokens per second", "nothing was decoded, so there is nothing to compare", "")]
    formula = "too few steps were timed for the formula" if fast.n_drafted.any() else "nothing was drafted"
    if found_by_formula := predicted([plain], [fast]):
        formula = "by the formula {:.2f} (alpha = {:.2f}, c = {:.2f}, v = {:.2f}, r = {:.2f})".format(*found_by_formula)
    if plain.n_new != fast.n_new:
        formula += f"; the texts have {plain.n_new} and {fast.n_new} tokens"
        formula += ", and the time for the prompt counts more in the shorter text"
    drafting, checking = (100 * calls.sum() / fast.seconds for calls in (fast.steps, fast.passes))
    n, same = fast.n_drafted.sum(), np.array_equal(plain.ids, fast.ids)
    verdict = "yes" if same else "no"
    if temperature > 0:
        verdict += "; above temperature 0, the texts are two samples from one distribution"
    elif not same:
        verdict = "NO: a bug, or two logits are almost equal and their last bits vary (try --bit_identical)"
    return [
        *found,
        ("tokens per second", f"{plain.tokens_per_second:.1f} autoregressive, {fast.tokens_per_second:.1f} speculative",
         "Decoded tokens, divided by the time that it took to decode them."),
        ("speedup", f"{fast.tokens_per_second / plain.tokens_per_second:.2f}; {formula}",
         "Speculative tokens per second, divided by autoregressive ones. The formula is the expected number of tokens "
         "per round, divided by the cost of a round, K c + v + r. The expected number comes from the mean probability "
         "of acceptance at each place in a round (the first drafted token, the second, and so on). At temperature 0, "
         "these probabilities are 0 or 1, so with a fixed K the formula only adds up what was measured. The time to "
         "read the prompt is counted too. alpha is the mean probability that a drafted token is accepted, over the "
         "tokens up to the first rejection of a round. The costs are in plain steps. (A plain step adds one token "
         "without speculation.) c is the cost of a draft step, v that of the target's pass over K + 1 positions, and r "
         "that of the rest. If rounds differ, v is for the most frequent number of drafted tokens above 0."),
        ("time", f"{drafting:.0f} % draft, {checking:.0f} % target, {100 - drafting - checking:.0f} % the rest",
         "Where the time of the speculative loop went. The rest is drawing tokens and accepting them."),
        ("acceptance rate", f"{fast.acceptance_rate:.2f} of {n} drafted tokens" if n else "nothing was drafted",
         "The share of the drafted tokens that is in the text. It is usually lower than alpha, because all tokens "
         "after a rejection count as not accepted."),
        ("tokens per round", f"{fast.tokens_per_round:.2f}, with K = {K}, {schedule}",
         "Tokens added per pass of the target, on average. The plain loop adds one."),
        ("same text", verdict,
         "At temperature 0 the two loops should decode the same tokens. At higher temperatures, they draw two samples "
         "from the same distribution."),
    ]  # fmt: skip


def best_K_figure(K, speedups):
    """The figure that --K auto adds. K and speedups are as from `pair.Pair.best_K`."""
    if not speedups[1:].any():
        return "best K", f"unknown, because the pilot run was too short; {K} was used", "Found by a short pilot run."
    estimates = ", ".join(f"{speedup:.2f} (K = {k})" for k, speedup in enumerate(speedups) if speedup)
    meaning = (
        "Found by a short pilot run. Its estimates leave out the time to read the prompt, and each comes from a few "
        "rounds, so the largest of them is usually too high. A K that was timed at most once has no estimate."
    )
    return "best K", f"{K}; rough estimates of the speedup: {estimates}", meaning
