"""Fits the n-gram tables that ship as models/ngrams.npz, on the text that the bundled pair was trained on.

python tools/fit_ngrams.py fairy-tales.txt

"""

import argparse
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)
from corpus import EOT, split_tales

from drafts import ngram
from encoder import get_encoder

MODELS = os.path.join(ROOT, "models")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("--models_dir", default=MODELS, help="where target/, whose vocabulary it is, can be found")
    parser.add_argument("--out", default=os.path.join(MODELS, "ngrams.npz"))
    parser.add_argument("--order", type=int, default=3)
    parser.add_argument("--least", type=int, default=2, help="leave out n-grams of two tokens and more that are rarer")
    args = parser.parse_args()

    encoder = get_encoder("target", args.models_dir)
    tales, _ = split_tales(args.corpus)
    ids = [id for tale in tales for id in [*encoder.encode(tale), encoder.ids[EOT]]]
    model = ngram(ids, len(encoder.ids), args.order, args.least)
    model.save(args.out)
    sizes = ", ".join(f"{len(counts)} {n}-grams" for n, (_, counts) in enumerate(model.tables, start=1))
    print(f"{args.out}: {sizes} of {len(ids)} tokens, {os.path.getsize(args.out):,} bytes")


if __name__ == "__main__":
    main()
