"""A draft, a target and their clocks: everything that a run needs, put together in one place.

    >>> from pair import load_pair
    >>> pair = load_pair("draft", "target")
    >>> prompt = pair.encoder.encode("Once upon a time")
    >>> plain, fast = pair.decode(prompt, N=40), pair.decode(prompt, N=40, K=4)
    >>> fast.ids.tolist() == plain.ids.tolist(), len(fast.drafted) < 40
    (True, True)

`decode` returns a `Run`, which records what happened and how long it took.
"""

import os
import time
from collections import defaultdict
from typing import NamedTuple

import numpy as np

import theory
from drafts import make_draft
from encoder import Encoder
from errors import UserError
from gpt2 import GPT2
from sampling import sampler
from schedules import Overheard, make_schedule
from speculative import autoregressive_sampling, speculative_sampling, verify
from utils import MODELS_DIR, load_encoder_hparams_and_params

ENOUGH = 5  # calls that must have been timed before a prediction is made from them


class Timed:
    """A model that keeps the time of its calls.

    Parameters
    ----------
    model : callable
    clock : callable
        Returns seconds. It is an argument so that a test can use a clock of its own.
    """

    def __init__(self, model, clock=time.perf_counter):
        self.model, self.clock = model, clock
        self.calls = []  # the seconds of each call, in order; the first one reads the prompt
        self.steps = defaultdict(list)  # {n_rows: the seconds of each call but the first}

    def __call__(self, ids, n_rows=1):
        begun = self.clock()
        probs = self.model(ids, n_rows)
        seconds = self.clock() - begun
        if self.calls:  # the call that reads the prompt does not show what a step takes
            self.steps[n_rows].append(seconds)
        self.calls.append(seconds)
        return probs

    @property
    def seconds(self):
        return sum(self.calls)

    def typical(self, n_rows):
        """The median of the last 9 calls over n_rows rows, in seconds. 0 if there was none, so that it gets tried."""
        return float(np.median(self.steps[n_rows][-9:])) if n_rows in self.steps else 0.0


def measured(draft, target):
    """The costs that `schedules.adaptive` asks for, by the clocks of two `Timed` models.

    Returns
    -------
    callable
        costs(K) -> c, v as in theory.py, v [K+1] for 0 ... K drafted tokens. Where a number of rows was not timed yet,
        v is on a straight line between its neighbours.
    """

    def costs(K):
        n_rows = sorted(target.steps)
        seconds = np.interp(np.arange(1, K + 2), n_rows, [target.typical(n) for n in n_rows])  # [K+1]
        return draft.typical(1) / seconds[0], seconds / seconds[0]

    return costs


class Run(NamedTuple):
    """The record of a run: what one of the two loops has decoded."""

    ids: np.ndarray  # int [n_prompt + n_new]
    n_new: int
    drafted: np.ndarray  # int [n_rounds], how many tokens each round drafted
    accepted: np.ndarray  # int [n_rounds], how many of these are in the text
    betas: np.ndarray  # float [n_verified], how likely each verified token was to be accepted: see theory.betas
    lasted: np.ndarray  # float [n_rounds], the seconds that each round took, without on_round
    draft: Timed
    target: Timed

    @property
    def seconds(self):
        return self.lasted.sum()

    @property
    def tokens_per_second(self):
        return self.n_new / self.seconds

    @property
    def tokens_per_round(self):
        return self.n_new / len(self.drafted)

    @property
    def acceptance_rate(self):
        """The share of drafted tokens that is in the text. Tokens after a rejection count as not accepted."""
        return self.accepted.sum() / max(self.drafted.sum(), 1)


