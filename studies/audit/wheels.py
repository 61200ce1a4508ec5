"""Wheels and source packages: fetched by pip, and unpacked as far as they are needed."""

import subprocess
import sys
import tarfile
import zipfile

from checkpoint import UserError


def fetched(folder, package, version):
    """The path of a wheel, or of the sources of a package that has none."""
    stem = f"{package.replace('-', '_')}-{version}"
    if (found := archive(folder, stem)) is None:
        download(folder, f"{package}=={version}")
        found = archive(folder, stem)
    return found


def archive(folder, stem):
    found = [*folder.glob(f"{stem}-*.whl"), *folder.glob(f"{stem}.tar.gz")]
    return found[0] if found else None


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


def sources(folder, package, version):
    """The folder of a package that has no wheel."""
    path = fetched(folder, package, version)
    target = folder / path.name.removesuffix(".tar.gz")
    if not target.exists():
        new = target.with_name(f"{target.name}.part")
        with tarfile.open(path) as archive:
            archive.extractall(new, filter="data")
        (new / target.name).rename(target)
    return target
