"""Wheels: fetched by pip, and unpacked as far as they are needed."""

import subprocess
import sys
import zipfile

from checkpoint import UserError


def fetched(folder, package, version):
    """The path of a wheel."""
    name = f"{package.replace('-', '_')}-{version}-*.whl"
    if not [*folder.glob(name)]:
        download(folder, f"{package}=={version}")
    return next(folder.glob(name))


def download(folder, requirement):
    command = ["pip", "download", "--no-deps", "--dest", str(folder), requirement]
    print(f"fetching {requirement}", file=sys.stderr)
    try:
        subprocess.run([sys.executable, "-m", *command, "--quiet"], check=True)
    except subprocess.CalledProcessError:
        raise UserError(f"this failed: {' '.join(command)}; try it by hand") from None


def unpacked(folder, package, version, parts):
    """The folder with these files and folders of a package. KeyError if one isn't in it."""
    target = folder / f"{package}-{version}"
    if not target.exists():
        new = target.with_name(f"{target.name}.part")
        extract(fetched(folder, package, version), new, parts)
        new.rename(target)
    return target


def extract(path, folder, parts):
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        for part in parts:
            wanted = [name for name in names if name == part or name.startswith(f"{part}/")]
            if not wanted:
                raise KeyError(part)
            wheel.extractall(folder, wanted)
