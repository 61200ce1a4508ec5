"""Does HSD accept more tokens than block verification? Tokens per round, exactly, on 1,081 pairs of models.

    python -m studies.audit.hsd
    python -m studies.audit.hsd --clone clones/ZhouYuxuanYX/Hierarchical-Speculative-Decoding

The rules are those of Zhou et al. 2026 (arXiv 2601.05724), in this project's notation.
With --clone, which needs PyTorch, the function `HSD` of their simulation.py also runs on
the pairs with K = 2, and must add the very tokens of `published`. Both take minutes.
"""

import argparse
import itertools
from functools import partial
from pathlib import Path

import numpy as np
from tqdm import tqdm

from enumeration import output_distribution, total_variation
from lab import gallery
from lab.block import verify_block
from lab.tables import table
from sampling import sample
from speculative import residual, verify
from studies.audit import harness
from studies.audit.harness import mean_length


def ratios(drafted, p, q):
    """q / p of each prefix of the draft, and the same capped, which is r* of Definition 5. [k+1] each."""
    places = range(len(drafted))
    r = np.cumprod([1.0, *q[places, drafted] / p[places, drafted]])
    return r, r / np.maximum.accumulate(np.maximum(r, 1))


def n_kept(w, last, p, q, rng):
    """Try to keep all tokens, then all but the last, and so on. Equations 11 and 19."""
    change = w[:-1, None] * q[:-1] - p
    missing, excess = np.maximum(change, 0).sum(axis=-1), np.maximum(-change, 0).sum(axis=-1)
    h = [*(missing / np.maximum(missing, excess)), min(1.0, last)]
    return next(i for i in reversed(range(len(h))) if i == 0 or rng.random() < h[i])


def hsd(drafted, p, q, rng, published=False):
    """Algorithm 2. The published code caps all ratios but that of the whole draft."""
    r, w = ratios(drafted, p, q)
    i = n_kept(w, r[-1] if published else w[-1], p, q, rng)
    return np.append(drafted[:i], sample(q[i] if i == len(drafted) else residual(p[i], w[i] * q[i]), rng))


def naive(drafted, p, q, rng):
    """The number of tokens that Algorithm 1 keeps."""
    r, _ = ratios(drafted, p, q)
    return n_kept(r, r[-1], p, q, rng)


RULES = {"`verify`": verify, "HSD, Algorithm 2": hsd, "HSD, published code": partial(hsd, published=True)}


def one_round(rule, P, Q, K):
    """The distribution of what rule(drafted, p, q, rng) returns in a round after token 0."""
    return output_distribution(lambda rng: harness.one_round(rule, P, Q, K, rng))


def distance(outputs, Q, K):
    """How far a text of K + 1 tokens is from the target's own if the target completes what the round has added."""
    rest = [np.ones(len(Q))]  # rest[k][t]: the probability of each text of k tokens after token t
    for _ in range(K + 1):
        rest.append(np.multiply.outer(np.ones(len(Q)), rest[-1]) * Q[(..., *[None] * (rest[-1].ndim - 1))])
    found = np.zeros_like(rest[-1][0])
    for tokens, mass in outputs.items():
        found[tokens] += mass * rest[K + 1 - len(tokens)][tokens[-1]]
    return np.abs(found - rest[-1][0]).sum() / 2


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
    kept = {i: mass for (i,), mass in one_round(naive, P, Q, K).items()}
    passes = sum(mass * max(K - i, 1) for i, mass in kept.items())  # all but the first resampled token need one
    yield "HSD, Algorithm 1, per pass", (K + kept.get(K, 0)) / passes - block, None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clone", type=Path, metavar="DIR", help="a clone of HSD's code at e342adf")
    args = parser.parse_args()
    found = [[*measured(*pair)] for pair in tqdm([*pairs()])]
    if args.clone:
        check(args.clone)
    rows = []
    for results in zip(*found):
        (name, *_), gaps, distances = zip(*results)
        gaps = np.array(gaps).round(12) + 0.0  # -0.0 becomes 0.0
        numbers = (f"{number:.4f}" for number in (gaps.mean(), gaps.min(), gaps.max()))
        far = "" if None in distances else f"{max(distances):.2g}"
        rows.append([name, f"{(gaps > 0).sum():,}", f"{(gaps < 0).sum():,}", *numbers, far])
    print(table(["rule", "ahead", "behind", "mean difference", "least", "most", "off the target by up to"], rows))


def check(clone):
    """Does the published code do what `hsd` says that it does?"""
    from studies.audit.projects import hsd_rules

    published = harness.in_torch(hsd_rules(clone)["HSD"])
    for P, Q, K in pairs():
        if K == 2:
            theirs = output_distribution(harness.drawing(partial(harness.one_round, published, P, Q, K)))
            assert total_variation(theirs, one_round(RULES["HSD, published code"], P, Q, K)) < 1e-12


if __name__ == "__main__":
    main()
