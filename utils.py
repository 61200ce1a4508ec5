"""Load models, like picoGPT's utils.py (J. Mody 2023)."""

import os
import shlex
from functools import partial

import numpy as np

from checkpoint import openai
from checkpoint.find import (
    BUNDLED,
    MODELS,
    MODELS_DIR,
    RELEASED,
    another_model,
    find,
    no_such_model,
)
from checkpoint.read import format_of, read
from encoder import get_encoder
from errors import UserError
from gpt2 import GPT2


def load_encoder_hparams_and_params(model_size, models_dir=MODELS_DIR):
    """Load everything that a model consists of. Files that are missing are downloaded first.

    Parameters
    ----------
    model_size : str
        A name for `checkpoint.find.find`, or a folder.
    models_dir : str
        Where downloads go.

    Returns
    -------
    encoder : encoder.Encoder
    hparams, params : dict
        See `checkpoint.read.read`.
    """
    folder = find(model_size, models_dir, partial(get_encoder, models_dir=""))
    try:
        (hparams, params), encoder = read(folder), get_encoder(folder, "")
        n_tokens, n_rows = len(encoder.ids), hparams["n_vocab"]
        if problem := another_model(model_size, hparams):
            raise UserError(f"{folder} cannot be used: {problem}")
        if n_tokens != n_rows and format_of(folder) is openai:
            raise UserError(f"{folder} has n_vocab = {n_rows}, but its vocabulary has {n_tokens} tokens")
    except UserError as error:
        advice = "; remove the damaged file to download it again" if model_size in (*RELEASED, *MODELS) else ""
        raise UserError(f"{error}{advice}") from None
    # Rows without a token, as fill up a table to a multiple of 64, are cut off, so that
    # they are never drawn.
    hparams, params = hparams | {"n_vocab": min(n_tokens, n_rows)}, params | {"wte": params["wte"][:n_tokens]}
    return encoder, hparams, params


def pair_of(draft_size, target_size):
    """Both names, where one or none was given: a smaller draft, or the largest target."""
    if draft_size is None and target_size is None:
        return BUNDLED
    if draft_size is None:
        return draft_for(target_size), target_size
    if target_size is None:
        return draft_size, target_for(draft_size)
    return draft_size, target_size


def draft_for(target_size):
    smaller, _ = partners(target_size)
    if "gpt2" in smaller:
        return "gpt2"
    if smaller:
        return smaller[0]
    alone = f"python -m lab --draft lookup --target_model_size {shlex.quote(target_size)}"
    advice = f"give --draft_model_size too, or try {alone}"
    raise UserError(f"{target_size} has no smaller partner, so {advice}")


def target_for(draft_size):
    _, larger = partners(draft_size)
    if larger:
        return larger[-1]
    raise UserError(f"{draft_size} has no larger partner, so give --target_model_size too")


def partners(name):
    """The smaller and the larger models of the same family. A folder has none."""
    for family in BUNDLED, RELEASED, MODELS:
        if name in family:
            names = list(family)
            i = names.index(name)
            return names[:i], names[i + 1 :]
    if not os.path.isdir(name):
        raise no_such_model(name)
    return [], []


def load_models(draft_size, target_size, models_dir=MODELS_DIR):
    """Load a draft and a target with the same vocabulary -> encoder, gpt2.GPT2, gpt2.GPT2"""
    loaded = [load_encoder_hparams_and_params(size, models_dir) for size in (draft_size, target_size)]
    (encoder, *_), (other, *_) = loaded
    networks = [GPT2(params, hparams) for _, hparams, params in loaded]
    if encoder.ids != other.ids or networks[0].n_vocab != networks[1].n_vocab:
        raise UserError(f"{draft_size} and {target_size} have different vocabularies; a pair must have the same")
    return other, *networks


def prompt_ids(prompt, N, encoder, networks):
    """The prompt as an array of ids. An empty prompt is the token that ends a text."""
    x = encoder.encode(prompt) or [encoder.eos]
    if x == [None]:
        raise UserError("the prompt is empty, and this vocabulary has no token that ends a text; give a prompt")
    n_ctx, n_vocab = min(network.n_ctx for network in networks), min(network.n_vocab for network in networks)
    if len(x) + N > n_ctx:
        raise UserError(f"the prompt has {len(x)} tokens and {N} more are wanted; these models hold {n_ctx} in all")
    if max(x) >= n_vocab:
        raise UserError(f"the prompt has the token {encoder.tokens[max(x)]!r}, for which these weights have no row")
    return np.array(x)
