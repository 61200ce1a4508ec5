"""From a name to the files of a model: `find_model` downloads those that are missing."""

import os
from pathlib import Path

from checkpoint import UserError, huggingface, openai
from checkpoint.download import digest, download, missing
from checkpoint.names import CHOICES, HUGGINGFACE, MODELS, MODELS_DIR, OLD_NAMES, OPENAI
from checkpoint.read import open_model


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
        download(folder, files, url, model.sizes)
    return open_model(folder, model.sizes)


def check_exists(name):
    if name not in MODELS and not os.path.isdir(name):
        advice = OLD_NAMES.get(name, CHOICES)
        raise UserError(f"there is no model or folder {name!r}: give {advice}")


def check_is_the_only_one(name, folder):
    """UserError if a model's name is also that of a folder here."""
    is_model = any(Path(name, file).exists() for file in ("config.json", "hparams.json"))
    if is_model and Path(name).resolve() != folder.resolve():
        advice = f"give ./{name}, or run it somewhere else"
        raise UserError(f"{name} is a model's name, and a folder here: {advice}")


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
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface")
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    for repository in name, f"{owner}--{name}":
        cached = hub / f"models--{repository}"
        for main in cached.glob("refs/main"):
            snapshot = (
                cached / "snapshots" / main.read_text(encoding="utf-8", errors="replace").strip()
            )
            if not missing(snapshot, files):
                return snapshot
    return None
