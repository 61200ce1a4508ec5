"""Where the files of a model are: `locate` downloads those that are missing."""

import hashlib
import os
from pathlib import Path

from checkpoint import UserError, huggingface, openai
from checkpoint.download import digest, download, missing
from checkpoint.names import BUNDLED, CHOICES, MODELS, NAMES, RELEASED

MODELS_DIR = str(Path(__file__).parents[1] / "models")
OPENAI = "https://openaipublic.blob.core.windows.net/gpt-2/models"
HUGGINGFACE = "https://huggingface.co"
CACHED = ("config.json", "tokenizer.json", "model.safetensors")


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
    check_exists(name)
    if name not in NAMES:
        return Path(name)
    folder = Path(MODELS_DIR if name in BUNDLED else models_dir, name)
    check_is_the_only_one(name, folder)
    if name in BUNDLED:
        return checked_sums(folder)
    if name in MODELS and (found := in_cache(name)):
        return found
    files, url = source(name)
    if missing(folder, files):
        download(folder, files, url, name)
    return folder


def check_exists(name):
    if name not in NAMES and not os.path.isdir(name):
        raise UserError(f"there is no model or folder {name!r}: give {CHOICES}")


def check_is_the_only_one(name, folder):
    """UserError if a model's name is also that of a folder here."""
    is_model = any(Path(name, file).exists() for file in ("config.json", "hparams.json"))
    if is_model and Path(name).resolve() != folder.resolve():
        advice = f"give ./{name}, or run it somewhere else"
        raise UserError(f"{name} is a model's name, and a folder here: {advice}")


def checked_sums(folder):
    """A bundled model, if its files match SHA256SUMS. It takes 20 ms for 25 MB."""
    sums = (folder.parent / "SHA256SUMS").read_text(encoding="utf-8", errors="replace")
    lines = sums.splitlines()
    for name in openai.FILES:
        path = folder / name
        found = digest(path, hashlib.sha256())
        if f"{found}  {folder.name}/{name}" not in lines:
            raise UserError(f"{path} is damaged, or SHA256SUMS; restore them from the project")
    return folder


def source(name):
    """The files of a model, and where they can be downloaded."""
    if name in RELEASED:
        server = os.environ.get("GPT2_MODELS_URL") or OPENAI
        return openai.FILES, f"{server.rstrip('/')}/{name}"
    server = os.environ.get("HF_ENDPOINT") or HUGGINGFACE
    return huggingface.FILES, f"{server.rstrip('/')}/{MODELS[name]}/resolve/main"


def in_cache(name):
    """A complete snapshot of one of MODELS in the cache of transformers, or None."""
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface")
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    for repository in name, MODELS[name].replace("/", "--"):
        for path in hub.glob(f"models--{repository}/snapshots/*"):
            if not missing(path, CACHED):
                return path
    return None
