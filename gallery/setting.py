"""What the rules are tried on: a draft and a target with four tokens, and short texts.

P and Q were chosen among tables in tenths so that each wrong rule has a distance of its
own, and none has 0.
"""

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from enumeration import sum_over_paths
from lab.trees import balanced
from speculative import one_round, propose, verify


def tenths(*numbers):
    return np.array(numbers) * Fraction(1, 10)


# The rows of the draft and of the target. Which one follows a text depends on all of the text:
# the row's number is the sum of the tokens, modulo 4. So A, which is 0, leaves it as it is.
P = tenths([4, 1, 3, 2], [5, 2, 2, 1], [1, 7, 1, 1], [1, 2, 2, 5])
Q = tenths([1, 5, 1, 3], [1, 1, 1, 7], [2, 3, 4, 1], [2, 4, 2, 2])
EOS = 2  # for the rules that are about the end of a text


@dataclass(frozen=True, eq=False)
class Setting:
    """What a text is decoded with: models by their tables, a prompt, N, K, a shape for trees."""

    P: np.ndarray
    Q: np.ndarray
    prompt: tuple = (0,)
    N: int = 3
    K: int = 2
    shape: tuple = balanced(2)

    def index(self, ids):
        """Which row comes after each of the ids: the sum of the tokens so far, modulo len(P)."""
        return np.cumsum(ids) % len(self.P)

    def draft_model(self, ids, n_rows=1):
        """The draft's rows after the last n_rows prefixes of ids."""
        return self.P[self.index(ids)[-n_rows:]]

    def target_model(self, ids, n_rows=1):
        """The target's rows after the last n_rows prefixes of ids."""
        if n_rows > len(ids):
            raise ValueError(f"{n_rows} rows need as many tokens; ids has {len(ids)}")
        return self.Q[self.index(ids)[-n_rows:]]


SETTING = Setting(P, Q)
draft_model = SETTING.draft_model
target_model = SETTING.target_model


def target_rows(setting, x, drafted):
    """The rows q of a round: one for each guess, and one more."""
    return setting.target_model(np.append(x, drafted), len(drafted) + 1)


def emitted(x, k_max, rng, setting, verify=verify, propose=propose, rows=target_rows):
    """The tokens that a round after x emits."""

    def target(ids, n_rows):
        return rows(setting, x, ids[len(x) :])

    return one_round(
        x, setting.draft_model, target, k_max, rng, propose=propose, verify=verify
    ).emitted


def decode(rng, setting, verify=verify, propose=propose, rows=target_rows, end_of=None):
    """`speculative_sampling`, whose rows of the target and whose end can be wrong as well.

    end_of(new, emitted) is the number of new tokens that the text keeps, or None while
    it goes on. emitted are the last ones of them, those of the round.
    """
    x = np.array(setting.prompt)
    n = len(x)
    while len(x) < n + setting.N:
        k_max = min(setting.K, n + setting.N - len(x) - 1)
        new = emitted(x, k_max, rng, setting, verify, propose, rows)
        x = np.append(x, new)
        kept = None if end_of is None else end_of(x[n:], new)
        if kept is not None:
            return x[: n + kept]
    return x


def no_tokens(x, draft_model, k_max, rng):
    return x[:0], ()


def plain(rng, setting, **options):
    """Autoregressive sampling from the target, with the options of `decode`."""
    return decode(rng, setting, propose=no_tokens, **options)


# ---- Distributions ----


def round_distribution(verify=verify, propose=propose, rows=target_rows, setting=SETTING):
    """{new tokens: probability} of a round with K guesses after the prompt."""
    return distribution_after(setting.prompt, setting.K, setting, verify, propose, rows)


def distribution_after(ids, k_max, setting, *parts):
    x = np.array(ids)
    return sum_over_paths(lambda rng: emitted(x, k_max, rng, setting, *parts))


def text_distribution(setting, *parts):
    """The distribution of `decode` where a round depends on the text alone."""
    end = len(setting.prompt) + setting.N

    def round_after(ids):
        k_max = min(setting.K, end - len(ids) - 1)
        return distribution_after(ids, k_max, setting, *parts)

    return of_rounds(round_after, setting.prompt, setting.N)


def of_rounds(round_after, prompt, N):
    """The distribution of the prompt and N tokens, if round_after(ids) is that of a round.

    The round after a text is run once, and not once for each way that led there.
    """
    end = len(prompt) + N
    texts = Counter({prompt: 1})
    for n in range(len(prompt), end):
        for ids in [ids for ids in texts if len(ids) == n]:
            probability = texts.pop(ids)
            for new, share in round_after(ids).items():
                share = Fraction(1) if share == 1 else share  # if nothing was drawn, it's a float
                texts[(*ids, *new)[:end]] += probability * share
    return texts


def mean_length(distribution):
    """How many tokens the texts of a distribution have on average."""
    return sum(probability * len(ids) for ids, probability in distribution.items())
