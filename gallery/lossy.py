"""Rules that are wrong on purpose, for more tokens per round, and what each costs.

A rule of yours is a line of RULES. Then `python -m gallery.write` gives it a row in
docs/exactness.md. For one in a file of its own there is `python -m exercise FILE --price RULE`.
"""

from fractions import Fraction
from functools import partial

import numpy as np

from gallery import GALLERY
from gallery.names import top_p
from gallery.truncation import all_rows
from gallery.variant import ACCEPTED, RATIO, RESAMPLED, Variant, edited
from sampling import sample
from speculative import acceptance, residual, verify

RESIDUAL, BONUS = "residual(p[i], q[i])", "sample(q[-1], rng)"
ARGMAX, LAST_ARGMAX = "q[i].argmax()", "q[-1].argmax()"

# ---- Edits of `verify`: old, new, old, new, and so on ----

# Leviathan et al. 2023, appendix A.5
LENIENT = "p[i, token]", "λ * p[i, token]"
# arXiv 2512.13194: u may exceed the ratio by τ times what the target doubts
EARS = RATIO, "acceptance(p[i, token], q[i, token]) + τ * (1 - q[i].max())"
# A speculative cascade, as in MTPLX #485: what is nearly the argmax is always accepted
CASCADE = "rng.random() <", "q[i, token] >= (1 - α) * q[i].max() or rng.random() <"
# vLLM's rule for benchmarks: how often the first guess is kept, and how often the first two
RATES = RATIO, "(both / first if i else first)"
# Medusa (Cai et al. 2024, arXiv 2401.10774), as evaluate_posterior of its code has it
IS_TYPICAL = "float(q[i, token]) > min(ε, δ * np.exp(-entropy(q[i])))"
TYPICAL = ACCEPTED, IS_TYPICAL, RESAMPLED, ARGMAX, BONUS, LAST_ARGMAX
# TensorRT-LLM: one of the two most probable tokens, at most δ below the first
IS_NEAR = "token in np.argsort(-q[i])[:2] and q[i, token] >= q[i].max() - δ"
RELAXED = ACCEPTED, IS_NEAR, RESAMPLED, ARGMAX, BONUS, LAST_ARGMAX
# What the target draws too, and what it finds probable
IS_OWN = "(own := sample(q[i], rng)) == token or q[i, token] >= θ"
OWN_DRAW = ACCEPTED, IS_OWN, RESAMPLED, "own"
# What a second draft draws too. The target draws the first token without it
AGREED = ACCEPTED, "sample(p[i], rng) == token", RESIDUAL, "q[i]"
# Fuzzy speculative decoding, arXiv 2502.20704: any guess where p and q are close
FUZZY = ACCEPTED, "abs(q[i] - p[i]).sum() / 2 <= θ", RESIDUAL, "q[i]"
# arXiv 2406.11016: sigmoids of the logits, which save a softmax
LOOP = "for i, token in enumerate(drafted):"
SIGMOIDS = LOOP, f"p, q = sigmoids(p), sigmoids(q)\n    {LOOP}", BONUS, "sample(max_fn(q[-1]), rng)"
# FastDeploy's TOPP: any token of a truncated q
CANDIDATES = ACCEPTED, "q[i, token] > 0", RESIDUAL, "q[i]"

