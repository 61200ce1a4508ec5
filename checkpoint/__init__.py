"""From a name to a model: `locate(name) -> folder`, then `open_model(folder) -> files`.

After `locate`, which checks the size, a model has no name, only a folder. The files know
their hparams, tensors() and encoder(). openai.py and huggingface.py each read one format,
tokenizer.py the tokenizers of the latter. download.py fetches what is missing. Neither
TensorFlow nor PyTorch is needed.
"""


class UserError(ValueError):
    """What the user gave, such as an option or a file, cannot be used. The message says why."""
