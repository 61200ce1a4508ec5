"""The models that have a name: where each is, its size, and its usual partners."""

import os
from pathlib import Path
from typing import NamedTuple

MODELS_DIR = str(Path(__file__).parents[1] / "models")
OPENAI = "https://openaipublic.blob.core.windows.net/gpt-2/models"
HUGGINGFACE = "https://huggingface.co"


class Model(NamedTuple):
    """A model that has a name. The bundled ones have no url, and a line in models/SHA256SUMS."""

    url: str = None
    sizes: dict = None  # its hyperparameters
    draft: str = None  # its usual draft
    target: str = None  # its usual target


def sizes(n_layer, n_embd):
    """The hyperparameters of a GPT-2 of this depth and width."""
    n_head = n_embd // 64
    return dict(n_vocab=50257, n_ctx=1024, n_embd=n_embd, n_head=n_head, n_layer=n_layer)


SMALL = sizes(12, 768)
MEDIUM = sizes(24, 1024)
LARGE = sizes(36, 1280)
XL = sizes(48, 1600)
OF_OPENAI = f"{HUGGINGFACE}/openai-community"
MODELS = {
    "draft": Model(target="target"),
    "target": Model(draft="draft"),
    "124M": Model(f"{OPENAI}/124M", SMALL, target="1558M"),
    "355M": Model(f"{OPENAI}/355M", MEDIUM, draft="124M", target="1558M"),
    "774M": Model(f"{OPENAI}/774M", LARGE, draft="124M", target="1558M"),
    "1558M": Model(f"{OPENAI}/1558M", XL, draft="124M"),
    "distilgpt2": Model(f"{HUGGINGFACE}/distilbert/distilgpt2", sizes(6, 768), target="gpt2-xl"),
    "gpt2": Model(f"{OF_OPENAI}/gpt2", SMALL, draft="distilgpt2", target="gpt2-xl"),
    "gpt2-medium": Model(f"{OF_OPENAI}/gpt2-medium", MEDIUM, draft="gpt2", target="gpt2-xl"),
    "gpt2-large": Model(f"{OF_OPENAI}/gpt2-large", LARGE, draft="gpt2", target="gpt2-xl"),
    "gpt2-xl": Model(f"{OF_OPENAI}/gpt2-xl", XL, draft="gpt2"),
}
OLD_NAMES = {  # of 2019
    "117M": "124M",
    "345M": "355M",
    "762M": "774M",
    "1542M": "1558M",
}
OTHER_NAMES = {  # in small letters
    "124m": "124M",
    "355m": "355M",
    "774m": "774M",
    "1558m": "1558M",
    "distilbert/distilgpt2": "distilgpt2",
    "openai-community/gpt2": "gpt2",
    "openai-community/gpt2-medium": "gpt2-medium",
    "openai-community/gpt2-large": "gpt2-large",
    "openai-community/gpt2-xl": "gpt2-xl",
}
CHOICES = f"one of {', '.join(MODELS)}, or a folder"


def known_as(name):
    """The name of a model, given in other letters or as on the hub. A folder keeps its own."""
    small = name.lower()
    if os.path.isdir(name):
        return name
    return small if small in MODELS else OTHER_NAMES.get(small, name)
