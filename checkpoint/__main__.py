"""Compare all numbers of a checkpoint with the checksums in its index."""

from checkpoint.download import check
from errors import Parser, report


def main():
    parser = Parser(prog="python -m checkpoint", description=__doc__)
    parser.add_argument("directory", help="the folder of the checkpoint, such as models/target")
    check(parser.parse_args().directory)
    print("all numbers match their checksums")


report(main, "python -m checkpoint")
