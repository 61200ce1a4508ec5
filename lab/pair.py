"""A pair with the drafts, schedules and rules of the lab.

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

from checkpoint.names import MODELS_DIR
from gpt2 import GPT2
from lab import block, measure
from lab.drafts import make_draft
from lab.schedules import draft_confidence, make_schedule
from runs import Pair, chances
from speculative import autoregressive_sampling, speculative_sampling, verify
from utils import load_encoder_hparams_and_params, load_models

RULES = {  # what each says of its guesses, and whether each place in a round has its own alpha
    verify: {"chances": chances},
    block.verify_block: {"chances": block.chances, "by_place": True},
}


class LabPair(Pair):
    """A `runs.Pair` whose draft ends the drafting with a token of confidence below stop_below."""

    def __init__(self, *args, stop_below=0.0, **options):
        super().__init__(*args, **options)
        self.stop_below = stop_below
        self.times = defaultdict(partial(deque, maxlen=99))  # seconds of rounds with k guesses

    def decode(
        self,
        x,
        N,
        K=None,
        rng=None,
        *,
        eos=None,
        on_round=None,
        verify=verify,
        schedule="fixed",
        costs=None,
    ):
        """Decode N tokens after the prompt x, with guesses unless K is None -> `runs.Run`.

        schedule and costs are those of `schedules.make_schedule`; costs are measured unless
        they are given. The rest is as in `speculative.speculative_sampling`.
        """

        def plain(draft, target, N, note):
            return autoregressive_sampling(x, target, N, rng, eos=eos, on_round=note)

        if K is None:
            return self.timed(plain, x, N, on_round)
        costs = costs or partial(measure.costs, self.times)
        rule = RULES.get(verify, {"chances": None})
        schedule, stop = make_schedule(schedule, K, costs, *self.sources, **rule)
        if self.stop_below:
            if stop is not None:
                advice = "choose another schedule than draft-confidence"
                raise ValueError(f"this draft has a stop of its own; {advice}")
            stop = draft_confidence(self.stop_below, self.sources[0].confidence)
        options = {"eos": eos, "verify": verify, "schedule": schedule, "stop": stop}

        def speculative(draft, target, N, note):
            return speculative_sampling(x, draft, target, N, K, rng, on_round=note, **options)

        return self.timed(speculative, x, N, on_round, rule["chances"], self.times)


def load_pair(draft_size, target_size, draft="model", corpus=None, models_dir=MODELS_DIR, **more):
    """Load a target and a draft for it -> LabPair.

    draft is "model" for the model of draft_size, or a name for `drafts.make_draft`, as
    corpus is. more is for `LabPair`, the rest is as in `utils.load_models`.
    """
    if draft == "model":
        encoder, *networks = load_models(draft_size, target_size, models_dir)
        return LabPair(*networks, encoder, **more)
    encoder, hparams, params = load_encoder_hparams_and_params(target_size, models_dir)
    target = GPT2(params, hparams)
    network = make_draft(draft, target, encoder, corpus)
    if draft == "lookup":
        more["stop_below"] = 1.0  # it stops after a token that it did not copy
    return LabPair(network, target, encoder, **more)
