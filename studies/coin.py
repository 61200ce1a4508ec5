"""Leniency beside a coin of the same distance, on 1,000 random settings.

    python -m studies.coin

As in the gallery, texts have three tokens and K = 2. Each text has rows of its own, over four
tokens. The coin is tossed once per text: no check at all, or `verify_block`.
"""

from functools import partial

import numpy as np

from gallery.setting import P, Q

V = len(P)
N_SETTINGS = 1000


def normalised(x):
    return x / x.sum(axis=-1, keepdims=True)


def emitted(p, q, λ):
    """What is accepted of each token, and resampled: rows that sum to 1 together."""
    accepted = p * np.minimum(1, q / (λ * p))
    rejected = 1 - accepted.sum(axis=-1, keepdims=True)
    surplus = np.maximum(q - p, 0)
    total = surplus.sum(axis=-1, keepdims=True)
    return accepted, rejected * np.where(total > 0, surplus / np.where(total > 0, total, 1), q)


def leniency(λ, P0, P1, Q0, Q1, Q2):
    """(distance, tokens per round)"""
    first, other = emitted(P0, Q0, λ)
    behind, other_behind = emitted(P1, Q1, λ)
    both = behind + other_behind
    texts = (first + other)[:, None, None] * both[:, :, None] * Q2
    tokens = 1 + first.sum() + (first[:, None] * behind).sum()
    wanted = Q0[:, None, None] * Q1[:, :, None] * Q2
    return abs(texts - wanted).sum() / 2, tokens


def coin(distance, P0, P1, Q0, Q1):
    """The tokens per round of a coin that is wrong by as much."""
    w = np.minimum(1, Q0 / P0)
    both = np.minimum(P0[:, None] * P1, (P0 * w)[:, None] * Q1).sum()
    exact = 1 + (P0 * w).sum() + both
    no_check = abs(P0[:, None] * P1 - Q0[:, None] * Q1).sum() / 2
    return exact + (3 - exact) * min(1, distance / no_check)


def main():
    P1, Q1 = P.astype(float), Q.astype(float)  # after each token
    P0, Q0 = P1[0], Q1[0]
    Q2 = np.array([[Q1[(a + b) % V] for b in range(V)] for a in range(V)])
    pair = P0, P1, Q0, Q1
    for λ in 0.8, 0.5, 0.3:
        distance, tokens = leniency(λ, *pair, Q2)
        print(f"the pair, λ = {λ}: {distance:.4f} {tokens:.4f}, coin {coin(distance, *pair):.4f}")
    rng = np.random.default_rng(2026)
    gains = {0.8: [], 0.5: [], 0.3: []}
    for _ in range(N_SETTINGS):
        draw = partial(rng.dirichlet, np.full(V, rng.choice([0.3, 1, 3])))
        Q0, Q1, Q2 = (normalised(draw(shape) + 1e-9) for shape in [(), V, (V, V)])
        share = rng.uniform(0.2, 0.95)
        P0, P1 = (normalised(share * q + (1 - share) * draw(q.shape[1:]) + 1e-9) for q in (Q0, Q1))
        for λ, found in gains.items():
            distance, tokens = leniency(λ, P0, P1, Q0, Q1, Q2)
            found.append(tokens - coin(distance, P0, P1, Q0, Q1))
    for λ, found in gains.items():
        ahead = np.mean(np.array(found) > 1e-12)
        print(f"λ = {λ}: leniency is ahead in {ahead:.0%}, by {np.mean(found):+.3f} on average")
    print(f"in all {np.mean(np.array([*gains.values()]) > 1e-12):.0%}")


if __name__ == "__main__":
    main()
