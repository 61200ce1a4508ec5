"""Fetch OpenAI's GPT-2 checkpoints and load them, after picoGPT's utils.py (J. Mody 2023).

`load_encoder_hparams_and_params` is the way in. A model is a directory of seven files, as OpenAI released them; sizes
124M to 1558M are fetched when they are not there, "draft" and "target" are the small pair that this project brings
along. `python -m utils verify DIR` checks all numbers of a model against the checksums that it came with.
"""

import base64
import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
import time

import requests
from tqdm import tqdm

import tensor_bundle
from encoder import get_encoder
from tensor_bundle import CheckpointError

try:
    import fcntl
except ImportError:  # Windows: nothing there keeps two downloads into one directory apart
    fcntl = None

BUNDLED = ("draft", "target")
RELEASED = ("124M", "355M", "774M", "1558M")
INDEX, DATA = "model.ckpt.index", "model.ckpt.data-00000-of-00001"
FILES = ("checkpoint", "encoder.json", "hparams.json", INDEX, DATA, "model.ckpt.meta", "vocab.bpe")
HPARAMS = ("n_vocab", "n_ctx", "n_embd", "n_head", "n_layer")
MODELS_DIR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "models")
MODELS_URL = "https://openaipublic.blob.core.windows.net/gpt-2/models"

TIMEOUT = (10, 30)  # seconds, to connect and between two pieces of an answer
RETRIES, BACKOFF = 4, 0.4  # after attempts that bring nothing new; seconds before the first, doubled for each other
PIECE = 1 << 16  # bytes


class DownloadError(OSError):
    """A file could not be fetched."""


class Interrupted(requests.ConnectionError):
    """An attempt to fetch a file ended early, and another one may do better."""


def load_encoder_hparams_and_params(model_size, models_dir=MODELS_DIR, models_url=None):
    """Load a model, after fetching it if need be.

    Parameters
    ----------
    model_size : str
        "124M", "355M", "774M", "1558M", or "draft", "target": the bundled pair, which is never fetched.
    models_dir : str
        Where models are, each in a directory named by its size. The bundled pair is found wherever this points.
    models_url : str, optional
        Where to fetch from, instead of the environment variable GPT2_MODELS_URL, instead of OpenAI.

    Returns
    -------
    encoder : encoder.Encoder
    hparams : dict of str to int
        n_vocab, n_ctx, n_embd, n_head, n_layer.
    params : nested dict of ndarray
        {"wte", "wpe", "ln_f": {"g", "b"}, "blocks": [{"ln_1", "attn": {"c_attn": {"w", "b"}, "c_proj"}, "ln_2",
        "mlp": {"c_fc", "c_proj"}}, ...]}, w as [n_in, n_out], read-only views of the memory-mapped file.

    Raises
    ------
    ValueError
        If the size is unknown or, as CheckpointError or VocabularyError, if what is there is damaged.
    DownloadError
        If what is missing cannot be fetched.
    """
    if model_size not in BUNDLED + RELEASED:
        raise ValueError(f"unknown model size {model_size!r}; there are {', '.join(BUNDLED + RELEASED)}")
    if model_size in BUNDLED and not os.path.isdir(os.path.join(models_dir, model_size)):
        models_dir = MODELS_DIR
    model_dir = os.path.join(models_dir, model_size)
    if model_size in RELEASED and missing_files(model_dir):
        download_gpt2_files(model_size, model_dir, models_url)
    if missing := [name for name in missing_files(model_dir) if name != DATA]:  # whose length the index tells below
        raise CheckpointError(f"{os.path.join(model_dir, missing[0])} is missing or empty; restore it from the project")
    hparams, params = load_hparams_and_params(model_dir)
    encoder = get_encoder(model_size, models_dir)
    if len(encoder.ids) != hparams["n_vocab"]:
        raise CheckpointError(f"{model_dir} has n_vocab = {hparams['n_vocab']} but {len(encoder.ids)} tokens")
    return encoder, hparams, params


def missing_files(model_dir):
    """Which of the seven files are not there, or empty."""
    paths = {name: os.path.join(model_dir, name) for name in FILES}
    return [name for name, path in paths.items() if not os.path.isfile(path) or os.path.getsize(path) == 0]


# ---- Load ----


def load_hparams_and_params(model_dir):
    """The hparams and params of `load_encoder_hparams_and_params`, of a directory with both parts of a checkpoint."""
    tensors = tensor_bundle.load(os.path.join(model_dir, "model.ckpt"))
    hparams = read_hparams(os.path.join(model_dir, "hparams.json"))
    if hparams["n_layer"] > len(tensors):  # before anything is done n_layer times
        raise CheckpointError(f"{model_dir} has n_layer = {hparams['n_layer']} but only {len(tensors)} tensors in all")
    shapes = expected_shapes(**hparams)
    found = {name: tensor.shape for name, tensor in tensors.items()}
    wrong = [f"{name} is missing" for name in shapes if name not in found]
    wrong += [f"{name!r} is unknown" for name in found if name not in shapes]
    wrong += [f"{n} is {list(found[n])}, not {list(s)}" for n, s in shapes.items() if n in found and found[n] != s]
    if wrong:
        more = f", and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise CheckpointError(
            f"{model_dir} has not the tensors that its hparams.json wants: {', '.join(wrong[:3])}{more}"
        )
    return hparams, nest(tensors, hparams["n_layer"])


