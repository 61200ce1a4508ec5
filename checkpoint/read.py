"""The files in a folder -> the params of gpt2.py, and the parts of encoder.py's Encoder."""

import reprlib
from pathlib import Path

from checkpoint import huggingface, openai
from errors import UserError

HPARAMS = ("n_vocab", "n_ctx", "n_embd", "n_head", "n_layer")


def format_of(folder):
    """The module that reads these files. ValueError if they are no model's."""
    names = {path.name for path in Path(folder).iterdir()}
    for path in (path for path in Path(folder).iterdir() if path.is_file()):
        if path.stat().st_size < 1000 and path.read_bytes().startswith(b"version https://git-lfs"):
            raise ValueError(f"{path.name} is a pointer of git-lfs, not the file; get it with git lfs pull")
    if "adapter_config.json" in names:
        raise ValueError("it holds an adapter; merge that with peft: model.merge_and_unload().save_pretrained(folder)")
    if "config.json" in names:
        return huggingface
    return openai if {"hparams.json", "encoder.json"} & names else huggingface


def read(folder, data=None):
    """hparams and params of a model, in OpenAI's or in Hugging Face's format.

    Parameters
    ----------
    folder : str
    data : str, optional
        The file of the weights, if it does not have its usual name yet.

    Returns
    -------
    hparams : dict of str to int
    params : nested dict of ndarray
        {"wte", "wpe", "ln_f": {"g", "b"}, "blocks": [{"ln_1", "attn": {"c_attn": {"w", "b"},
        "c_proj"}, "ln_2", "mlp": {"c_fc", "c_proj"}}, ...]}. Each w is [n_in, n_out]. All are
        read-only views of the memory-mapped file where its type allows it.

    Raises
    ------
    UserError
        If a file is damaged, or the files do not fit together.
    """
    try:
        hparams = read_hparams(folder)
        tensors = format_of(folder).tensors(Path(folder), data)
        tensors = {name: t[0] if t.ndim == 3 else t for name, t in tensors.items()}  # [1, n_in, n_out] is OpenAI's w
        found = {name: t.shape if t.dtype.kind == "f" else f"{t.dtype} numbers" for name, t in tensors.items()}
        if hparams["n_layer"] > len(found):
            raise ValueError(f"n_layer is {hparams['n_layer']}, but there are only {len(found)} tensors")
        inner = [t.shape[0] for name, t in tensors.items() if name == "model/h0/mlp/c_fc/b" and t.ndim == 1]
        expected = expected_shapes(**hparams, n_inner=[*inner, None][0])  # usually 4 n_embd
        if wrong := sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name)):
            one = f"{wrong[0]!r}: expected {expected.get(wrong[0])}, found {found.get(wrong[0])}"
            raise ValueError(f"its hyperparameters do not fit: {len(wrong)} tensors differ, such as {one}")
    except ValueError as error:
        raise UserError(f"{folder} cannot be used: {error}") from None
    return hparams, nest(tensors, hparams["n_layer"])


def read_hparams(folder):
    """The five numbers of a model. ValueError if there is no such GPT-2."""
    try:
        found = format_of(folder).hparams(Path(folder))
    except FileNotFoundError as error:
        name = Path(error.filename).name
        raise ValueError(f"{name} is missing; docs/your_models.md has the files that a model needs") from None
    hparams = {name: found.get(name) for name in HPARAMS}
    for name, value in hparams.items():
        if type(value) is not int or not 0 < value < 2**31:  # the type of True is bool
            raise ValueError(f"{name} is {reprlib.repr(value)}; a whole number from 1 on is needed")
    if hparams["n_embd"] % hparams["n_head"]:
        raise ValueError(f"n_head = {hparams['n_head']} does not divide n_embd = {hparams['n_embd']}")
    return hparams


def read_tokenizer(folder):
    """What `encoder.Encoder` needs -> dict. ValueError if a file is missing or damaged."""
    try:
        parts = format_of(folder).tokenizer(Path(folder))
        if wrong := [(token, id) for token, id in parts["ids"].items() if (type(token), type(id)) != (str, int)]:
            raise ValueError(f"the vocabulary is damaged: {wrong[0]!r:.80} is not a token and its id")
        return parts
    except FileNotFoundError as error:
        raise ValueError(f"{Path(error.filename).name} is missing; copy the tokenizer of the base model") from None
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"the tokenizer is damaged: {error!r}") from None


def expected_shapes(n_vocab, n_ctx, n_embd, n_head, n_layer, n_inner=None):
    """The names and shapes of the tensors of a GPT-2, from the model.py that OpenAI released with it -> dict."""
    n, inner = n_embd, n_inner or 4 * n_embd
    dense = {"attn/c_attn": (n, 3 * n), "attn/c_proj": (n, n), "mlp/c_fc": (n, inner), "mlp/c_proj": (inner, n)}
    block = {f"{ln}/{leaf}": (n_embd,) for ln in ("ln_1", "ln_2") for leaf in "gb"}
    for name, shape in dense.items():
        block |= {f"{name}/w": shape, f"{name}/b": shape[1:]}
    shapes = {"wte": (n_vocab, n_embd), "wpe": (n_ctx, n_embd), "ln_f/g": (n_embd,), "ln_f/b": (n_embd,)}
    shapes |= {f"h{i}/{name}": shape for i in range(n_layer) for name, shape in block.items()}
    return {f"model/{name}": shape for name, shape in shapes.items()}


def nest(tensors, n_layer):
    """{"model/h0/attn/c_attn/w": array, ...} -> {"blocks": [{"attn": {"c_attn": {"w": array}}}]}"""
    params = {}
    for name, tensor in tensors.items():
        _, *path, leaf = name.split("/")
        branch = params
        for part in path:
            branch = branch.setdefault(part, {})
        branch[leaf] = tensor
    params["blocks"] = [params.pop(f"h{i}") for i in range(n_layer)]
    return params
