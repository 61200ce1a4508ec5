"""Downloads from a server on this machine that misbehaves in many ways."""

import base64
import hashlib
import json
import os
import time

import pytest
from support import CONTENT

from checkpoint import download
from checkpoint.download import DATA, FILES, INDEX
from errors import UserError
from utils import load_encoder_hparams_and_params

HALF, REST = {"drop": 200_000}, "bytes=200704-"  # 200,000 bytes, rounded up to whole BLOCKs
MD5 = base64.b64encode(hashlib.md5(CONTENT[DATA]).digest()).decode()


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
    for n_requests in len(FILES), len(FILES) + 1:
        assert load()[1]["n_layer"] == 3
        assert complete(tmp_path / "355M") and len(server.log) == n_requests
        (tmp_path / "355M" / "vocab.bpe").write_bytes(b"")
    assert [name for name, _ in server.log][len(FILES) - 1] == DATA  # the small files come first


@pytest.mark.parametrize(
    ("name", "plan", "asked"),
    [
        (DATA, [HALF, {"headers": {"Content-MD5": MD5}}], [None, REST]),  # the MD5 of the file, not of the rest
        (DATA, [HALF | {"freeze": 1}, {}], [None, REST]),
        (DATA, [HALF, {"ranges": False}], [None, REST]),
        (DATA, [HALF, {"status": 416, "headers": {"Content-Range": "bytes */9"}}, {}], [None, REST, None]),
        (DATA, [HALF, {"status": 503}, {}], [None, REST, REST]),
        (DATA, [HALF, {"drop": 0}, {}], [None, REST, REST]),
        (DATA, [{"status": 500}, {"status": 429}, {}], [None] * 3),
        (DATA, [{"hang_up": True}, {}], [None, None]),
        (DATA, [{"headers": {"Content-MD5": MD5}}], [None]),
        ("vocab.bpe", [{"drop": 0}, {}], [None, None]),
    ],
)
def test_a_server_that_misbehaves_for_a_while(server, tmp_path, load, name, plan, asked):
    server.plan[name] = plan.copy()
    load()
    assert complete(tmp_path / "355M") and asked_for(server, name) == asked


def test_a_server_that_asks_to_wait_for_an_hour(server, tmp_path, load, monkeypatch, capsys):
    monkeypatch.setattr(download, "LONGEST_WAIT", 0.2)
    server.plan["vocab.bpe"] = [{"status": 429, "headers": {"Retry-After": "3600"}}, {}]
    begun = time.monotonic()
    load()
    assert time.monotonic() - begun >= 0.2 and "the server asks to try again in 0 s" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        (DATA, {"status": 404}, "answered 404 Not Found.* also at Hugging Face, under the name gpt2-medium"),
        (DATA, {"status": 500}, "answered 500"),
        (DATA, {"ranges": False, "drop": 8192}, "breaks off every time"),
        (DATA, {"stall": 1}, "no answer"),
        ("vocab.bpe", {"content": b"<!DOCTYPE html>\n<p>Please log in"}, "gave a wrong file, now removed; try again"),
        ("hparams.json", {"content": b"<!DOCTYPE html>"}, "gave a wrong file.*hparams.json is damaged"),
        ("hparams.json", {"content": json.dumps({"n_vocab": 9}).encode()}, "gave a wrong file.*n_ctx = None"),
        (INDEX, {"content": CONTENT[INDEX][:-1]}, "gave a wrong file.* not a LevelDB table"),
        (DATA, {"headers": {"Content-Length": None}}, "does not say how long"),
        (DATA, {"content": b""}, "empty"),
        (DATA, {"headers": {"Content-Length": "409999"}}, "breaks off every time"),
        (DATA, {"content": CONTENT[DATA][:-9]}, "409,527 bytes.*409,536"),
        (DATA, {"headers": {"Content-MD5": "1B2M2Y8AsgTpgAmY7PhCfg=="}}, "MD5"),
        (DATA, {"status": 302, "headers": {"Location": "file:///etc/passwd"}}, "file:///etc/passwd"),
        (DATA, {"content": CONTENT[DATA][:-1] + b"x"}, r"gave a wrong file.*'model/wte'.* crc32c"),
    ],
)
def test_an_error_leaves_no_file_and_the_next_download_succeeds(server, tmp_path, load, name, wrong, message):
    server.plan[name] = [wrong]
    with pytest.raises((OSError, UserError), match=message) as error:
        load()
    assert "\n" not in str(error.value) and server.url in str(error.value) and "restore it" not in str(error.value)
    assert not (tmp_path / "355M" / name).exists()
    assert name == DATA or asked_for(server) == []  # the small files are checked before the weights are downloaded
    server.plan.clear()
    load()
    assert complete(tmp_path / "355M")


def test_the_index_of_another_model_is_noticed_before_the_data_is_downloaded(server, tmp_path, load):
    load()
    directory = tmp_path / "355M"
    (directory / DATA).unlink()
    small = json.dumps({"n_vocab": 300, "n_ctx": 64, "n_embd": 48, "n_head": 4, "n_layer": 2}).encode()
    for name, content in (INDEX, b"junk"), ("hparams.json", small):
        kept = (directory / name).read_bytes()
        (directory / name).write_bytes(content)
        (directory / "vocab.bpe").unlink(missing_ok=True)  # it is downloaded again, and is not to blame
        with pytest.raises(UserError, match=r"(index cannot be used|tensors differ).*remove it to download it again"):
            load()
        assert len(asked_for(server)) == 1
        (directory / name).write_bytes(kept)


def test_no_server_leaves_no_folder(server, tmp_path, load, monkeypatch, capsys):
    monkeypatch.setenv("GPT2_MODELS_URL", "http://127.0.0.1:9")
    with pytest.raises(OSError, match=r"no answer .*The bundled pair .*needs no download"):
        load()
    assert os.listdir(tmp_path) == [] and capsys.readouterr().err.count("\n") == 0


@pytest.mark.parametrize("have", [12_345, 409_536])
def test_an_interrupted_download_of_the_data_is_resumed(server, tmp_path, load, have):
    (tmp_path / "355M").mkdir()
    (tmp_path / "355M" / (DATA + ".part")).write_bytes(CONTENT[DATA][:have])
    load()
    assert complete(tmp_path / "355M") and asked_for(server) == [f"bytes={have}-"]


def test_another_process_downloads_the_same_file(server, tmp_path, load):
    """Both write the same bytes at the same places, so neither disturbs the other."""
    original = download.transfer

    def transfer(session, url, part, bar):
        if part.name == DATA + ".part" and not server.plan:
            server.plan[DATA] = [HALF, {}]
            original(session, url, part, bar)  # the other one, which has got half of it
            original(session, url, part, bar)
        return original(session, url, part, bar)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(download, "transfer", transfer)
        load()
    assert complete(tmp_path / "355M")


def test_another_process_is_faster(server, tmp_path, load, monkeypatch):
    """It renames the partial file before this one has checked its own."""
    original = download.removed_if_wrong

    def removed_if_wrong(paths, *args, **options):
        if paths and paths[0].suffix == ".part" and DATA in paths[0].name:
            paths[0].rename(paths[0].with_suffix(""))
        original(paths, *args, **options)

    monkeypatch.setattr(download, "removed_if_wrong", removed_if_wrong)
    load()
    assert complete(tmp_path / "355M")
