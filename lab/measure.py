"""What rounds cost, and the best K."""

import itertools
import math
from statistics import median_low

import numpy as np

from lab import theory


def costs(times, K):
    """What rounds with 0 ... K drafted tokens cost, from `LabPair.times`, for `schedules.adaptive`.

    A k counts as timed after two rounds, because the first one with a new k is often
    slow, and costs the median of its times. Until 0 and 1 are timed, they look best, so
    that they are tried. A larger k that was not timed costs as much as one token more
    than k - 1. That is more often too low than too high, so it is tried soon.

    Returns
    -------
    float64 [K+1], in units of the first
    """
    timed = {k: median_low(seconds) for k, seconds in times.items() if len(seconds) > 1}
    if 0 not in timed:
        return np.array([1.0] + [math.inf] * K)
    none = timed[0]
    one = timed.get(1, none)
    per_token = max(one - none, 0.0) if 1 in timed else math.inf
    found = [none, one]
    for k in range(2, K + 1):
        found.append(timed.get(k, found[-1] + per_token))
    return np.array(found[: K + 1]) / none


def best_K(pair, x, N, K_max=8, **options):
    """Estimate the best K by a pilot run whose rounds draft 0, 1, ..., K_max tokens in turn.

    N = 96 is enough for K_max = 8. Each estimate comes from the shortest of a few rounds,
    since other programs only add to their times. options are rng, verify, eos and
    on_round of `LabPair.decode`.

    Returns
    -------
    K : int, 0 if nothing was timed or nothing pays
    speedups : float64 [K_max+1], 0 for a K that was timed at most once
    """
    in_turn = itertools.cycle(range(K_max + 1))
    pilot = pair.decode(x, N, K_max, schedule=lambda last: next(in_turn), **options)
    tokens = theory.tokens_by_position(pilot.chances, K_max)
    speedups = np.zeros(K_max + 1)
    if len(pair.times[0]) < 2:
        return 0, speedups
    for K in range(K_max + 1):
        if len(pair.times[K]) > 1:
            cost = min(pair.times[K]) / min(pair.times[0])
            speedups[K] = tokens[K] / cost
    return int(np.argmax(speedups)), speedups


def best_K_found(K, speedups):
    """The figure that --K auto adds: what `best_K` returned, in words."""
    if not speedups[1:].any():
        return f"unknown, because the pilot run was too short; {K} was used"
    timed = np.flatnonzero(speedups)
    estimates = ", ".join(f"{speedups[k]:.2f} (K = {k})" for k in timed)
    return f"{K}; rough estimates of the speedup: {estimates}"
