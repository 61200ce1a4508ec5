import argparse
import sys

from checkpoint.download import check
from errors import UserError

if hasattr(sys.stdout, "reconfigure"):  # (stdout may be closed)
    sys.stdout.reconfigure(errors="replace")  # a name may have characters that a terminal cannot show
about = "Compare all numbers of a checkpoint with the checksums in its index."
parser = argparse.ArgumentParser(prog="python -m checkpoint", description=about)
parser.add_argument("directory", help="the folder of the checkpoint, such as models/target")
try:
    directory = parser.parse_args().directory
    check(directory)
    print(f"{directory}: all numbers match their checksums", flush=True)
except (UserError, OSError) as error:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(2)
except KeyboardInterrupt:
    sys.exit(130)
