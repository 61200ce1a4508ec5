"""A random number u in [0, 1) decides a draw, and is used again."""

from types import SimpleNamespace

from gallery.names import picked
from gallery.setting import decode
from gallery.variant import DECODE, RESAMPLED, edited, entry
from lab.block import verify_block
from speculative import propose, verify


class Stream:
    """A generator that reads a list of numbers, and draws those that the list lacks."""

    def __init__(self, numbers, rng):
        self.numbers = numbers
        self.rng = rng
        self.i = 0

    def random(self):
        if self.i == len(self.numbers):
            self.numbers.append(self.rng.random())
        self.i += 1
        return self.numbers[self.i - 1]

    def choice(self, n, p):
        return picked(p, self.random())


draft_by_numbers = edited(propose, ("sample(p, rng)", "picked(p, rng.random())"))


def keeps_its_numbers(x, draft_model, k_max, rng):
    """`propose`, which leaves the numbers that drew its tokens with the generator, as rng.u."""
    rng.u = []
    return draft_by_numbers(x, draft_model, k_max, Stream(rng.u, rng))


def one_seed(rng, setting, **parts):
    """Draft and verifier have one seed, and the draft begins with it again in each round."""
    numbers = []
    verifying = Stream(numbers, rng)

    def draft(x, draft_model, k_max, _):
        return draft_by_numbers(x, draft_model, k_max, Stream(numbers, rng))

    def rule(drafted, p, q, _):
        return verify(drafted, p, q, verifying)

    return decode(rng, setting, rule, draft)


def keeps_u(rule, from_the_right=False):
    """A `decode` in which the u of a position is drawn once, and used again in later rounds."""

    def text(rng, setting, **parts):
        numbers = []  # of the positions that come next

        def again(drafted, p, q, rng):
            while len(numbers) < len(drafted):
                numbers.append(rng.random())
            order = numbers[: len(drafted)]
            if from_the_right:
                order.reverse()
            kept = SimpleNamespace(random=iter(order).__next__, choice=rng.choice)
            emitted = rule(drafted, p, q, kept)
            del numbers[: len(emitted)]
            return emitted

        return decode(rng, setting, again)

    return text


VARIANTS = [
    entry("one-u-for-all", "one random number for all",
      ("for i, token in enumerate(drafted):",
       "u = rng.random()\n    for i, token in enumerate(drafted):", "rng.random() <", "u <"),
      seen="feifeibear/LLMSpeculativeSampling"),
    entry("u-tests", "the u that drew a token also verifies it",
      ("rng.random()", "rng.u[i]"), propose=keeps_its_numbers,
      looks="where rng.u[i] drew the guess",
      seen="found in vllm-project/vllm#47386, until vllm-project/vllm#54282"),
    entry("u-replaces", "the u that rejected also resamples",
      ("rng.random()", "(u := rng.random())", RESAMPLED, "picked(residual(p[i], q[i]), u)"),
      seen="vllm-project/vllm-ascend#16370"),
    entry("one-noise", "one noise for two draws",
      (RESAMPLED, "picked(residual(p[i], q[i]), rng.u[i])"), propose=keeps_its_numbers,
      looks="where rng.u[i] drew the guess",
      seen="vllm-project/vllm#54282, an option up to release 0.28.0"),
    entry("one-seed", "draft and verifier share a seed, and the draft starts over in each round",
      one_seed, of=DECODE, looks="so numbers that drew tokens come back as tests",
      seen="in review in ggml-org/llama.cpp#27694; for the draft alone, Infini-AI-Lab/Sequoia"),
    entry("u-kept-block", "each position keeps its u, with block verification",
      keeps_u(verify_block, from_the_right=True), of=DECODE,
      looks="although what was kept says something about the u behind it",
      seen="avoided in vllm-project/vllm#46781"),
]  # fmt: skip
