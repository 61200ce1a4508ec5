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
from lab import block, measure
from lab.drafts import make_draft
from lab.schedules import draft_confidence, make_schedule
from runs import chances, timed
from sampling import as_model, seeded
from speculative import autoregressive_sampling, speculative_sampling, verify
from utils import load_encoder_hparams_and_params, load_models

RULES = {  # what each says of its guesses, and whether each place in a round has its own alpha
    verify: {"chances": chances},
    block.verify_block: {"chances": block.chances, "by_place": True},
}


class Pair:
    """Two networks over one vocabulary, and the models that are made of them.

    temperature and cuts are those of `sampling.as_model`. A seed makes both loops
    write the same text, see `sampling.seeded`. A draft that is less sure of a token than
    `sure` ends the drafting with it. Each thread needs its own Pair, of networks copied
    with `copy.copy`.
    """

    def __init__(self, draft, target, encoder=None, temperature=0.0, seed=None, sure=0.0, **cuts):
        self.encoder, self.sure = encoder, sure
        self.networks = draft, target
        self.sources = [as_model(network, temperature, **cuts) for network in self.networks]
        self.draft_model, self.target_model = self.sources
        if seed is not None:
            self.draft_model = seeded(self.draft_model, seed)
            self.target_model = seeded(self.target_model, seed)
        self.times = defaultdict(partial(deque, maxlen=99))  # seconds of rounds with k guesses
        self.n_ctx = min(draft.n_ctx, target.n_ctx)
        self.n_vocab = target.n_vocab

    def decode(
        self,
        x,
        N,
        K=None,
        rng=None,
        *,
        schedule="fixed",
        costs=None,
        verify=verify,
        eos=None,
        on_round=None,
    ):
        """Decode N tokens after the prompt x, with guesses unless K is None -> `runs.Run`.

        The networks read the prompt before the clock starts. schedule and costs are those
        of `schedules.make_schedule`; costs are measured unless they are given.
        The other arguments are those of `speculative.speculative_sampling`.
        """
        costs = costs or partial(measure.costs, self.times)
        rule = RULES.get(verify, {"chances": None})
        schedule, stop = make_schedule(schedule, K, costs, *self.sources, **rule)
        if self.sure:
            if stop is not None:
                advice = "choose another schedule than draft-confidence"
                raise UserError(f"this draft has a stop of its own; {advice}")
            stop = draft_confidence(self.sure, self.sources[0].confidence)

        def loop(draft, target, on_round):
            options = {"eos": eos, "on_round": on_round}
            if K is None:
                return autoregressive_sampling(x, target, N, rng, **options)
            options |= {"verify": verify, "schedule": schedule, "stop": stop}
            return speculative_sampling(x, draft, target, N, K, rng, **options)

        models = self.draft_model, self.target_model
        options = {"chances": rule["chances"], "times": None if K is None else self.times}
        return timed(loop, x, *models, self.networks, on_round, **options)


def load_pair(draft_size, target_size, draft="model", corpus=None, models_dir=MODELS_DIR, **more):
    """Load a target and a draft for it -> Pair.

    draft is "model" for the model of draft_size, or a name for `drafts.make_draft`, as
    corpus is. more is for `Pair`, the rest is as in `utils.load_models`.
    """
    if draft == "model":
        encoder, *networks = load_models(draft_size, target_size, models_dir)
        return Pair(*networks, encoder, **more)
    encoder, hparams, params = load_encoder_hparams_and_params(target_size, models_dir)
    target = GPT2(params, hparams)
    sure = 1.0 if draft == "lookup" else 0.0  # it stops after a token that it did not copy
    network = make_draft(draft, target, encoder, corpus)
    return Pair(network, target, encoder, sure=sure, **more)
