"""A program in a terminal: its options, its text as it comes, and the figures of two runs."""

import argparse
import codecs
import math
import os
import sys

import numpy as np

from checkpoint import UserError
from checkpoint.names import CHOICES, MODELS_DIR
from runs import expected_tokens, origins

LEGEND = {"accepted": "guessed and accepted", "resampled": "resampled", "bonus": "bonus"}
COLOURS = {
    "accepted": "\x1b[32m",  # green
    "resampled": "\x1b[36;4m",  # cyan, underlined
    "bonus": "\x1b[35m",  # magenta
}
RESET = "\x1b[0m"
PROMPT = "Once upon a time there was a king who had three sons,"


class Parser(argparse.ArgumentParser):
    """Options whose errors are UserErrors, with an advice."""

    def __init__(self, advice="see --help", **kwargs):
        kwargs["formatter_class"] = argparse.RawDescriptionHelpFormatter
        kwargs["conflict_handler"] = "resolve"  # the lab has a --K of its own
        super().__init__(allow_abbrev=False, **kwargs)
        self.advice = advice

    def error(self, message):
        raise UserError(f"{message}; {self.advice}")


def checked_type(type, is_good, what):
    """A type for argparse: a value for which is_good holds."""

    def parse(text):
        try:
            value = type(text)
        except ValueError:
            value = None
        if value is None or not is_good(value):
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
        return value

    return parse


COUNT = checked_type(int, lambda n: n >= 0, "a whole number from 0 up")
TEMPERATURE = checked_type(float, lambda T: 0 <= T < math.inf, "a number from 0 up")
SHARE = checked_type(float, lambda p: 0 < p <= 1, "a number above 0 and at most 1")
HELP = {
    "prompt": "the text to continue (default: %(default)r)",
    "n_tokens_to_generate": "how many tokens (default: %(default)s)",
    "draft_model_size": "the small model, which guesses; names as below",
    "target_model_size": f"the large model, which decides the text: {CHOICES}",
    "models_dir": "where models are, and where downloads go",
    "K": "how many tokens to draft per round (default: %(default)s)",
    "temperature": "0: the most probable token; 1: sample as the model says (default: %(default)s)",
    "top_k": "sample among the k most probable tokens; 0: among all",
    "top_p": "sample among the most probable tokens, up to probability p together; 1: all",
    "same_text": "draw both texts with the same noise, so that they are the same at any "
    "temperature",
    "seed": "for the random numbers of both loops (default: %(default)s)",
}


def options(description, epilog, advice="see --help"):
    """The parser of main.py's options, which the lab has too."""
    parser = Parser(description=description, epilog=epilog, advice=advice)

    def add(name, **kwargs):
        parser.add_argument(f"--{name}", help=HELP[name], **kwargs)

    add("prompt", default=PROMPT)
    add("n_tokens_to_generate", type=COUNT, default=154, metavar="N")
    add("draft_model_size", metavar="SIZE")
    add("target_model_size", metavar="SIZE")
    add("models_dir", default=MODELS_DIR, metavar="DIR")
    add("K", type=COUNT, default=4)
    add("temperature", type=TEMPERATURE, default=0.0, metavar="T")
    add("top_k", type=COUNT, default=0, metavar="k")
    add("top_p", type=SHARE, default=1.0, metavar="p")
    add("same_text", action="store_true")
    add("seed", type=COUNT, default=123)
    return parser


class Text:
    """A text that a terminal shows as it comes, in colours. Otherwise it is held back."""

    def __init__(self, encoder):
        self.bytes_of = encoder.bytes_of
        self.live = sys.stdout.isatty()
        is_plain = os.environ.get("TERM") == "dumb" or os.environ.get("NO_COLOR")
        self.coloured = self.live and not is_plain
        self.utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self.held_back = ""

    def write(self, text):
        if self.live:
            print(text, end="", flush=True)
        else:
            self.held_back += text

    def add(self, r):
        """Write the tokens of a round."""
        for token, origin in zip(r.emitted, origins(r)):
            text = self.utf8.decode(self.bytes_of([token]))
            if self.coloured and text and len(r.drafted):
                text = COLOURS[origin] + text + RESET
            self.write(text)


