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

from collections import defaultdict, deque
from functools import partial

from checkpoint.find import MODELS_DIR
from errors import UserError
from gpt2 import GPT2
from lab import measure
from lab.drafts import make_draft
from lab.schedules import draft_confidence, make_schedule
from runs import timed
from sampling import as_model, seeded
from speculative import autoregressive_sampling, speculative_sampling, verify
from utils import load_encoder_hparams_and_params, load_models


class Pair:
    """Two networks over one vocabulary, and the models that are made of them.

    temperature and settings are those of `sampling.as_model`. A seed makes both loops
    write the same text, see `sampling.seeded`. A draft that is less sure of a token than
    `sure` ends the drafting with it. Each thread needs its own Pair, of networks copied
    with `copy.copy`.
    """

    def __init__(self, draft, target, encoder=None, temperature=0.0, seed=None, sure=0.0, **settings):
        self.encoder, self.networks, self.sure = encoder, (draft, target), sure
        self.sources = [as_model(network, temperature, **settings) for network in self.networks]
        self.draft_model, self.target_model = (seeded(m, seed) if seed is not None else m for m in self.sources)
        self.times = defaultdict(partial(deque, maxlen=99))  # seconds of rounds with k guesses
        self.n_ctx, self.n_vocab = min(draft.n_ctx, target.n_ctx), target.n_vocab

    def decode(
        self, x, N, K=None, rng=None, *, schedule="fixed", costs=None, verify=verify, eos=None, on_round=None
    ):  # fmt: skip
        """Decode N tokens after the prompt x with speculation, or without if K is None -> `runs.Run`.

        The networks read the prompt before the clock starts. schedule and costs are those
        of `schedules.make_schedule`; costs are measured unless they are given.
        The other arguments are those of `speculative.speculative_sampling`.
        """

        k_max, stop = make_schedule(schedule, K, costs or partial(measure.costs, self.times), *self.sources)
        if self.sure:
            if stop is not None:
                raise UserError("this draft has a stop of its own; choose another schedule than draft-confidence")
            stop = draft_confidence(self.sure, self.sources[0].confidence)

        def loop(draft, target, on_round):
            options = {"eos": eos, "on_round": on_round}
            if K is None:
                return autoregressive_sampling(x, target, N, rng, **options)
            return speculative_sampling(
                x, draft, target, N, K, rng, verify=verify, schedule=k_max, stop=stop, **options
            )

        times = None if K is None else self.times
        return timed(loop, x, self.draft_model, self.target_model, self.networks, on_round, times=times)


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
    sure = 1.0 if draft == "lookup" else 0.0  # it stops after a token that it did not copy
    return Pair(make_draft(draft, target, encoder, corpus), target, encoder, sure=sure, **settings)
