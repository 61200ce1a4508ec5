"""Text on a terminal, piece by piece as it is decoded, and coloured by its origin."""

import codecs
import os

RESET = "\x1b[0m"
COLOURS = {"accepted": "\x1b[32m", "residual": "\x1b[31;4m", "extra": "\x1b[35m"}  # green, red underlined, magenta
LEGEND = {
    "accepted": "drafted and accepted",
    "residual": "from the residual, after a rejection",
    "extra": "added by the target, because nothing was rejected",
}


class Writer:
    """Writes the text of tokens. Bytes are held back until they make up a whole character.

    Parameters
    ----------
    encoder : encoder.Encoder
    write : callable
        Is given pieces of text.
    coloured : bool
    """

    def __init__(self, encoder, write, coloured):
        self.encoder, self.write, self.coloured = encoder, write, coloured
        self.characters = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def add(self, ids, origins=None):
        """Write tokens. Each has the colour of its origin, see `show.rounds.origins`."""
        for token, origin in zip(ids, origins or [None] * len(ids)):
            self.piece(self.characters.decode(self.encoder.bytes_of([token])), origin)

    def close(self):
        """Write what is still held back. It is not UTF-8, so it becomes U+FFFD."""
        self.piece(self.characters.decode(b"", final=True), None)

    def piece(self, text, origin):
        if text:
            self.write(COLOURS[origin] + text + RESET if self.coloured and origin else text)


def legend():
    return "; ".join(COLOURS[origin] + meaning + RESET for origin, meaning in LEGEND.items())


def wants_colour(choice, out, environment=os.environ):
    """Whether to write colours. "always": yes. "never": no. "auto": if out is a terminal that can show them.

    The variable NO_COLOR (https://no-color.org) turns "auto" off. (On Windows, tqdm makes the console show colours.)
    """
    if choice == "auto":
        return out.isatty() and environment.get("TERM") != "dumb" and not environment.get("NO_COLOR")
    return choice == "always"
