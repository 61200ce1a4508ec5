"""Downloads from a server on this machine that misbehaves in many ways."""

import json
import os

import pytest
import requests
from support import CONTENT

from checkpoint import find
from checkpoint.openai import DATA, FILES, INDEX
from errors import UserError
from utils import load_encoder_hparams_and_params

HALF, REST = {"drop": 200_000}, "bytes=200704-"  # 200,000 bytes, rounded up to whole BLOCKs
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


@pytest.mark.parametrize(
    ("name", "plan", "asked"),
    [
        (DATA, [HALF, {}], [None, REST]),
        (DATA, [HALF | {"freeze": 1}, {}], [None, REST]),
        (DATA, [HALF, {"ranges": False}], [None, REST]),
        (DATA, [HALF, {"status": 416, "headers": {"Content-Range": "bytes */9"}}, {}], [None, REST, None]),
        (DATA, [HALF, {"status": 503}, {}], [None, REST, REST]),
        (DATA, [HALF, {"drop": 0}, {}], [None, REST, REST]),
        (DATA, [{"status": 500}, {"status": 429, "headers": {"Retry-After": "soon"}}, {}], [None] * 3),
        (DATA, [{"hang_up": True}, {}], [None, None]),
        ("vocab.bpe", [{"drop": 0}, {}], [None, None]),
    ],
)
def test_a_server_that_misbehaves_for_a_while(server, tmp_path, load, name, plan, asked):
    server.plan[name] = plan.copy()
    load()
    assert complete(tmp_path / "355M") and asked_for(server, name) == asked


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        (DATA, {"status": 404}, "answered 404 Not Found"),
        (DATA, {"status": 500}, "answered 500"),
        (DATA, {"ranges": False, "drop": 8192}, "breaks off every time"),
        (DATA, {"stall": 1}, "no answer"),
        ("vocab.bpe", {"content": LOGIN}, "gave a wrong file; try again .*one does not follow"),
        ("hparams.json", {"content": LOGIN}, "gave a wrong file; .*hparams.json is damaged"),
        ("hparams.json", {"content": json.dumps({"n_vocab": 9}).encode()}, "gave a wrong file.*n_ctx is None"),
        (INDEX, {"content": CONTENT[INDEX][:-1]}, "gave a wrong file.* not a LevelDB table"),
        (DATA, {"headers": {"Content-Length": None}}, "does not say how long"),
        (DATA, {"content": b""}, "empty"),
        (DATA, {"headers": {"Content-Length": "409999"}}, "breaks off every time"),
        (DATA, {"content": CONTENT[DATA][:-9]}, "409,527 bytes, not 409,536"),
        (DATA, {"content": LOGIN}, "gave wrong weights"),
        (DATA, {"status": 302, "headers": {"Location": "file:///etc/passwd"}}, "file:///etc/passwd"),
        (DATA, {"content": CONTENT[DATA][:-1] + b"x"}, r"gave wrong weights.*'model/wte'.* crc32c"),
    ],
)
def test_an_error_leaves_no_wrong_file_and_the_next_download_succeeds(server, tmp_path, load, name, wrong, message):
    server.plan[name] = [wrong]
    with pytest.raises((OSError, UserError), match=message) as error:
        load()
    assert "\n" not in str(error.value) and server.url in str(error.value)
    if name != DATA:
        assert not (tmp_path / "355M").exists()  # no small file has its name before all are right
    assert not (tmp_path / "355M" / DATA).exists()
    server.plan.clear()
    load()
    assert complete(tmp_path / "355M")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("hparams.json", b"{", r"hparams\.json is damaged"),
        ("hparams.json", CONTENT["hparams.json"].replace(b'"n_head": 4', b'"n_head": 2'), "not the released 355M"),
        ("vocab.bpe", CONTENT["vocab.bpe"][:-9], r"vocab\.bpe is damaged"),
    ],
)
def test_a_wrong_small_file_is_named_before_the_weights_are_downloaded(server, tmp_path, load, name, content, message):
    load()
    (tmp_path / "355M" / DATA).unlink()
    (tmp_path / "355M" / name).write_bytes(content)
    with pytest.raises(UserError, match=rf"{message}.*; remove that file to download it again"):
        load()
    assert len(asked_for(server)) == 1


