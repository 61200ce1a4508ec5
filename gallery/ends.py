"""Texts that go on after their end, or lose it."""

from functools import partial

from gallery.setting import EOS, decode, plain
from gallery.variant import PROPOSE, Place, Variant, entry, unchecked
from speculative import autoregressive_sampling, propose, speculative_sampling, verify

STOP = (1, 2)


def stops_at_eos(loop, rng, setting, verify=verify, propose=propose, rows=None):
    """loop is `speculative_sampling`, or one that has gone wrong."""
    models = setting.draft_model, setting.target_model
    parts = {"eos": EOS, "verify": verify, "propose": propose}
    return loop(setting.prompt, *models, setting.N, setting.K, rng, **parts)


def plain_to_eos(rng, setting, eos=EOS):
    """A text of the target alone, which ends after its first eos."""
    return autoregressive_sampling(setting.prompt, setting.target_model, setting.N, rng, eos=eos)


def length(new, emitted, stop=STOP):
    """How many of the new tokens a text keeps that ends after a stop sequence, or None."""
    for n in range(len(stop), len(new) + 1):
        if (*new[n - len(stop) : n],) == stop:
            return n


OVERLOOKED = ("        r = up_to_eos(r, eos_ids)\n", "")
overlooks_an_eos = unchecked(speculative_sampling, OVERLOOKED)


sees_an_eos = unchecked(speculative_sampling)


def about_eos(loop=sees_an_eos):
    return {"decode": partial(stops_at_eos, loop), "reference": plain_to_eos, "step": "until_eos"}


until_stop = partial(plain, end_of=length)
LENGTH = Place(
    length, lambda rule: {"decode": partial(decode, end_of=rule), "reference": until_stop}
)


VARIANTS = [
    Variant("eos-inside", "overlooks an eos inside a round",
            edit=OVERLOOKED, of=speculative_sampling,
            seen="huggingface/transformers#47912; also in rounds that reach the limit, "
                 "until sgl-project/sglang#33758", **about_eos(overlooks_an_eos)),
    entry("eos-redrawn", "redraws an accepted eos",
      ("return np.append(drafted[:i]",
       "if EOS in drafted[:i]: i = drafted.tolist().index(EOS)\n"
       "        return np.append(drafted[:i]", "residual(p[i], q[i])", "q[i]"),
      seen="ccs96307/fast-llm-inference", **about_eos(overlooks_an_eos)),
    entry("eos-withdrawn", "withdraws a drafted eos",
      ("token = sample(p, rng)", "token = sample(p, rng)\n        if token == EOS: break"),
      of=PROPOSE, seen="Mathews-Tom/no-magic, which drops a resampled eos as well",
      **about_eos()),
    entry("stop-at-end", "stop sequence sought at a round's end",
      ("range(len(stop), len(new) + 1)", "[len(new)]"), of=LENGTH,
      seen="until sgl-project/sglang#23802"),
]  # fmt: skip
