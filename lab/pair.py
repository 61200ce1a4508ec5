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

from checkpoint.names import MODELS_DIR
from fast import GPT2
from lab import block
from lab.drafts import make_draft
from lab.schedules import draft_confidence, drafting, make_schedule
from lab.wrappers import penalised
from runs import Pair, chances_of_verify
from speculative import autoregressive_sampling, speculative_sampling, verify
from utils import load_encoder_hparams_and_params, load_models

CHANCES = {verify: chances_of_verify, block.verify_block: block.chances_of_verify_block}


class LabPair(Pair):
    """A `runs.Pair` that stops drafting after a token of confidence below stop_below."""

    def __init__(
        self, draft, target, encoder=None, *, repetition_penalty=1.0, stop_below=0.0, **options
    ):
        if repetition_penalty != 1:
            draft, target = (penalised(network, repetition_penalty) for network in (draft, target))
        super().__init__(draft, target, encoder, **options)
        self.stop_below = stop_below

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
    ):
        """Decode N tokens after the prompt x, with guesses unless K is None -> `runs.Run`.

        schedule is that of `schedules.make_schedule`, the rest is as in
        `speculative.speculative_sampling`.
        """

        def plain(draft, target, N, note):
            return autoregressive_sampling(x, target, N, rng, eos=eos, on_round=note)

        if K is None:
            return self.timed(plain, x, N, on_round)
        schedule, stop = make_schedule(schedule, K, *self.sources)
        propose, see = drafting(schedule, self.with_own_stop(stop))

        def speculative(draft, target, N, note):
            options = {"eos": eos, "on_round": note, "propose": propose, "verify": verify}
            return speculative_sampling(x, draft, target, N, K, rng, **options)

        def on_each(r):
            see(r)
            if on_round is not None:
                on_round(r)

        return self.timed(speculative, x, N, on_each, CHANCES.get(verify))

    def with_own_stop(self, stop):
        """The stop of a schedule, which may be None, or that of the draft. It can't be both."""
        if not self.stop_below:
            return stop
        if stop is not None:
            advice = "choose another schedule than draft-confidence"
            raise ValueError(f"this draft has a stop of its own; {advice}")
        return draft_confidence(self.stop_below, self.sources[0].confidence)


def load_pair(
    draft_size, target_size, draft="model", corpus=None, models_dir=MODELS_DIR, **options
):
    """Load a target and a draft for it -> LabPair.

    draft is "model" for the model of draft_size, or a name for `drafts.make_draft`, as
    corpus is. options are for `LabPair`, the rest is as in `utils.load_models`.
    """
    if draft == "model":
        encoder, *networks = load_models(draft_size, target_size, models_dir)
        return LabPair(*networks, encoder, **options)
    encoder, hparams, params = load_encoder_hparams_and_params(target_size, models_dir)
    target = GPT2(params, hparams)
    network = make_draft(draft, target, encoder, corpus)
    if draft == "lookup":
        options["stop_below"] = 1.0  # it stops after a token that it did not copy
    return LabPair(network, target, encoder, **options)
