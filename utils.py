"""Load models, like picoGPT's utils.py (J. Mody 2023)."""

from pathlib import Path

import numpy as np

import fast
from checkpoint import UserError
from checkpoint.find import check_exists, find_model
from checkpoint.names import MODELS, MODELS_DIR, Model
from checkpoint.read import open_model


def load_encoder_hparams_and_params(model_size, models_dir=MODELS_DIR):
    """Load everything that a model consists of. Files that are missing are downloaded first.

    Parameters
    ----------
    model_size : str
        A name for `checkpoint.find.find_model`, or a folder.
    models_dir : str
        Where downloads go.

    Returns
    -------
    encoder : encoder.Encoder
    hparams, params : dict
        See `checkpoint.read.Files`.
    """
    files = find_model(model_size, models_dir)
    encoder = files.encoder()
    params = files.params()
    # Rows without a token, as fill up a table to a multiple of 64, are cut off, so that
    # they are never drawn.
    n_vocab = min(len(encoder.ids), files.hparams["n_vocab"])
    params["wte"] = params["wte"][:n_vocab]
    return encoder, files.hparams | {"n_vocab": n_vocab}, params


def get_encoder(model_size, models_dir):
    """The `encoder.Encoder` of a folder with the files of a model."""
    return open_model(Path(models_dir, model_size)).encoder()


def pair_of(draft_size, target_size):
    """The names of draft and target. A missing one becomes the usual partner of the other."""
    if draft_size is None and target_size is None:
        return "draft", "target"
    if draft_size is None:
        return partner(target_size, "draft", "smaller"), target_size
    if target_size is None:
        return draft_size, partner(draft_size, "target", "larger")
    return draft_size, target_size


def partner(name, kind, size):
    """The usual draft or target of a model."""
    check_exists(name)
    other = getattr(MODELS.get(name, Model()), kind)
    if other is None:
        advice = f"give --{kind}_model_size too"
        advice += ", or try python -m lab --draft lookup" if kind == "draft" else ""
        raise UserError(f"{name} has no {size} partner, so {advice}")
    return other


def load_models(draft_size, target_size, models_dir=MODELS_DIR, network=fast.GPT2):
    """Load a draft and a target with the same vocabulary -> encoder, and two networks.

    network is fast.GPT2 or gpt2.GPT2.
    """
    draft_encoder, hparams, params = load_encoder_hparams_and_params(draft_size, models_dir)
    draft = network(params, hparams)
    encoder, hparams, params = load_encoder_hparams_and_params(target_size, models_dir)
    target = network(params, hparams)
    if draft_encoder.ids != encoder.ids or draft.n_vocab != target.n_vocab:
        what = "different vocabularies; a pair must have the same"
        raise UserError(f"{draft_size} and {target_size} have {what}")
    return encoder, draft, target


def prompt_ids(prompt, N, encoder, networks):
    """The prompt as an array of ids. An empty prompt is the token that ends a text."""
    x = encoder.encode(from_bytes(prompt)) or [*encoder.eos[:1]]
    if not x:
        what = "the prompt is empty, and this model has no token that ends a text"
        raise UserError(f"{what}; give a prompt")
    n_ctx = min(network.n_ctx for network in networks)
    n_vocab = min(network.n_vocab for network in networks)
    if len(x) + N > n_ctx:
        what = f"the prompt has {len(x)} tokens and {N} more are wanted"
        raise UserError(f"{what}; these models hold {n_ctx} in all")
    if max(x) >= n_vocab:
        what = f"the prompt has the token {encoder.tokens[max(x)]!r}"
        raise UserError(f"{what}, for which these weights have no row")
    return np.array(x)


def from_bytes(text):
    """A text whose bytes Python did not understand, as in a C locale, or of half a character."""
    try:
        return text.encode("utf-8", "surrogateescape").decode()
    except UnicodeError as error:
        raise UserError(f"the text is not UTF-8: {error}") from None
