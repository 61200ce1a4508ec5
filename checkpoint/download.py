"""Download OpenAI's checkpoints. An interrupted download of the weights is resumed, and all files are checked."""

import base64
import contextlib
import hashlib
import os
import re
import shutil
import sys
from pathlib import Path

import requests
from requests.adapters import HTTPAdapter
from tqdm import tqdm
from urllib3.util import Retry

from checkpoint.bundle import ADVICE, CheckpointError, load, read_index
from checkpoint.crc32c import crc32c, mask

try:
    import fcntl
except ImportError:  # on Windows, two downloads into one directory may disturb each other
    fcntl = None

RELEASED = ("124M", "355M", "774M", "1558M")
INDEX, DATA = "model.ckpt.index", "model.ckpt.data-00000-of-00001"
FILES = ("checkpoint", "encoder.json", "hparams.json", INDEX, DATA, "model.ckpt.meta", "vocab.bpe")
MODELS_URL = "https://openaipublic.blob.core.windows.net/gpt-2/models"

TIMEOUT = (10, 30)  # seconds: to connect, and between two pieces of an answer
RETRIES, BACKOFF = 4, 0.4  # how often to try again; urllib3 waits 0, 0.8, 1.6 and 3.2 seconds before the attempts
PIECE = 1 << 14  # bytes received at a time; a connection that breaks off loses less than this


class DownloadError(OSError):
    """A file could not be downloaded."""


def missing_files(model_dir):
    """The names of a model's files that are missing or empty."""
    return [name for name in FILES if size_of(Path(model_dir, name)) == 0]


def check(model_dir, data_path=None):
    """Compare all numbers of a checkpoint with the checksums in its index. CheckpointError names a tensor that differs.

    The index is in model_dir. data_path is the data file, if it is not in model_dir under its usual name.
    """
    prefix, path = os.path.join(model_dir, "model.ckpt"), data_path or os.path.join(model_dir, DATA)
    entries = read_index(prefix + ".index")
    size = sum(entry.size for entry in entries.values())
    with tqdm(total=size, desc=f"Checking {DATA}", unit="B", unit_scale=True) as bar:
        for name, tensor in load(prefix, data_path).items():
            if mask(crc32c(tensor)) != entries[name].crc32c:
                raise CheckpointError(f"{path} has a tensor {name!r} that does not match its crc32c; {ADVICE}")
            bar.update(tensor.nbytes)


def download_gpt2_files(model_size, model_dir, models_url=None):
    """Download those of a model's seven files that are not in model_dir yet.

    A file is written as `<name>.part`, and renamed after it was checked. First its length is checked. Its MD5 is
    checked if the server announces one and the file came in one piece. The index and the data also have checksums of
    their own. If the download of the data is interrupted, the next call resumes it. The other files are small, and are
    downloaded again.

    Parameters
    ----------
    model_size : str
        "124M", "355M", "774M" or "1558M".
    model_dir : str
        Where to put the files. The directory is created if it does not exist.
    models_url : str, optional
        As in `utils.load_encoder_hparams_and_params`. Files are at <models_url>/<model_size>/<name>.

    Raises
    ------
    DownloadError
        If a file cannot be downloaded, or if the disk has no room for it.
    OSError
        If model_dir cannot be written.
    CheckpointError
        If a file arrived damaged.
    """
    url = (models_url or os.environ.get("GPT2_MODELS_URL") or MODELS_URL).rstrip("/")
    os.makedirs(model_dir, exist_ok=True)
    with lock(model_dir), requests.Session() as session:
        again = (408, 429, 500, 502, 503, 504)  # statuses to try again after; Retry obeys the header Retry-After
        retry = Retry(RETRIES, backoff_factor=BACKOFF, status_forcelist=again, raise_on_status=False)
        session.mount("http://", HTTPAdapter(max_retries=retry))
        session.mount("https://", HTTPAdapter(max_retries=retry))
        for name in missing_files(model_dir):  # INDEX comes before DATA, which cannot be checked without it
            fetch(session, f"{url}/{model_size}/{name}", Path(model_dir, name))


