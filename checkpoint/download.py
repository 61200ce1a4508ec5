"""Download a model's files. What was interrupted is resumed, and nothing is used before it was checked."""

import base64
import contextlib
import hashlib
import os
import re
import sys
from pathlib import Path

import requests
from requests.adapters import HTTPAdapter, Retry
from tqdm import tqdm

from checkpoint.bundle import ADVICE, load, read_index
from checkpoint.crc32c import crc32c, mask
from errors import UserError

RELEASED = ("124M", "355M", "774M", "1558M")
INDEX, DATA = "model.ckpt.index", "model.ckpt.data-00000-of-00001"
FILES = ("encoder.json", "vocab.bpe", "hparams.json", INDEX, DATA)
OPENAI = "https://openaipublic.blob.core.windows.net/gpt-2/models"

TIMEOUT = (10, 30)  # seconds: to connect, and between two pieces of an answer
RETRIES, BACKOFF, LONGEST_WAIT = 4, 0.4, 30  # attempts; seconds
BREAKS = 20  # how often a connection may break off before the user has to run the program again
PIECE = 1 << 14  # bytes


def missing_files(directory, names=FILES):
    """The names of a model's files that are missing or empty."""
    return [name for name in names if size_of(Path(directory, name)) == 0]


def check(directory, data_path=None):
    """Compare all numbers of a checkpoint with the checksums in its index. UserError names a tensor that differs."""
    prefix, path = os.path.join(directory, "model.ckpt"), data_path or os.path.join(directory, DATA)
    entries = read_index(prefix + ".index")
    size = sum(entry.size for entry in entries.values())
    with tqdm(total=size, desc=f"Checking {DATA}", unit="B", unit_scale=True, leave=False) as bar:
        for name, tensor in load(prefix, data_path).items():
            if mask(crc32c(tensor)) != entries[name].crc32c:
                raise UserError(f"{path} has a tensor {name!r} that does not match its crc32c; {ADVICE}")
            bar.update(tensor.nbytes)


def download(directory, urls, check_small, check_weights):
    """Download those files of a model that are missing.

    Parameters
    ----------
    directory : str, created if it does not exist
    urls : {name: URL}
        The last name is that of the weights. Their download is resumed.
    check_small : callable
        Without arguments; raises UserError if the other files are damaged or do not fit
        together. The weights are downloaded afterwards.
    check_weights : callable
        Takes the path of the weights, which are not at their place yet.

    Raises
    ------
    OSError
        If a file cannot be downloaded or written.
    UserError
        If what arrived is not what it should be. Then it is removed.
    """
    *small, weights = [Path(directory, name) for name in urls]
    os.makedirs(directory, exist_ok=True)
    try:
        with requests.Session() as session:
            for scheme in "http://", "https://":
                session.mount(scheme, HTTPAdapter(max_retries=Patient(
                    RETRIES, backoff_factor=BACKOFF, status_forcelist=(408, 429, 500, 502, 503, 504),
                    raise_on_status=False,
                )))  # fmt: skip
            fresh = [path for path in small if size_of(path) == 0]
            for path in fresh:
                fetch(session, urls[path.name], path, Path(f"{path}.{os.getpid()}.part"))
            removed_if_wrong(fresh, urls, check_small, all_fresh=fresh == small)
            if size_of(weights) == 0:
                part = Path(f"{weights}.part")
                fetch(session, urls[weights.name], weights, part, lambda: check_weights(part))
    except OSError:
        with contextlib.suppress(OSError):
            os.rmdir(directory)  # if nothing is in it
        raise


class Patient(Retry):
    """Waits as long as a server asks for, but not for hours, and not in silence."""

    def get_retry_after(self, response):
        seconds = super().get_retry_after(response)
        if seconds:
            seconds = min(seconds, LONGEST_WAIT)
            print(f"the server asks to try again in {seconds:.0f} s", file=sys.stderr)
        return seconds


