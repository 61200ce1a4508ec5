"""Load models, like picoGPT's utils.py (J. Mody 2023)."""

import os

import numpy as np

from checkpoint.find import BUNDLED, MODELS, MODELS_DIR, RELEASED, find
from checkpoint.read import read
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
    folder = find(model_size, models_dir)
    try:
        encoder, (hparams, params) = get_encoder(folder, ""), read(folder)
        if model_size in RELEASED and 768 <= hparams["n_embd"] != 64 * hparams["n_head"]:  # no shape depends on n_head
            raise UserError(f"{folder} has n_head = {hparams['n_head']}, but OpenAI's heads have 64 dimensions")
    except UserError as error:
        advice = "; remove the damaged file to download it again" if model_size in (*RELEASED, *MODELS) else ""
        raise UserError(f"{error}{advice}") from None
    if (n := len(encoder.ids)) != hparams["n_vocab"]:
        raise UserError(f"{folder} has n_vocab = {hparams['n_vocab']}, but its vocabulary has {n} tokens")
    return encoder, hparams, params


load_hparams_and_params = read  # for a folder, without the encoder


def pair_of(draft_size, target_size):
    """Both sizes of a pair of which one or none was given."""
    families = (BUNDLED, BUNDLED), (RELEASED, ("124M", "1558M")), (MODELS, ("gpt2", "gpt2-xl"))
    given = draft_size or target_size or BUNDLED[0]
    default = next((default for sizes, default in families if given in sizes), None)
    if default is None and os.path.isdir(given) and not (draft_size and target_size):
        missing = "target" if draft_size else "draft"
        raise UserError(f"{given} has no partner of its own, so give --{missing}_model_size too")
    return draft_size or (default or BUNDLED)[0], target_size or (default or BUNDLED)[1]


def load_models(draft_size, target_size, models_dir=MODELS_DIR):
    """Load a draft and a target with the same vocabulary -> encoder, gpt2.GPT2, gpt2.GPT2"""
    loaded = [load_encoder_hparams_and_params(size, models_dir) for size in (draft_size, target_size)]
    if loaded[0][0].ids != loaded[1][0].ids:
        raise UserError(f"{draft_size} and {target_size} have different vocabularies; a pair must have the same")
    return loaded[0][0], *(GPT2(params, hparams) for _, hparams, params in loaded)


def prompt_ids(prompt, N, encoder, networks):
    """The prompt as an array of ids. An empty prompt is <|endoftext|>."""
    x = np.array(encoder.encode(prompt) or [encoder.eos])
    n_ctx = min(network.n_ctx for network in networks)
    if len(x) + N > n_ctx:
        raise UserError(f"the prompt has {len(x)} tokens and {N} more are wanted; these models hold {n_ctx} in all")
    return x
