"""Downloads from a server on this machine that misbehaves in many ways."""

import base64
import errno
import hashlib
import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from support import BLOCK, CONTENT, ROOT

from checkpoint import download
from checkpoint.bundle import CheckpointError
from checkpoint.download import DATA, INDEX, DownloadError, download_gpt2_files
from utils import load_encoder_hparams_and_params

META = "model.ckpt.meta"


def complete(model_dir):
    """Whether the seven files are there as served, and nothing else is."""
    return {path.name: path.read_bytes() for path in model_dir.iterdir()} == CONTENT


def asked_for(server, name=DATA):
    return [asked for file, asked in server.log if file == name]


def test_missing_and_empty_files_are_downloaded_once(server, tmp_path, monkeypatch):
    monkeypatch.setenv("GPT2_MODELS_URL", "http://127.0.0.1:1")  # not used, because an argument comes first
    for n_requests in 7, 8:
        assert load_encoder_hparams_and_params("355M", str(tmp_path), server.url + "/")[1]["n_layer"] == 3
        assert complete(tmp_path / "355M") and len(server.log) == n_requests
        (tmp_path / "355M" / "vocab.bpe").write_bytes(b"")


HALF, REST = {"drop": 200_000}, "bytes=200704-"  # 200,000 bytes, rounded up to whole BLOCKs
MD5 = base64.b64encode(hashlib.md5(CONTENT[DATA]).digest()).decode()


@pytest.mark.parametrize(
    "name, plan, asked",
    [
        (DATA, [HALF, {"headers": {"Content-MD5": MD5}}], [None, REST]),  # the MD5 of the file, not of the rest
        (DATA, [HALF | {"freeze": 1}, {}], [None, REST]),
        (DATA, [HALF, {"ranges": False}], [None, REST]),
        (DATA, [HALF, {"status": 416, "headers": {"Content-Range": "bytes */9"}}, {}], [None, REST, None]),
        (DATA, [HALF, {"status": 503}, {}], [None, REST, REST]),
        (DATA, [HALF, {"drop": 0}, {}], [None, REST, REST]),
        (DATA, [{"status": 500, "headers": {"Retry-After": "1"}}, {"status": 429}, {}], [None] * 3),
        (DATA, [{"hang_up": True}, {}], [None, None]),
        (DATA, [{"headers": {"Content-MD5": MD5}}], [None]),
        (DATA, [{"drop": 8192}], [None] + [f"bytes={8192 * i}-" for i in range(1, 50)]),
        (META, [{"status": 416, "headers": {"Content-Range": "bytes */0"}}, {}], [None, None]),
        (META, [{"drop": BLOCK}, {}], [None, None]),  # it has no checksums, and could be another file by now
    ],
)
def test_a_server_that_misbehaves_for_a_while(server, tmp_path, name, plan, asked):
    server.plan[name] = plan.copy()
    begun = time.monotonic()
    download_gpt2_files("124M", str(tmp_path), server.url)
    assert complete(tmp_path) and asked_for(server, name) == asked
    assert time.monotonic() - begun > 1 or "Retry-After" not in str(plan)  # the server may ask to wait for a second


