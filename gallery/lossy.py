"""Rules that are wrong on purpose, for more tokens per round, and what each costs.

A rule of yours is a line of `rules`. Then `python -m gallery.write` gives it a row in
docs/exactness.md. For one in a file of its own there is `python -m exercise FILE --price RULE`.
"""

from fractions import Fraction
from functools import partial

import numpy as np

from gallery.names import top_p
from gallery.truncation import all_rows
from gallery.variant import ACCEPTED, RATIO, RESAMPLED, Variant, edited
from lab.block import verify_block
from sampling import sample
from speculative import acceptance, residual, verify


def lenient(λ):
    """Leviathan et al. 2023, appendix A.5."""
    return edited(verify, ("p[i, token]", "λ * p[i, token]"), λ=λ)


def cascade(α):
    """A speculative cascade, as in MTPLX #485: what is nearly the argmax is always accepted."""
    is_near = "q[i, token] >= (1 - α) * q[i].max()"
    return edited(verify, ("rng.random() <", f"{is_near} or rng.random() <"), α=α)


def ears(τ):
    """EARS (arXiv 2512.13194): u may exceed the ratio by τ times what the target doubts."""
    return edited(verify, (RATIO, f"{RATIO} + τ * (1 - q[i].max())"), τ=τ)


def of_candidates():
    """FastDeploy's TOPP: any token of a truncated q is accepted."""
    return edited(verify, (ACCEPTED, "q[i, token] > 0", "residual(p[i], q[i])", "q[i]"))


def own_draw(θ):
    """Accept what the target draws too, and what it finds probable."""
    is_own = "(own := sample(q[i], rng)) == token or q[i, token] >= θ"
    return edited(verify, (ACCEPTED, is_own, RESAMPLED, "own"), θ=θ)


def agreed():
    """Accept what a second draft draws too. The target draws the first token without it."""
    return edited(verify, (ACCEPTED, "sample(p[i], rng) == token", "residual(p[i], q[i])", "q[i]"))


def synthetic(*rates):
    """vLLM's rule for benchmarks: rates[i] is how often token i is kept, with all before it."""
    return edited(verify, (RATIO, "rates[i] / (rates[i - 1] if i else 1)"), rates=rates)


def argmax_unless(is_good):
    """Accept a token where is_good(q, token), and otherwise add the target's argmax."""
    edit = (
        *(ACCEPTED, "is_good(q[i], token)"),
        *(RESAMPLED, "q[i].argmax()"),
        *("sample(q[-1], rng)", "q[-1].argmax()"),
    )
    return edited(verify, edit, is_good=is_good)


def typical(epsilon, delta):
    """Medusa (Cai et al. 2024, arXiv 2401.10774), as evaluate_posterior of its code."""

    def is_good(q, token):
        least = min(epsilon, delta * np.exp(-entropy(q)))
        return float(q[token]) > least

    return argmax_unless(is_good)


def relaxed(n, delta):
    """TensorRT-LLM: one of the n most probable tokens, at most delta below the first."""

    def is_good(q, token):
        return token in np.argsort(-q)[:n] and q[token] >= q.max() - delta

    return argmax_unless(is_good)


def entropy(row):
    row = row[row > 0].astype(float)
    return -(row * np.log(row)).sum()


def fly(least, window=1, n=3):
    """FLy (arXiv 2511.22972), as in vLLM's fly.py.

    A rejected token is accepted all the same, if the entropy of the n most probable tokens
    is at least so high, and the next tokens, as many as the window has, pass their tests.
    """

    def rule(drafted, p, q, rng):
        passed = []
        for i, token in enumerate(drafted):
            passed.append(rng.random() < acceptance(p[i, token], q[i, token]))
        for i, token in enumerate(drafted):
            behind = passed[i + 1 : i + 1 + window]
            is_followed = len(behind) == window and all(behind)
            is_open = q[i, token] > 0 and entropy(np.sort(q[i])[-n:]) >= least
            if not passed[i] and not (is_followed and is_open):
                return np.append(drafted[:i], sample(residual(p[i], q[i]), rng))
        return np.append(drafted, sample(q[-1], rng))

    return rule


# ---- What they cost ----


def rules():
    """{name: rule}, as `verify`. Fractions keep the distances exact."""
    return {
        "`verify`": verify,
        "`verify_block`": verify_block,
        "leniency, λ = 0.8": lenient(Fraction("0.8")),
        "leniency, λ = 0.5": lenient(Fraction("0.5")),
        "leniency, λ = 0.3": lenient(Fraction("0.3")),
        "EARS, τ = 0.1": ears(Fraction("0.1")),
        "EARS, τ = 0.3": ears(Fraction("0.3")),
        "cascade, α = 0.3": cascade(Fraction("0.3")),
        "cascade, α = 0.5": cascade(Fraction("0.5")),
        "FLy, θ = 0.3, W = 1": fly(0.3),
        "accepted at rates of 0.7 and 0.5": synthetic(Fraction("0.7"), Fraction("0.5")),
        "accepted at rates of 0.8 and 0.6": synthetic(Fraction("0.8"), Fraction("0.6")),
        "accepted at rates of 0.9 and 0.5": synthetic(Fraction("0.9"), Fraction("0.5")),
        "typical, ε = 0.09, δ = 0.3": typical(0.09, 0.3),
        "typical, ε = 0.3, δ = 0.55": typical(0.3, 0.55),
        "relaxed, N = 2, δ = 0.1": relaxed(2, Fraction("0.1")),
        "relaxed, N = 2, δ = 0.3": relaxed(2, Fraction("0.3")),
        "own draw, or q at least 0.1": own_draw(Fraction("0.1")),
        "own draw, or q at least 0.3": own_draw(Fraction("0.3")),
        "own draw, or q at least 0.5": own_draw(Fraction("0.5")),
        "two drafts agree": agreed(),
    }


# The least of all a + b δ is the most that a round can have which keeps guesses from the left and
# adds one token, if the target goes on behind it and the texts are wrong by δ. A linear program
# proved it: git log -- studies/frontier.py
LINES = (1.86, 2.3), (1.87, 2.2), (1.89, 2.1), (2.44, 1), (3, 0)


def beside(distance):
    """The tokens per round of a coin that is as wrong, and those that are possible at best.

    Toss the coin once per text: heads, no check at all, which has 3 and is wrong by .56, and
    tails, `verify_block`, which has 1.86.
    """
    return 1.86 + 1.14 * min(1, distance / 0.56), min(a + b * distance for a, b in LINES)


def prices():
    """(name, distance, tokens per round, those of a coin, and at best) of each rule."""
    variants = [Variant(name, name, verify=rule) for name, rule in rules().items()]
    for p in "0.55", "0.8":
        name = f"top-p {p}, all of it accepted"
        rows = all_rows(partial(top_p, p=Fraction(p)))
        variants.append(Variant(name, name, verify=of_candidates(), **rows))
    return [(v.name, v.distance, v.tokens_per_round(), *beside(v.distance)) for v in variants]
