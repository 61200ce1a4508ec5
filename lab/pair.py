"""A draft and a target that decode together, with a clock.

    >>> from lab.pair import load_pair
    >>> pair = load_pair("draft", "target")
    >>> prompt = pair.encoder.encode("Once upon a time")
    >>> plain, fast = pair.decode(prompt, N=40), pair.decode(prompt, N=40, K=4)
    >>> fast.ids.tolist() == plain.ids.tolist(), fast.tokens_per_round > 1
    (True, True)
    >>> pair.encoder.decode(fast.ids)[:33]
    'Once upon a time there was a king'

`load_pair("draft", "target", temperature=1)` samples, and `rng` fixes its random numbers.
"""

import bisect
import time
from collections import defaultdict
from functools import partial
from typing import NamedTuple

import numpy as np

from errors import UserError
from gpt2 import GPT2
from lab import measure, theory
from lab.drafts import make_draft
from lab.schedules import draft_confidence, make_schedule
from sampling import sampler
from speculative import autoregressive_sampling, speculative_sampling, verify
from utils import MODELS_DIR, load_encoder_hparams_and_params, load_models


class Run(NamedTuple):
    """What a loop has decoded, and how long it took."""

    ids: np.ndarray  # int [n_prompt + n_new]
    n_new: int
    n_drafted: np.ndarray  # int [n_rounds]
    n_accepted: np.ndarray  # int [n_rounds]
    betas: list  # one float array per round, see theory.betas
    lasted: np.ndarray  # seconds [n_rounds], without the time of on_round
    steps: np.ndarray  # seconds [n_steps] of each call of the draft; the first one reads the prompt
    passes: np.ndarray  # seconds [n_rounds] of each call of the target; the first one reads the prompt

    @property
    def seconds(self):
        return self.lasted.sum()

    @property
    def tokens_per_second(self):
        return self.n_new / self.seconds

    @property
    def tokens_per_round(self):
        return self.n_new / len(self.n_drafted)

    @property
    def acceptance_rate(self):
        """The share of drafted tokens that is in the text, so guesses that were never looked at count as misses."""
        return self.n_accepted.sum() / max(self.n_drafted.sum(), 1)


class Pair:
    """Two networks over one vocabulary, and the models that `sampling.sampler` makes of them.

    temperature and settings are those of `sampler`. You may replace draft_model and
    target_model by functions of your own; only the times of their calls are then
    missing. Each thread needs its own Pair, of networks copied with `copy.copy`.
    """

    def __init__(self, draft, target, encoder=None, temperature=0.0, **settings):
        self.encoder, self.draft, self.target = encoder, draft, target
        self.draft_model, self.target_model = (sampler(each, temperature, **settings) for each in (draft, target))
        self.times = defaultdict(list)  # sorted seconds: times[k] of rounds that drafted k tokens, times[None] of steps
        self.n_ctx = min(draft.n_ctx, target.n_ctx)

    def decode(
        self, x, N, K=None, rng=None, *, schedule="fixed", threshold=None, costs=None, verify=verify, eos=None,
        on_round=None,
    ):  # fmt: skip
        """Decode N tokens after the prompt x with speculation, or without if K is None -> Run.

        The networks forget the text of the run before. schedule, threshold and costs are
        those of `schedules.make_schedule`; costs are measured unless they are given. The
        other arguments are those of `speculative.speculative_sampling`.
        """
        seconds = [getattr(model, "seconds", []) for model in (self.draft_model, self.target_model)]
        for network, times in zip((self.draft, self.target), seconds):
            network.forget()
            times.clear()
        rounds, betas, lasted = [], [], []

        def record(r):
            nonlocal begun
            lasted.append(time.perf_counter() - begun)
            if len(lasted) > 1:  # the target reads the prompt in the first round
                bisect.insort(self.times[None if K is None else len(r.drafted)], lasted[-1])
            rounds.append((len(r.drafted), r.n_accepted))
            betas.append(theory.betas(r))
            if on_round is not None:
                on_round(r)
            begun = time.perf_counter()

        begun = time.perf_counter()
        if K is None:
            ids = autoregressive_sampling(x, self.target_model, N, rng, eos=eos, on_round=record)
        else:
            costs, name = costs or partial(measure.costs, self.times), schedule
            schedule, stop = make_schedule(name, K, costs, threshold, self.draft_model, self.target_model)
            # A draft may have a stop of its own, which looks at the row before top-k
            # makes a guess certain.
            if (sure := getattr(self.draft, "sure", 0.0)) and getattr(self.draft_model, "network", 0) is self.draft:
                if name == "draft-confidence":
                    raise UserError("this draft has a stop of its own; choose another schedule than draft-confidence")
                stop = draft_confidence(sure, self.draft.confidence)
            ids = speculative_sampling(
                x, self.draft_model, self.target_model, N, K, rng, eos=eos, on_round=record, verify=verify,
                schedule=schedule, stop=stop,
            )  # fmt: skip
        n_drafted, n_accepted = np.array(rounds, dtype=int).reshape(-1, 2).T
        return Run(ids, len(ids) - len(x), n_drafted, n_accepted, betas, np.array(lasted), *map(np.array, seconds))


def load_pair(draft_size, target_size, draft="model", corpus=None, models_dir=MODELS_DIR, **settings):
    """Load a target and a draft for it -> Pair.

    draft is "model" for the model of draft_size, or a name for `drafts.make_draft`, as
    corpus is. settings are those of `Pair`, the rest is as in `utils.load_models`.
    """
    if draft == "model":
        encoder, *networks = load_models(draft_size, target_size, models_dir)
        return Pair(*networks, encoder, **settings)
    encoder, hparams, params = load_encoder_hparams_and_params(target_size, models_dir)
    target = GPT2(params, hparams)
    return Pair(make_draft(draft, target, encoder, corpus), target, encoder, **settings)
