"""Count n-grams in the text that the bundled pair was trained on, and write models/ngrams.npz.

python -m tools.fit_ngrams fairy-tales.txt
"""

import argparse
import os

from checkpoint.find import MODELS_DIR
from encoder import get_encoder
from lab.drafts import ORDERS, ids_of
from lab.ngrams import ngram
from tools.corpus import split_tales


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", help="a text file, with <|endoftext|> alone on a line between tales")
    parser.add_argument("--out", default=os.path.join(MODELS_DIR, "ngrams.npz"), help="the file to write")
    parser.add_argument(
        "--least", type=int, default=2, help="leave out n-grams (n > 1) that occur less often (%(default)s)"
    )
    args = parser.parse_args()

    encoder = get_encoder("target", MODELS_DIR)
    tales, _ = split_tales(args.corpus)
    ids = ids_of(tales, encoder)
    table = ngram(ids, len(encoder.ids), max(ORDERS.values()), args.least)
    table.save(args.out)
    sizes = ", ".join(f"{len(counts)} {n}-grams" for n, (_, counts) in enumerate(table.tables, start=1))
    print(f"{args.out}: {sizes} of {len(ids)} tokens, {os.path.getsize(args.out):,} bytes")


if __name__ == "__main__":
    main()
