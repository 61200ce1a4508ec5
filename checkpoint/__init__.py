"""From a name to a model: find.py looks up or downloads its files, and read.py opens a folder.

Both return `read.Files`, which know their hparams, tensors() and encoder(). openai.py and
huggingface.py each read one format, with what raw.py has for both, and tokenizer.py reads
Hugging Face's tokenizers. Neither TensorFlow nor PyTorch is needed.
"""


class UserError(ValueError):
    """What the user gave, such as an option or a file, cannot be used. The message says why."""
