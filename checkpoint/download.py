"""Download the files of a model. No file has its name before it could be read.

What there is of the weights is resumed where the server names a checksum, which tells in
the end whether all of it belongs together. Otherwise a download begins again.
"""

import hashlib
import re
import sys
import tempfile
from pathlib import Path

import requests
from requests.adapters import HTTPAdapter, Retry
from tqdm import tqdm

from checkpoint import UserError, huggingface
from checkpoint.read import open_model

BREAKS = 20  # how often a connection may break off before the user has to try again
TIMEOUT = (10, 30)  # seconds: to connect, and between two pieces of an answer
BACKOFF = 0.5  # seconds before the second attempt
PIECE = 1 << 14  # bytes
BUSY = (408, 429, 500, 502, 503, 504)  # what a server answers that may have time later


def missing(folder, names):
    """Those of the files that are not there, or empty."""
    return [name for name in names if size_of(folder / name) == 0]


def size_of(path):
    return path.stat().st_size if path.is_file() else 0


def download(folder, names, url, model):
    """Download those files of a model that are missing, one program at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = folder / "download.lock"
    try:
        lock.touch(exist_ok=False)
    except FileExistsError:
        what = "another program downloads this model, or was ended while it did"
        raise UserError(f"{what}; if none does, remove {lock}") from None
    try:
        unchecked = fetch_missing(folder, names, url, model)
    finally:
        lock.unlink()
    if unchecked and names is huggingface.FILES:  # OpenAI's files have checksums of their own
        what = f"damage may go unnoticed in {', '.join(unchecked)}"
        print(f"{url} names no checksum, so {what}", file=sys.stderr)


def fetch_missing(folder, names, url, model):
    """Returns the files for which the server named no checksum.

    The last name is that of the weights. The other files are small, and belong together: if
    one is missing, all are fetched.
    """
    *small, weights = names
    unchecked = []
    with session() as connection, tempfile.TemporaryDirectory(dir=folder) as fresh:
        if missing(folder, small):
            for name in small:
                if not fetch(connection, f"{url}/{name}", Path(fresh, name)):
                    unchecked.append(name)
            if problem := problem_of(fresh, model):
                raise UserError(f"{url} gave a wrong file; try again ({problem})")
            for name in small:
                Path(fresh, name).replace(folder / name)
        elif problem := problem_of(folder, model):
            advice = "remove that file to download it again"
            raise UserError(f"{folder} cannot be used: {problem}; {advice}")
        if missing(folder, [weights]):
            part = folder / f"{weights}.part"
            if not fetch(connection, f"{url}/{weights}", part):
                unchecked.append(weights)
            if problem := problem_of(folder, model, part):
                part.unlink()
                raise UserError(f"{url} gave wrong weights, now removed; try again ({problem})")
            part.replace(folder / weights)
    return unchecked


def problem_of(folder, model, weights=None):
    """What is wrong with the small files, or with the weights, or None.

    A text, because an error keeps the file mapped, and Windows does not remove such a file.
    """
    try:
        files = open_model(folder, model)
        if weights is None:
            files.check_small()
        else:
            files.tensors(weights)
    except ValueError as error:
        return str(error).split(" cannot be used: ", 1)[-1]
    return None


# ---- One file ----


def session():
    retry = Retry(4, other=0, backoff_factor=BACKOFF, status_forcelist=BUSY, raise_on_status=False)
    retry.respect_retry_after_header = False
    connection = requests.Session()
    for scheme in "http://", "https://":
        connection.mount(scheme, HTTPAdapter(max_retries=retry))
    return connection


def fetch(connection, url, path):
    """Download a file -> the checksum that the server names, which is right, or ""."""
    try:
        for _ in range(BREAKS):
            named = transfer(connection, url, path)
            if named is not None:
                check_digest(path, named)
                return named
        raise OSError("the connection breaks off every time; run it again to go on")
    except (requests.ConnectionError, requests.Timeout) as error:
        why = f"no answer ({type(error).__name__})"
    except (OSError, ValueError) as error:  # the disk, a redirect, or what is raised here
        why = getattr(error, "strerror", None) or error
    advice = "The bundled pair (draft, target) needs no download"
    raise OSError(f"cannot download {url}: {why}. {advice}")


def transfer(connection, url, path):
    """Download a file, or its rest -> the checksum that the server names, or "".

    None: try again, because the connection broke off, or the rest could not be had.
    """
    have = size_of(path)
    headers = {"Accept-Encoding": "identity"}  # so that lengths are those of the file
    if have:
        headers["Range"] = f"bytes={have}-"
    with connection.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
        named = checksum(answer)
        if have and answer.status_code in (206, 416):
            span = answer.headers.get("Content-Range", "")
            if not named or not span.startswith(f"bytes {have}-"):
                path.unlink()
                return None
        elif answer.status_code == 200:
            have = 0
        else:
            raise OSError(f"the server answered {answer.status_code} {answer.reason}")
        total = have + length_of(answer)
        receive(answer, path, have, total)
    if size_of(path) == total:
        return named
    if not named:
        path.unlink()
    return None


def receive(answer, path, have, total):
    name = path.name.removesuffix(".part")
    options = {"unit": "B", "unit_scale": True, "leave": False, "disable": None}
    bar = tqdm(desc=name, total=total, initial=have, **options)
    try:
        with bar, open(path, "ab" if have else "wb") as file:
            for piece in answer.iter_content(PIECE):
                bar.update(file.write(piece))
    except requests.RequestException:  # the connection broke off
        pass


def length_of(answer):
    encoding = answer.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        raise OSError(f"the server sends {encoding} where the file itself was asked for")
    length = int(answer.headers.get("Content-Length", 0))
    if length == 0:
        raise OSError("the server does not say how long the file is, or it is empty")
    return length


def checksum(answer):
    """What the ETag may be: 64 digits of SHA-256, or 40 of SHA-1 or Git's hash; "" otherwise."""
    for each in (*answer.history, answer):
        tag = each.headers.get("X-Linked-Etag") or each.headers.get("ETag", "")
        if found := re.fullmatch(r'(?:W/)?"?([0-9a-f]{64}|[0-9a-f]{40})"?', tag):
            return found[1]
    return ""


def check_digest(path, named):
    """Hugging Face names Git's hash of small files, and a mirror may name their SHA-1."""
    possible = {
        64: [hashlib.sha256()],
        40: [hashlib.sha1(b"blob %d\0" % size_of(path)), hashlib.sha1()],
        0: [],
    }
    digests = [digest(path, kind) for kind in possible[len(named)]]
    if digests and named not in digests:
        path.unlink()
        what = "what arrived does not match the checksum that the server names"
        raise OSError(f"{what}, and is removed; try again")


def digest(path, found):
    with open(path, "rb") as f:
        while piece := f.read(1 << 20):
            found.update(piece)
    return found.hexdigest()
