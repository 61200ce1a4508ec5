"""A program in a terminal: its options, its text as it comes, and errors in one line, unless they are ours."""

import argparse
import codecs
import math
import os
import sys

import numpy as np
from tqdm import tqdm

from checkpoint import UserError
from checkpoint.find import MODELS_DIR
from checkpoint.names import CHOICES
from runs import origins

LEGEND = {"accepted": "guessed and accepted", "resampled": "resampled", "bonus": "bonus"}
COLOURS = {
    "accepted": "\x1b[32m",  # green
    "resampled": "\x1b[31;4m",  # red, underlined
    "bonus": "\x1b[35m",  # magenta
}
RESET = "\x1b[0m"
PROMPT = "Once upon a time there was a king who had three sons,"


class Parser(argparse.ArgumentParser):
    """Options whose errors are UserErrors, with an advice."""

    def __init__(self, advice="see --help", **kwargs):
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
            conflict_handler="resolve", **kwargs,  # the lab has a --K of its own
        )  # fmt: skip
        self.advice = advice

    def error(self, message):
        raise UserError(f"{message}; {self.advice}")


def such_that(type, is_good, what):
    """A type for argparse: a value for which is_good holds."""

    def parse(text):
        try:
            if is_good(value := type(text)):
                return value
        except ValueError:
            pass
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")

    return parse


def options(description, epilog, advice="see --help"):
    """The parser of main.py's options, which the lab has too."""
    parser = Parser(description=description, epilog=epilog, advice=advice)
    add = parser.add_argument
    count = such_that(int, lambda n: n >= 0, "a whole number from 0 up")
    temperature = such_that(float, lambda T: 0 <= T < math.inf, "a number from 0 up")
    share = such_that(float, lambda p: 0 < p <= 1, "a number above 0 and at most 1")
    add("--prompt", default=PROMPT, help="the text to continue (default: %(default)r)")
    add(
        "--n_tokens_to_generate",
        type=count,
        default=154,
        metavar="N",
        help="how many tokens (default: %(default)s)",
    )
    add("--draft_model_size", metavar="SIZE", help="the small model, which guesses; names as below")
    add(
        "--target_model_size",
        metavar="SIZE",
        help=f"the large model, which decides the text: {CHOICES}",
    )
    add(
        "--models_dir",
        default=MODELS_DIR,
        metavar="DIR",
        help="where models are, and where downloads go",
    )
    add(
        "--K",
        type=count,
        default=4,
        help="how many tokens to draft per round (default: %(default)s)",
    )
    add("--temperature", type=temperature, default=0.0, metavar="T",
        help="0: the most probable token; 1: sample as the model says (default: %(default)s)")  # fmt: skip
    add(
        "--top_k",
        type=count,
        default=0,
        metavar="k",
        help="sample among the k most probable tokens; 0: among all",
    )
    add("--top_p", type=share, default=1.0, metavar="p",
        help="sample among the most probable tokens, up to probability p together; 1: all")  # fmt: skip
    add("--same_text", action="store_true",
        help="draw both texts with the same noise, so that they are the same at any temperature")  # fmt: skip
    add(
        "--seed",
        type=count,
        default=123,
        help="for the random numbers of both loops (default: %(default)s)",
    )
    return parser


def show(prompt, encoder, N, title, decode):
    """decode(on_round) -> runs.Run, and print its text.

    On a terminal it is printed as it comes, in colours, otherwise at the end.
    """
    live, utf8 = sys.stdout.isatty(), codecs.getincrementaldecoder("utf-8")("replace")
    colour = live and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")
    held_back = []
    write = (lambda text: print(text, end="", flush=True)) if live else held_back.append
    print(f"\n{title}\n{'-' * len(title)}")
    write(f"Text = {prompt}")

    def on_round(r):
        bar.update(len(r.emitted))
        for token, origin in zip(r.emitted, origins(r)):
            text = utf8.decode(encoder.bytes_of([token]))
            write(COLOURS[origin] + text + RESET if colour and text and len(r.drafted) else text)

    with tqdm(total=N, desc=title, unit="token", leave=False, disable=live or None) as bar:
        run = decode(on_round)
    write(utf8.decode(b"", final=True))
    took = f"Time = {run.seconds:.2f}s"
    print(f"\n{took}" if live else f"{took}\n{''.join(held_back)}", flush=True)
    if colour and any(run.n_drafted):
        print(
            "Colours:",
            ", ".join(COLOURS[origin] + words + RESET for origin, words in LEGEND.items()),
        )
    return run


# ---- The figures of two runs ----


def figures(plain, fast, setting, is_sample=False, tokens=None):
    """A plain run and one with guesses, compared -> {name: text}.

    setting is what the second one was run with, such as "K = 4". is_sample tells whether
    two texts may differ because both were drawn. tokens is for `Run.predicted`.
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
    rows["alpha"] = alpha(fast, tokens)
    rows["tokens per round"] = f"{fast.tokens_per_round:.2f}, with {setting}"
    rows["cost of a round"] = f"{cost:.2f} plain steps: {parts}"
    rows["same text"] = same_text(plain.ids, fast.ids, is_sample)
    if quick < slow and fast.n_looked_at:
        rows["slower"] = why_slower(guesses, check, rest)
    return rows


NOTHING = "none: nothing was drafted"


def acceptance_rate(run):
    if run.acceptance_rate is None:
        return NOTHING
    return f"{run.acceptance_rate:.2f} of {sum(run.n_drafted)} drafted tokens"


def alpha(run, tokens):
    if run.alpha is None:
        return NOTHING
    of_which = f"of the {run.n_looked_at} looked at, which"
    if tokens is not None:
        of_which = "behind accepted guesses, which by place"
    return f"{run.alpha:.2f} {of_which} predicts {run.predicted(tokens):.2f} tokens per round"


def why_slower(guesses, check, rest):
    reasons = [
        (guesses, "the guesses cost most: try a smaller draft, or a smaller K"),
        (check - 1, "the check costs most: try a smaller K, or a better draft"),
        (rest, "drawing and accepting cost most: try a smaller K"),
    ]
    _, reason = max(reasons)  # one plain step of the check is what a token costs anyway
    return f"because {reason}"


def same_text(ids, other, is_sample):
    if np.array_equal(ids, other):
        return "yes"
    if is_sample:
        return "no: two samples from one distribution, unless --same_text is given"
    return "NO: a bug"


def printed(rows):
    """Figures, a line for each."""
    return "\n".join(f"{name:<17} {text}" for name, text in rows.items())


# ---- A program ----


def report(main, name):
    """Run a program whose errors begin with its name."""
    for stream in "stdout", "stderr":
        if getattr(sys, stream) is None:  # it was closed, as by >&-
            setattr(sys, stream, open(os.devnull, "w", encoding="utf-8"))
    if hasattr(sys.stdout, "reconfigure"):  # not in a notebook
        sys.stdout.reconfigure(
            errors="replace"
        )  # a text may have characters that a terminal or a file cannot show
    try:
        main()
        print(end="", flush=True)
    except BrokenPipeError:  # nobody reads the output any more, as with "| head"
        drop_output()
        sys.exit(1)
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        sys.exit(130)
    except (UserError, OSError, MemoryError) as error:
        drop_output()
        print(f"{name}: error: {error}", file=sys.stderr)
        sys.exit(2)


def drop_output():
    """What cannot be written would be an error once more, when Python ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
