"""Downloads from a server on this machine that misbehaves in many ways."""

import os
import signal
import sys

import pytest
from support.server import CONTENT, files_of

from checkpoint import UserError
from checkpoint.download import part_of
from checkpoint.openai import DATA, FILES, INDEX
from terminal.ending import report
from utils import load_encoder_hparams_and_params

HALF, REST = {"drop": 200_000}, "bytes=200704-"  # 200,000 bytes, rounded up to whole BLOCKs
OLD = {"headers": {"ETag": '"1"'}}
NEW = {"headers": {"ETag": '"2"'}}
WEAK = {"headers": {"ETag": 'W/"2"'}}
TOO_LONG = {"headers": {"ETag": '"2"', "Content-Length": "409999"}}
ELSEWHERE = {"status": 206, "headers": {"ETag": '"2"', "Content-Range": "bytes 4096-9/409536"}}
COMPRESSED = {"headers": {"ETag": '"2"', "Content-Encoding": "gzip"}}
SOON = {"Retry-After": "soon"}
A_FILE = {"Location": "file:///etc/passwd"}
LOGIN = b"<!DOCTYPE html>\n<p>Please log in"
*SMALL, _ = FILES


@pytest.fixture
def load(server, tmp_path, monkeypatch):
    """Load the model "355M" from the server."""
    monkeypatch.setenv("GPT2_MODELS_URL", server.url + "/")
    return lambda: load_encoder_hparams_and_params("355M", str(tmp_path))


def complete(model_dir):
    """Whether the files are there as served, and nothing else is."""
    return files_of(model_dir) == CONTENT


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
    ("name", "plan", "asked"),  # what the server does with a file, and is asked for
    [
        (DATA, [HALF | NEW, NEW], [None, REST]),
        (DATA, [HALF | NEW | {"freeze": 1}, NEW], [None, REST]),
        (DATA, [HALF | NEW, {"status": 503}, NEW], [None, REST, REST]),
        (DATA, [TOO_LONG, NEW], [None, "bytes=405504-"]),
        (DATA, [HALF | NEW, NEW | {"ranges": False}], [None, REST]),
        (DATA, [HALF | OLD, NEW], [None, REST]),
        (DATA, [HALF | OLD, NEW | {"if_range": False}, NEW], [None, REST, None]),
        (DATA, [HALF | WEAK, WEAK], [None, None]),
        (DATA, [HALF, {}], [None, None]),
        (DATA, [HALF | NEW, ELSEWHERE, NEW], [None, REST, None]),
        (DATA, [HALF | NEW, {"status": 416}, {}], [None, REST, None]),
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
        (DATA, {"status": 206}, "answered 206"),
        (DATA, {"drop": 8192}, "breaks off every time"),
        (DATA, {"stall": 1}, "no answer"),
        (DATA, {"headers": {"Content-Length": None}}, "does not say how long"),
        (DATA, {"headers": {"Content-Length": "409999"}}, "breaks off every time"),
        (DATA, {"content": b""}, "empty"),
        (DATA, COMPRESSED, "the server compresses it, though it was asked not to"),
        (DATA, {"status": 302, "headers": A_FILE}, "file:///etc/passwd"),
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
    leftovers = {path.name for path in tmp_path.glob("355M/*")}
    if name != DATA:
        assert [*tmp_path.iterdir()] == []  # no small file is there before all are right
    elif "now removed" in message:
        assert leftovers == {*SMALL}
    else:
        assert leftovers <= {*SMALL, part_of(tmp_path / "355M" / DATA, '"2"').name}
    server.plan.clear()
    load()
    assert complete(tmp_path / "355M")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_next_program_goes_on_where_one_was_ended(server, tmp_path, load, number):
    before = signal.signal(number, signal.SIG_DFL)  # nohup ignores SIGHUP
    server.plan[DATA] = [HALF | NEW, NEW | {"before": lambda: os.kill(os.getpid(), number)}, NEW]
    with pytest.raises(SystemExit, match=str(128 + number)):
        report(load, "main.py")
    signal.signal(number, before)
    (tmp_path / "355M" / "download").mkdir()  # as SIGKILL leaves it
    load()
    assert complete(tmp_path / "355M")
    assert asked_for(server)[2:] == [REST]


@pytest.mark.parametrize(
    ("page", "message"),
    [
        (
            {"content": LOGIN},
            f"where 200,704 have arrived before; .*, remove .*{DATA}.%222%22.part",
        ),
        (OLD | {"content": LOGIN * 9999}, "gave a wrong file, now removed: .*is a web page"),
    ],
)
def test_a_page_in_place_of_the_rest_leaves_what_has_arrived(server, tmp_path, load, page, message):
    server.plan[DATA] = [HALF | NEW, page | {"ranges": False}, NEW]
    with pytest.raises((OSError, UserError), match=message):
        load()
    load()
    assert complete(tmp_path / "355M")
    assert asked_for(server)[-1] == REST


def test_breaks_do_not_count_while_something_arrives(server, tmp_path, load):
    server.plan[DATA] = [NEW | {"drop": 8192}]
    load()
    assert complete(tmp_path / "355M")
    assert len(server.log) > 45


def test_two_downloads_at_once(server, tmp_path, load):
    """The second one says so in one line, and the first one goes on."""

    def second():
        with pytest.raises(UserError, match="another program downloads this model"):
            load()

    server.plan[DATA] = [{"before": second}]
    load()
    assert complete(tmp_path / "355M")
