import sys

from checkpoint.download import check
from errors import UserError

if hasattr(sys.stdout, "reconfigure"):  # (stdout may be closed)
    sys.stdout.reconfigure(errors="replace")  # a name may have characters that a terminal cannot show
try:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        raise UserError("one argument is needed, the directory of a checkpoint, such as models/1558M")
    check(sys.argv[1])
    print(f"{sys.argv[1]}: all numbers match their checksums", flush=True)
except (UserError, OSError) as error:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(2)
except KeyboardInterrupt:
    sys.exit(130)
