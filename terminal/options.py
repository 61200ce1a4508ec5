"""The options of main.py, which the lab has too."""

import argparse
import math
import re

from checkpoint import UserError
from checkpoint.names import CHOICES, MODELS_DIR, known_as

PROMPT = "Once upon a time there was a king who had three sons,"


class Parser(argparse.ArgumentParser):
    """Options whose errors are UserErrors, with an advice."""

    def __init__(self, advice="see --help", **kwargs):
        kwargs["formatter_class"] = argparse.RawDescriptionHelpFormatter
        super().__init__(allow_abbrev=False, **kwargs)
        self.advice = advice

    def error(self, message):
        if re.match("unrecognized arguments: [^-]", message):
            message += "; a text comes after --prompt, in quotes"
        raise UserError(f"{message}; {self.advice}")


def add_option(group, name, *synonyms, **kwargs):
    """Add an option with - or _ between its words, and synonyms. --help shows its name alone."""
    names = name, name.replace("_", "-"), *synonyms
    action = group.add_argument(*(f"--{spelling}" for spelling in names), **kwargs)
    del action.option_strings[1:]


def checked_type(type, is_good, description):
    """A type for argparse: a value for which is_good holds."""

    def parse(text):
        try:
            value = type(text)
        except ValueError:
            value = None
        if value is None or not is_good(value):
            raise argparse.ArgumentTypeError(f"{text!r} is not {description}")
        return value

    return parse


COUNT = checked_type(int, lambda n: n >= 0, "a whole number from 0 up")
TEMPERATURE = checked_type(float, lambda T: 0 <= T < math.inf, "a number from 0 up")
SHARE = checked_type(float, lambda p: 0 < p <= 1, "a number above 0 and at most 1")
HELP = {
    "prompt": "the text to continue (default: %(default)r)",
    "n_tokens_to_generate": "how many tokens (default: %(default)s)",
    "draft_model_size": "the small model, which guesses; names as below (default: draft, or the "
    "usual partner of the target)",
    "target_model_size": f"the large model, which decides the text: {CHOICES} (default: target, or "
    "the usual partner of the draft)",
    "models_dir": "where models are, and where downloads go (default: %(default)s)",
    "K": "how many tokens to guess per round (default: %(default)s)",
    "temperature": "0: the most probable token; 1: sample as the model says (default: %(default)s)",
    "top_k": "sample among the k most probable tokens; 0: among all (default: %(default)s)",
    "top_p": "sample among the most probable tokens, up to probability p together; 1: all "
    "(default: %(default)s)",
    "same_text": "draw both texts with the same noise, so that they are the same at any "
    "temperature",
    "seed": "for the random numbers of both loops (default: %(default)s)",
}


def options(description, epilog, advice="see --help"):
    """The parser of main.py's options, which the lab has too."""
    parser = Parser(description=description, epilog=epilog, advice=advice)

    def add(name, *synonyms, **kwargs):
        add_option(parser, name, *synonyms, help=HELP[name], **kwargs)

    add("prompt", default=PROMPT)
    synonyms = "max_new_tokens", "max-new-tokens"  # its names in other programs
    add("n_tokens_to_generate", *synonyms, type=COUNT, default=154, metavar="N")
    add("draft_model_size", type=known_as, metavar="SIZE")
    add("target_model_size", type=known_as, metavar="SIZE")
    add("models_dir", default=MODELS_DIR, metavar="DIR")
    add("K", type=COUNT, default=4)
    add("temperature", type=TEMPERATURE, default=0.0, metavar="T")
    add("top_k", type=COUNT, default=0, metavar="k")
    add("top_p", type=SHARE, default=1.0, metavar="p")
    add("same_text", action="store_true")
    add("seed", type=COUNT, default=123)
    return parser
