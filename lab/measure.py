"""What rounds cost, the best K, and the speedup that the theory predicts from what was measured."""

import itertools
import math
from typing import NamedTuple

import numpy as np

from lab import theory

ENOUGH = 5  # `predicted` needs at least this many draft steps, plain passes, and passes that check drafted tokens


def joined(runs, name, first=0):
    """A field of several runs in one array. first=1 leaves out the first entry of each run, which read a prompt."""
    return np.concatenate([getattr(run, name)[first:] for run in runs])


def median(times):
    """The lower median of sorted times."""
    return times[(len(times) - 1) // 2]


def costs(times, K):
    """What rounds with 0 ... K drafted tokens cost, from `Pair.times`, for `schedules.adaptive`.

    A k counts as timed after two rounds, because the first one with a new k is often
    slow, and costs the median of its times. Until 0 and 1 are timed, they look best, so
    that they are tried. A larger k that was not timed costs as much as one token more
    than k - 1. That is more often too low than too high, so it is tried soon.

    Returns
    -------
    float64 [K+1], in units of the first
    """
    timed = {k: median(seconds) for k, seconds in times.items() if len(seconds) > 1}
    if 0 not in timed:
        return np.where(np.arange(K + 1) == 0, 1.0, math.inf)
    found = [timed[0], timed.get(1, timed[0])]
    per_token = max(timed[1] - timed[0], 0.0) if 1 in timed else math.inf
    for k in range(2, K + 1):
        found.append(timed.get(k, found[-1] + per_token))
    return np.array(found[: K + 1]) / found[0]


def best_K(pair, x, N, K_max=8, **options):
    """Estimate the best K by a pilot run whose rounds draft 0, 1, ..., K_max tokens in turn.

    N = 96 is enough for K_max = 8. Each estimate comes from a few rounds, so the
    largest of them is usually too high. options are rng, verify, eos and on_round of
    `Pair.decode`.

    Returns
    -------
    K : int, 0 if nothing was timed or nothing pays
    speedups : float64 [K_max+1], 0 for a K that was timed at most once
    """
    ks = itertools.cycle(range(K_max + 1))
    pair.decode(x, N, **options)
    pilot = pair.decode(x, N, K_max, schedule=lambda last: next(ks), **options)
    tokens, speedups = theory.tokens_by_position(pilot.betas, K_max), np.zeros(K_max + 1)
    plain = pair.times[None]
    for K in range(K_max + 1):
        times = pair.times[K] if K else plain  # K = 0 is the plain loop
        if len(times) > 1 and len(plain) > 1:
            speedups[K] = tokens[K] * median(plain) / median(times)
    return int(np.argmax(speedups)), speedups


class Prediction(NamedTuple):
    """The speedup by theory.py, and the costs that it was computed from, see there."""

    speedup: float
    alpha: float
    c: float
    v: float  # for the most frequent number of drafted tokens above 0
    r: float


def predicted(plain, fast):
    """The speedup that the theory expects of what was measured -> Prediction, or None if too little was timed.

    The theory is about `verify` with a fixed K. For block verification it is often too
    low, and for short texts that end with an eos too high.

    Parameters
    ----------
    plain, fast : lists of lab.pair.Run, without and with speculation, for the same prompts
    """
    ks, betas = joined(fast, "n_drafted"), [b for run in fast for b in run.betas]
    steps, passes, checked = (joined(fast, name, first=1) for name in ("steps", "passes", "n_drafted"))
    plain_passes = joined(plain, "passes", first=1)
    if len(passes) != len(checked) or min(map(len, (steps, plain_passes, checked[checked > 0]))) < ENOUGH:
        return None
    # Means, and not medians as in `costs`, because the measured speedup has the slow
    # rounds in it too. The unit comes from the plain loop alone: a pass with k = 0
    # among passes of other kinds takes longer.
    timed = {k: passes[checked == k].mean() for k in np.unique(checked)} | {0: plain_passes.mean()}
    known = sorted(timed)
    plain_step = timed[0] + (joined(plain, "lasted") - joined(plain, "passes")).mean()
    c = steps.mean() / plain_step
    v = np.interp(np.arange(max(ks) + 1), known, [timed[k] for k in known]) / plain_step  # [K+1]
    in_models = joined(fast, "steps").sum() + joined(fast, "passes").sum()
    r = (joined(fast, "lasted").sum() - in_models) / len(ks) / plain_step
    tokens = theory.tokens_by_position(betas, max(ks))
    # What it costs to read the prompts, in plain steps: the first calls of each run,
    # beyond v and c.
    prompts = sum(run.passes[0] / plain_step - v[run.n_drafted[0]] for run in fast)
    prompts += sum(run.steps[0] / plain_step - c for run in fast if len(run.steps))
    per_token = (ks * c + v[ks] + r).sum() / tokens[ks].sum() + prompts / sum(run.n_new for run in fast)
    speedup = joined(plain, "lasted").mean() / plain_step / per_token
    return Prediction(speedup, np.concatenate(betas).mean(), c, v[np.bincount(ks[ks > 0]).argmax()], r)
