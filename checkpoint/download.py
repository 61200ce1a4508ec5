"""Download OpenAI's checkpoints. An interrupted download resumes where it was, and what arrives is checked."""

import base64
import contextlib
import hashlib
import os
import re
import shutil
import sys

import requests
from requests.adapters import HTTPAdapter
from tqdm import tqdm
from urllib3.util import Retry

from checkpoint.bundle import CheckpointError, check_tensors, read_index
from errors import UserError

try:
    import fcntl
except ImportError:  # Windows, where nothing keeps two downloads into one directory apart
    fcntl = None

RELEASED = ("124M", "355M", "774M", "1558M")
INDEX, DATA = "model.ckpt.index", "model.ckpt.data-00000-of-00001"
FILES = ("checkpoint", "encoder.json", "hparams.json", INDEX, DATA, "model.ckpt.meta", "vocab.bpe")
MODELS_URL = "https://openaipublic.blob.core.windows.net/gpt-2/models"

TIMEOUT = (10, 30)  # seconds: to connect, and between two pieces of an answer
RETRIES, BACKOFF = 4, 0.4  # how often to try again; seconds to wait, doubled each time
PIECE = 1 << 16  # bytes


class DownloadError(OSError):
    """A file could not be downloaded."""


def missing_files(model_dir):
    """Which of the seven files are not there, or are empty."""
    paths = {name: os.path.join(model_dir, name) for name in FILES}
    return [name for name, path in paths.items() if not os.path.isfile(path) or os.path.getsize(path) == 0]


def check(model_dir, data_path=None):
    """Compare all numbers of a model with the checksums in its index. CheckpointError if one differs."""
    prefix = os.path.join(model_dir, "model.ckpt")
    size = sum(entry.size for entry in read_index(prefix + ".index").values())
    with tqdm(total=size, desc=f"Checking {DATA}", unit="B", unit_scale=True) as bar:
        check_tensors(prefix, data_path, bar.update)


def download_gpt2_files(model_size, model_dir, models_url=None):
    """Download those of a model's seven files that are not in model_dir yet.

    A file is written as `<name>.part`. It gets its name when it is complete: it has the length and the MD5 that the
    server announced, and the tensors match the checksums in the index. If a download of the data was interrupted, the
    next call resumes it. The other files are small, and are downloaded again.

    Parameters
    ----------
    model_size : str
        "124M", "355M", "774M" or "1558M".
    model_dir : str
        Where to put the files. The directory is made if need be.
    models_url : str, optional
        As in `utils.load_encoder_hparams_and_params`. Files are at <models_url>/<model_size>/<name>.

    Raises
    ------
    DownloadError
        If a file cannot be downloaded, or if the disk has no room for it.
    CheckpointError
        If what arrived is damaged.
    """
    if model_size not in RELEASED:
        raise UserError(f"unknown model size {model_size!r}; {', '.join(RELEASED)} can be downloaded")
    url = (models_url or os.environ.get("GPT2_MODELS_URL") or MODELS_URL).rstrip("/")
    os.makedirs(model_dir, exist_ok=True)
    with lock(model_dir), requests.Session() as session:
        again = (408, 429, 500, 502, 503, 504)  # (Retry waits as long as the server asks in Retry-After)
        retry = Retry(RETRIES, backoff_factor=BACKOFF, status_forcelist=again, raise_on_status=False)
        session.mount("http://", HTTPAdapter(max_retries=retry))
        session.mount("https://", HTTPAdapter(max_retries=retry))
        for name in missing_files(model_dir):  # (the index comes before the data)
            verdict = {INDEX: read_index, DATA: lambda part: check(model_dir, part)}.get(name)
            fetch(session, f"{url}/{model_size}/{name}", os.path.join(model_dir, name), verdict)


