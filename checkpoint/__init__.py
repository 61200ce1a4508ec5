"""From a name to a model: `locate(name) -> folder`, then `open_model(folder) -> files`.

The files know their hparams, tensors() and tokenizer(). openai.py and huggingface.py each
read one format, write.py writes OpenAI's, and download.py fetches what is missing. Neither
TensorFlow nor PyTorch is needed.
"""


class UserError(ValueError):
    """What the user gave, such as an option or a file, cannot be used. The message says why."""
