"""A draft, a target and their clocks: everything that a run needs, put together in one place.

    >>> from pair import load_pair
    >>> pair = load_pair("draft", "target")
    >>> prompt = pair.encoder.encode("Once upon a time")
    >>> plain, fast = pair.decode(prompt, N=40), pair.decode(prompt, N=40, K=4)
    >>> fast.ids.tolist() == plain.ids.tolist(), fast.tokens_per_round > 1
    (True, True)
    >>> pair.encoder.decode(fast.ids)[:33]
    'Once upon a time there was a king'

`decode` returns a `Run`, which records what happened and how long it took. `load_pair("draft", "target",
temperature=1)` gives a pair that samples, and `decode(..., rng=np.random.default_rng(0))` fixes its random numbers.
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
from schedules import KeepsLogits, draft_confidence, make_schedule
from speculative import autoregressive_sampling, speculative_sampling, verify
from utils import MODELS_DIR, load_encoder_hparams_and_params

ENOUGH = 5  # `predicted` needs at least this many draft steps, plain passes, and passes that check drafted tokens


def with_clock(model, seconds):
    """The same model, but each call also appends the seconds that it took to a list."""

    def call(ids, n_rows=1):
        begun = time.perf_counter()
        probs = model(ids, n_rows)
        seconds.append(time.perf_counter() - begun)
        return probs

    return call


class Run(NamedTuple):
    """What a loop has decoded, and how long it took. tokens_per_second and tokens_per_round need n_new > 0."""

    ids: np.ndarray  # int [n_prompt + n_new]
    n_new: int
    n_drafted: np.ndarray  # int [n_rounds], how many tokens each round drafted
    n_accepted: np.ndarray  # int [n_rounds], how many of these are in the text
    betas: list  # of float arrays, one per round: sum min(p, q) at each verified position, see theory.betas
    lasted: np.ndarray  # float [n_rounds], the seconds that each round took (the time of on_round is not counted)
    steps: np.ndarray  # float [n_steps], the seconds of each step of the draft; the first one reads the prompt
    passes: np.ndarray  # float [n_rounds], the seconds of each pass of the target; the first one reads the prompt

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
        """The share of drafted tokens that is in the text. Tokens after a rejection count as not accepted."""
        return self.n_accepted.sum() / max(self.n_drafted.sum(), 1)


class Pair:
    """A draft and a target that decode together.

    Each thread needs a Pair of its own, made of copies of the networks (`copy.copy`).

    Parameters
    ----------
    draft, target : callable
        Networks over the same vocabulary: gpt2.GPT2, or drafts from drafts.py. (`drafts.AsNetwork` makes a network from
        a function of your own. Any other network needs a method `forget` and an attribute n_ctx.)
    encoder : encoder.Encoder, optional
        Kept for the caller, as `pair.encoder`.
    temperature, settings
        As in `sampling.sampler`, for both networks. The settings are top_k, top_p and repetition_penalty. (The default
        temperature is 0 here, so that both loops decode the same text.)

    Attributes
    ----------
    draft_model, target_model : callable
        The models that `decode` calls. For a sampler of your own, replace both by functions that call `pair.draft` and
        `pair.target`. These are the networks, wrapped so that the last logits are kept. If the Pair has temperature 0,
        some stops and schedules look at these logits, and not at the rows of your models. So give the Pair a
        temperature above 0, unless your models always take the most probable token. (The stop of --draft lookup always
        looks at the logits.)
    n_ctx : int
        How long a text may be, with its prompt.
    """

    def __init__(self, draft, target, encoder=None, temperature=0.0, **settings):
        self.encoder, self.greedy = encoder, temperature == 0
        self.draft, self.target = KeepsLogits(draft), KeepsLogits(target)
        self.draft_model = sampler(self.draft, temperature, **settings)
        self.target_model = sampler(self.target, temperature, **settings)
        self.times = defaultdict(list)  # times[k]: the sorted seconds of the rounds that drafted k tokens, see `costs`
        self.n_ctx = min(draft.n_ctx, target.n_ctx)

    def decode(
        self, x, N, K=None, rng=None, *, schedule="fixed", threshold=None, verify=verify, eos=None, on_round=None
    ):
        """Decode N tokens after the prompt x. The networks start afresh: they forget the text of the run before.

        Parameters
        ----------
        x : int [n_prompt]
        N : int
            len(x) + N should be at most n_ctx. (A longer text is an error only if the loop gets there.)
        K : int, optional
            How many tokens to draft per round, at most. Without K, the target decodes alone, and schedule, threshold
            and verify are not used.
        schedule, threshold
            As in `schedules.make_schedule`.
        rng, verify, eos, on_round
            As in `speculative.speculative_sampling`. (For a stop of your own, call that function.)

        Returns
        -------
        Run
        """
        self.draft.network.forget()
        self.target.network.forget()
        steps, passes, n_drafted, n_accepted, betas, lasted = [], [], [], [], [], []
        draft, target = with_clock(self.draft_model, steps), with_clock(self.target_model, passes)

        def record(r):
            nonlocal begun
            lasted.append(time.perf_counter() - begun)
            if len(lasted) > 1:  # (not the first round, see `costs`)
                bisect.insort(self.times[len(r.drafted)], lasted[-1])
            n_drafted.append(len(r.drafted))
            n_accepted.append(r.n_accepted)
            betas.append(theory.betas(r))
            if on_round is not None:
                on_round(r)
            begun = time.perf_counter()  # so what is done in this function does not count

        begun = time.perf_counter()
        if K is None:
            ids = autoregressive_sampling(x, target, N, rng, eos, record)
        else:
            rows = (self.draft.rows, self.target.rows) if self.greedy else (None, None)
            schedule, stop = make_schedule(schedule, K, self.costs, threshold, *rows)
            if sure := getattr(self.draft.network, "sure", 0.0):  # a stop of the draft itself, see drafts.AsNetwork
                # It looks at the row before top-k, top-p and the penalty, because these may make a uniform row certain.
                stop = draft_confidence(sure, self.draft.rows)
            ids = speculative_sampling(x, draft, target, N, K, rng, eos, record, verify, schedule, stop)
        n_drafted, n_accepted = np.array(n_drafted, dtype=int), np.array(n_accepted, dtype=int)
        times = map(np.array, (lasted, steps, passes))
        return Run(ids, len(ids) - len(x), n_drafted, n_accepted, betas, *times)

    def costs(self, K):
        """The costs of rounds with 0 ... K drafted tokens, from all runs so far, for `schedules.adaptive`.

        A step of the plain loop counts as a round with k = 0. The first round of each run is left out, because the
        target reads the prompt in it. A k counts as timed if at least two rounds have drafted k tokens. (One is not
        enough, because the first round with another k is often slow.)

        - A k that was timed costs the median of its times, because a few rounds may have been disturbed. (The median of
          an even number of times is here the smaller of the two in the middle.)
        - cost(0) is the unit. Until k = 0 is timed, every other k costs infinitely much, so 0 is tried first.
        - Until k = 1 is timed, it costs as much as k = 0, and a larger k that was not timed costs infinitely much. So 1
          is usually tried next.
        - A larger k that was not timed then costs cost(k - 1) + cost(1) - cost(0), and at least cost(k - 1). This is
          more often too low than too high. So such a k seems cheap, and the schedule soon tries it.

        Returns
        -------
        float64 [K+1], in units of cost(0)
        """
        timed = {k: times[(len(times) - 1) // 2] for k, times in self.times.items() if len(times) > 1}
        if 0 not in timed:
            return np.where(np.arange(K + 1) == 0, 1.0, math.inf)
        found = [timed[0], timed.get(1, timed[0])]
        per_token = max(timed[1] - timed[0], 0.0) if 1 in timed else math.inf
        for k in range(2, K + 1):
            found.append(timed.get(k, found[-1] + per_token))
        return np.array(found[: K + 1]) / found[0]

    def best_K(self, x, N, K_max=8, **options):
        """Estimate the best K by a pilot run whose rounds draft 0, 1, ..., K_max tokens in turn.

        A plain run of N tokens comes first, to time plain steps. (In the pilot run, a round that drafts nothing takes
        longer than a plain step.) Each estimate comes from a few rounds, and the largest of several rough estimates is
        usually too high. If a draft often stops early, as --draft lookup does, the estimates are too low, because short
        rounds add few tokens, but the cost is that of rounds that drafted all K. For block verification, see
        `predicted`.

        Parameters
        ----------
        x, N
            As in `decode`. main.py takes N = 96 for K_max = 8. With a much smaller N, the estimates say little.
        K_max : int
            The largest K that is tried.
        options
            rng, verify, eos and on_round of `decode`.

        Returns
        -------
        K : int
            The one with the largest estimated speedup. (It is 0 if no K above 0 has one above 1, or if none was timed.)
        speedups : float64 [K_max+1]
            For each K from 0 to K_max, the tokens per round that the betas of the pilot run predict, divided by the
            cost of a round (see `costs`). 0 for a K that was timed at most once.
        """
        ks = itertools.cycle(range(K_max + 1))
        self.decode(x, N, **options)
        pilot = self.decode(x, N, K_max, schedule=lambda last: next(ks), **options)
        timed = [len(self.times[K]) > 1 for K in range(K_max + 1)]
        speedups = np.where(timed, theory.tokens_by_position(pilot.betas, K_max) / self.costs(K_max), 0.0)
        return int(np.argmax(speedups)), speedups


def joined(runs, name, first=0):
    """A field of several runs in one array. first=1 leaves out the first entry of each run."""
    return np.concatenate([getattr(run, name)[first:] for run in runs])


def predicted(plain, fast):
    """The speedup by theory.py, from what was measured.

    The theory is about `verify` with a fixed K. If the number of drafted tokens varies, the prediction is less exact.
    For block verification at temperatures above 0, it is often too low, because that rule accepts more tokens. For
    short texts that end with an eos, it is too high, because it counts the tokens that the eos cuts off.

    Parameters
    ----------
    plain, fast : lists of Run
        Without and with speculation, for the same pair and the same prompts. Each has decoded at least one token. The
        lists may differ in length.

    Returns
    -------
    speedup, alpha, c, v, r : float
        The predicted speedup, and what was measured. alpha is the mean of beta over all verified positions. (The
        prediction itself has one alpha for each position of a round.) v is for the most frequent number of drafted
        tokens above 0. If nothing was drafted or too few calls were timed, the result is None.
    """
    ks, betas = joined(fast, "n_drafted"), [b for run in fast for b in run.betas]
    # The first call of each run reads a prompt, so it does not show how long a step takes.
    steps, passes, checked = (joined(fast, name, first=1) for name in ("steps", "passes", "n_drafted"))
    # Below are means, and not medians as in `costs`, because the measured speedup has the slow rounds in it too.
    # timed[k] has the seconds of the passes that checked k tokens. timed[0] is from the plain loop alone, because it
    # sets the unit. (In the speculative loop, a pass with k = 0 takes longer, after passes of other kinds.)
    timed = {k: passes[checked == k] for k in np.unique(checked)} | {0: joined(plain, "passes", first=1)}
    known = sorted(timed)
    if min(map(len, (steps, timed[0], checked[checked > 0]))) < ENOUGH:
        return None
    draw = (joined(plain, "lasted") - joined(plain, "passes")).mean()
    plain_step = timed[0].mean() + draw  # in seconds, the unit of the costs below
    c = steps.mean() / plain_step
    # [K+1]; a k that was not timed gets its v from its neighbours
    v = np.interp(np.arange(max(ks) + 1), known, [timed[k].mean() for k in known]) / plain_step
    in_models = joined(fast, "steps").sum() + joined(fast, "passes").sum()
    r = (joined(fast, "lasted").sum() - in_models) / len(ks) / plain_step
    tokens = theory.tokens_by_position(betas, max(ks))
    # prompts is the extra cost of reading the prompts, in plain steps. The first pass of each run costs more than v,
    # and its first draft step costs more than c.
    prompts = sum(run.passes[0] / plain_step - v[run.n_drafted[0]] for run in fast)
    prompts += sum(run.steps[0] / plain_step - c for run in fast if len(run.steps))
    # The cost of all rounds, divided by the tokens that the theory expects of them. Then the prompts are added.
    per_token = (ks * c + v[ks] + r).sum() / tokens[ks].sum() + prompts / sum(run.n_new for run in fast)
    plain_per_token = joined(plain, "lasted").mean() / plain_step  # slightly above 1, because of the prompts
    return plain_per_token / per_token, np.concatenate(betas).mean(), c, v[np.bincount(ks[ks > 0]).argmax()], r


def load_pair(
    draft_size, target_size, draft="model", corpus=None, models_dir=MODELS_DIR, models_url=None, bit_identical=False,
    **settings,
):  # fmt: skip
    """Load a target and a draft for it -> Pair.

    Parameters
    ----------
    draft_size, target_size, models_dir, models_url
        As in `utils.load_encoder_hparams_and_params`.
    draft : str
        "model" for the model of draft_size, or a name of a draft in `drafts.make_draft`.
    corpus, bit_identical, settings
        As in `drafts.make_draft`, gpt2.GPT2 and `Pair`.

    Raises
    ------
    UserError or OSError
        If something cannot be loaded, if the vocabularies differ or lack <|endoftext|>, or as in `make_draft` or GPT2.
    """
    sizes = [draft_size, target_size] if draft == "model" else [target_size]
    loaded = [load_encoder_hparams_and_params(size, models_dir, models_url) for size in sizes]
    encoder = loaded[-1][0]
    if loaded[0][0].ids != encoder.ids:
        raise UserError(f"{draft_size} and {target_size} have different vocabularies; a pair must have the same")
    if EOT not in encoder.ids:
        raise UserError(f"the vocabulary of {target_size} has no token {EOT}; restore its encoder.json")
    networks = [GPT2(params, hparams, bit_identical) for _, hparams, params in loaded]
    target = networks[-1]
    network = networks[0] if draft == "model" else make_draft(draft, target, encoder, corpus)
    return Pair(network, target, encoder, **settings)
