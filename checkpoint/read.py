"""The files of a model: hyperparameters, weights and tokenizer, in either format."""

import contextlib
import reprlib
from pathlib import Path

from checkpoint import UserError, huggingface, names, openai

HPARAMS = ("n_vocab", "n_ctx", "n_embd", "n_head", "n_layer")
MATRICES = ("attn/c_attn", "attn/c_proj", "mlp/c_fc", "mlp/c_proj")


def open_model(folder, name=None):
    """The files of a model in a folder -> Files

    name is the name of the model, if it has one. UserError if there is none.
    """
    folder = Path(folder)
    with blamed_on(folder, "docs/your_models.md has the files that a model needs"):
        form = format_of(folder)
        found = form.hparams(folder)
        hparams = {key: found.get(key) for key in HPARAMS}
        check_hparams(hparams)
        check_released(name, hparams)
    return Files(folder, form, hparams)


def read(folder):
    """hparams and params of a model."""
    files = open_model(folder)
    return files.hparams, files.params()


def format_of(folder):
    """The module that reads these files, openai or huggingface. ValueError if nothing can."""
    paths = {path.name: path for path in folder.iterdir()}
    for name, path in paths.items():
        if is_lfs_pointer(path):
            advice = "get it with git lfs pull"
            raise ValueError(f"{name} is a pointer of git-lfs, not the file; {advice}")
    if "adapter_config.json" in paths:
        advice = "model.merge_and_unload().save_pretrained(folder)"
        raise ValueError(f"it holds an adapter; merge that with peft: {advice}")
    if "config.json" in paths:
        return huggingface
    return openai if {"hparams.json", "encoder.json"} & {*paths} else huggingface


def is_lfs_pointer(path):
    if not path.is_file() or path.stat().st_size >= 1000:
        return False
    return path.read_bytes().startswith(b"version https://git-lfs")


class Files:
    """The files of a model, in OpenAI's or in Hugging Face's format.

    hparams are the five numbers of HPARAMS. What is wrong with a file is a UserError.
    """

    def __init__(self, folder, form, hparams):
        self.folder, self.format, self.hparams = folder, form, hparams

    def tensors(self, data=None):
        """{OpenAI's name: array}. data is the file of the weights, if it has another name.

        Each w is [n_in, n_out]. All are read-only views of the memory-mapped file where its
        type allows it.
        """
        with blamed_on(self.folder):
            stored = self.format.tensors(self.folder, data)
            tensors = {name: without_first(tensor) for name, tensor in stored.items()}
            check_shapes(tensors, self.hparams)
        return tensors

    def params(self):
        """The tensors as a nested dict.

        {"wte", "wpe", "ln_f": {"g", "b"}, "blocks": [{"ln_1", "attn": {"c_attn": {"w", "b"},
        "c_proj"}, "ln_2", "mlp": {"c_fc", "c_proj"}}, ...]}
        """
        return nest(self.tensors(), self.hparams["n_layer"])

    def tokenizer(self):
        """What `encoder.Encoder` needs -> dict."""
        with blamed_on(self.folder, "copy the tokenizer of the base model"):
            try:
                parts = self.format.tokenizer(self.folder)
                check_vocabulary(**parts)
            except (KeyError, TypeError, AttributeError, IndexError) as error:
                raise ValueError(f"the tokenizer is damaged: {error!r}") from None
        return parts

    def check_small(self):
        """What can be checked before the weights are there."""
        self.tokenizer()
        if self.format is openai:
            openai.read_index(self.folder / openai.INDEX)


@contextlib.contextmanager
def blamed_on(folder, advice=None):
    """What is wrong with a file is a UserError, and so is a missing one, if there is an advice."""
    try:
        yield
    except UserError:
        raise
    except FileNotFoundError as error:
        if advice is None:
            raise
        why = f"{Path(error.filename).name} is missing; {advice}"
        raise UserError(f"{folder} cannot be used: {why}") from None
    except ValueError as error:
        raise UserError(f"{folder} cannot be used: {error}") from None


