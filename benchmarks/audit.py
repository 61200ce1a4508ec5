"""The exact distance between the output of other people's speculative decoding and the target's own output.

    pip install -r benchmarks/requirements-audit.txt
    python -m benchmarks.audit --out docs/audit.json
    python -m benchmarks.audit --only SafeAILab/EAGLE
    python -m benchmarks.audit --table docs/audit.json

It clones what has no package into the folder `clones`. docs/audit.md says how it works.
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

from benchmarks import tables
from benchmarks.audited import CLONES, PACKAGES
from enumeration import output_distribution, total_variation

ROUNDING = 1e-6  # smaller distances come from the rounding of float32


def audit(package, version, settings):
    """Yield one result for each setting: a dict of numbers and strings."""
    for setting, fast, slow in settings:
        n_paths = 0

        def counted(rng, fast=fast):
            nonlocal n_paths
            n_paths += 1
            with contextlib.redirect_stdout(None):  # some print
                return fast(rng)

        try:
            found, wanted = output_distribution(counted, max_paths=100_000), output_distribution(slow)
            row = {"paths": n_paths - 1, "distance": total_variation(found, wanted)}  # one path was run twice
            if hasattr(fast, "one_round"):
                row["tokens_per_round"] = sum(len(out) * p for out, p in output_distribution(fast.one_round).items())
        except Exception as error:  # an error of the library is a result, too
            row = {"error": f"{type(error).__name__}: {error}".split("\n")[0][:200]}
        row = {"package": package, "version": version, "setting": setting, **row}
        print(json.dumps(row), flush=True)
        yield row


def table(rows):
    """The results in Markdown."""
    lines = []
    for row in rows:
        paths, distance = "", row.get("error")
        if "distance" in row:
            paths = f"{row['paths']:,}"
            exact = row["distance"] < ROUNDING
            distance = f"{row['distance']:.0e} (rounding)" if exact else f"**{row['distance']:.4f}**"
        tokens = f"{row['tokens_per_round']:.4f}" if "tokens_per_round" in row else ""
        lines.append([row["package"], row["version"], row["setting"], paths, distance, tokens])
    return tables.table(["package", "version", "setting", "paths", "distance", "tokens per round"], lines, n_left=3)


def merged(old, new):
    """Old and new results, by package. A new one replaces the old one of the same package, version and setting."""
    rows = {(row["package"], row["version"], row["setting"]): row for row in [*old, *new]}
    packages = [*PACKAGES, *CLONES]
    return sorted(rows.values(), key=lambda row: packages.index(row["package"]))


def clone(name, commit, folder=Path("clones")):
    """The folder with this commit of a repository of GitHub."""
    path = folder / name
    if not path.exists():
        subprocess.run(["git", "clone", "--quiet", f"https://github.com/{name}", path], check=True)
        subprocess.run(["git", "-C", path, "checkout", "--quiet", commit], check=True)
    return path.resolve()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[*PACKAGES, *CLONES], metavar="NAME", help="one package or repository")
    parser.add_argument("--out", type=Path, metavar="FILE", help="add the results to a JSON file")
    parser.add_argument("--table", type=Path, metavar="FILE", help="print the table of such a file and do nothing else")
    args = parser.parse_args()
    if args.table:
        return print(table(json.loads(args.table.read_text(encoding="utf-8"))))
    if not args.only:  # each one in its own process, because several have modules of the same names
        out = ["--out", args.out] if args.out else []
        for name in (*PACKAGES, *CLONES):
            subprocess.run([sys.executable, "-m", "benchmarks.audit", "--only", name, *out], check=True)
        return
    warnings.filterwarnings("ignore")
    os.environ |= {"OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}  # threads only slow down tensors of 3 tokens
    if args.only in PACKAGES:
        version, settings = importlib.metadata.version(args.only), PACKAGES[args.only]()
    else:
        version, function = CLONES[args.only]
        settings = function(clone(args.only, version))
    rows = list(audit(args.only, version, settings))
    if args.out:
        old = json.loads(args.out.read_text(encoding="utf-8")) if args.out.exists() else []
        args.out.write_text(json.dumps(merged(old, rows), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
