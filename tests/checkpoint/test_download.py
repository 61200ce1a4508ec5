"""Downloads from a server on this machine that misbehaves in many ways."""

import hashlib
import os
import signal
import sys

import pytest
from support import CONTENT

from checkpoint import UserError
from checkpoint.openai import DATA, FILES, INDEX
from terminal.ending import report
from utils import load_encoder_hparams_and_params

HALF, REST = {"drop": 200_000}, "bytes=200704-"  # 200,000 bytes, rounded up to whole BLOCKs
NAMED = {"headers": {"ETag": f'"{hashlib.sha256(CONTENT[DATA]).hexdigest()}"'}}
WHOLE = {"status": 206, "content": CONTENT[DATA]} | NAMED
SOON = {"Retry-After": "soon"}
ELSEWHERE = {"Location": "file:///etc/passwd"}
LOGIN = b"<!DOCTYPE html>\n<p>Please log in"
*SMALL, _ = FILES


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
    for fetched in FILES, SMALL, []:
        server.log.clear()
        assert load()[1]["n_layer"] == 3
        assert complete(tmp_path / "355M")
        assert [name for name, _ in server.log] == [*fetched]
        if fetched == FILES:
            (tmp_path / "355M" / "vocab.bpe").write_bytes(b"")  # then all small files are fetched


@pytest.mark.parametrize(
    ("name", "plan", "asked"),  # a file, what the server does with it, and what it is asked for
    [
        (DATA, [HALF, {}], [None, None]),
        (DATA, [HALF | NAMED, NAMED], [None, REST]),
        (DATA, [HALF | NAMED | {"freeze": 1}, NAMED], [None, REST]),
        (DATA, [HALF | NAMED, NAMED | {"ranges": False}], [None, REST]),
        (DATA, [HALF | NAMED, {}, {}], [None, REST, None]),
        (DATA, [HALF | NAMED, {"status": 416}, {}], [None, REST, None]),
        (DATA, [HALF | NAMED, {"status": 503}, NAMED], [None, REST, REST]),
        (DATA, [HALF | NAMED, WHOLE, NAMED], [None, REST, None]),
        (DATA, [{"status": 500}, {"status": 429, "headers": SOON}, {}], [None] * 3),
        (DATA, [{"hang_up": True}, {}], [None, None]),
        ("vocab.bpe", [{"drop": 0}, {}], [None, None]),
    ],
)
def test_a_server_that_misbehaves_for_a_while(server, tmp_path, load, name, plan, asked):
    server.plan[name] = plan.copy()
    load()
    assert complete(tmp_path / "355M")
    assert asked_for(server, name) == asked


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        (DATA, {"status": 404}, "answered 404 Not Found"),
        (DATA, {"status": 500}, "answered 500"),
        (DATA, {"drop": 8192}, "breaks off every time"),
        (DATA, {"stall": 1}, "no answer"),
        (DATA, {"headers": {"Content-Length": None}}, "does not say how long"),
        (DATA, {"headers": {"Content-Length": "409999"}}, "breaks off every time"),
        (DATA, {"content": b""}, "empty"),
        (DATA, {"status": 302, "headers": ELSEWHERE}, "file:///etc/passwd"),
        (DATA, {"content": CONTENT[DATA][:-9]}, "now removed: .*409,527 bytes, not 409,536"),
        (DATA, {"content": CONTENT[DATA][:-1] + b"x"}, "now removed: .*'model/wte'.* crc32c"),
        ("vocab.bpe", {"content": LOGIN}, "gave a wrong file, .*vocab.bpe is a web page"),
        ("hparams.json", {"content": b'{"n_vocab": 9}'}, "gave a wrong file.*n_ctx is None"),
        (INDEX, {"content": CONTENT[INDEX][:-1]}, "gave a wrong file.* not a LevelDB table"),
    ],
)
def test_an_error_leaves_no_wrong_file(server, tmp_path, load, name, wrong, message):
    server.plan[name] = [wrong]
    with pytest.raises((OSError, UserError), match=message) as error:
        load()
    assert "\n" not in str(error.value)
    assert server.url in str(error.value)
    left = {path.name for path in (tmp_path / "355M").iterdir()}
    if name != DATA:
        assert left == set()  # no small file is there before all are right
    elif "now removed" in message:
        assert left == {*SMALL}
    else:
        assert left <= {*SMALL, f"{DATA}.part"}
    server.plan.clear()
    load()
    assert complete(tmp_path / "355M")


@pytest.mark.parametrize(
    ("begin", "plan", "more"),
    [
        (CONTENT[DATA], NAMED, []),
        (b"x" * 12_345, {}, [None]),
        (b"x" * 12_345, NAMED, [None]),  # it was the beginning of another file
    ],
)
def test_resumed_if_the_server_names_a_checksum(server, tmp_path, load, begin, plan, more):
    (tmp_path / "355M").mkdir()
    (tmp_path / "355M" / f"{DATA}.part").write_bytes(begin[:12_345])
    server.plan[DATA] = [plan]
    load()
    assert complete(tmp_path / "355M")
    assert asked_for(server) == ["bytes=12345-", *more]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_an_ended_program_does_not_block_the_next_one(server, tmp_path, load, number):
    server.plan[DATA] = [{"before": lambda: os.kill(os.getpid(), number)}, {}]
    with pytest.raises(SystemExit, match=str(128 + number)):
        report(load, "main.py")
    load()
    assert complete(tmp_path / "355M")


def test_two_downloads_at_once(server, tmp_path, load):
    """The second one says so in one line, and the first one goes on."""

    def second():
        with pytest.raises(UserError, match="another program downloads this model"):
            load()

    server.plan[DATA] = [{"before": second}]
    load()
    assert complete(tmp_path / "355M")
