"""Does HSD accept more tokens than block verification? Tokens per round on 1,081 pairs of models.

    python -m studies.audit.hsd  # takes minutes

The rules are those of Zhou et al. 2026 (arXiv 2601.05724), in this project's notation.
"""

import itertools
from functools import cache, partial

import numpy as np
from tqdm import tqdm

from ending import report
from enumeration import sum_over_paths
from lab import gallery
from lab.block import verify_block
from lab.tables import table
from sampling import sample
from speculative import propose, residual, verify
from studies.audit.harness import mean_length, model
from terminal import Parser

HEADER = ["rule", "ahead", "behind", "mean difference", "least", "most", "off the target by up to"]


# ---- The rules ----


def ratios(drafted, p, q):
    """q / p of each prefix of the draft, and the same capped: r* of Definition 5. [k+1] each."""
    places = range(len(drafted))
    r = np.cumprod([1.0, *q[places, drafted] / p[places, drafted]])
    return r, r / np.maximum.accumulate(np.maximum(r, 1))


def n_kept(w, last, p, q, rng):
    """Try to keep all tokens, then all but the last, and so on. Equations 11 and 19."""
    change = w[:-1, None] * q[:-1] - p
    missing = np.maximum(change, 0).sum(axis=-1)
    excess = np.maximum(-change, 0).sum(axis=-1)
    h = [*(missing / np.maximum(missing, excess)), min(1.0, last)]
    i = len(p)
    while i > 0 and not rng.random() < h[i]:
        i -= 1
    return i


def hsd(drafted, p, q, rng, published=False):
    """Algorithm 2. The published code caps all ratios but that of the whole draft."""
    r, w = ratios(drafted, p, q)
    last = r[-1] if published else w[-1]
    i = n_kept(w, last, p, q, rng)
    row = q[i]
    if i < len(drafted):
        row = residual(p[i], w[i] * q[i])
    return np.append(drafted[:i], sample(row, rng))


def naive(drafted, p, q, rng):
    """The number of tokens that Algorithm 1 keeps."""
    r, _ = ratios(drafted, p, q)
    return n_kept(r, r[-1], p, q, rng)


RULES = {
    "`verify`": verify,
    "HSD, Algorithm 2": hsd,
    "HSD, published code": partial(hsd, published=True),
}


# ---- What they do ----


def one_round(rule, P, Q, K):
    """The distribution of what rule(drafted, p, q, rng) returns in a round after token 0."""
    return sum_over_paths(partial(run, rule, P, Q, K))


def run(rule, P, Q, K, rng):
    drafted, p = propose(np.array([0]), model(P), K, rng)
    return rule(drafted, p, model(Q)([0, *drafted], K + 1), rng)


def distance(outputs, Q, K):
    """How far a text of K + 1 tokens is from the target's, which goes on after the round."""
    rest = cache(partial(texts, Q))
    found = np.zeros_like(rest(K + 1)[0])
    for tokens, mass in outputs.items():
        after = rest(K + 1 - len(tokens))
        found[tokens] += mass * after[sum(tokens) % len(Q)]
    return np.abs(found - rest(K + 1)[0]).sum() / 2


def texts(Q, n):
    """The probability of each text of n tokens, for each sum of the tokens before: [V, V, ... V]"""
    V = len(Q)
    tokens = np.arange(V)
    sums = (tokens[:, None] + tokens) % V  # [total, token]
    found = np.ones(V)
    for _ in range(n):
        rows = Q.reshape(V, V, *[1] * (found.ndim - 1))
        found = rows * found[sums]
    return found


def pairs(n=120):
    """The pair of the gallery, then n random ones for each of nine sizes."""
    yield gallery.P.astype(float), gallery.Q.astype(float), 2
    rng = np.random.default_rng(0)
    for V, K, _ in itertools.product((2, 3, 4), (2, 3, 4), range(n)):
        yield *rng.dirichlet(np.ones(V), size=(2, V)), K


def measured(P, Q, K):
    """(rule, tokens per round minus those of `verify_block`, distance) of each rule."""
    block = mean_length(one_round(verify_block, P, Q, K))
    for name, rule in RULES.items():
        outputs = one_round(rule, P, Q, K)
        yield name, mean_length(outputs) - block, distance(outputs, Q, K)
    yield "HSD, Algorithm 1, per pass", tokens_per_pass(P, Q, K) - block, None


def tokens_per_pass(P, Q, K):
    """Of Algorithm 1. All tokens that it resamples, but the first, need a pass of the target."""
    kept = {i: mass for (i,), mass in one_round(naive, P, Q, K).items()}
    passes = sum(mass * max(K - i, 1) for i, mass in kept.items())
    return (K + kept.get(K, 0)) / passes


def summary(results):
    """A row of the table, for one rule on all pairs."""
    (name, *_), gaps, distances = zip(*results)
    gaps = np.array(gaps).round(12) + 0.0  # -0.0 becomes 0.0
    counts = [f"{number:,}" for number in (sum(gaps > 0), sum(gaps < 0))]
    numbers = [f"{number:.4f}" for number in (gaps.mean(), gaps.min(), gaps.max())]
    far = "" if None in distances else f"{max(distances):.2g}"
    return [name, *counts, *numbers, far]


def main():
    Parser(description=__doc__).parse_args()
    found = [[*measured(*pair)] for pair in tqdm([*pairs()])]
    print(table(HEADER, map(summary, zip(*found))))


if __name__ == "__main__":
    report(main, "python -m studies.audit.hsd")
