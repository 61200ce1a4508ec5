"""A loop with a clock: `timed` runs it, and `figures` compares two runs."""

import time
from typing import NamedTuple

import numpy as np

LEGEND = {"accepted": "guessed and accepted", "corrected": "corrected", "bonus": "bonus"}


def beta(p, q):
    """sum min(p, q), the probability that a draw from p is accepted. [..., n_vocab] -> [...]"""
    return np.minimum(p, q).sum(axis=-1)


class Chances(NamedTuple):
    """What a rule says of the guesses that it looked at in a round: how likely they were kept."""

    reached: np.ndarray  # float [m], the probability that all guesses before it are kept
    kept: np.ndarray  # float [m], and that it is kept as well


def chances(r):
    """The `Chances` of `speculative.verify`, which looks at a guess if all before it are kept."""
    kept = beta(r.p, r.q[:-1])[: len(r.emitted)]
    return Chances(np.ones(len(kept)), kept)


def expected_tokens(alpha, K):
    """Tokens per round with 0, 1, ... K guesses, if each is accepted with probability alpha.

    1 + alpha + ... + alpha^K = (1 - alpha^(K+1)) / (1 - alpha): Leviathan et al. 2023,
    equation 1. float64 [K+1]
    """
    powers = np.float64(alpha) ** np.arange(K + 1)
    return np.cumsum(powers)  # the fraction is inaccurate for alpha near 1


class Run:
    """What a loop decodes, and how long it takes. The clock stands still during `on_round`.

    chances(r) is what the rule says of a round, see `Chances`, or None if nobody knows.
    """

    def __init__(self, draft, target, on_round=None, chances=chances, times=None):
        self.n_drafted, self.n_accepted, self.n_emitted = [], [], []  # in each round
        self.chances = []  # of each round
        self.steps, self.passes = [], []  # seconds of each call of the draft, and of the target
        self.lasted = []  # seconds of each round
        self.times = times  # the same by the number of guesses, if wanted
        self.draft = self.watched(draft, self.steps)
        self.target = self.watched(target, self.passes)
        self.rule, self.next = chances, on_round
        self.ids = None
        self.begun = time.perf_counter()

    @staticmethod
    def watched(model, seconds):
        def call(*args):
            begun = time.perf_counter()
            rows = model(*args)
            seconds.append(time.perf_counter() - begun)
            return rows

        return call

    def on_round(self, r):
        self.lasted.append(time.perf_counter() - self.begun)
        self.n_drafted.append(len(r.drafted))
        self.n_accepted.append(r.n_accepted)
        self.n_emitted.append(len(r.emitted))
        if self.rule is not None:
            self.chances.append(self.rule(r))
        if self.times is not None:
            self.times[len(r.drafted)].append(self.lasted[-1])
        if self.next is not None:
            self.next(r)
        self.begun = time.perf_counter()

    @property
    def seconds(self):
        return sum(self.lasted)

    @property
    def n_new(self):
        return sum(self.n_emitted)

    @property
    def n_looked_at(self):
        """How many guesses the rule looked at."""
        return sum(len(found.kept) for found in self.chances)

    @property
    def tokens_per_second(self):
        return ratio(self.n_new, self.seconds)

    @property
    def tokens_per_round(self):
        return ratio(self.n_new, len(self.lasted))

    @property
    def acceptance_rate(self):
        """The share of the guesses that is in the text. Those never looked at count as misses."""
        return ratio(sum(self.n_accepted), sum(self.n_drafted))

    @property
    def alpha(self):
        """The mean probability that a guess is accepted if all before it are."""
        kept = sum(found.kept.sum() for found in self.chances)
        return ratio(kept, sum(found.reached.sum() for found in self.chances))

    def predicted(self, tokens=None):
        """Tokens per round, by `tokens` per round with 0, 1, ... guesses, or else by alpha."""
        if tokens is None:
            tokens = expected_tokens(self.alpha, max(self.n_drafted))
        return float(np.mean(tokens[self.n_drafted]))

    def cost(self, plain):
        """What a round costs, in plain steps -> K c, v, r: for the guesses, the check, the rest."""
        unit = len(self.lasted) * plain.seconds / plain.n_new
        guesses, check = sum(self.steps) / unit, sum(self.passes) / unit
        return guesses, check, self.seconds / unit - guesses - check


def ratio(a, b):
    """a / b as a float, or None of nothing."""
    return float(a / b) if b else None


def timed(loop, x, draft, target, networks, on_round=None, **options):
    """loop(draft, target, on_round) -> ids, with a clock -> Run. First the networks read x."""
    for network in networks:
        network.forget()
        network(np.array(x))
    run = Run(draft, target, on_round, **options)
    run.ids = loop(run.draft, run.target, run.on_round)
    return run


def origins(r):
    """Where each emitted token of a round comes from, in the words of LEGEND."""
    last = "bonus" if r.n_accepted == len(r.drafted) else "corrected"
    return ["accepted"] * r.n_accepted + [last] * (len(r.emitted) - r.n_accepted)


def figures(plain, speculative, setting, is_sample=False, tokens=None):
    """Compare a plain run and a speculative one -> {name: value}.

    setting is what the second one was run with, such as "K = 4". is_sample tells whether
    two texts may differ because both were drawn. tokens is for `Run.predicted`.
    """
    if not plain.n_new:
        return {"tokens per second": "none: nothing was decoded, so there is nothing to compare"}
    slow, quick = plain.tokens_per_second, speculative.tokens_per_second
    guesses, check, rest = speculative.cost(plain)
    parts = f"guesses K c = {guesses:.2f}, check v = {check:.2f}, rest r = {rest:.2f}"
    found = {}
    found["tokens per second"] = f"{slow:.1f} target alone, {quick:.1f} speculative"
    found["speedup"] = f"{quick / slow:.2f}"
    found |= acceptance(speculative, tokens)
    found["tokens per round"] = f"{speculative.tokens_per_round:.2f}, with {setting}"
    found["cost of a round"] = f"{guesses + check + rest:.2f} plain steps: {parts}"
    found["same text"] = same_text(plain.ids, speculative.ids, is_sample)
    if quick < slow and speculative.n_looked_at:
        found["slower"] = why_slower(guesses, check, rest)
    return found


def acceptance(run, tokens):
    if not run.n_looked_at:
        return dict.fromkeys(["acceptance rate", "alpha"], "none: nothing was drafted")
    of_which = f"of the {run.n_looked_at} looked at, which"
    if tokens is not None:
        of_which = "behind accepted guesses, which by place"
    predicted = f"predicts {run.predicted(tokens):.2f} tokens per round"
    return {
        "acceptance rate": f"{run.acceptance_rate:.2f} of {sum(run.n_drafted)} drafted tokens",
        "alpha": f"{run.alpha:.2f} {of_which} {predicted}",
    }


def why_slower(guesses, check, rest):
    reasons = [
        (guesses, "the guesses cost most: try a smaller draft, or a smaller K"),
        (check - 1, "the check costs most: try a smaller K, or a better draft"),
        (rest, "drawing and accepting cost most: try a smaller K"),
    ]
    _, reason = max(reasons)  # one plain step of the check is what a token costs anyway
    return f"because {reason}"


def same_text(ids, other, is_sample):
    if np.array_equal(ids, other):
        return "yes"
    if is_sample:
        return "no: two samples from one distribution, unless --same_text is given"
    return "NO: a bug"
