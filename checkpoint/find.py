"""Where the files of a model are: `locate` downloads those that are missing."""

import hashlib
import os
from pathlib import Path

from checkpoint import UserError, huggingface, openai
from checkpoint.download import digest, download, missing
from checkpoint.names import BUNDLED, CHOICES, MODELS, RELEASED

MODELS_DIR = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "models")
OPENAI = "https://openaipublic.blob.core.windows.net/gpt-2/models"
HUGGINGFACE = "https://huggingface.co"
CACHES = {  # what may name a folder, and where the cache is in it; the first one counts
    "HF_HUB_CACHE": "",
    "HUGGINGFACE_HUB_CACHE": "",
    "HF_HOME": "hub",
    "XDG_CACHE_HOME": "huggingface/hub",
}


def locate(name, models_dir=MODELS_DIR):
    """The folder of a model, after the download of its files if they are missing.

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
        If there is no such model, or what arrives is not one.
    OSError
        If a file cannot be downloaded or written.
    """
    check_is_no_folder_here(name, Path(models_dir, name))
    if name in BUNDLED:
        return checked_sums(Path(MODELS_DIR, name))
    if name in RELEASED:
        return from_openai(name, Path(models_dir, name))
    if name in MODELS:
        return newest_in_cache(name) or from_huggingface(name, Path(models_dir, name))
    if name and os.path.isdir(name):
        return Path(name)
    raise no_such_model(name)


def no_such_model(name):
    return UserError(f"there is no model or folder {name!r}: give {CHOICES}")


def check_is_no_folder_here(name, folder):
    """UserError if a model's name is also that of a folder with a model, and not of its own."""
    if name not in (*BUNDLED, *RELEASED, *MODELS):
        return
    if name in BUNDLED:
        folder = Path(MODELS_DIR, name)
    if folder.resolve() == Path(name).resolve():
        return
    if any(Path(name, file).exists() for file in ("config.json", "hparams.json")):
        advice = f"give ./{name}, or run it somewhere else"
        raise UserError(f"{name} is a model's name, and a folder here: {advice}")


def checked_sums(folder):
    """A bundled model, if its files match SHA256SUMS. It takes 20 ms for 25 MB."""
    sums = (folder.parent / "SHA256SUMS").read_text(encoding="utf-8", errors="replace")
    lines = sums.splitlines()
    for name in openai.FILES:
        path = folder / name
        found = digest(path, hashlib.sha256()) if path.is_file() else None
        if f"{found}  {folder.name}/{name}" not in lines:
            advice = "restore them from the project"
            raise UserError(f"{path} is missing or damaged, or SHA256SUMS is; {advice}")
    return folder


def from_openai(name, folder):
    server = os.environ.get("GPT2_MODELS_URL") or OPENAI
    if missing(folder, openai.FILES):
        download(folder, openai.FILES, f"{server.rstrip('/')}/{name}", name)
    return folder


def from_huggingface(name, folder):
    server = os.environ.get("HF_ENDPOINT") or HUGGINGFACE
    if not is_complete(folder):
        url = f"{server.rstrip('/')}/{MODELS[name]}/resolve/main"
        download(folder, huggingface.FILES, url, name)
    return folder


def is_complete(folder):
    """Whether a folder has Hugging Face's files. tokenizer.json may replace two of them."""
    config, *tokenizer, weights = huggingface.FILES
    if missing(folder, [config, weights]):
        return False
    return not missing(folder, tokenizer) or not missing(folder, ["tokenizer.json"])


def newest_in_cache(name):
    """The newest complete snapshot of one of MODELS in the cache of transformers, or None."""
    found = []
    for repository in {name, MODELS[name].replace("/", "--")}:
        snapshots = hub_cache().glob(f"models--{repository}/snapshots/*")
        found += [path for path in snapshots if is_complete(path)]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def hub_cache():
    """Where transformers keeps what it has downloaded. In its variables, ~ and $NAME count."""
    for variable, inner in CACHES.items():
        if place := os.environ.get(variable):
            return Path(os.path.expandvars(os.path.expanduser(place)), inner)
    return Path.home() / ".cache" / "huggingface" / "hub"