def removed_if_wrong(paths, urls, check, all_fresh=True):
    """check(), but the paths, which were just downloaded, are removed if it fails."""
    damage = None
    try:
        check()
    except UserError as error:
        damage = str(error)
    if damage is not None:  # the error would keep a file mapped, and Windows does not remove such a file
        for path in paths:
            path.unlink(missing_ok=True)
        if not all_fresh:  # the wrong one may have been there before, so name it
            raise UserError(damage)
        url, damage = os.path.dirname(next(iter(urls.values()))), damage.removesuffix(f"; {ADVICE}")
        raise UserError(f"{url} gave a wrong file, now removed; try again ({damage})")


def fetch(session, url, path, part, check=lambda: None):
    """Download one file as part, and rename it to path when it is complete and was checked."""
    try:
        with tqdm(desc=path.name, unit="B", unit_scale=True, leave=False) as bar:
            for _ in range(BREAKS):
                if transfer(session, url, part, bar):
                    break
            else:
                raise OSError("the connection breaks off every time; run it again to go on")
    except (OSError, ValueError) as error:  # OSError: requests, or the disk; ValueError: an address, or a redirect
        offline = isinstance(error, requests.ConnectionError | requests.Timeout)
        why = f"no answer ({type(error).__name__})" if offline else getattr(error, "strerror", None) or error
        raise OSError(f"cannot download {url}: {why}. The bundled pair (draft, target) needs no download") from None
    try:
        removed_if_wrong([part], {path.name: url}, check)
        os.replace(part, path)
    except FileNotFoundError:  # another process, which downloaded the same, was faster
        if not size_of(path):
            raise


def transfer(session, url, part, bar):
    """Download what is missing from part. False: call again, because the connection broke off, or part did not fit."""
    have = size_of(part)
    headers = {"Accept-Encoding": "identity"}  # so that lengths and ranges are those of the file
    if have:
        headers["Range"] = f"bytes={have}-"
    with session.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
        start, total = announced(answer)
        if start not in (0, have):
            part.unlink()  # begin again
            return False
        bar.total, bar.n, end = total, start, start
        bar.refresh()
        with open(part, "r+b" if start else "wb") as f, contextlib.suppress(requests.RequestException):
            f.seek(start)
            for piece in answer.iter_content(PIECE) if start < total else ():
                end += f.write(piece)
                bar.update(len(piece))
        if end != total:
            return False
        wanted = digest_announced(answer, start)
        if wanted and digest(part, wanted[0]) != wanted[1]:
            part.unlink()
            raise OSError(f"it does not have the {wanted[0].upper()} that the server announced")
    return True


def announced(answer):
    """Where in the file the answer starts, and the file's length. (None, None) if it does not say so."""
    status, headers = answer.status_code, answer.headers
    if status in (206, 416):  # 206 with "bytes 5-8/9" continues after 5 of 9 bytes; 416 with "bytes */9" is after all 9
        span = re.fullmatch(r"bytes (?:(\d{1,18})-\d+|\*)/([1-9]\d{,17})", headers.get("Content-Range", ""))
        return (int(span[1] or span[2]), int(span[2])) if span else (None, None)
    if status != 200:
        raise OSError(f"the server answered {status} {answer.reason}")
    if not re.fullmatch(r"[1-9]\d{,17}", headers.get("Content-Length", "")):
        raise OSError("the server does not say how long the file is, or it is empty")
    return 0, int(headers["Content-Length"])


def digest_announced(answer, start):
    """("md5" or "sha256", in hex), from the headers of Azure (OpenAI) or of Hugging Face, which redirects. Or None."""
    for each in [*answer.history, answer]:
        if start == 0 and (md5 := each.headers.get("Content-MD5")):  # otherwise it may be that of the rest
            return "md5", base64.b64decode(md5).hex()
        if re.fullmatch('"?[0-9a-f]{64}"?', sha256 := each.headers.get("X-Linked-ETag", "")):
            return "sha256", sha256.strip('"')
    return None


def digest(path, kind):
    """The digest of a file, in hex."""
    found = hashlib.new(kind, usedforsecurity=False)
    with open(path, "rb") as f:
        while piece := f.read(1 << 20):
            found.update(piece)
    return found.hexdigest()


def size_of(path):
    return path.stat().st_size if path.is_file() else 0
