"""Damage a model directory, guided by coverage, until loading it fails with an unexpected error.

    pip install -r tools/requirements.txt
    python tools/fuzz.py build/fuzz -max_total_time=1800

The first argument is the directory that inputs are kept in. The other arguments are libFuzzer's options. The expected
errors are CheckpointError and VocabularyError. An input that causes another error is kept as crash-*, timeout-* or
oom-*.

The first byte of an input chooses what the other bytes are: the index of a checkpoint, a block or an entry of an index,
hparams.json, encoder.json or vocab.bpe. Blocks and entries get correct checksums, because a wrong checksum would end
loading too early.
"""

import os
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__" and (len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help")):
    sys.exit(print(__doc__))  # before the imports, so that --help needs no extra packages

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
with atheris.instrument_imports(include=["checkpoint", "utils", "encoder"]):
    import utils
    from checkpoint import bundle, writer
    from checkpoint.bundle import CheckpointError
    from checkpoint.download import FILES, INDEX
    from encoder import VocabularyError, get_encoder

CONTENT = {name: (Path(utils.MODELS_DIR) / "draft" / name).read_bytes() for name in FILES}
LIMITS = ["-timeout=10", "-rss_limit_mb=1024", "-max_len=20000", "-len_control=0"]  # seconds, MB, bytes
INDEX_PATH = os.path.join(utils.MODELS_DIR, "draft", INDEX)
ENTRIES = {name.encode(): writer.entry(*entry) for name, entry in bundle.read_index(INDEX_PATH).items()}
ITEMS = [(b"", writer.HEADER), *ENTRIES.items()]


def index_of_a_block(data):
    handle = writer.varint(0) + writer.varint(len(data))
    return writer.finish(writer.seal(data), writer.block([(max(ENTRIES), handle)]))


def index_of_an_entry(data):
    return writer.table([(b"", writer.HEADER), *sorted((ENTRIES | {min(ENTRIES): data}).items())])


KINDS = [  # the name of the file, the function from an input to its content, the first inputs
    (INDEX, bytes, [CONTENT[INDEX]]),
    (INDEX, index_of_a_block, [writer.block(ITEMS)]),
    (INDEX, index_of_an_entry, list(ENTRIES.values())),
    ("hparams.json", bytes, [CONTENT["hparams.json"]]),
    ("encoder.json", bytes, [CONTENT["encoder.json"]]),
    ("vocab.bpe", bytes, [CONTENT["vocab.bpe"]]),
]


def one_input(data):
    name, make, _ = KINDS[data[0] % len(KINDS) if data else 0]
    path = os.path.join(MODELS, "124M", name)
    Path(path).write_bytes(make(data[1:]))
    try:
        if name in ("encoder.json", "vocab.bpe"):
            encoder = get_encoder("124M", MODELS)
            text = "Once upon a time, \0\N{SNOWMAN}"
            assert encoder.decode(encoder.encode(text)) == text
            encoder.decode(range(len(encoder.ids)))
        else:
            hparams, params = utils.load_hparams_and_params(os.path.join(MODELS, "124M"))
            assert params["wte"].shape == (hparams["n_vocab"], hparams["n_embd"])
            assert len(params["blocks"]) == hparams["n_layer"]
            params["blocks"][-1]["mlp"]["c_proj"]["w"].sum()
    except (CheckpointError, VocabularyError) as error:
        assert "\n" not in str(error) and len(str(error)) < 5000, "the error is not one short line"
        str(error).encode()
    finally:
        Path(path).write_bytes(CONTENT[name])


def main():
    global MODELS
    found, *options = sys.argv[1:]
    with tempfile.TemporaryDirectory() as MODELS:
        (Path(MODELS) / "124M").mkdir()
        for name, content in CONTENT.items():
            (Path(MODELS) / "124M" / name).write_bytes(content)
        inputs = Path(found) / "inputs"
        inputs.mkdir(parents=True, exist_ok=True)
        for i, (_, _, seeds) in enumerate(KINDS):
            for j, seed in enumerate(seeds):
                (inputs / f"seed-{i}-{j}").write_bytes(bytes([i]) + seed)
        atheris.Setup([sys.argv[0], *LIMITS, f"-artifact_prefix={found}/", *options, str(inputs)], one_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