@contextlib.contextmanager
def lock(directory):
    """Wait until no other process holds this directory's lock. If a process is killed, the system frees its lock."""
    if fcntl is None:
        yield
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems do not support locks
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(f"waiting for another process that downloads into {directory}", file=sys.stderr)
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def fetch(session, url, path):
    """Download one file as <path>.part, and rename it to path when it is complete and was checked."""
    if path.name == DATA:
        read_index(path.with_name(INDEX))  # if it is damaged, say so before gigabytes are downloaded, not after
    part, damage = Path(f"{path}.part"), None
    best = idle = 0  # the largest size so far, and how many attempts in a row did not exceed it
    try:
        with tqdm(desc=path.name, unit="B", unit_scale=True) as bar:
            while not transfer(session, url, part, bar):
                idle = 0 if size_of(part) > best else idle + 1
                best = max(best, size_of(part))
                if idle > RETRIES:
                    raise OSError("the connection breaks off every time")
        if path.name == DATA:
            check(path.parent, part)
        elif path.name == INDEX:
            read_index(part)
        elif part.read_bytes().startswith(b"<"):
            raise CheckpointError("it is a page of HTML")
    except CheckpointError as error:
        # Only the text is kept. The error would keep the file mapped, and Windows does not remove such a file.
        damage = str(error).removesuffix(f"; {ADVICE}")
    except (OSError, ValueError) as error:  # OSError: requests, or the disk; ValueError: an address, or a redirect
        offline = isinstance(error, requests.ConnectionError | requests.Timeout)
        why = f"no answer ({type(error).__name__})" if offline else getattr(error, "strerror", None) or error
        raise DownloadError(
            f"cannot download {url}: {why}. The bundled pair (draft, target) needs no download"
        ) from None
    if damage is not None:
        part.unlink(missing_ok=True)
        raise CheckpointError(f"{url} gave a wrong file, now removed; try again, or check --models_url ({damage})")
    os.replace(part, path)


def transfer(session, url, part, bar):
    """Download what is missing from part.

    False: call again, because the connection broke off, or because part was not the beginning of the server's file.
    """
    # Only DATA is resumed. It is large, and its checksums would show that the server's file has changed since.
    have = size_of(part) if part.stem == DATA else 0
    headers = {"Accept-Encoding": "identity"}  # without compression, so that lengths and ranges are those of the file
    if have:
        headers["Range"] = f"bytes={have}-"
    with session.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
        start, total = announced(answer)
        if start not in (0, have):  # begin again
            part.unlink(missing_ok=True)
            return False
        if start == total:
            return True
        free = shutil.disk_usage(part.parent).free
        if total - have > free:
            raise OSError(f"it has {total:,} bytes, and there is room for {free:,} in {part.parent}")
        bar.total, bar.n = total, start
        bar.refresh()
        md5 = hashlib.md5(usedforsecurity=False)
        with open(part, "ab" if start else "wb") as f:
            with contextlib.suppress(requests.RequestException):  # the connection broke off
                for piece in answer.iter_content(PIECE):
                    f.write(piece)
                    md5.update(piece)
                    bar.update(len(piece))
            f.flush()
            os.fsync(f.fileno())  # so that the file is on the disk before it is renamed
    if size_of(part) != total:
        return False
    found = base64.b64encode(md5.digest()).decode()
    if start == 0 and answer.headers.get("Content-MD5", found) != found:
        raise CheckpointError("it does not have the MD5 that the server announced")
    return True


def announced(answer):
    """Where in the file the answer starts, and the file's length. (None, None) if it does not say so."""
    status, headers = answer.status_code, answer.headers
    if status in (206, 416):  # 206 with "bytes 5-8/9" continues after 5 of 9 bytes; 416 with "bytes */9" is after all 9
        span = re.fullmatch(r"bytes (?:(\d{1,18})-\d+|\*)/([1-9]\d{,17})", headers.get("Content-Range", ""))
        return (int(span[1] or span[2]), int(span[2])) if span else (None, None)
    if status != 200 or "html" in headers.get("Content-Type", ""):
        raise OSError(f"the server answered {status} {answer.reason} (content type: {headers.get('Content-Type')})")
    if not re.fullmatch(r"[1-9]\d{,17}", headers.get("Content-Length", "")):
        raise OSError("the server does not say how long the file is, or it is empty")
    return 0, int(headers["Content-Length"])


def size_of(path):
    return path.stat().st_size if path.is_file() else 0