def show(prompt, encoder, title, decode):
    """decode(on_round=...) -> runs.Run, and print its text."""
    text = Text(encoder)
    print(f"\n{title}\n{'-' * len(title)}")
    text.write(f"Text = {prompt}")
    run = decode(on_round=text.add)
    text.write(text.utf8.decode(b"", final=True))
    time = f"Time = {run.seconds:.2f}s"
    if text.live:
        print(f"\n{time}")
    else:
        print(f"{time}\n{text.held_back}", flush=True)
    if text.coloured and any(run.n_drafted):
        legend = [COLOURS[origin] + words + RESET for origin, words in LEGEND.items()]
        print("Colours:", ", ".join(legend))
    return run


# ---- The figures of two runs ----
NOTHING = "none: nothing was drafted"


A_BUG = "NO: a bug"
TWO_SAMPLES = "no: two samples from one distribution, unless --same_text is given"
ROUNDING = "no: x @ w rounds differently for one row and for several, and two tokens were tied"


def why_texts_differ(args):
    """What to say if the two texts are not the same."""
    if args.temperature > 0 and not args.same_text:
        return TWO_SAMPLES
    return ROUNDING if getattr(args, "numpy", False) else A_BUG


def figures(plain, fast, setting, if_texts_differ=A_BUG):
    """A plain run and one with guesses, compared -> {name: text}.

    setting is what the second one was run with, such as "K = 4".
    """
    if not plain.n_new:
        return {"tokens per second": "none: nothing was decoded, so there is nothing to compare"}
    slow = plain.tokens_per_second
    quick = fast.tokens_per_second
    guesses, check, rest = fast.cost(plain)
    cost = guesses + check + rest
    parts = f"guesses K c = {guesses:.2f}, check v = {check:.2f}, rest r = {rest:.2f}"
    rows = {}
    rows["tokens per second"] = f"{slow:.1f} target alone, {quick:.1f} speculative"
    rows["speedup"] = f"{quick / slow:.2f}"
    rows["acceptance rate"] = acceptance_rate(fast)
    rows["alpha"] = alpha(fast)
    rows["tokens per round"] = f"{fast.tokens_per_round:.2f}, with {setting}"
    rows["cost of a round"] = f"{cost:.2f} plain steps: {parts}"
    rows["same text"] = same_text(plain.ids, fast.ids, if_texts_differ)
    if quick < slow and fast.p_accepted:
        rows["slower"] = why_slower(guesses, check, rest)
    return rows


def acceptance_rate(run):
    if run.acceptance_rate is None:
        return NOTHING
    return f"{run.acceptance_rate:.2f} of {sum(run.n_drafted)} draft tokens"


def alpha(run):
    if run.alpha is None:
        return NOTHING
    expected = expected_tokens(run.alpha, max(run.n_drafted))
    of_which = f"of the {len(run.p_accepted)} looked at, which"
    return f"{run.alpha:.2f} {of_which} predicts {run.predicted(expected):.2f} tokens per round"


def why_slower(guesses, check, rest):
    extra = check - 1  # one plain step is what a token costs anyway
    most = max(guesses, extra, rest)
    if most == guesses:
        return "because the guesses cost most: try a smaller draft, or a smaller K"
    if most == extra:
        return "because the check costs most: try a smaller K, or a better draft"
    return "because drawing and accepting cost most: try a smaller K"


def same_text(ids, other, if_texts_differ):
    return "yes" if np.array_equal(ids, other) else if_texts_differ


def printed(rows):
    """Figures, a line for each."""
    return "\n".join(f"{name:<17} {text}" for name, text in rows.items())