def test_what_is_there_is_not_lost_or_mixed_with_an_error_page(server, tmp_path, load):
    part = tmp_path / "355M" / (DATA + ".part")
    part.parent.mkdir()
    part.write_bytes(CONTENT[DATA][:12_345])
    server.plan[DATA] = [{"content": LOGIN, "ranges": False}]
    with pytest.raises(OSError, match=r"the server offers \d+ bytes, but .*part has 12,345; remove it to begin anew"):
        load()
    assert part.stat().st_size == 12_345
    server.plan[DATA] = [{"status": 416, "headers": {"Content-Range": f"bytes */{len(CONTENT[DATA])}"}}, {}]
    load()
    assert complete(tmp_path / "355M") and asked_for(server)[-1] is None  # from the beginning


def test_no_server_leaves_no_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GPT2_MODELS_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(find, "BACKOFF", 0.001)
    with pytest.raises(OSError, match=r"no answer .*The bundled pair .*needs no download"):
        load_encoder_hparams_and_params("355M", str(tmp_path / "new" / "models"))
    assert os.listdir(tmp_path) == [] and capsys.readouterr().err == ""


CERTIFICATE = "(Caused by SSLError(CertificateError('certificate verify failed: unknown (_ssl.c:1006)')))"
PROXY = "(Caused by ProxyError('No proxy', OSError('Tunnel connection failed: 407 Proxy Authentication Required')))"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            requests.exceptions.SSLError(CERTIFICATE),
            "certificate verify failed: unknown; REQUESTS_CA_BUNDLE may",
        ),
        (
            requests.exceptions.ProxyError(PROXY),
            "Tunnel connection failed: 407 Proxy Authentication Required. The",
        ),
    ],
)
def test_the_reason_is_said(server, load, monkeypatch, error, message):
    original = requests.Session.get

    def get(self, url, **options):
        if url.endswith(INDEX):
            raise error
        return original(self, url, **options)

    monkeypatch.setattr(requests.Session, "get", get)
    with pytest.raises(OSError, match=message):
        load()


@pytest.mark.parametrize("have", [12_345, 409_536])
def test_an_interrupted_download_of_the_data_is_resumed(server, tmp_path, load, have):
    (tmp_path / "355M").mkdir()
    (tmp_path / "355M" / (DATA + ".part")).write_bytes(CONTENT[DATA][:have])
    load()
    assert complete(tmp_path / "355M") and asked_for(server) == [f"bytes={have}-"]


# ---- Another process downloads the same, to the same places ----


@pytest.mark.parametrize("have", [0, 12_345])
def test_another_process_is_faster(server, tmp_path, load, have):
    """It has renamed the weights before this one has got its first byte of them."""
    (tmp_path / "355M").mkdir()
    (tmp_path / "355M" / (DATA + ".part")).write_bytes(CONTENT[DATA][:have])
    server.plan[DATA] = [{"before": load}, {}]
    load()
    assert complete(tmp_path / "355M")


def test_another_process_is_ahead(server, tmp_path, load):
    """This one breaks off early, and must not cut off what the other one has written."""

    def other():
        server.plan[DATA] = [HALF, {"status": 404}, {}]
        with pytest.raises(OSError, match="404"):
            load()

    server.plan[DATA] = [{"before": other, "drop": 8192}, {}]
    load()
    assert complete(tmp_path / "355M") and asked_for(server)[-1] == REST


def test_another_process_renames_the_weights_while_this_one_checks_them(tmp_path, load, monkeypatch):
    original = find.problem_of

    def renamed(folder, size, check_tokenizer=None, weights=None):
        if weights:
            weights.rename(weights.with_suffix(""))
        return original(folder, size, check_tokenizer, weights)

    monkeypatch.setattr(find, "problem_of", renamed)
    load()
    assert complete(tmp_path / "355M")
