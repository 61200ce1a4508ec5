"""A text that is printed as it comes, in colours that tell where each token is from."""

import codecs
import os
import sys

from runs import origins

LEGEND = {"accepted": "guessed and accepted", "resampled": "resampled", "bonus": "bonus"}
COLOURS = {
    "accepted": "\x1b[32m",  # green
    "resampled": "\x1b[36;4m",  # cyan, underlined
    "bonus": "\x1b[35m",  # magenta
}
RESET = "\x1b[0m"


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
