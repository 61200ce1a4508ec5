"""A loop with a clock: `Run` times it, `show` prints its text, and `figures` compares two runs."""

import codecs
import os
import sys
import time

import numpy as np
from tqdm import tqdm

LEGEND = {"accepted": "guessed and accepted", "corrected": "corrected", "bonus": "bonus"}
COLOURS = {"accepted": "\x1b[32m", "corrected": "\x1b[31;4m", "bonus": "\x1b[35m"}  # green, red underlined, magenta
RESET = "\x1b[0m"


def betas(r):
    """sum min(p, q), the probability of being accepted, for each guess of a round that was looked at."""
    return np.minimum(r.p, r.q[:-1]).sum(axis=-1)[: len(r.emitted)]


class Run:
    """What a loop decodes, and how long it takes. The clock stands still while `on_round` is called.

        run = Run(draft_model, target_model)
        run.ids = speculative_sampling(x, run.draft, run.target, N, K, rng, on_round=run.on_round)

    Have both models read the prompt before, so that the clock times decoding alone.
    """

    def __init__(self, draft, target, on_round=None, betas=betas):
        self.n_drafted, self.n_accepted, self.n_emitted = [], [], []  # in each round
        self.betas, self.betas_of = [], betas  # of each round
        self.steps, self.passes = [], []  # seconds of each call of the draft, and of the target
        self.lasted = []  # seconds of each round
        self.draft, self.target = self.timed(draft, self.steps), self.timed(target, self.passes)
        self.next, self.ids, self.begun = on_round, None, time.perf_counter()

    @staticmethod
    def timed(model, seconds):
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


def origins(r):
    """Where each emitted token of a round comes from, in the words of LEGEND."""
    last = "bonus" if r.n_accepted == len(r.drafted) else "corrected"
    return ["accepted"] * r.n_accepted + [last] * (len(r.emitted) - r.n_accepted)


def show(title, prompt, encoder, N, decode, colour=None):
    """decode(on_round=...) -> Run, and print its text: on a terminal as it comes, in colours, otherwise at the end."""
    live, utf8 = sys.stdout.isatty(), codecs.getincrementaldecoder("utf-8")("replace")
    if colour is None:
        colour = live and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")
    held_back = []
    write = (lambda text: print(text, end="", flush=True)) if live else held_back.append
    print(f"\n{title}\n{'-' * len(title)}")
    write(f"Text = {prompt}")

    def on_round(r):
        bar.update(len(r.emitted))
        for token, origin in zip(r.emitted, origins(r)):
            text = utf8.decode(encoder.bytes_of([token]))
            write(COLOURS[origin] + text + RESET if colour and text and len(r.drafted) else text)

    with tqdm(total=N, desc=title, unit="token", leave=False, disable=live or None) as bar:
        run = decode(on_round=on_round)
    write(utf8.decode(b"", final=True))
    took = f"Time = {run.seconds:.2f}s"
    print(f"\n{took}" if live else f"{took}\n{''.join(held_back)}", flush=True)
    if colour and any(run.n_drafted):
        print("Colours:", ", ".join(COLOURS[origin] + words + RESET for origin, words in LEGEND.items()))
    return run


def figures(plain, fast, setting, is_sample=False):
    """Compare a plain run and a speculative one -> {name: value}.

    setting is what the second one was run with, such as "K = 4". is_sample tells whether
    two texts may differ because both were drawn.
    """
    if not plain.n_new:
        return {"tokens per second": "nothing was decoded, so there is nothing to compare"}
    n_looked_at, (guesses, check, rest) = sum(map(len, fast.betas)), fast.cost(plain)
    rate = alpha = "nothing was drafted"
    if n_looked_at:
        expected = np.mean([(fast.alpha ** np.arange(k + 1)).sum() for k in fast.n_drafted])
        rate = f"{fast.acceptance_rate:.2f} of {sum(fast.n_drafted)} drafted tokens"
        alpha = f"{fast.alpha:.2f} of the {n_looked_at} looked at, which predicts {expected:.2f} tokens per round"
    found = {
        "tokens per second": f"{plain.tokens_per_second:.1f} target alone, {fast.tokens_per_second:.1f} speculative",
        "speedup": f"{fast.tokens_per_second / plain.tokens_per_second:.2f}",
        "acceptance rate": rate,
        "alpha": alpha,
        "tokens per round": f"{fast.tokens_per_round:.2f}, with {setting}",
        "cost of a round": f"{guesses + check + rest:.2f} plain steps: guesses K c = {guesses:.2f}, "
        f"check v = {check:.2f}, rest r = {rest:.2f}",
        "same text": same_text(plain.ids, fast.ids, is_sample),
    }
    if fast.tokens_per_second < plain.tokens_per_second and n_looked_at:
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


def printed(found):
    """The figures, a line for each."""
    return "\n".join(f"{name:<17} {value}" for name, value in found.items())
