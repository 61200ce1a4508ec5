"""Rules that are wrong on purpose, for more tokens per round."""

import numpy as np

from lab.gallery.variant import ACCEPTED, RATIO, RESAMPLED, edited
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
