"""Download a file, over a connection that may break off.

What has arrived is kept beside its ETag, the server's name for this version of the file. The
next attempt asks for the rest, if the file is still that one, and otherwise starts over.
"""

import hashlib
import re
import sys

import requests
from requests.adapters import HTTPAdapter, Retry
from tqdm import tqdm

BREAKS = 20  # how often a connection may break off before anything new has arrived
LONGEST = 60  # seconds to wait, if a server asks for time
TIMEOUT = (10, 30)  # seconds: to connect, and between two pieces of an answer
BACKOFF = 0.5  # seconds before the second attempt
PIECE = 1 << 14  # bytes
BUSY = (408, 429, 500, 502, 503, 504)  # what a server answers that may have time later
UNCHANGED = "", "identity", "aws-chunked"  # what a server calls bytes that are as in the file
HEADERS = {
    "Accept-Encoding": "identity",  # so that lengths are those of the file
    "x-ms-version": "2019-12-12",  # without it, OpenAI's server takes no Range without an end
}


class Patient(Retry):
    """It waits as long as a busy server asks for, up to a minute."""

    def get_retry_after(self, response):
        asked = response.headers.get("Retry-After", "")[:9]
        return min(int(asked), LONGEST) if asked.isdecimal() else 0


def session():
    retry = Patient(total=4, backoff_factor=BACKOFF, status_forcelist=BUSY, raise_on_status=False)
    connection = requests.Session()
    connection.headers.update(HEADERS)
    for scheme in "http://", "https://":
        connection.mount(scheme, HTTPAdapter(max_retries=retry))
    return connection


def fetch(connection, url, path):
    """Download a file. It has the checksum that the server names, if it names one."""
    try:
        n_breaks = most = 0
        while n_breaks < BREAKS:
            if transfer(connection, url, path):
                return
            n_breaks = 0 if size_of(path) > most else n_breaks + 1
            most = max(most, size_of(path))
        raise OSError("the connection breaks off every time")
    except (requests.ConnectionError, requests.Timeout) as error:
        why = f"no answer ({type(error).__name__})"
    except (OSError, ValueError) as error:  # the disk, a redirect, or what is raised here
        why = getattr(error, "strerror", None) or error
    advice = "The bundled pair (draft, target) needs no download"
    if path.suffix == ".part" and kept(path)[1]:
        advice = "Run it again, and it goes on with what has arrived"
    why = re.sub(r"[^ -~]", "?", str(why)).rstrip(" .")  # a server may send escapes
    raise OSError(f"cannot download {url}: {why}. {advice}")


def transfer(connection, url, path):
    """Download a file, or its rest. Whether all of it is there; the next attempt may do better."""
    have, tag = kept(path)
    rest = {"Range": f"bytes={have}-", "If-Range": tag} if tag else {}
    with connection.get(url, headers=rest, stream=True, timeout=TIMEOUT) as answer:
        begin, end = place_of(answer, tag, have)
        if begin != have:
            why = "the server has another file by now, or no strong ETag, or odd ranges"
            print(f"{path.name} starts over: {why}", file=sys.stderr)
            forget(path)
        if begin not in (0, have):
            return False
        if begin == 0:
            path.with_suffix(".etag").write_text(answer.headers.get("ETag", ""), "utf-8")
        named = checksum(answer)
        if begin < end:
            receive(answer, path, begin, end)
    if size_of(path) != end:  # the connection broke off
        return False
    if not matches(path, named):
        forget(path)
        raise OSError("it does not match the checksum that the server names")
    return True


# ---- What is kept ----


def size_of(path):
    return path.stat().st_size if path.is_file() else 0


def kept(path):
    """How many bytes are there, and their ETag, or "" if it is weak, as others may share it."""
    have, beside = size_of(path), path.with_suffix(".etag")
    tag = beside.read_text("utf-8", "replace") if have and beside.exists() else ""
    return have, tag if re.fullmatch("(?!W/)[!-~]+", tag) else ""


def forget(path):
    path.unlink(missing_ok=True)
    path.with_suffix(".etag").unlink(missing_ok=True)


# ---- An answer ----


def place_of(answer, tag, have):
    """From which byte on an answer is of use, and where the file ends. None if it is no rest.

    tag is the ETag of what is kept, where the rest of that was asked for.
    """
    expected = (200, 206, 416) if tag else (200,)
    if answer.status_code not in expected:
        raise OSError(f"the server answered {answer.status_code} {answer.reason}")
    if answer.headers.get("Content-Encoding", "").lower() not in UNCHANGED:
        raise OSError("the server compresses it, though it was asked not to")
    is_same = tag and answer.headers.get("ETag") == tag
    if answer.status_code == 200:
        end = length_of(answer)
        if end < have:  # such as a page that asks for a password
            raise OSError(f"the server sends {end:,} bytes, where {have:,} have arrived before")
        return have if is_same else 0, end
    told = answer.headers.get("Content-Range", "")
    found = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/([1-9]\d*)", told)  # "*": nothing is left
    if not found or (found[1] and not is_same):
        return None, None
    return int(found[1] or found[2]), int(found[2])


def length_of(answer):
    """How many bytes it has."""
    told = answer.headers.get("Content-Length", "").partition(",")[0]  # it may be there twice
    if not re.fullmatch("0*[1-9][0-9]{0,15}", told):
        raise OSError("the server does not say how long the file is, or it is empty")
    return int(told)


def receive(answer, path, begin, end):
    """Write what arrives into the file, from byte `begin` on, where an answer may begin before."""
    name = path.name.removesuffix(".part")
    options = {"unit": "B", "unit_scale": True, "leave": False, "disable": None}
    bar = tqdm(desc=name, total=end, initial=begin, **options)
    known = begin if answer.status_code == 200 else 0  # bytes that are there
    try:
        with bar, open(path, "ab" if begin else "wb") as file:
            for piece in answer.iter_content(PIECE):
                bar.update(file.write(piece[known:]))
                known = max(known - len(piece), 0)
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
