"""Downloads from a server on this machine that misbehaves in many ways."""

import hashlib
import json
import os

import pytest
from support import CONTENT

from checkpoint import UserError, download
from checkpoint.openai import DATA, FILES, INDEX
from utils import load_encoder_hparams_and_params

HALF, REST = {"drop": 200_000}, "bytes=200704-"  # 200,000 bytes, rounded up to whole BLOCKs
NAMED = {"headers": {"ETag": f'"{hashlib.sha256(CONTENT[DATA]).hexdigest()}"'}}
LOGIN = b"<!DOCTYPE html>\n<p>Please log in"


@pytest.fixture
def load(server, tmp_path, monkeypatch):
    """Load the model "355M" from the server."""
    monkeypatch.setenv("GPT2_MODELS_URL", server.url + "/")
    return lambda: load_encoder_hparams_and_params("355M", str(tmp_path))


def complete(model_dir):
    """Whether the files are there as served, and nothing else is."""
    return {path.name: path.read_bytes() for path in model_dir.iterdir()} == CONTENT


def asked_for(server, name=DATA):
    return [asked for file, asked in server.log if file == name]


def test_missing_and_empty_files_are_downloaded_once(server, tmp_path, load):
    for n_requests in len(FILES), len(FILES) + len(FILES) - 1:
        assert load()[1]["n_layer"] == 3
        assert complete(tmp_path / "355M") and len(server.log) == n_requests
        (tmp_path / "355M" / "vocab.bpe").write_bytes(b"")  # then all small files are fetched
    assert [name for name, _ in server.log][len(FILES) - 1] == DATA  # the small files come first


WHILE = [  # a file, what the server does with it, and what it is asked for
    (DATA, [HALF, {}], [None, None]),
    (DATA, [HALF | NAMED, NAMED], [None, REST]),
    (DATA, [HALF | NAMED | {"freeze": 1}, NAMED], [None, REST]),
    (DATA, [HALF | NAMED, NAMED | {"ranges": False}], [None, REST]),
    (DATA, [HALF | NAMED, {}, {}], [None, REST, None]),
    (DATA, [HALF | NAMED, {"status": 416}, {}], [None, REST, None]),
    (DATA, [HALF | NAMED, {"status": 503}, NAMED], [None, REST, REST]),
    (DATA, [HALF | NAMED, NAMED | {"drop": 0}, NAMED], [None, REST, REST]),
    (
        DATA,
        [HALF | NAMED, {"status": 206, "content": CONTENT[DATA]} | NAMED, NAMED],
        [None, REST, None],
    ),
    (DATA, [{"status": 500}, {"status": 429, "headers": {"Retry-After": "soon"}}, {}], [None] * 3),
    (DATA, [{"hang_up": True}, {}], [None, None]),
    ("vocab.bpe", [{"drop": 0}, {}], [None, None]),
]


