"""How far is the output of other people's speculative decoding from their target's own? README.md has the answers.

    pip install -r studies/audit/requirements.txt
    python -m studies.audit                         # everything, into studies/audit/audit.json
    python -m studies.audit --only SafeAILab/EAGLE

What has no package is cloned into the folder `clones`.
"""

import argparse
import contextlib
import importlib.metadata
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

from enumeration import output_distribution, total_variation
from lab import tables
from studies.audit.harness import drawing, mean_length

ROUNDING = 1e-6  # smaller distances come from the rounding of float32
RESULTS = Path(__file__).with_name("audit.json")


def results(package, version, settings):
    """One result for each setting: a dict of numbers and strings."""
    for setting, fast, slow in settings:
        paths = set()

        @drawing
        def counted(rng, fast=fast, paths=paths):
            with contextlib.redirect_stdout(None):  # some print
                output = fast(rng)
            paths.add(tuple(i for _, i in rng.script))
            return output

        row = {"package": package, "version": version, "setting": setting}
        try:
            found, wanted = output_distribution(counted, max_paths=100_000), output_distribution(drawing(slow))
            row |= {"paths": len(paths), "distance": total_variation(found, wanted)}
            if hasattr(fast, "one_round"):
                row["tokens_per_round"] = mean_length(output_distribution(drawing(fast.one_round)))
        except Exception as error:  # an error of the library is a result, too
            row["error"] = f"{type(error).__name__}: {error}".split("\n")[0][:200]
        print(json.dumps(row), flush=True)
        yield row


def table(rows):
    """The results in Markdown."""
    lines = []
    for row in rows:
        paths, distance = "", row.get("error")
        if "distance" in row:
            paths, exact = f"{row['paths']:,}", row["distance"] < ROUNDING
            distance = f"{row['distance']:.0e} (rounding)" if exact else f"**{row['distance']:.4f}**"
        tokens = f"{row['tokens_per_round']:.4f}" if "tokens_per_round" in row else ""
        lines.append([row["package"], row["version"], row["setting"], paths, distance, tokens])
    return tables.table(["package", "version", "setting", "paths", "distance", "tokens per round"], lines, n_left=3)


def merged(old, new):
    """Old and new results, by package. A new one replaces the old one of the same package, version and setting."""
    rows = {(row["package"], row["version"], row["setting"]): row for row in [*old, *new]}
    packages = [*dict.fromkeys(package for package, _, _ in rows)]
    return sorted(rows.values(), key=lambda row: packages.index(row["package"]))


def clone(name, commit):
    """The folder with this commit of a repository of GitHub."""
    path = Path("clones") / name
    if not path.exists():
        subprocess.run(["git", "clone", "--quiet", f"https://github.com/{name}", path], check=True)
        subprocess.run(["git", "-C", path, "checkout", "--quiet", commit], check=True)
    return path.resolve()


def main():
    warnings.filterwarnings("ignore")
    os.environ |= {"OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}  # threads only slow down tensors of 3 tokens
    from tqdm import tqdm

    from studies.audit.projects import CLONES, PACKAGES  # which import PyTorch

    tqdm.get_lock()  # draws a name, once, and some projects use it

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[*PACKAGES, *CLONES], metavar="NAME", help="one package or repository")
    args = parser.parse_args()
    if not args.only:  # each one in its own process, because several have modules of the same names
        for name in (*PACKAGES, *CLONES):
            subprocess.run([sys.executable, "-m", "studies.audit", "--only", name], check=True)
        return
    if args.only in PACKAGES:
        version, settings = importlib.metadata.version(args.only), PACKAGES[args.only]()
    else:
        version, function = CLONES[args.only]
        settings = function(clone(args.only, version))
    rows = [*results(args.only, version, settings)]
    old = json.loads(RESULTS.read_text(encoding="utf-8"))
    RESULTS.write_text(json.dumps(merged(old, rows), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
