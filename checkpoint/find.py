"""From a name to the files of a model: `find_model` downloads those that are missing.

A file gets its name only once it could be read.
"""

import contextlib
import os
import shutil
from pathlib import Path

from checkpoint import UserError, huggingface, openai
from checkpoint.download import digest, fetch, parts_of, session, size_of
from checkpoint.names import CHOICES, HUGGINGFACE, MODELS, MODELS_DIR, OLD_NAMES, OPENAI
from checkpoint.read import open_model

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None


def find_model(name, models_dir=MODELS_DIR):
    """The `read.Files` of a model, after a download if some are missing.

    Parameters
    ----------
    name : str
        "draft" or "target" of the bundled pair; "124M", ... from OpenAI; "gpt2", ... from
        Hugging Face; or a folder of your own with the files of either.
    models_dir : str
        Downloads have a folder for each name in here.

    Raises
    ------
    UserError
        If there is no such model, or what is there or arrives is not one.
    OSError
        If a file cannot be downloaded or written.
    """
    check_exists(name)
    if name not in MODELS:
        return open_model(name)
    model = MODELS[name]
    folder = Path(models_dir if model.url else MODELS_DIR, name)
    check_is_the_only_one(name, folder)
    if not model.url:
        check_sums(folder)
        return open_model(folder)
    files, url = source(model.url)
    folder = in_cache(model.url, files) or folder
    if missing(folder, files):
        check_is_online(name, folder)
        download(folder, files, url, model.sizes)
    return open_model(folder, model.sizes)


def check_exists(name):
    """UserError unless this is a model's name or a folder."""
    if name not in MODELS and not os.path.isdir(name):
        if os.path.isfile(name):
            advice = "give a folder with what docs/your_models.md lists"
            raise UserError(f"{name} is a file; {advice}")
        advice = OLD_NAMES.get(name, CHOICES)
        raise UserError(f"there is no model or folder {name!r}: give {advice}")


def check_is_the_only_one(name, folder):
    """UserError if a model's name is also that of a folder here."""
    is_model = any(Path(name, file).exists() for file in ("config.json", "hparams.json"))
    if is_model and Path(name).resolve() != folder.resolve():
        advice = f"give ./{name}, or run it somewhere else"
        raise UserError(f"{name} is a model's name, and a folder here: {advice}")


def check_is_online(name, folder):
    """UserError if HF_HUB_OFFLINE forbids a download."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        problem = f"{name} is not in {folder}"
        raise UserError(f"{problem}, and with HF_HUB_OFFLINE nobody is asked for it")


def check_sums(folder):
    """UserError unless the files of a bundled model match SHA256SUMS. It takes 20 ms for 25 MB."""
    sums = (folder.parent / "SHA256SUMS").read_text(encoding="utf-8", errors="replace")
    lines = sums.splitlines()
    for name in openai.FILES:
        path = folder / name
        if f"{digest(path)}  {folder.name}/{name}" not in lines:
            raise UserError(f"{path} is damaged, or SHA256SUMS; restore them from the project")


def source(url):
    """The files of a model, and where they are, or a mirror that the environment names."""
    if url.startswith(OPENAI):
        mirror = os.environ.get("GPT2_MODELS_URL") or OPENAI
        return openai.FILES, mirror.rstrip("/") + url.removeprefix(OPENAI)
    mirror = os.environ.get("HF_ENDPOINT") or HUGGINGFACE
    return huggingface.FILES, mirror.rstrip("/") + url.removeprefix(HUGGINGFACE) + "/resolve/main"


def in_cache(url, files):
    """The snapshot that transformers takes of a model, if its cache has all files, or None."""
    *_, owner, name = url.split("/")
    setting = os.environ.get
    home = setting("HF_HOME") or (setting("XDG_CACHE_HOME") or "~/.cache") + "/huggingface"
    hub = setting("HF_HUB_CACHE") or setting("HUGGINGFACE_HUB_CACHE") or f"{home}/hub"
    hub = Path(os.path.expanduser(os.path.expandvars(hub)))
    for repository in name, f"{owner}--{name}":
        cached = hub / f"models--{repository}"
        for main in cached.glob("refs/main"):
            snapshot = (
                cached / "snapshots" / main.read_text(encoding="utf-8", errors="replace").strip()
            )
            if not missing(snapshot, files):
                return snapshot
    return None


# ---- Downloads ----


def missing(folder, names):
    """The names of the files that are missing or empty."""
    return [name for name in names if size_of(folder / name) == 0]


def download(folder, names, url, sizes):
    """Download the files of a model, one program at a time. Weights that are there are kept.

    The last name is that of the weights. The other files are small, and belong together.
    sizes are the model's hyperparameters, which tell it from another one.
    """
    fresh = folder / "download"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(fresh):
            fresh.mkdir()
            try:
                fetch_all(folder, names, url, sizes, fresh)
            finally:
                shutil.rmtree(fresh)
                with contextlib.suppress(OSError):  # unless there is something in it
                    folder.rmdir()
    except (BlockingIOError, FileExistsError):
        problem = "another program downloads this model, or was ended while it did"
        raise UserError(f"{problem}; if none does, remove {fresh}") from None
    except OSError as error:  # those of `fetch` have no number
        advice = "; give another place by --models_dir" if error.errno else ""
        raise OSError(f"{error}{advice}") from None


@contextlib.contextmanager
def locked(fresh):
    """Lock the folder of `fresh`, and remove `fresh` if a program that was killed has left it.

    The system unlocks it when a program ends. BlockingIOError if another one runs.
    """
    file = os.open(fresh.parent, os.O_RDONLY)
    try:
        if is_locked(file):
            shutil.rmtree(fresh, ignore_errors=True)
        yield
    finally:
        os.close(file)


def is_locked(file):
    """Lock a file -> whether its file system has locks. BlockingIOError if it is locked already."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


if fcntl is None:
    locked = contextlib.nullcontext  # then `fresh` itself shows that a program is at work


def fetch_all(folder, names, url, sizes, fresh):
    """Download the small files, then the weights, and check each before it gets its name."""
    *small, weights = names
    with session() as connection:
        for name in small:
            part = fetch(connection, f"{url}/{name}", fresh / name)
            part.replace(fresh / name)
        check(fresh, url, sizes)
        for name in small:
            (fresh / name).replace(folder / name)
        if missing(folder, [weights]):
            path = folder / weights
            part = fetch(connection, f"{url}/{weights}", path)
            check(folder, url, sizes, part)
            part.replace(path)
            for leftover in parts_of(path):
                leftover.unlink()


def check(folder, url, sizes, part=None):
    """UserError if the small files cannot be used, or the weights, which are then removed."""
    problem = None
    try:
        files = open_model(folder, sizes)
        if files.encoder().library:
            raise UserError("the vocabulary does not fit its merges")
        if part:
            files.tensors(part)
    except UserError as error:
        problem = str(error).split(" cannot be used: ")[-1].partition("; ")[0]  # no advice
    if problem:  # here, because an error keeps its file mapped, which Windows does not remove
        if part:
            part.unlink()
        raise UserError(f"{url} gave a wrong file, now removed: {problem}")
