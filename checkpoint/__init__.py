"""From a name to a model: `find(size or folder) -> folder`, then `read(folder) -> hparams, params`.

openai.py and huggingface.py each know one format, write.py writes OpenAI's. Neither
TensorFlow nor PyTorch is needed.
"""
