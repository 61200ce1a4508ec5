"""Download a file, over a connection that may break off.

A part holds what has arrived. Its name contains the ETag, the server's name for this
version of the file, and the next attempt asks for the rest of that version. If the server
has another one by now, that becomes a part of its own, beside the first. The caller of
`fetch` removes all parts once a complete one has passed its checks.
"""

import hashlib
import re
import sys
from urllib.parse import quote, unquote

import requests
from requests.adapters import HTTPAdapter, Retry
from tqdm import tqdm

BREAKS = 20  # how often in a row a connection may break off before anything new has arrived
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
    """Attempts that wait as long as a busy server asks for, up to a minute."""

    def get_retry_after(self, response):
        asked = response.headers.get("Retry-After", "")
        return min(int(asked), LONGEST) if asked.isdecimal() else 0


def session():
    """A connection that tries again where a server is busy."""
    retry = Patient(total=4, backoff_factor=BACKOFF, status_forcelist=BUSY, raise_on_status=False)
    connection = requests.Session()
    connection.headers.update(HEADERS)
    for scheme in "http://", "https://":
        connection.mount(scheme, HTTPAdapter(max_retries=retry))
    return connection


def fetch(connection, url, path):
    """Download a file -> its complete part. It has the checksum that the server names, if any."""
    try:
        tag = tag_of(longest(path), path)
        n_breaks = 0
        while n_breaks < BREAKS:
            tag, begin, end = transfer(connection, url, path, tag)
            part = part_of(path, tag)
            if size_of(part) == end:
                return part
            n_breaks = 0 if 0 < begin < size_of(part) else n_breaks + 1
        raise OSError("the connection breaks off every time")
    except (requests.ConnectionError, requests.Timeout) as error:
        why = f"no answer ({type(error).__name__})"
    except (OSError, ValueError) as error:  # the disk, a redirect, or what is raised here
        why = getattr(error, "strerror", None) or error
    advice = "The bundled pair (draft, target) needs no download"
    if longest(path).exists():
        advice = "Run it again, and it goes on"
    why = re.sub(r"[\0-\x1f\x7f-\x9f]", "?", str(why)).rstrip(" .")  # a server may send escapes
    raise OSError(f"cannot download {url}: {why}. {advice}")


def transfer(connection, url, path, tag):
    """Ask for the rest of the version with this ETag, or for a whole file, and keep what comes.

    Returns the ETag of that, where it begins, and where the file ends.
    """
    have = size_of(part_of(path, tag)) if tag else 0
    range_headers = {"Range": f"bytes={have}-", "If-Range": tag} if have else {}
    with connection.get(url, headers=range_headers, stream=True, timeout=TIMEOUT) as answer:
        check_status(answer, range_headers)
        if answer.status_code == 200:
            tag = strong_tag(answer)
            end = length_of(answer, longest(path))
        else:
            end = end_of_rest(answer, tag, have)
        if end is None:
            return "", 0, None  # so that the next attempt asks for the whole file
        part = part_of(path, tag)
        begin = size_of(part) if tag else 0
        named = checksum(answer)
        if begin < end:
            receive(answer, part, begin, end)
    is_complete = size_of(part) == end
    if is_complete and not matches(part, named):
        part.unlink()
        raise OSError("it does not match the checksum that the server names")
    if not is_complete and not tag:  # nothing could go on from it
        part.unlink()
    return tag, begin, end


# ---- Parts ----


def size_of(path):
    """The size of a file in bytes, or 0 if there is no such file."""
    return path.stat().st_size if path.is_file() else 0


def part_of(path, tag):
    """Where the version of a file with this ETag arrives."""
    return path.with_name(f"{path.name}.{quote(tag, safe='')}.part")


def tag_of(part, path):
    """The ETag in the name of a part, the inverse of `part_of`."""
    return unquote(part.name[len(f"{path.name}.") : -len(".part")])


def parts_of(path):
    """All parts of a file that are there."""
    return path.parent.glob(f"{path.name}.*.part")


def longest(path):
    """The part of which most has arrived, or where one without an ETag would be."""
    return max(parts_of(path), key=size_of, default=part_of(path, ""))


# ---- An answer ----


def check_status(answer, range_headers):
    """OSError unless an answer has bytes of the file, or says that there is no such rest."""
    expected = (200, 206, 416) if range_headers else (200,)
    if answer.status_code not in expected:
        raise OSError(f"the server answered {answer.status_code} {answer.reason}")
    if answer.headers.get("Content-Encoding", "").lower() not in UNCHANGED:
        raise OSError("the server compresses it, though it was asked not to")


def strong_tag(answer):
    """The ETag, or "" if it is too long for a file's name, or weak: other versions may share it."""
    tag = answer.headers.get("ETag", "")
    return tag if re.fullmatch("(?!W/)[!-~]{1,70}", tag) else ""


def end_of_rest(answer, tag, have):
    """Where the file ends, if an answer is its rest from byte `have` on, or None."""
    place = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", answer.headers.get("Content-Range", ""))
    if place and int(place[1]) == have and answer.headers.get("ETag") == tag:
        return int(place[2])
    return None


def length_of(answer, part):
    """How many bytes the file has. OSError if a part has more: this may be a login page."""
    length = answer.headers.get("Content-Length", "").partition(",")[0]  # it may be there twice
    if not re.fullmatch("0*[1-9][0-9]{0,15}", length):
        raise OSError("the server does not say how long the file is, or it is empty")
    end, have = int(length), size_of(part)
    if end < have:
        problem = f"the server sends {end:,} bytes, where {have:,} have arrived before"
        raise OSError(f"{problem}; if its file did get shorter, remove {part}")
    return end


def receive(answer, part, begin, end):
    """Write the bytes from `begin` on into a part. If a whole file comes, skip those before."""
    options = {"unit": "B", "unit_scale": True, "leave": False, "disable": None}
    bar = tqdm(desc=part.name.partition(".%")[0], total=end, initial=begin, **options)
    n_to_skip = begin if answer.status_code == 200 else 0
    try:
        with bar, open(part, "ab" if begin else "wb") as file:
            for piece in answer.iter_content(PIECE):
                bar.update(file.write(piece[n_to_skip:]))
                n_to_skip = max(n_to_skip - len(piece), 0)
    except requests.RequestException:  # the connection broke off
        pass


def checksum(answer):
    """The SHA-256 of the file, if the ETag is one, or ""."""
    for response in (*answer.history, answer):
        tag = response.headers.get("X-Linked-Etag") or response.headers.get("ETag", "")
        if match := re.fullmatch(r'(?:W/)?"?([0-9a-f]{64})"?', tag):
            return match[1]
    return ""


def matches(part, named):
    """Whether a part has the checksum that the server named, if it named one."""
    if not named:
        if part.name.startswith("model.safetensors"):  # OpenAI's have checksums of their own
            print("the server names no checksum, so damage may go unnoticed", file=sys.stderr)
        return True
    return digest(part) == named


def digest(path):
    """The SHA-256 of a file, in hexadecimal digits."""
    sha256 = hashlib.sha256()
    with open(path, "rb") as f:
        while piece := f.read(1 << 20):
            sha256.update(piece)
    return sha256.hexdigest()
