"""A program in a terminal: its options, its text as it comes, and errors in one line, unless they are ours."""

import argparse
import codecs
import math
import os
import sys

from tqdm import tqdm

from checkpoint.find import MODELS_DIR, SIZES
from errors import UserError
from runs import LEGEND, origins

COLOURS = {"accepted": "\x1b[32m", "corrected": "\x1b[31;4m", "bonus": "\x1b[35m"}  # green, red underlined, magenta
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
    add("--n_tokens_to_generate", type=count, default=154, metavar="N", help="how many tokens (default: %(default)s)")
    add("--draft_model_size", metavar="SIZE", help="the small model, which guesses; names as below")
    add("--target_model_size", metavar="SIZE", help=f"the large model, which decides the text: {SIZES}")
    add("--models_dir", default=MODELS_DIR, metavar="DIR", help="where models are, and where downloads go")
    add("--K", type=count, default=4, help="how many tokens to draft per round (default: %(default)s)")
    add("--temperature", type=temperature, default=0.0, metavar="T",
        help="0: the most probable token; 1: sample as the model says (default: %(default)s)")  # fmt: skip
    add("--top_k", type=count, default=0, metavar="k", help="sample among the k most probable tokens; 0: among all")
    add("--top_p", type=share, default=1.0, metavar="p",
        help="sample among the most probable tokens, up to probability p together; 1: all")  # fmt: skip
    add("--same_text", action="store_true",
        help="draw both texts with the same noise, so that they are the same at any temperature")  # fmt: skip
    add("--seed", type=count, default=123, help="for the random numbers of both loops (default: %(default)s)")
    return parser


def show(title, prompt, encoder, N, decode):
    """decode(on_round) -> runs.Run, and print its text: on a terminal as it comes, in colours, otherwise at the end."""
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
        print("Colours:", ", ".join(COLOURS[origin] + words + RESET for origin, words in LEGEND.items()))
    return run


def printed(found):
    """Figures, a line for each."""
    return "\n".join(f"{name:<17} {value}" for name, value in found.items())


def report(main, name):
    """Run a program whose errors begin with its name."""
    for stream in "stdout", "stderr":
        if getattr(sys, stream) is None:  # it was closed, as by >&-
            setattr(sys, stream, open(os.devnull, "w", encoding="utf-8"))
    if hasattr(sys.stdout, "reconfigure"):  # not in a notebook
        sys.stdout.reconfigure(errors="replace")  # a text may have characters that a terminal or a file cannot show
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