@contextlib.contextmanager
def lock(directory):
    """Let one process at a time work in a directory. The system frees the lock even when that process is killed."""
    if fcntl is None:
        yield
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems have no locks
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(f"waiting for another process that downloads into {directory}", file=sys.stderr)
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def fetch(session, url, path, verdict=None):
    """Download one file, and give it its name when it is complete.

    verdict(part) raises CheckpointError if this is not the right file. Only a file that has a verdict is resumed from
    the part of an earlier process, because nothing else would show that the file on the server has changed since.
    """
    part, known, idle = path + ".part", {}, 0  # known: the server's ETag and MD5
    if verdict is None:
        remove(part)
    best = size_of(part)
    with tqdm(desc=os.path.basename(path), unit="B", unit_scale=True) as bar:
        try:
            while not transfer(session, url, part, bar, known):
                idle = 0 if size_of(part) > best else idle + 1
                best = max(best, size_of(part))
                if idle > RETRIES:
                    raise OSError("the connection breaks off every time")
                if verdict is None and "etag" not in known:
                    remove(part)
        except (requests.ConnectionError, requests.Timeout) as error:
            raise cannot_fetch(url, f"no connection ({type(error).__name__})") from None
        except OSError as error:  # from requests: not a URL, or a redirect away from HTTP; from the system: disk full
            raise cannot_fetch(url, error.strerror or error) from None
    try:
        if "md5" in known and known["md5"] != md5_of(part):
            raise CheckpointError(f"{url} does not have the MD5 that the server announced; try again")
        if verdict is not None:
            verdict(part)
        elif starts_with(part, b"<"):
            raise CheckpointError(f"{url} is a page of HTML, not the file")
    except CheckpointError:
        remove(part)
        raise
    os.replace(part, path)


def transfer(session, url, part, bar, known):
    """Append to part what is missing from it. False if the connection broke off, and this has to be called again."""
    have = size_of(part)
    headers = {"Accept-Encoding": "identity"}  # not compressed, so that lengths and ranges are those of the file
    if have:
        headers["Range"] = f"bytes={have}-"
        if "etag" in known:
            headers["If-Range"] = known["etag"]  # send all of it if it is another file by now
    with session.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
        start, total = announced(answer, have, known)
        if start is None:
            remove(part)
            return False
        if start == total:
            return True
        free = shutil.disk_usage(os.path.dirname(part)).free
        if total - have > free:
            raise OSError(f"it has {total:,} bytes, and there is room for {free:,} in {os.path.dirname(part)}")
        bar.total, bar.n = total, start
        bar.refresh()
        with open(part, "ab" if start else "wb") as f:
            with contextlib.suppress(requests.RequestException):  # the connection broke off
                for piece in answer.iter_content(PIECE):
                    f.write(piece)
                    bar.update(len(piece))
            f.flush()
            os.fsync(f.fileno())  # on the disk before it gets its name
    return size_of(part) == total


def announced(answer, have, known):
    """Where in the file the answer starts, or None if it does not fit what we have, and how long the file is."""
    status, headers = answer.status_code, answer.headers
    if status in (206, 416):  # "bytes 5-8/9" continues after 5 of 9 bytes, and 416 says "bytes */9" when 9 were there
        span = re.fullmatch(r"bytes (?:(\d{1,18})-\d+|\*)/(\d{1,18})", headers.get("Content-Range", ""))
        same_file = known.get("etag") in (None, headers.get("ETag"))
        return (have, int(span[2])) if same_file and span and int(span[1] or span[2]) == have else (None, None)
    if status != 200 or "html" in headers.get("Content-Type", ""):
        raise OSError(f"the server answered {status} {answer.reason} ({headers.get('Content-Type')})")
    if not re.fullmatch(r"[1-9]\d{,17}", headers.get("Content-Length", "")):
        raise OSError("the server does not say how long the file is, or it is empty")
    known.clear()
    known.update({key: headers[name] for key, name in (("etag", "ETag"), ("md5", "Content-MD5")) if name in headers})
    return 0, int(headers["Content-Length"])


def cannot_fetch(url, why):
    return DownloadError(f"cannot download {url}: {why}. (The bundled pair, draft and target, needs no download.)")


def md5_of(path):
    """The MD5 of a file as HTTP writes it, in base64."""
    with open(path, "rb") as f:
        md5 = hashlib.md5(usedforsecurity=False)
        for piece in iter(lambda: f.read(PIECE), b""):
            md5.update(piece)
    return base64.b64encode(md5.digest()).decode()


def size_of(path):
    return os.path.getsize(path) if os.path.exists(path) else 0


def starts_with(path, prefix):
    with open(path, "rb") as f:
        return f.read(len(prefix)) == prefix


def remove(path):
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)
