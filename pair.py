"""A draft, a target and their clocks: everything that a run needs, put together in one place.

    >>> from pair import load_pair
    >>> pair = load_pair("draft", "target")
    >>> prompt = pair.encoder.encode("Once upon a time")
    >>> plain, fast = pair.decode(prompt, N=40), pair.decode(prompt, N=40, K=4)
    >>> fast.ids.tolist() == plain.ids.tolist(), fast.tokens_per_round > 1
    (True, True)

`decode` returns a `Run`, which records what happened and how long it took.
"""

import bisect
import itertools
import math
import time
from collections import defaultdict
from typing import NamedTuple

import numpy as np

import theory
from drafts import make_draft
from encoder import EOT
from errors import UserError
from gpt2 import GPT2
from sampling import sampler
from schedules import KeepsLogits, make_schedule
from speculative import autoregressive_sampling, speculative_sampling, verify
from utils import MODELS_DIR, load_encoder_hparams_and_params

ENOUGH = 5  # calls that must have been timed before a prediction is made from them


class Timed:
    """A model that records how long each call takes."""

    def __init__(self, model):
        self.model = model
        self.calls = []  # the seconds of each call, in order; the first one reads the prompt
        self.steps = defaultdict(list)  # {n_rows: the seconds of each call but the first}

    def __call__(self, ids, n_rows=1):
        begun = time.perf_counter()
        probs = self.model(ids, n_rows)
        seconds = time.perf_counter() - begun
        if self.calls:  # the call that reads the prompt does not show how long a step takes
            self.steps[n_rows].append(seconds)
        self.calls.append(seconds)
        return probs

    @property
    def seconds(self):
        return sum(self.calls)

    @property
    def reading(self):
        """The seconds of the calls that read a prompt."""
        return self.seconds - sum(map(sum, self.steps.values()))


class Run(NamedTuple):
    """The record of a run: what one of the two loops has decoded."""

    ids: np.ndarray  # int [n_prompt + n_new]
    n_new: int
    drafted: np.ndarray  # int [n_rounds], how many tokens each round drafted
    accepted: np.ndarray  # int [n_rounds], how many of these are in the text
    betas: list  # of float arrays, one per round: beta at each verified position, see theory.betas
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

    def tokens_by_K(self, K):
        """The mean number of tokens per round that the betas predict for 0 ... K drafted tokens, [K+1]."""
        at = [[b[i] for b in self.betas if len(b) > i] for i in range(K)]  # at[i]: all betas at position i
        return theory.tokens_by_position([np.mean(betas) if betas else 0.0 for betas in at])

    @property
    def acceptance_rate(self):
        """The share of drafted tokens that is in the text. Tokens after a rejection count as not accepted."""
        return self.accepted.sum() / max(self.drafted.sum(), 1)