def read_hparams(path):
    """The five numbers of hparams.json, checked -> dict."""
    try:
        with open(path, "rb") as f:
            hparams = json.load(f)
    except (OSError, ValueError, RecursionError) as error:  # RecursionError: ten thousand opening brackets
        raise CheckpointError(f"{path} cannot be read: {error or type(error).__name__}") from None
    if not isinstance(hparams, dict):
        raise CheckpointError(f"{path} holds no object with {', '.join(HPARAMS)}")
    hparams = {name: hparams.get(name) for name in HPARAMS}
    for name, value in hparams.items():
        if type(value) is not int or not 0 < value < 2**31:  # (True is an int, but not of type int)
            shown = str(value)[:20] if isinstance(value, int | float) else type(value).__name__
            raise CheckpointError(f"{path} has {name} = {shown}, which is no whole number from 1 to 2^31 - 1")
    if hparams["n_embd"] % hparams["n_head"]:
        raise CheckpointError(f"{path}: n_embd = {hparams['n_embd']} is no multiple of n_head = {hparams['n_head']}")
    return hparams


def expected_shapes(n_vocab, n_ctx, n_embd, n_head, n_layer):
    """The names and shapes of the tensors of a GPT-2, as in the model.py that OpenAI released with it."""
    dense = {"attn/c_attn": (1, 3), "attn/c_proj": (1, 1), "mlp/c_fc": (1, 4), "mlp/c_proj": (4, 1)}  # in n_embd
    block = {f"{ln}/{leaf}": (n_embd,) for ln in ("ln_1", "ln_2") for leaf in "gb"}
    for name, (n_in, n_out) in dense.items():
        block |= {f"{name}/w": (1, n_in * n_embd, n_out * n_embd), f"{name}/b": (n_out * n_embd,)}
    shapes = {"wte": (n_vocab, n_embd), "wpe": (n_ctx, n_embd), "ln_f/g": (n_embd,), "ln_f/b": (n_embd,)}
    shapes |= {f"h{i}/{name}": shape for i in range(n_layer) for name, shape in block.items()}
    return {f"model/{name}": shape for name, shape in shapes.items()}


def nest(tensors, n_layer):
    """{"model/h0/attn/c_attn/w": [1, n_in, n_out], ...} -> {"blocks": [{"attn": {"c_attn": {"w": [n_in, n_out]}}}]}"""
    params = {"blocks": [{} for _ in range(n_layer)]}
    for name, tensor in tensors.items():
        _, *path, leaf = name.split("/")
        branch = params
        if path and re.fullmatch(r"h\d+", path[0]):
            branch = params["blocks"][int(path.pop(0)[1:])]
        for part in path:
            branch = branch.setdefault(part, {})
        branch[leaf] = tensor[0] if tensor.ndim == 3 else tensor  # w was a convolution of width 1
    return params


def verify(model_dir, data_path=None):
    """Check all numbers of a model against the crc32c in its index, or raise CheckpointError; with a progress bar."""
    prefix = os.path.join(model_dir, "model.ckpt")
    size = sum(entry.size for entry in tensor_bundle.read_index(prefix + ".index").values())
    with tqdm(total=size, desc=f"Checking {DATA}", unit="B", unit_scale=True) as bar:
        tensor_bundle.verify_tensors(prefix, data_path, bar.update)


# ---- Fetch ----


def download_gpt2_files(model_size, model_dir, models_url=None):
    """Fetch those of the seven files of a model that are not in model_dir yet.

    A file is written as `<name>.part`, and gets its name when it is whole: of the length and MD5 that the server
    announced, and with the tensors that the index records. A later call goes on with the .part that an earlier one left
    of the data, by far the largest; what else was not whole is fetched anew.

    Parameters
    ----------
    model_size : str
        "124M", "355M", "774M" or "1558M".
    model_dir : str
        Where to put them; made if need be.
    models_url : str, optional
        As in `load_encoder_hparams_and_params`: files are at <models_url>/<model_size>/<name>.

    Raises
    ------
    DownloadError
        If a file cannot be fetched, or there is no room for it.
    CheckpointError
        If what came is damaged.
    """
    if model_size not in RELEASED:
        raise ValueError(f"unknown model size {model_size!r}; to be fetched there are {', '.join(RELEASED)}")
    url = (models_url or os.environ.get("GPT2_MODELS_URL") or MODELS_URL).rstrip("/")
    os.makedirs(model_dir, exist_ok=True)
    with lock(model_dir):
        for name in missing_files(model_dir):  # the index comes before the data
            check = {INDEX: tensor_bundle.read_index, DATA: lambda part: verify(model_dir, part)}.get(name)
            fetch(f"{url}/{model_size}/{name}", os.path.join(model_dir, name), check)