@pytest.mark.parametrize(("name", "plan", "asked"), WHILE)
def test_a_server_that_misbehaves_for_a_while(server, tmp_path, load, name, plan, asked):
    server.plan[name] = plan.copy()
    load()
    assert complete(tmp_path / "355M") and asked_for(server, name) == asked


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        (DATA, {"status": 404}, "answered 404 Not Found"),
        (DATA, {"status": 500}, "answered 500"),
        (DATA, {"drop": 8192}, "breaks off every time"),
        (DATA, {"stall": 1}, "no answer"),
        ("vocab.bpe", {"content": LOGIN}, "gave a wrong file; try again .*one does not follow"),
        ("hparams.json", {"content": LOGIN}, "gave a wrong file; .*hparams.json is damaged"),
        (
            "hparams.json",
            {"content": json.dumps({"n_vocab": 9}).encode()},
            "gave a wrong file.*n_ctx is None",
        ),
        (INDEX, {"content": CONTENT[INDEX][:-1]}, "gave a wrong file.* not a LevelDB table"),
        (DATA, {"headers": {"Content-Length": None}}, "does not say how long"),
        (DATA, {"content": b""}, "empty"),
        (
            DATA,
            {"headers": {"Content-Encoding": "gzip"}},
            "sends gzip where the file itself was asked for",
        ),
        (DATA, {"headers": {"Content-Length": "409999"}}, "breaks off every time"),
        (DATA, {"content": CONTENT[DATA][:-9]}, "409,527 bytes, not 409,536"),
        (DATA, {"content": LOGIN}, "gave wrong weights"),
        (
            DATA,
            {"status": 302, "headers": {"Location": "file:///etc/passwd"}},
            "file:///etc/passwd",
        ),
        (DATA, {"content": CONTENT[DATA][:-1] + b"x"}, r"gave wrong weights.*'model/wte'.* crc32c"),
    ],
)
def test_an_error_leaves_no_wrong_file(server, tmp_path, load, name, wrong, message):
    server.plan[name] = [wrong]
    with pytest.raises((OSError, UserError), match=message) as error:
        load()
    assert "\n" not in str(error.value) and server.url in str(error.value)
    if name != DATA:
        assert os.listdir(tmp_path / "355M") == []  # no small file is there before all are right
    assert not (tmp_path / "355M" / DATA).exists()
    if message.startswith("gave wrong weights"):
        assert not (tmp_path / "355M" / f"{DATA}.part").exists()
    server.plan.clear()
    load()
    assert complete(tmp_path / "355M")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("hparams.json", b"{", r"hparams\.json is damaged"),
        (
            "hparams.json",
            CONTENT["hparams.json"].replace(b'"n_head": 4', b'"n_head": 2'),
            "not the released 355M",
        ),
        ("vocab.bpe", CONTENT["vocab.bpe"][:-9], r"vocab\.bpe is damaged"),
    ],
)
def test_a_wrong_small_file_is_named_first(server, tmp_path, load, name, content, message):
    load()
    (tmp_path / "355M" / DATA).unlink()
    (tmp_path / "355M" / name).write_bytes(content)
    with pytest.raises(UserError, match=rf"{message}.*; remove that file to download it again"):
        load()
    assert len(asked_for(server)) == 1


def test_no_server(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GPT2_MODELS_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(download, "BACKOFF", 0.001)
    message = r"no answer \(ConnectionError\). The bundled pair .*needs no download"
    with pytest.raises(OSError, match=message):
        load_encoder_hparams_and_params("355M", str(tmp_path / "new" / "models"))
    assert os.listdir(tmp_path / "new" / "models" / "355M") == [] and capsys.readouterr().err == ""


@pytest.mark.parametrize("have", [12_345, 409_535])
@pytest.mark.parametrize("is_named", [True, False])
def test_resumed_if_the_server_names_a_checksum(server, tmp_path, load, have, is_named):
    (tmp_path / "355M").mkdir()
    (tmp_path / "355M" / (DATA + ".part")).write_bytes(CONTENT[DATA][:have])
    server.plan[DATA] = [NAMED if is_named else {}]
    load()
    rest = f"bytes={have}-"
    assert complete(tmp_path / "355M") and asked_for(server) == [rest] + [None] * (not is_named)


def test_a_rest_of_another_file_is_not_kept(server, tmp_path, load):
    (tmp_path / "355M").mkdir()
    (tmp_path / "355M" / (DATA + ".part")).write_bytes(b"x" * 12_345)
    server.plan[DATA] = [NAMED]
    message = "does not match the checksum that the server names, and is removed"
    with pytest.raises(OSError, match=message):
        load()
    load()
    assert complete(tmp_path / "355M") and asked_for(server) == ["bytes=12345-", None]


def test_two_downloads_at_once(server, tmp_path, load):
    """The second one says so in one line, and the first one goes on."""

    def second():
        message = "another program downloads this model, or was ended while it did"
        with pytest.raises(UserError, match=message) as error:
            load()
        assert str(tmp_path / "355M" / "download.lock") in str(error.value)

    server.plan[DATA] = [{"before": second}]
    load()
    assert complete(tmp_path / "355M")
    load()