@pytest.mark.parametrize(
    "name, wrong, message",
    [
        (DATA, {"status": 404}, "answered 404 Not Found"),
        (DATA, {"status": 500}, "answered 500"),
        (DATA, {"ranges": False, "drop": 8192}, "breaks off every time"),
        (DATA, {"stall": 1}, "no answer"),
        (DATA, {"headers": {"Content-Type": "text/html; charset=utf-8"}}, "text/html"),
        ("vocab.bpe", {"content": b"<!DOCTYPE html><p>Please log in"}, r"vocab\.bpe gave a wrong file.*page of HTML"),
        (INDEX, {"content": CONTENT[INDEX][:-1]}, r"\.index gave a wrong file.* not a LevelDB table"),
        (DATA, {"headers": {"Content-Length": None}}, "does not say how long"),
        (DATA, {"content": b""}, "empty"),
        (DATA, {"headers": {"Content-Length": "409999"}}, "breaks off every time"),
        (DATA, {"headers": {"Content-Length": "400000"}}, "400,000 bytes.*409,536"),
        (DATA, {"headers": {"Content-MD5": "1B2M2Y8AsgTpgAmY7PhCfg=="}}, "MD5"),
        (DATA, {"status": 302, "headers": {"Location": "file:///etc/passwd"}}, "file:///etc/passwd"),
        (DATA, {"status": 302, "headers": {"Location": "http://["}}, "cannot download"),
        (DATA, {"content": CONTENT[DATA][:-1] + b"x"}, r"'model/wte'.* crc32c"),
        (DATA, {"free": 400_000}, "409,536 bytes, and there is room for 400,000"),
        (DATA, {"fsync": OSError(errno.ENOSPC, "No space left on device")}, "No space left on device"),
    ],
)
def test_an_error_leaves_no_file_and_the_next_download_succeeds(server, tmp_path, monkeypatch, name, wrong, message):
    server.plan[name] = [wrong]
    errors, unlink = [], Path.unlink
    with monkeypatch.context() as patch, pytest.raises((DownloadError, CheckpointError), match=message) as error:
        patch.setattr(Path, "unlink", lambda *args, **kw: errors.append(sys.exc_info()[0]) or unlink(*args, **kw))
        patch.setattr(download.os, "fsync", Mock(side_effect=wrong.get("fsync")))
        patch.setattr(download.shutil, "disk_usage", Mock(return_value=Mock(free=wrong.get("free", 10**9))))
        download_gpt2_files("124M", str(tmp_path), server.url)
    assert "\n" not in str(error.value) and (server.url in str(error.value) or str(tmp_path) in str(error.value))
    assert "restore it" not in str(error.value)  # nothing of it is left
    assert not any(errors)  # because an error keeps the file mapped, and Windows does not remove such a file
    assert not (tmp_path / name).exists() and len(asked_for(server, name)) <= 2 + 2 * download.RETRIES
    assert "free" not in wrong or not (tmp_path / (DATA + ".part")).exists()  # seen before the first byte
    server.plan.clear()
    download_gpt2_files("124M", str(tmp_path), server.url)
    assert complete(tmp_path)


def test_a_damaged_index_is_noticed_before_the_data_is_downloaded(server, tmp_path):
    (tmp_path / INDEX).write_bytes(b"junk")
    with pytest.raises(CheckpointError, match=f"{INDEX} cannot be used.*remove it to download it again"):
        download_gpt2_files("124M", str(tmp_path), server.url)
    assert asked_for(server) == []


def test_a_folder_in_the_place_of_a_file_is_not_blamed_on_the_server(server, tmp_path):
    (tmp_path / "vocab.bpe").mkdir()
    with pytest.raises(OSError, match=r"vocab\.bpe\.part' -> '.*vocab\.bpe'"):  # (Windows has another problem with it)
        download_gpt2_files("124M", str(tmp_path), server.url)


@pytest.mark.parametrize("have", [12_345, 409_536])
def test_an_interrupted_download_of_the_data_is_resumed(server, tmp_path, have, monkeypatch):
    rest = len(CONTENT[DATA]) - have  # so much room is enough (and 100 KB for the small files)
    monkeypatch.setattr(download.shutil, "disk_usage", Mock(return_value=Mock(free=max(rest, 100_000))))
    (tmp_path / (DATA + ".part")).write_bytes(CONTENT[DATA][:have])
    (tmp_path / "vocab.bpe.part").write_bytes(b"from another day")  # nothing would show that it is old
    download_gpt2_files("124M", str(tmp_path), server.url)
    assert complete(tmp_path) and asked_for(server) == [f"bytes={have}-"] and asked_for(server, "vocab.bpe") == [None]


@pytest.mark.skipif(download.fcntl is None, reason="no locks on this system")
@pytest.mark.parametrize("kill", [False, True])
def test_a_second_process_waits_for_the_first_and_resumes_its_download_if_it_is_killed(server, tmp_path, kill):
    code = f"from checkpoint import download; download.download_gpt2_files('124M', {str(tmp_path)!r}, {server.url!r})"
    options = dict(args=[sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    hold = threading.Event()
    server.plan[DATA] = [{"hold": hold}, {}]
    first = subprocess.Popen(**options)
    while not download.size_of(tmp_path / (DATA + ".part")):
        assert first.poll() is None, first.stderr.read()
        time.sleep(0.01)
    second = subprocess.Popen(**options)
    assert second.stderr.readline().startswith("waiting for another process")
    if kill:
        first.kill()
    hold.set()
    first.communicate(timeout=120)
    assert "Traceback" not in second.communicate(timeout=120)[1] and second.returncode == 0
    assert complete(tmp_path) and len(asked_for(server)) == (2 if kill else 1)