# ---- Checks ----


def check_hparams(hparams):
    for name, value in hparams.items():
        if type(value) is not int or not 0 < value < 2**31:  # the type of True is bool
            what = f"{name} is {reprlib.repr(value)}"
            raise ValueError(f"{what}; a whole number from 1 on is needed")
    n_head, n_embd = hparams["n_head"], hparams["n_embd"]
    if n_embd % n_head:
        raise ValueError(f"n_head = {n_head} does not divide n_embd = {n_embd}")


def check_released(name, hparams):
    """No shape depends on n_head, so another model of this name might pass for it."""
    known = names.KNOWN.get(name, {})
    wrong = [key for key in known if known[key] != hparams[key]]
    if wrong:
        found = ", ".join(f"{key} = {hparams[key]}" for key in wrong)
        raise ValueError(f"it is not the released {name}: found {found}")


def check_shapes(tensors, hparams):
    if hparams["n_layer"] > len(tensors):
        what = f"n_layer is {hparams['n_layer']}"
        raise ValueError(f"{what}, but there are only {len(tensors)} tensors")
    found = {name: kind_of(tensor) for name, tensor in tensors.items()}
    expected = expected_shapes(**hparams, n_inner=width_of(tensors))
    wrong = sorted({name for name, _ in expected.items() ^ found.items()})
    if not wrong:
        return
    turned = {name: expected[name][::-1] for name in wrong if name in expected}
    if found == expected | turned:
        what = f"{len(wrong)} matrices are stored transposed, as nn.Linear has them"
        raise ValueError(f"{what}; transpose all of {', '.join(MATRICES)}")
    name = wrong[0]
    one = f"{name!r}: expected {expected.get(name)}, found {found.get(name)}"
    what = f"{len(wrong)} tensors differ, such as {one}"
    raise ValueError(f"its hyperparameters do not fit: {what}")


def without_first(tensor):
    """OpenAI's w is [1, n_in, n_out]."""
    return tensor[0] if tensor.ndim == 3 else tensor


def kind_of(tensor):
    return tensor.shape if tensor.dtype.kind == "f" else f"{tensor.dtype} numbers"


def width_of(tensors):
    """The width of the hidden layer, which is 4 n_embd in most models."""
    bias = tensors.get("model/h0/mlp/c_fc/b")
    return len(bias) if bias is not None and bias.ndim == 1 else None


def check_vocabulary(merges, ids, library=None, **others):
    for token, id in ids.items():
        if (type(token), type(id)) != (str, int):
            pair = reprlib.repr((token, id))
            raise ValueError(f"the vocabulary is damaged: {pair} is not a token and its id")
    n = len(ids)
    if sorted(ids.values()) != [*range(n)]:
        what = f"the {n:,} tokens of the vocabulary"
        raise ValueError(f"{what} do not have the ids 0 to {n - 1:,}")
    if library is not None:
        return
    for token in [*openai.BYTES.values(), *map("".join, merges)]:
        if token not in ids:
            what = f"the vocabulary has no token {token[:20]!r}"
            raise ValueError(f"{what}, which byte pair encoding needs")


# ---- Shapes ----


def expected_shapes(n_vocab, n_ctx, n_embd, n_head, n_layer, n_inner=None):
    """{name: shape} of the tensors of a GPT-2, from the model.py that OpenAI released with it."""
    n, inner = n_embd, n_inner or 4 * n_embd
    matrices = dict(zip(MATRICES, [(n, 3 * n), (n, n), (n, inner), (inner, n)]))
    block = {f"{norm}/{leaf}": (n,) for norm in ("ln_1", "ln_2") for leaf in "gb"}
    for name, shape in matrices.items():
        block |= {f"{name}/w": shape, f"{name}/b": shape[1:]}
    shapes = {"wte": (n_vocab, n), "wpe": (n_ctx, n), "ln_f/g": (n,), "ln_f/b": (n,)}
    for i in range(n_layer):
        shapes |= {f"h{i}/{name}": shape for name, shape in block.items()}
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
