"""Download a file, over a connection that may break off.

What there is of it is resumed where the server names a checksum, which tells in
the end whether all of it belongs together. Otherwise a download begins again.
"""

import hashlib
import re
import sys

import requests
from requests.adapters import HTTPAdapter, Retry
from tqdm import tqdm

BREAKS = 20  # how often a connection may break off before the user has to try again
TIMEOUT = (10, 30)  # seconds: to connect, and between two pieces of an answer
BACKOFF = 0.5  # seconds before the second attempt
PIECE = 1 << 14  # bytes
BUSY = (408, 429, 500, 502, 503, 504)  # what a server answers that may have time later


def session():
    retry = Retry(
        total=4,
        backoff_factor=BACKOFF,
        status_forcelist=BUSY,
        raise_on_status=False,
        respect_retry_after_header=False,
    )
    connection = requests.Session()
    for scheme in "http://", "https://":
        connection.mount(scheme, HTTPAdapter(max_retries=retry))
    return connection


def fetch(connection, url, path):
    """Download a file. It has the checksum that the server names, if it names one."""
    try:
        for _ in range(BREAKS):
            if transfer(connection, url, path):
                return
        raise OSError("the connection breaks off every time")
    except (requests.ConnectionError, requests.Timeout) as error:
        why = f"no answer ({type(error).__name__})"
    except (OSError, ValueError) as error:  # the disk, a redirect, or what is raised here
        why = getattr(error, "strerror", None) or error
    advice = "The bundled pair (draft, target) needs no download"
    raise OSError(f"cannot download {url}: {why}. {advice}")


def transfer(connection, url, path):
    """Download a file, or its rest. Whether all of it is there; the next attempt may do better."""
    answer, begin = rest_or_whole(connection, url, path)
    with answer:
        named = checksum(answer)
        end = begin + length_of(answer)
        receive(answer, path, begin, end)
    if size_of(path) != end:  # the connection broke off
        if not named:  # nobody could tell in the end whether the parts belong together
            path.unlink()
        return False
    if matches(path, named):
        return True
    path.unlink()
    if begin == 0:
        raise OSError("it does not match the checksum that the server names")
    return False  # it was the beginning of another file


def rest_or_whole(connection, url, path):
    """An answer, and at which byte of the file it begins: after what is there, or at 0."""
    have = size_of(path)
    if have:
        answer = ask(connection, url, Range=f"bytes={have}-")
        if answer.status_code == 206 and checksum(answer):  # which tells whether it is the rest
            return answer, have
        if answer.status_code not in (206, 416):
            return whole(answer), 0
        answer.close()
    return whole(ask(connection, url)), 0


def size_of(path):
    return path.stat().st_size if path.is_file() else 0


def ask(connection, url, **headers):
    headers["Accept-Encoding"] = "identity"  # so that lengths are those of the file
    return connection.get(url, headers=headers, stream=True, timeout=TIMEOUT)


def whole(answer):
    if answer.status_code != 200:
        raise OSError(f"the server answered {answer.status_code} {answer.reason}")
    return answer


def length_of(answer):
    """How many bytes it has."""
    told = answer.headers.get("Content-Length", "")
    if not re.fullmatch("0*[1-9][0-9]{0,15}", told):
        raise OSError("the server does not say how long the file is, or it is empty")
    return int(told)


def receive(answer, path, begin, end):
    """Write what arrives into the file, from byte `begin` on."""
    name = path.name.removesuffix(".part")
    options = {"unit": "B", "unit_scale": True, "leave": False, "disable": None}
    bar = tqdm(desc=name, total=end, initial=begin, **options)
    try:
        with bar, open(path, "ab" if begin else "wb") as file:
            for piece in answer.iter_content(PIECE):
                bar.update(file.write(piece))
    except requests.RequestException:  # the connection broke off
        pass


def checksum(answer):
    """The ETag, if it is a SHA-256, or ""."""
    for each in (*answer.history, answer):
        tag = each.headers.get("X-Linked-Etag") or each.headers.get("ETag", "")
        if found := re.fullmatch(r'(?:W/)?"?([0-9a-f]{64})"?', tag):
            return found[1]
    return ""


def matches(path, named):
    if not named:
        if path.name.startswith("model.safetensors"):  # OpenAI's have checksums of their own
            print("the server names no checksum, so damage may go unnoticed", file=sys.stderr)
        return True
    return digest(path) == named


def digest(path):
    found = hashlib.sha256()
    with open(path, "rb") as f:
        while piece := f.read(1 << 20):
            found.update(piece)
    return found.hexdigest()
