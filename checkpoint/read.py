"""The files of a model: hyperparameters, weights and tokenizer, in either format."""

import contextlib
from pathlib import Path

from checkpoint import UserError, huggingface, openai
from encoder import Encoder


def open_model(folder, sizes=None):
    """The files of a model in a folder -> Files. UserError if there is none, or not of these sizes.

    sizes are the hyperparameters of a released model.
    """
    folder = Path(folder)
    with blamed_on(folder):
        stored = format_of(folder)(folder)
        check_heads(**stored.hparams)
        if sizes:
            check_sizes(stored.hparams, sizes)
    return Files(stored)


def read(folder):
    """hparams and params of a model."""
    files = open_model(folder)
    return files.hparams, files.params()


def format_of(folder):
    """The class that reads these files. ValueError if none can."""
    names = {path.name for path in folder.iterdir()}
    if "adapter_config.json" in names:
        advice = "model.merge_and_unload().save_pretrained(folder)"
        raise ValueError(f"it holds an adapter; merge that with peft: {advice}")
    if "snapshots" in names:
        raise ValueError("it is of the cache of transformers; give a folder of its snapshots")
    is_openai = "config.json" not in names and names & {"hparams.json", "encoder.json"}
    return openai.Folder if is_openai else huggingface.Folder


class Files:
    """The files of a model, in OpenAI's or in Hugging Face's format.

    hparams are the five numbers of `openai.HPARAMS`. What is wrong with a file is a UserError.
    """

    def __init__(self, stored):
        self.stored, self.hparams = stored, stored.hparams

    def tensors(self, path=None):
        """{OpenAI's name: array}. path is that of the weights, if they have another name.

        Each w is [n_in, n_out]. All are read-only views of the memory-mapped file where its
        type allows it.
        """
        with blamed_on(self.stored.folder):
            stored = self.stored.tensors(path)
            tensors = {name: without_first(tensor) for name, tensor in stored.items()}
            check_shapes(tensors, self.hparams)
        return tensors

    def params(self):
        """The tensors as a nested dict.

        {"wte", "wpe", "ln_f": {"g", "b"}, "blocks": [{"ln_1", "attn": {"c_attn": {"w", "b"},
        "c_proj"}, "ln_2", "mlp": {"c_fc", "c_proj"}}, ...]}
        """
        return nest(self.tensors(), self.hparams["n_layer"])

    def encoder(self):
        """The model's tokenizer, an encoder.Encoder."""
        with blamed_on(self.stored.folder):
            try:
                parts = self.stored.tokenizer()
            except KeyError as name:
                raise ValueError(f"the tokenizer is damaged: {name} is missing") from None
            except (TypeError, AttributeError, IndexError) as error:
                raise ValueError(f"the tokenizer is damaged: {error!r}") from None
        return Encoder(**parts)


@contextlib.contextmanager
def blamed_on(folder):
    """Turn an error about a file, or about a missing one, into a UserError."""
    try:
        yield
    except FileNotFoundError as error:
        why = f"{Path(error.filename).name} is missing; docs/your_models.md has what a model needs"
        raise UserError(f"{folder} cannot be used: {why}") from None
    except ValueError as error:
        raise UserError(f"{folder} cannot be used: {error}") from None


# ---- Checks ----


def check_heads(n_head, n_embd, **_):
    if n_embd % n_head:
        raise ValueError(f"n_head = {n_head} does not divide n_embd = {n_embd}")


def check_sizes(hparams, sizes):
    """ValueError unless these are the released model's sizes. Shapes don't show its n_head."""
    wrong = [f"{name} = {n}" for name, n in hparams.items() if n != sizes[name]]
    if wrong:
        raise ValueError(f"it is not the model of this name: found {', '.join(wrong)}")


def check_shapes(tensors, hparams):
    """ValueError unless all tensors are there, with the shapes of these hyperparameters."""
    n_layer = hparams["n_layer"]
    if n_layer > len(tensors):
        raise ValueError(f"n_layer is {n_layer}, but there are only {len(tensors)} tensors")
    bias = tensors.get("model/h0/mlp/c_fc/b")
    n_inner = None if bias is None else bias.size
    expected = expected_shapes(**hparams, n_inner=n_inner)
    kinds = {name: kind_of(tensor) for name, tensor in tensors.items()}
    wrong = sorted({name for name, _ in expected.items() ^ kinds.items()})
    if wrong:
        name = wrong[0]
        shapes = f"expected {expected.get(name, 'none')}, found {kinds.get(name, 'none')}"
        example = f"such as {name!r}: {shapes}"
        raise ValueError(f"{len(wrong)} tensors do not fit the hyperparameters, {example}")


def without_first(tensor):
    """A tensor, but OpenAI's w, which is [1, n_in, n_out], as [n_in, n_out]."""
    return tensor[0] if tensor.ndim == 3 and len(tensor) == 1 else tensor


def kind_of(tensor):
    return tensor.shape if tensor.dtype.kind == "f" else f"{tensor.dtype} numbers"


# ---- Shapes ----


def expected_shapes(n_vocab, n_ctx, n_embd, n_head, n_layer, n_inner=None):
    """{name: shape} of the tensors of a GPT-2, from the model.py that OpenAI released with it."""
    n, n_qkv = n_embd, 3 * n_embd
    inner = n_inner or 4 * n_embd
    block = {
        "ln_1/g": (n,),
        "ln_1/b": (n,),
        "attn/c_attn/w": (n, n_qkv),
        "attn/c_attn/b": (n_qkv,),
        "attn/c_proj/w": (n, n),
        "attn/c_proj/b": (n,),
        "ln_2/g": (n,),
        "ln_2/b": (n,),
        "mlp/c_fc/w": (n, inner),
        "mlp/c_fc/b": (inner,),
        "mlp/c_proj/w": (inner, n),
        "mlp/c_proj/b": (n,),
    }
    shapes = {
        "model/wte": (n_vocab, n),
        "model/wpe": (n_ctx, n),
        "model/ln_f/g": (n,),
        "model/ln_f/b": (n,),
    }
    for i in range(n_layer):
        shapes |= {f"model/h{i}/{name}": shape for name, shape in block.items()}
    return shapes


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
