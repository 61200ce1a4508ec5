"""Load models, like picoGPT's utils.py (J. Mody 2023)."""

import numpy as np

import fast
from checkpoint import UserError
from checkpoint.find import MODELS_DIR, check_exists, locate
from checkpoint.names import BUNDLED, DRAFTS, MODELS, RELEASED, TARGETS
from checkpoint.read import open_model
from encoder import Encoder


def load_encoder_hparams_and_params(model_size, models_dir=MODELS_DIR):
    """Load everything that a model consists of. Files that are missing are downloaded first.

    Parameters
    ----------
    model_size : str
        A name for `checkpoint.find.locate`, or a folder.
    models_dir : str
        Where downloads go.

    Returns
    -------
    encoder : encoder.Encoder
    hparams, params : dict
        See `checkpoint.read.Files`.
    """
    folder = locate(model_size, models_dir)
    try:
        files = open_model(folder, model_size)
        encoder = Encoder(**files.tokenizer())
        params = files.params()
    except UserError as error:
        if model_size in (*RELEASED, *MODELS):
            raise UserError(f"{error}; remove the damaged file to download it again") from None
        raise
    # Rows without a token, as fill up a table to a multiple of 64, are cut off, so that
    # they are never drawn.
    n_vocab = min(len(encoder.ids), files.hparams["n_vocab"])
    params["wte"] = params["wte"][:n_vocab]
    return encoder, files.hparams | {"n_vocab": n_vocab}, params


def pair_of(draft_size, target_size):
    """Both names, where one or none was given: a smaller draft, or the largest target."""
    if draft_size is None and target_size is None:
        return BUNDLED
    if draft_size is None:
        draft_size = draft_for(target_size)
    if target_size is None:
        target_size = target_for(draft_size)
    return draft_size, target_size


def draft_for(target_size):
    if target_size in DRAFTS:
        return DRAFTS[target_size]
    check_exists(target_size)
    advice = "give --draft_model_size too, or try python -m lab --draft lookup"
    raise UserError(f"{target_size} has no smaller partner, so {advice}")


def target_for(draft_size):
    if draft_size in TARGETS:
        return TARGETS[draft_size]
    check_exists(draft_size)
    raise UserError(f"{draft_size} has no larger partner, so give --target_model_size too")


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
    x = encoder.encode(prompt) or [encoder.eos]
    if x == [None]:
        what = "the prompt is empty, and this vocabulary has no token that ends a text"
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