RULES = [
    ("leniency, λ = 0.8", LENIENT, {"λ": "0.8"}),
    ("leniency, λ = 0.5", LENIENT, {"λ": "0.5"}),
    ("leniency, λ = 0.3", LENIENT, {"λ": "0.3"}),
    ("EARS, τ = 0.1", EARS, {"τ": "0.1"}),
    ("EARS, τ = 0.3", EARS, {"τ": "0.3"}),
    ("cascade, α = 0.3", CASCADE, {"α": "0.3"}),
    ("cascade, α = 0.5", CASCADE, {"α": "0.5"}),
    ("accepted at rates of 0.7 and 0.5", RATES, {"first": "0.7", "both": "0.5"}),
    ("accepted at rates of 0.8 and 0.6", RATES, {"first": "0.8", "both": "0.6"}),
    ("accepted at rates of 0.9 and 0.5", RATES, {"first": "0.9", "both": "0.5"}),
    ("typical, ε = 0.09, δ = 0.3", TYPICAL, {"ε": "0.09", "δ": "0.3"}),
    ("typical, ε = 0.3, δ = 0.55", TYPICAL, {"ε": "0.3", "δ": "0.55"}),
    ("relaxed, N = 2, δ = 0.1", RELAXED, {"δ": "0.1"}),
    ("relaxed, N = 2, δ = 0.3", RELAXED, {"δ": "0.3"}),
    ("own draw, or q at least 0.1", OWN_DRAW, {"θ": "0.1"}),
    ("own draw, or q at least 0.3", OWN_DRAW, {"θ": "0.3"}),
    ("own draw, or q at least 0.5", OWN_DRAW, {"θ": "0.5"}),
    ("two drafts agree", AGREED, {}),
    ("fuzzy, θ = 0.3", FUZZY, {"θ": "0.3"}),
    ("fuzzy, θ = 0.5", FUZZY, {"θ": "0.5"}),
    ("sigmoids", SIGMOIDS, {}),
]


def entropy(row):
    row = row[row > 0].astype(float)
    return -(row * np.log(row)).sum()


def sigmoids(rows):
    """The sigmoids of the logits, scaled as in the paper's kernel: from -10,000 to 10,000."""
    logits = np.log(rows.astype(float))
    return 1 / (1 + np.exp(-(logits + 10_000) / 20_000))


def fly(least, window=1, n=3):
    """FLy (arXiv 2511.22972), as in vLLM's fly.py.

    A rejected token is accepted all the same if the entropy of the n most probable tokens is
    at least `least`, and if the next guesses, `window` of them, pass their tests.
    """

    def rule(drafted, p, q, rng):
        passed = []
        for i, token in enumerate(drafted):
            passed.append(rng.random() < acceptance(p[i, token], q[i, token]))
        for i, token in enumerate(drafted):
            following = passed[i + 1 : i + 1 + window]
            is_followed = len(following) == window and all(following)
            is_open = q[i, token] > 0 and entropy(np.sort(q[i])[-n:]) >= least
            if not passed[i] and not (is_followed and is_open):
                return np.append(drafted[:i], sample(residual(p[i], q[i]), rng))
        return np.append(drafted, sample(q[-1], rng))

    return rule


FUNCTIONS = {"entropy": entropy, "sigmoids": sigmoids}  # which the edits call

# ---- What they cost ----

CHAIN, BLOCK, NO_CHECK = map(GALLERY.get, ("verify", "verify-block", "accept-all"))

# The least of all a + b δ is the most that a round can have, if it keeps guesses from the left and
# adds one token, the target goes on after it, and the texts are wrong by δ. A linear program
# proved it for this pair: git log -- studies/frontier.py
LINES = (1.86, 2.3), (1.87, 2.2), (1.89, 2.1), (2.44, 1), (3, 0)


def beside(distance):
    """The tokens per round of a coin that is as wrong, and those that are possible at best.

    Toss the coin once per text: heads, no check at all, tails, `verify_block`. No coin is more
    wrong than no check, so beyond that its number is None.
    """
    heads = distance / NO_CHECK.distance
    of_coin = None
    if heads <= 1:
        exact = BLOCK.tokens_per_round()
        of_coin = exact + heads * (3 - exact)
    return of_coin, min(a + b * distance for a, b in LINES)


def variants():
    yield from (CHAIN, BLOCK)
    for name, edit, numbers in RULES:
        exact = {key: Fraction(number) for key, number in numbers.items()}
        yield Variant("", name, verify=edited(verify, edit, **FUNCTIONS, **exact))
    yield Variant("", "FLy, θ = 0.3, W = 1", verify=fly(0.3))


def prices():
    """(name, distance, tokens per round, those of a coin, and at best) of each rule."""
    rows = [(v.name, v.distance, v.tokens_per_round(), *beside(v.distance)) for v in variants()]
    for p in "0.55", "0.8":
        name = f"top-p {p}, all of it accepted"
        parts = all_rows(partial(top_p, p=Fraction(p)))
        v = Variant("", name, verify=edited(verify, CANDIDATES), **parts)
        # The distance is from the truncated target, which has other coins.
        rows.append((name, v.distance, v.tokens_per_round(), None, None))
    return rows
