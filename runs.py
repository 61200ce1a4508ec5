"""A loop with a clock: `timed` runs it, and `figures` compares two runs."""

import time

import numpy as np

LEGEND = {"accepted": "guessed and accepted", "corrected": "corrected", "bonus": "bonus"}


def beta(p, q):
    """sum min(p, q), the probability that a draw from p is accepted. [..., n_vocab] -> [...]"""
    return np.minimum(p, q).sum(axis=-1)


def betas(r):
    """beta for each guess of a round that was looked at."""
    return beta(r.p, r.q[:-1])[: len(r.emitted)]


def expected_tokens(alpha, K):
    """Tokens per round with 0, 1, ... K guesses, if each is accepted with probability alpha -> float64 [K+1]

    1 + alpha + ... + alpha^K = (1 - alpha^(K+1)) / (1 - alpha): Leviathan et al. 2023, equation 1.
    """
    return np.cumsum(np.float64(alpha) ** np.arange(K + 1))  # the fraction is inaccurate for alpha near 1


class Run:
    """What a loop decodes, and how long it takes. The clock stands still while `on_round` is called."""

    def __init__(self, draft, target, on_round=None, betas=betas, times=None):
        self.n_drafted, self.n_accepted, self.n_emitted = [], [], []  # in each round
        self.betas, self.betas_of = [], betas  # of each round
        self.steps, self.passes = [], []  # seconds of each call of the draft, and of the target
        self.lasted, self.times = [], times  # seconds of each round; and by the number of its guesses, if wanted
        self.draft, self.target = self.watched(draft, self.steps), self.watched(target, self.passes)
        self.next, self.ids, self.begun = on_round, None, time.perf_counter()

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
        self.betas.append(self.betas_of(r))
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
    def tokens_per_second(self):
        return self.n_new / self.seconds

    @property
    def tokens_per_round(self):
        return self.n_new / len(self.lasted)

    @property
    def acceptance_rate(self):
        """The share of the guesses that is in the text. Those that were never looked at count as misses."""
        return sum(self.n_accepted) / max(sum(self.n_drafted), 1)

    @property
    def alpha(self):
        """The mean probability that a guess is accepted, over those that were looked at."""
        return float(np.mean(np.concatenate(self.betas)))

    def cost(self, plain):
        """What a round costs, in steps of a plain run -> K c for the guesses, v for the check, r for the rest."""
        unit = len(self.lasted) * plain.seconds / plain.n_new
        guesses, check = sum(self.steps) / unit, sum(self.passes) / unit
        return guesses, check, self.seconds / unit - guesses - check


def timed(loop, x, draft, target, networks, on_round=None, **options):
    """loop(draft, target, on_round) -> ids, with a clock -> Run. The networks read the prompt x before it starts."""
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


def figures(plain, speculative, setting, is_sample=False):
    """Compare a plain run and a speculative one -> {name: value}.

    setting is what the second one was run with, such as "K = 4". is_sample tells whether
    two texts may differ because both were drawn.
    """
    if not plain.n_new:
        return {"tokens per second": "nothing was decoded, so there is nothing to compare"}
    slow, quick = plain.tokens_per_second, speculative.tokens_per_second
    n_looked_at, (guesses, check, rest) = sum(map(len, speculative.betas)), speculative.cost(plain)
    rate = alpha = "nothing was drafted"
    if n_looked_at:
        expected = np.mean([expected_tokens(speculative.alpha, k)[-1] for k in speculative.n_drafted])
        rate = f"{speculative.acceptance_rate:.2f} of {sum(speculative.n_drafted)} drafted tokens"
        alpha = (
            f"{speculative.alpha:.2f} of the {n_looked_at} looked at, which predicts {expected:.2f} tokens per round"
        )
    found = {
        "tokens per second": f"{slow:.1f} target alone, {quick:.1f} speculative",
        "speedup": f"{quick / slow:.2f}",
        "acceptance rate": rate,
        "alpha": alpha,
        "tokens per round": f"{speculative.tokens_per_round:.2f}, with {setting}",
        "cost of a round": f"{guesses + check + rest:.2f} plain steps: guesses K c = {guesses:.2f}, "
        f"check v = {check:.2f}, rest r = {rest:.2f}",
        "same text": same_text(plain.ids, speculative.ids, is_sample),
    }
    if quick < slow and n_looked_at:
        cause, change = max(
            (guesses, ("the guesses cost most", "a smaller draft, or a smaller K")),
            (check - 1, ("the check costs most", "a smaller K, or a better draft")),  # it cannot cost less than 1
            (rest, ("drawing and accepting cost most", "a smaller K")),
        )[1]
        found["slower"] = f"because {cause}: try {change}"
    return found


def same_text(ids, other, is_sample):
    if np.array_equal(ids, other):
        return "yes"
    return "no: two samples from one distribution, unless --same_text is given" if is_sample else "NO: a bug"