class Pair:
    """A draft and a target that decode together.

    Parameters
    ----------
    draft, target : callable
        Networks over the same vocabulary: a gpt2.GPT2, or a draft from drafts.py.
    encoder : encoder.Encoder, optional
        Kept for the caller, as `pair.encoder`.
    settings
        temperature, top_k, top_p and repetition_penalty of `sampling.sampler`, for both. The temperature is 0 if it is
        not given.
    """

    def __init__(self, draft, target, encoder: Encoder | None = None, **settings):
        settings = {"temperature": 0.0} | settings
        self.encoder, self.greedy = encoder, settings["temperature"] == 0
        self.draft, self.target = Overheard(draft), Overheard(target)
        self.draft_model, self.target_model = sampler(self.draft, **settings), sampler(self.target, **settings)
        self.n_ctx = min(net.n_ctx for net in (draft, target) if isinstance(net, GPT2))

    def decode(self, x, N, K=None, rng=None, schedule="fixed", threshold=None, verify=verify, eos=None, on_round=None):
        """Decode N tokens after the prompt x, as if it had not been seen before.

        Parameters
        ----------
        x : int [n_prompt]
        N : int
        K : int, optional
            How many tokens to draft per round, at most. Without K, the target decodes alone.
        schedule : str
            One of schedules.SCHEDULES.
        threshold : float, optional
            For the schedules that have a threshold.
        rng, verify, eos, on_round
            As in `speculative.speculative_sampling`.

        Returns
        -------
        Run
        """
        self.draft.network.forget()
        self.target.network.forget()
        draft, target = Timed(self.draft_model), Timed(self.target_model)
        drafted, accepted, betas, begun, ended = [], [], [np.zeros(0)], [], []

        def record(r):
            ended.append(time.perf_counter())
            drafted.append(len(r.drafted))
            accepted.append(r.n_accepted)
            betas.append(theory.betas([r]))
            if on_round is not None:
                on_round(r)
            begun.append(time.perf_counter())  # so what is done in this function does not count

        begun.append(time.perf_counter())
        if K is None:
            ids = autoregressive_sampling(x, target, N, rng, eos, record)
        else:
            schedule, stop = make_schedule(
                schedule, K, measured(draft, target), threshold,
                draft_rows=self.draft.rows if self.greedy else None,
                target_rows=self.target.rows if self.greedy else None,
                sure=getattr(self.draft.network, "sure", 0.0),
            )  # fmt: skip
            ids = speculative_sampling(x, draft, target, N, K, rng, eos, record, verify, schedule, stop)
        drafted, accepted = np.array(drafted, dtype=int), np.array(accepted, dtype=int)
        lasted = np.subtract(ended, begun[:-1])
        return Run(ids, len(ids) - len(x), drafted, accepted, np.concatenate(betas), lasted, draft, target)


def pooled(runs):
    """One record of several runs, as if each had continued where the one before it ended. Its ids are None."""
    draft, target = Timed(None), Timed(None)
    for pool, parts in (draft, [run.draft for run in runs]), (target, [run.target for run in runs]):
        pool.calls = [seconds for part in parts for seconds in part.calls]
        for n_rows in {n_rows for part in parts for n_rows in part.steps}:
            pool.steps[n_rows] = [seconds for part in parts for seconds in part.steps[n_rows]]
    drafted, accepted, betas, lasted = (
        np.concatenate([getattr(run, name) for run in runs]) for name in ("drafted", "accepted", "betas", "lasted")
    )
    return Run(None, sum(run.n_new for run in runs), drafted, accepted, betas, lasted, draft, target)


def predicted(plain, fast):
    """The speedup by theory.py, from what was measured in two runs.

    Parameters
    ----------
    plain, fast : Run
        Of the same pair, without and with speculation.

    Returns
    -------
    speedup, alpha, c, v : float
        v is the cost of the most rows that were verified at once. None, if too few calls were timed.
    """
    timed = {1: plain.target.steps[1]} | {n: s for n, s in fast.target.steps.items() if n > 1}
    n_rows = sorted(timed)
    if not len(fast.betas) or min(len(fast.draft.steps[1]), *map(len, (timed[1], timed[n_rows[-1]]))) < ENOUGH:
        return None
    ks, alpha = fast.drafted, fast.betas.mean()
    seconds = np.interp(np.arange(1, max(ks) + 2), n_rows, [np.mean(timed[n]) for n in n_rows])  # for 0 ... K drafted
    c, v = np.mean(fast.draft.steps[1]) / seconds[0], seconds / seconds[0]
    return theory.expected_tokens(alpha, ks).sum() / (ks * c + v[ks]).sum(), alpha, c, v[-1]


def load_pair(
    draft_size, target_size, draft="model", corpus=None, models_dir=MODELS_DIR, models_url=None, bit_identical=False,
    **settings,
):  # fmt: skip
    """Load a target and a draft for it.

    Parameters
    ----------
    draft_size, target_size : str
        Sizes as in `utils.load_encoder_hparams_and_params`, like models_dir and models_url.
    draft : str
        "model" for the model of draft_size. Otherwise a name for `drafts.make_draft`, like corpus.
    bit_identical : bool
        As in gpt2.GPT2.
    settings
        As in `Pair`.

    Returns
    -------
    Pair

    Raises
    ------
    UserError or OSError
        If something cannot be loaded, or if the two vocabularies differ.
    """
    drafting = load_encoder_hparams_and_params(draft_size, models_dir, models_url) if draft == "model" else None
    encoder, hparams, params = load_encoder_hparams_and_params(target_size, models_dir, models_url)
    if drafting and drafting[0].ids != encoder.ids:
        raise UserError(f"{draft_size} and {target_size} have different vocabularies; a pair must have the same")
    target = GPT2(params, hparams, bit_identical)
    if drafting:
        return Pair(GPT2(drafting[2], drafting[1], bit_identical), target, encoder, **settings)
    tables = os.path.join(MODELS_DIR, "ngrams.npz")
    return Pair(make_draft(draft, target, encoder, tables, corpus), target, encoder, **settings)
