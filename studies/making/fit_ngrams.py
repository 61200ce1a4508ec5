"""Count n-grams in the text that the bundled pair was trained on, and write models/ngrams.npz.

python -m studies.making.fit_ngrams fairy-tales.txt
"""

import numpy as np

from checkpoint import UserError
from checkpoint.names import MODELS_DIR
from checkpoint.openai import EOT
from ending import report
from lab.drafts import ORDERS, TABLES, ids_of, read_texts
from lab.ngrams import ngram
from terminal import Parser
from utils import get_encoder

CORPUS = "a text file, with <|endoftext|> alone on a line between tales"


def training_tales(path):
    """The tales of a text file, but for those in the last tenth of the text."""
    tales = read_texts(path)
    if len(tales) < 2:
        needed = f"at least two are needed, with {EOT} between them"
        raise UserError(f"{path} holds {len(tales)} tales, and {needed}")
    ends = np.cumsum([len(tale) for tale in tales])
    return tales[: np.searchsorted(ends, 0.9 * ends[-1])]


def main():
    parser = Parser(description=__doc__)
    parser.add_argument("corpus", help=CORPUS)
    tales = training_tales(parser.parse_args().corpus)
    encoder = get_encoder("target", MODELS_DIR)
    ids = ids_of(tales, encoder)
    table = ngram(ids, len(encoder.ids), max(ORDERS.values()), least=2)
    table.save(TABLES)
    print(f"{TABLES}: {[len(counts) for _, counts in table.tables]} n-grams of {len(ids)} tokens")


if __name__ == "__main__":
    report(main, "python -m studies.making.fit_ngrams")