@contextlib.contextmanager
def lock(directory):
    """Let one process at a time work in a directory; the system frees the lock even when that process is killed."""
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


def fetch(url, path, check=None):
    """Fetch one file, in as many attempts as bring something new, and give it its name when it is whole.

    check(part) raises CheckpointError if this is not the right file. Only where there is such a check do we go on with
    what an earlier process has left: nothing else would tell that the file has changed on the server since.
    """
    part, seen, failures = path + ".part", {}, 0
    if check is None:
        remove(part)
    best = size_of(part)
    with tqdm(desc=os.path.basename(path), unit="B", unit_scale=True) as bar:
        while True:
            try:
                transfer(url, part, bar, seen)
                break
            except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError) as error:
                failures = failures + 1 if size_of(part) <= best else 0
                best = max(best, size_of(part))
                if failures > RETRIES:
                    why = error if isinstance(error, Interrupted) else f"no connection ({type(error).__name__})"
                    raise cannot_fetch(url, why) from None
                if check is None and "etag" not in seen:
                    remove(part)
                time.sleep(BACKOFF * 2 ** (failures - 1))
            except OSError as error:  # of requests: no URL, or a redirect that leaves HTTP; of the system: disk full
                raise cannot_fetch(url, error.strerror or error) from None
    try:
        if "md5" in seen and seen["md5"] != md5_of(part):
            raise CheckpointError(
                f"{url} does not have the MD5 that the server announced: damaged on its way, try again"
            )
        if check is not None:
            check(part)
        elif starts_with(part, b"<"):
            raise CheckpointError(f"{url} is a page of HTML, not the file")
    except CheckpointError:
        remove(part)
        raise
    os.replace(part, path)


def transfer(url, part, bar, seen):
    """One attempt: append to part what it lacks. seen keeps the server's ETag and MD5 from one attempt to the next."""
    have = size_of(part)
    headers = {"Accept-Encoding": "identity"}  # not compressed: lengths and ranges are those of the file
    if have:
        headers["Range"] = f"bytes={have}-"
        if "etag" in seen:
            headers["If-Range"] = seen["etag"]  # if it is another file by now: all of it, please
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
        start, total = announced(answer, have, seen)
        if start is None:
            remove(part)
            raise Interrupted("the server did not go on where we were")
        if start == total:
            return  # whole already
        free = shutil.disk_usage(os.path.dirname(part)).free
        if total - have > free:
            raise OSError(f"it has {total:,} bytes, and there is room for {free:,} in {os.path.dirname(part)}")
        bar.total, bar.n = total, start
        bar.refresh()
        with open(part, "ab" if start else "wb") as f:
            for piece in answer.iter_content(PIECE):
                f.write(piece)
                bar.update(len(piece))
            f.flush()
            os.fsync(f.fileno())  # on the disk before it gets its name
    if size_of(part) != total:
        raise Interrupted(f"{size_of(part):,} bytes came of {total:,}")


def announced(answer, have, seen):
    """Where in the file the answer starts, and how long the file is. OSError if it is not our file that comes."""
    status, headers = answer.status_code, answer.headers
    if status in (408, 429) or status >= 500:
        raise Interrupted(f"the server answered {status} {answer.reason}")
    if status in (206, 416):  # "bytes 5-8/9" goes on after 5 bytes of 9; "bytes */9" is what 416 says of 9
        span = re.fullmatch(r"bytes (?:(\d{1,18})-\d+|\*)/(\d{1,18})", headers.get("Content-Range", ""))
        same = span and int(span[1] or span[2]) == have and headers.get("ETag") == seen.get("etag", headers.get("ETag"))
        return (have, int(span[2])) if same else (None, None)
    if status != 200 or "html" in headers.get("Content-Type", ""):
        raise OSError(f"the server answered {status} {answer.reason} ({headers.get('Content-Type')})")
    if not re.fullmatch(r"[1-9]\d{,17}", headers.get("Content-Length", "")):
        raise OSError("the server does not say how long it is, or it is empty")
    seen.clear()
    seen.update({key: headers[name] for key, name in (("etag", "ETag"), ("md5", "Content-MD5")) if name in headers})
    return 0, int(headers["Content-Length"])


def cannot_fetch(url, why):
    return DownloadError(f"cannot fetch {url}: {why}. (The bundled pair, draft and target, needs no network.)")


def md5_of(path):
    """The MD5 of a file as HTTP writes it, in base64."""
    md5 = hashlib.md5(usedforsecurity=False)
    with open(path, "rb") as f:
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


if __name__ == "__main__":
    try:
        if len(sys.argv) != 3 or sys.argv[1] != "verify":
            raise ValueError("usage: python -m utils verify DIR")
        load_hparams_and_params(sys.argv[2])
        verify(sys.argv[2])
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    print(f"{sys.argv[2]}: all tensors are as its index describes them")
