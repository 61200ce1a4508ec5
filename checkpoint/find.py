"""Where the files of a model are. Those that are missing are downloaded, and what was interrupted is resumed."""

import contextlib
import hashlib
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import requests
from requests.adapters import HTTPAdapter, Retry
from tqdm import tqdm

from checkpoint import huggingface, openai
from checkpoint.read import read, read_hparams, read_tokenizer
from errors import UserError

MODELS_DIR = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "models")
OPENAI = "https://openaipublic.blob.core.windows.net/gpt-2/models"
BUNDLED = ("draft", "target")
RELEASED = {  # by OpenAI, with their hyperparameters
    name: dict(n_vocab=50257, n_ctx=1024, n_embd=n_embd, n_head=n_embd // 64, n_layer=n_layer)
    for name, n_layer, n_embd in (("124M", 12, 768), ("355M", 24, 1024), ("774M", 36, 1280), ("1558M", 48, 1600))
}
MODELS = {"distilgpt2": "distilbert/distilgpt2"}  # {name: where it is at Hugging Face}
MODELS |= {f"gpt2{size}": f"openai-community/gpt2{size}" for size in ("", "-medium", "-large", "-xl")}
HPARAMS = RELEASED | dict(zip(MODELS, [RELEASED["124M"] | {"n_layer": 6}, *RELEASED.values()]))
SIZES = f"one of {', '.join([*BUNDLED, *RELEASED, *MODELS])}, or a folder"
BREAKS = 20  # how often a connection may break off before the user has to run the program again
TIMEOUT, BACKOFF = (10, 30), 0.5  # seconds: to connect, and between two pieces of an answer; before the second attempt
PIECE = 1 << 14  # bytes


def find(size, models_dir=MODELS_DIR, check_tokenizer=read_tokenizer):
    """The folder of a model, after the download of its files if they are missing.

    Parameters
    ----------
    size : str
        "draft" or "target" of the bundled pair; "124M", ... from OpenAI; "gpt2", ... from
        Hugging Face; or a folder of your own with the files of either.
    models_dir : str
        Downloads have a folder for each size in here.
    check_tokenizer : callable
        check_tokenizer(folder) is a ValueError if the tokenizer that has arrived is damaged.

    Raises
    ------
    UserError
        If there is no such model, or what arrives is not one.
    OSError
        If a file cannot be downloaded or written.
    """
    folder = Path(MODELS_DIR if size in BUNDLED else models_dir, size)
    if size in (*BUNDLED, *RELEASED, *MODELS) and folder.resolve() != Path(size).resolve():
        if any(Path(size, name).exists() for name in ("config.json", "hparams.json")):
            raise UserError(f"{size} is a model's name, and a folder here: give ./{size}, or run it somewhere else")
    if size in BUNDLED:
        return checked_sums(folder)
    if size in RELEASED:
        server = (os.environ.get("GPT2_MODELS_URL") or OPENAI).rstrip("/")
        names, url = openai.FILES, f"{server}/{size}"
    elif size in MODELS:
        if cached := newest_in_cache(size):
            return cached
        endpoint = (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
        names, url = huggingface.FILES, f"{endpoint}/{MODELS[size]}/resolve/main"
    elif size and os.path.isdir(size):
        return Path(size)
    else:
        raise no_such_model(size)
    if missing(folder, names) and not is_complete(folder):
        download(folder, names, url, check_tokenizer)
    return folder


def no_such_model(name):
    return UserError(f"there is no model or folder {name!r}: give {SIZES}")


def missing(folder, names):
    """Those of the files that are not there, or empty."""
    return [name for name in names if size_of(folder / name) == 0]


def size_of(path):
    return path.stat().st_size if path.is_file() else 0


def another_model(size, hparams):
    """What is wrong with these hyperparameters of a model of this name, or None. No shape depends on n_head."""
    wrong = [f"{name} = {hparams[name]}" for name, n in HPARAMS.get(size, {}).items() if hparams[name] != n]
    return f"it is not the released {size}: found {', '.join(wrong)}" if wrong else None


def checked_sums(folder):
    """A bundled model, if its files match SHA256SUMS. It takes 20 ms for 25 MB."""
    sums = (folder.parent / "SHA256SUMS").read_text(encoding="utf-8", errors="replace").splitlines()
    for path in (folder / name for name in openai.FILES):
        if not path.is_file() or f"{digest(path, hashlib.sha256())}  {folder.name}/{path.name}" not in sums:
            raise UserError(f"{path} is missing or damaged, or SHA256SUMS is; restore them from the project")
    return folder


def newest_in_cache(name):
    """The newest complete snapshot of one of MODELS in the cache that transformers uses, or None."""
    cache = place("XDG_CACHE_HOME") or Path.home() / ".cache"
    hub = place("HF_HUB_CACHE") or place("HUGGINGFACE_HUB_CACHE") or (place("HF_HOME") or cache / "huggingface") / "hub"
    repositories = {name, MODELS[name].replace("/", "--")}
    found = [path for each in repositories for path in hub.glob(f"models--{each}/snapshots/*") if is_complete(path)]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def place(variable):
    """The folder that is named by a variable of the environment, where ~ and $NAME count. None if it is not set."""
    found = os.environ.get(variable)
    return Path(os.path.expandvars(os.path.expanduser(found))) if found else None


def is_complete(folder):
    """Whether all files of Hugging Face's format are there. tokenizer.json may replace vocab.json and merges.txt."""
    absent = {*missing(folder, huggingface.FILES)}
    return not absent or (absent <= {*huggingface.FILES[1:3]} and not missing(folder, ["tokenizer.json"]))


# ---- Downloads ----


def download(folder, names, url, check_tokenizer=read_tokenizer):
    """Download those files of a model that are missing. No file has its name before it could be read.

    The last name is that of the weights. What there is of them is kept, and resumed. The
    other files are small, and belong together: if one is missing, all are fetched.
    """
    *small, weights = names
    new = [path for path in folder.parents if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    unchecked = []
    try:
        with requests.Session() as session, tempfile.TemporaryDirectory() as fresh:
            retry = Retry(
                4, other=0, backoff_factor=BACKOFF, status_forcelist=(408, 429, 500, 502, 503, 504),
                respect_retry_after_header=False, raise_on_status=False,
            )  # fmt: skip
            for scheme in "http://", "https://":
                session.mount(scheme, HTTPAdapter(max_retries=retry))
            if missing(folder, small):
                unchecked += [name for name in small if not fetch(session, f"{url}/{name}", Path(fresh, name))]
                if problem := problem_of(fresh, folder.name, check_tokenizer):
                    raise UserError(f"{url} gave a wrong file; try again ({problem})")
                for name in small:
                    part = folder / f"{name}.{os.getpid()}.part"
                    shutil.copyfile(Path(fresh, name), part)
                    os.replace(part, folder / name)
            elif problem := problem_of(folder, folder.name, check_tokenizer):
                raise UserError(f"{problem}; remove that file to download it again")
            if missing(folder, [weights]):
                part = folder / f"{weights}.part"
                unchecked += [] if fetch(session, f"{url}/{weights}", part) else [weights]
                if problem := problem_of(folder, folder.name, weights=part):
                    part.unlink(missing_ok=True)
                    raise UserError(f"{url} gave wrong weights, now removed; try again ({problem})")
                os.replace(part, folder / weights)
    except FileNotFoundError:
        if missing(folder, names):  # otherwise another process, which downloaded the same, was faster
            raise
    finally:
        for path in (folder, *new):
            with contextlib.suppress(OSError):
                path.rmdir()  # if nothing is in it
    if unchecked and names is huggingface.FILES:  # OpenAI's files have checksums of their own
        print(f"{url} names no checksum, so damage may go unnoticed in {', '.join(unchecked)}", file=sys.stderr)


def problem_of(folder, size, check_tokenizer=None, weights=None):
    """What is wrong with the small files of a model, or with its weights. None if nothing is.

    It is a text, because an error would keep the weights mapped, and Windows does not
    remove such a file.
    """
    try:
        if weights:
            read(folder, weights)
        else:
            check_tokenizer(folder)
            if (Path(folder) / openai.INDEX).exists():
                openai.read_index(Path(folder) / openai.INDEX)
            return another_model(size, read_hparams(folder))
    except ValueError as error:
        return str(error)
    return None


def fetch(session, url, path):
    """Download a file, or what is missing of it -> whether the server named a checksum for it, which is right.

    OSError says why it cannot be had.
    """
    seen = {}
    try:
        with tqdm(desc=path.name.removesuffix(".part"), unit="B", unit_scale=True, leave=False, disable=None) as bar:
            if not any(transfer(session, url, path, bar, seen) for _ in range(BREAKS)):
                raise OSError("the connection breaks off every time; run it again to go on")
        if seen["checksum"] and not matches(path, seen["checksum"]):
            path.unlink()
            raise OSError("what arrived does not match the checksum that the server names, and is removed; try again")
    except FileNotFoundError:  # another process has finished and renamed it
        raise
    except (OSError, ValueError) as error:  # OSError: requests, or the disk; ValueError: an address, or a redirect
        offline = isinstance(error, requests.ConnectionError | requests.Timeout)
        why = f"no answer ({type(error).__name__})" if offline else getattr(error, "strerror", None) or error
        if reason := re.search(r"certificate verify failed[^(']*|Tunnel connection failed[^')]*", str(error)):
            advice = "; REQUESTS_CA_BUNDLE may name the file of the authority that signed it"
            why = reason[0].strip() + advice * isinstance(error, requests.exceptions.SSLError)
        raise OSError(f"cannot download {url}: {why}. The bundled pair (draft, target) needs no download") from None
    return bool(seen["checksum"])


def transfer(session, url, path, bar, seen):
    """Download what is missing. False: call again, because the connection broke off, or the rest did not fit.

    seen keeps the checksum and the ETag that the server named.
    """
    have = size_of(path)
    headers = {"Accept-Encoding": "identity"}  # so that lengths and ranges are those of the file
    if have:
        headers |= {"Range": f"bytes={have}-"} | ({"If-Range": seen["etag"]} if seen.get("etag") else {})
    with session.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
        tag, is_compressed = (
            answer.headers.get("ETag", ""),
            answer.headers.get("Content-Encoding", "identity") != "identity",
        )
        if have and (is_compressed or (answer.status_code == 200 and seen.get("etag", tag) != tag)):
            path.unlink()  # the file has changed since, or its rest cannot be told
            have = 0
            if answer.status_code != 200:
                return False
        seen |= {"checksum": checksum(answer), "etag": "" if tag.startswith("W/") else tag}
        if have and answer.status_code in (206, 416):  # the rest, or "bytes */9": nothing is left of 9 bytes
            found = re.fullmatch(rf"bytes (?:{have}-\d+|\*)/(\d+)", answer.headers.get("Content-Range", ""))
            start, total = (have, int(found[1])) if found else (None, None)
            if not found or have > total or (answer.status_code == 416 and have < total):
                path.unlink()
                return False
        elif answer.status_code != 200:
            raise OSError(f"the server answered {answer.status_code} {answer.reason}")
        else:
            start, total = 0, None if is_compressed else int(answer.headers.get("Content-Length", 0))
            if total == 0:
                raise OSError("the server does not say how long the file is, or it is empty")
            if not is_compressed and total < have:
                raise OSError(
                    f"the server offers {total:,} bytes, but {path.name} has {have:,}; remove it to begin anew"
                )
        bar.total, bar.n, end = total, start, start
        bar.refresh()
        if not start:
            path.touch()
        try:
            with open(path, "r+b") as f:
                f.seek(start)  # nothing is cut off: another process may be writing the same bytes, further on
                for piece in answer.iter_content(PIECE) if start != total else ():
                    end += f.write(piece)
                    bar.update(len(piece))
        except requests.RequestException:
            return False
    return total in (end, None)


def checksum(answer):
    """What the ETag may be: 64 digits of SHA-256, or 40 of SHA-1 or Git's hash; "" otherwise."""
    for each in (*answer.history, answer):
        tag = each.headers.get("X-Linked-Etag") or each.headers.get("ETag", "")
        if found := re.fullmatch(r'(?:W/)?"?([0-9a-f]{64}|[0-9a-f]{40})"?', tag):
            return found[1]
    return ""


def matches(path, checksum):
    """Whether a file has this checksum. Hugging Face names Git's hash of small files, mirrors may name SHA-1."""
    if len(checksum) == 64:
        return digest(path, hashlib.sha256()) == checksum
    git = hashlib.sha1(b"blob %d\0" % size_of(path))
    return checksum in (digest(path, git), digest(path, hashlib.sha1()))


def digest(path, found):
    with open(path, "rb") as f:
        while piece := f.read(1 << 20):
            found.update(piece)
    return found.hexdigest()
