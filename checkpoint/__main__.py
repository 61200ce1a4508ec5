import argparse
import sys

from checkpoint.download import check
from errors import UserError

about = "Compare all numbers of a checkpoint with the checksums in its index."
parser = argparse.ArgumentParser(prog="python -m checkpoint", description=about)
parser.add_argument("directory", help="the folder of the checkpoint, such as models/target")
try:
    check(parser.parse_args().directory)
    print("all numbers match their checksums", flush=True)
except (UserError, OSError) as error:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(2)
except KeyboardInterrupt:
    sys.exit(130)