class Pair:
    """A draft and a target that decode together.

    Parameters
    ----------
    draft, target : callable
        Networks over the same vocabulary. The target is a gpt2.GPT2, and the draft is one too or is from drafts.py.
    encoder : encoder.Encoder, optional
        Kept for the caller, as `pair.encoder`.
    temperature, settings
        Passed to `sampling.sampler` for both networks. The settings are top_k, top_p and repetition_penalty.
    """

    def __init__(self, draft, target, encoder=None, temperature=0.0, **settings):
        self.encoder, self.greedy = encoder, temperature == 0
        self.draft, self.target = KeepsLogits(draft), KeepsLogits(target)
        self.draft_model, self.target_model = (sampler(n, temperature, **settings) for n in (self.draft, self.target))
        # times[k]: the seconds of the rounds that drafted k tokens, sorted. The first round of each run is left out.
        self.times = defaultdict(list)
        self.n_ctx = min(net.n_ctx for net in (draft, target) if isinstance(net, GPT2))

    def decode(self, x, N, K=None, rng=None, schedule="fixed", threshold=None, verify=verify, eos=None, on_round=None):
        """Decode N tokens after the prompt x. The networks start afresh: they forget the text of the run before.

        Parameters
        ----------
        x : int [n_prompt]
        N : int
        K : int, optional
            How many tokens to draft per round, at most. Without K, the target decodes alone.
        schedule : str or callable
            One of schedules.SCHEDULES, or a schedule of one's own, as in `speculative.speculative_sampling`.
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
        drafted, accepted, betas, begun, ended = [], [], [], [], []

        def record(r):
            ended.append(time.perf_counter())
            if drafted:  # (not the first round, because it reads the prompt)
                bisect.insort(self.times[len(r.drafted)], ended[-1] - begun[-1])
            drafted.append(len(r.drafted))
            accepted.append(r.n_accepted)
            betas.append(theory.betas(r))
            if on_round is not None:
                on_round(r)
            begun.append(time.perf_counter())  # so what is done in this function does not count

        begun.append(time.perf_counter())
        if K is None:
            ids = autoregressive_sampling(x, target, N, rng, eos, record)
        else:
            sure = getattr(self.draft.network, "sure", 0.0)  # for drafts that stop by themselves, see drafts.AsNetwork
            schedule, stop = make_schedule(
                schedule, K, self.costs, threshold,
                draft_rows=self.draft.rows if self.greedy or sure else None,
                target_rows=self.target.rows if self.greedy else None,
                sure=sure,
            )  # fmt: skip
            ids = speculative_sampling(x, draft, target, N, K, rng, eos, record, verify, schedule, stop)
        drafted, accepted = np.array(drafted, dtype=int), np.array(accepted, dtype=int)
        lasted = np.subtract(ended, begun[:-1])
        return Run(ids, len(ids) - len(x), drafted, accepted, betas, lasted, draft, target)

    def costs(self, K):
        """The costs that `schedules.adaptive` asks for: of rounds with 0 ... K drafted tokens, from all runs so far.

        A k counts as timed after two rounds, because its first one is often slower than all others. (The first round of
        each run does not count.)

        - Until k = 0 is timed, every other k costs infinitely much, even if it was timed. So 0 is tried first.
        - Until k = 1 is timed, it is taken to cost as much as k = 0, and a larger k that was not timed costs infinitely
          much. So 1 is usually tried next.
        - A k that was timed costs the median of its times, because in a few rounds the machine may have done something
          else. (The median of an even number of times is here the smaller of the two in the middle.)
        - For any other k, one more token is taken to cost as much as the first one did: the cost is
          cost(k - 1) + cost(1) - cost(0), but at least cost(k - 1). This is rarely too high, so the schedule soon tries
          a k that could be the best.

        Returns
        -------
        float64 [K+1], in units of cost(0)
        """
        timed = {k: times[(len(times) - 1) // 2] for k, times in self.times.items() if len(times) > 1}
        if 0 not in timed:
            return np.where(np.arange(K + 1) == 0, 1.0, math.inf)
        found = [timed[0], timed.get(1, timed[0])]
        step = max(timed[1] - timed[0], 0.0) if 1 in timed else math.inf
        for k in range(2, K + 1):
            found.append(timed.get(k, found[-1] + step))
        return np.array(found[: K + 1]) / found[0]

    def best_K(self, x, N, K_max=8, **options):
        """Find the best K by a pilot run whose rounds draft 0, 1, ..., K_max tokens in turn.

        A plain run of N tokens comes first, to time plain steps. (The pilot run has plain steps too, but they take
        longer.) A draft like --draft lookup often stops by itself. Such rounds give few tokens and cost little. The
        estimate counts their tokens, but not their low cost, so it is too low.

        Parameters
        ----------
        x, N
            The prompt and how many tokens to decode, as in `decode`.
        K_max : int
            The largest K that is tried.
        options
            rng, verify and eos of `decode`.

        Returns
        -------
        K : int
        speedups : float64 [K_max+1]
            The tokens per round that the betas of the pilot run predict, divided by the cost of a round (see `costs`),
            for each K from 0 to K_max. 0 for a K that was timed less than twice.
        """
        ks = itertools.cycle(range(K_max + 1))
        self.decode(x, N, **options)
        pilot = self.decode(x, N, K_max, schedule=lambda last: next(ks), **options)
        timed = [len(self.times[K]) > 1 for K in range(K_max + 1)]
        speedups = np.where(timed, pilot.tokens_by_K(K_max) / self.costs(K_max), 0.0)
        return int(np.argmax(speedups)), speedups


def pooled(runs):
    """One record with the rounds and times of several runs. Its ids are None."""
    _, n_new, drafted, accepted, betas, lasted, drafts, targets = zip(*runs)
    draft, target = Timed(None), Timed(None)
    for pool, parts in (draft, drafts), (target, targets):
        for part in parts:
            pool.calls += part.calls
            for n_rows, seconds in part.steps.items():
                pool.steps[n_rows] += seconds
    drafted, accepted, lasted = map(np.concatenate, (drafted, accepted, lasted))
    return Run(None, sum(n_new), drafted, accepted, list(itertools.chain(*betas)), lasted, draft, target)


def predicted(plain, fast):
    """The speedup by theory.py, from what was measured in two runs.

    The theory is about `verify` with a fixed K. If the number of drafted tokens varies, as with other schedules or with
    --draft lookup, the prediction is less exact. For block verification at temperatures above 0, it is often too low,
    because that rule accepts more tokens. (docs/acceptance.json has the measured speedup of each setting, and the
    predicted one if enough calls were timed.)

    Parameters
    ----------
    plain, fast : Run
        Without and with speculation, for the same pair and the same prompts. Each is one run, or several, `pooled`.

    Returns
    -------
    speedup, alpha, c, v, r : float
        The prediction and the figures that go into it. alpha is the mean of beta over all verified positions, and v is
        the cost of the target's largest pass. If nothing was drafted or too few calls were timed, the result is None.
    """
    ks = fast.drafted
    # {n_rows: seconds of each pass}. The passes over one row are those of the plain loop. In the speculative loop, they
    # come after passes of other kinds, and take longer.
    timed = {1: plain.target.steps[1]} | {n: s for n, s in fast.target.steps.items() if n > 1}
    n_rows = sorted(timed)
    if min(map(len, (fast.draft.steps[1], timed[1], timed[n_rows[-1]]))) < ENOUGH:
        return None
    step = np.mean(timed[1]) + (plain.seconds - plain.target.seconds) / len(plain.lasted)  # in seconds, with the draw
    c = np.mean(fast.draft.steps[1]) / step
    v = np.interp(np.arange(1, max(ks) + 2), n_rows, [np.mean(timed[n]) for n in n_rows]) / step  # for 0 ... K drafted
    r = (fast.seconds - fast.draft.seconds - fast.target.seconds) / len(fast.lasted) / step
    tokens = fast.tokens_by_K(max(ks))
    # The first call of each run reads a prompt. `read` is how much more these calls cost than other calls, in the plain
    # loop, and `read_fast` is the same in the speculative loop. Both are in plain steps. (Without the prompt, the first
    # call of the draft would cost c, and that of the target as much as any pass that checks ks[0] tokens. If several
    # runs are pooled, ks[0] is from the first one, and stands for all of them.)
    n_prompts = len(plain.target.calls) - len(timed[1])
    read = plain.target.reading / step - n_prompts * v[0]
    read_fast = (fast.draft.reading + fast.target.reading) / step - n_prompts * (c + v[ks[0]])
    speedup = theory.with_prompt(tokens[ks].sum() / (ks * c + v[ks] + r).sum(), fast.n_new, read, read_fast)
    return speedup, np.concatenate(fast.betas).mean(), c, v[-1], r


def load_pair(
    draft_size, target_size, draft="model", corpus=None, models_dir=MODELS_DIR, models_url=None, bit_identical=False,
    **settings,
):  # fmt: skip
    """Load a target and a draft for it.

    Parameters
    ----------
    draft_size, target_size, models_dir, models_url
        As in `utils.load_encoder_hparams_and_params`.
    draft : str
        "model" for the model of draft_size, or a name of a draft in `drafts.make_draft`.
    corpus
        As in `drafts.make_draft`.
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
        If something cannot be loaded, if the two vocabularies differ, or if they have no <|endoftext|>.
    """
    sizes = [draft_size, target_size] if draft == "model" else [target_size]
    loaded = [load_encoder_hparams_and_params(size, models_dir, models_url) for size in sizes]
    encoder = loaded[-1][0]
    if loaded[0][0].ids != encoder.ids:
        raise UserError(f"{draft_size} and {target_size} have different vocabularies; a pair must have the same")
    if EOT not in encoder.ids:
        raise UserError(f"the vocabulary of {target_size} has no token {EOT}; restore its encoder.json")
    networks = [GPT2(params, hparams, bit_identical) for _, hparams, params in loaded]
    if draft != "model":
        networks = [make_draft(draft, *networks, encoder, corpus), *networks]
    return Pair(*networks, encoder, **settings)
