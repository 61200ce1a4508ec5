"""How far is other people's speculative decoding from its target? README.md has the answers.

    pip install -r studies/audit/requirements.txt
    python -m studies.audit                         # everything, which takes some hours
    python -m studies.audit --only duoan/TorchCode
    python -m studies.audit --only flashinfer       # needs an NVIDIA GPU and nvcc
    python -m studies.audit --only vllm --setting V1 --write  # and into audit.json

Clones and wheels go into a folder of their own, outside of this project.
"""

import os

if __name__ == "__main__":  # before PyTorch and tqdm look; threads slow down small tensors
    os.environ |= {"OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}

# isort: split
import argparse
import importlib.metadata
import json
import subprocess
import sys
import warnings
from pathlib import Path

from tqdm import tqdm

from checkpoint import UserError
from lab import tables
from studies.audit import kernels, projects, sglang
from studies.audit.cuda import flashinfer
from terminal.ending import report
from terminal.options import Parser

ROUNDING = 1e-6  # smaller distances come from the rounding of float32
RESULTS = Path(__file__).with_name("audit.json")
CLONES = projects.CLONES
WHEELS = kernels.WHEELS | flashinfer.WHEELS | sglang.WHEELS
ARCHIVE = "da29094"  # this project's commit with the programs of results that name no other
FOLDER = Path.home() / ".cache" / "speculative-audit"
PARTS = {  # of repositories that are too large as a whole
    "NVIDIA/TensorRT-LLM": ["tensorrt_llm/_torch/pyexecutor/sampling_utils.py"],
}


def table(rows):
    """The results in Markdown. Those of a GPU are in a table of their own, which names it."""
    by_gpu = {None: []}
    for row in rows:
        by_gpu.setdefault(row.get("gpu"), []).append(line(row))
    header = ["package", "version", "setting", "distance", "tokens per round"]
    found = []
    for gpu, lines in by_gpu.items():
        found += [f"\nOn an {gpu}:\n"] if gpu else []
        found.append(tables.table(header, lines, n_left=3))
    return "\n".join(found)


def line(row):
    tokens = f"{row['tokens_per_round']:.4f}" if "tokens_per_round" in row else ""
    return [row["package"], row["version"], row["setting"], shown(row), tokens]


def shown(row):
    """The distance, or what was found in place of one."""
    if "error" in row:
        return row["error"]
    distance = row["distance"]
    if distance < ROUNDING:
        return f"{distance:.0e} (rounding)"
    if distance < row.get("resolution", 0):
        return f"{distance:.0e} (resolution)"
    return f"**{distance:.4f}**"


def merged(old, new):
    """Old and new results, by package. Those of a GPU stay beside those of a CPU."""

    def key(row):
        return row["package"], row["version"], row["setting"], "gpu" in row

    found = {key(row): row for row in [*old, *new]}
    packages = [row["package"] for row in found.values()]
    return sorted(found.values(), key=lambda row: packages.index(row["package"]))


# ---- Where the code comes from ----


def clone(folder, name, commit):
    """The folder with this commit of a repository of GitHub."""
    path = folder / f"{name}@{commit}"
    if path.exists():
        return path
    new = path.with_name(f"{path.name}.part")
    url = f"https://github.com/{name}"
    git("clone", "--quiet", "--filter=blob:none", "--no-checkout", url, str(new))
    git("-C", str(new), "checkout", "--quiet", commit, "--", *PARTS.get(name, ["."]))
    return new.rename(path)


def git(*command):
    try:
        subprocess.run(["git", *command], check=True)
    except FileNotFoundError:
        raise UserError("found no git, which fetches other people's code; install it") from None
    except subprocess.CalledProcessError:
        problem = f"git {' '.join(command)} failed"
        raise UserError(f"{problem}; remove what it has left, and try again") from None


def version_of(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        advice = f"install it: pip install {package}"
        raise UserError(f"found no package {package}; {advice}") from None


def names():
    return [*projects.PACKAGES, *WHEELS, *CLONES]


def results(name, folder):
    """The version of a project, and its settings."""
    if name in projects.PACKAGES:
        return version_of(name), projects.PACKAGES[name]()
    if name in WHEELS:
        version, function = WHEELS[name]
        return version, function(folder)
    version, function = CLONES[name]
    return version, function(clone(folder, name, version))


def run(name, folder, part=""):
    """Measure the settings of a project whose names have this part, and print each result."""
    rows = []
    version, settings = results(name, folder)
    for setting in settings:
        if part not in setting.name:
            continue
        row = {"package": name, "version": version, "setting": setting.name}
        row |= setting.measured()
        print(json.dumps(row), flush=True)
        rows.append(row)
    if not rows:
        raise UserError(f"{name} has no setting with {part!r} in its name")
    return rows


# ---- The program ----


def main():
    args = options()
    args.folder.mkdir(parents=True, exist_ok=True)
    version_of("torch")
    if args.only is None:
        if args.setting:
            raise UserError("--setting needs --only NAME, for settings are those of a project")
        run_each(args)
        return
    warnings.filterwarnings("ignore")
    tqdm.get_lock()  # draws a name, once, and some projects use it
    try:
        rows = run(args.only, args.folder, args.setting)
    except ModuleNotFoundError as error:
        advice = "pip install -r studies/audit/requirements.txt"
        raise UserError(f"found no module {error.name}; install it: {advice}") from None
    if args.write:
        write(rows)


def options():
    parser = Parser(description=__doc__)
    add = parser.add_argument
    add("--only", type=name_of, metavar="NAME", help=f"one of {', '.join(names())}")
    add("--setting", default="", metavar="TEXT", help="those of its settings with this in the name")
    add("--folder", type=Path, default=FOLDER, help="for clones and wheels (default: %(default)s)")
    add("--write", action="store_true", help=f"write the results into {RESULTS.name}, too")
    return parser.parse_args()


def name_of(text):
    if text in names():
        return text
    commits = {row["package"]: row.get("commit", ARCHIVE) for row in recorded()}
    if text in commits:
        place = f"the program of {text} is in an older commit of this project"
        raise argparse.ArgumentTypeError(f"{place}: git worktree add ../audit {commits[text]}")
    raise argparse.ArgumentTypeError(f"{text} is none of {', '.join(names())}")


def run_each(args):
    """Each project in its own process, because several have modules of the same names."""
    options = ["--folder", str(args.folder), *["--write"] * args.write]
    command = [sys.executable, "-m", "studies.audit", *options, "--only"]
    failed = [name for name in names() if subprocess.run([*command, name]).returncode]
    if failed:
        raise UserError(f"{', '.join(failed)} did not run; the reasons are above")


def recorded():
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def write(rows):
    text = json.dumps(merged(recorded(), rows), indent=1)
    RESULTS.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    report(main, "python -m studies.audit")
