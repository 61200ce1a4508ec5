"""Downloads from a server on this machine that misbehaves in many ways."""

import base64
import errno
import hashlib
import http.server
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from support import ROOT, listen_to_ctrl_c, micro_files

from checkpoint import download
from checkpoint.bundle import CheckpointError
from checkpoint.download import DATA, DownloadError, download_gpt2_files
from utils import load_encoder_hparams_and_params

CONTENT = micro_files()


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves CONTENT. What to do wrong comes from server.plan[name], one entry per request; the last one stays."""

    def do_GET(self):
        name, asked = self.path.rpartition("/")[2], self.headers.get("Range")
        plan = self.server.plan.get(name)
        wrong = (plan.pop(0) if len(plan) > 1 else plan[0]) if plan else {}
        self.server.log.append((name, asked))
        time.sleep(wrong.get("stall", 0))
        if wrong.get("hang_up"):
            return
        content, etag = wrong.get("content", CONTENT.get(name, b"")), wrong.get("etag", '"1"')
        status, start, headers = wrong.get("status", 200), 0, {"ETag": etag}
        if asked and wrong.get("ranges", True) and self.headers.get("If-Range", etag) == etag and status == 200:
            start = int(asked[len("bytes=") : -1])
            status, span = (206, f"{start}-{len(content) - 1}") if start < len(content) else (416, "*")
            headers["Content-Range"] = f"bytes {span}/{len(content)}"
        body = content[start:]
        self.send_response(status)
        for key, value in (headers | {"Content-Length": str(len(body))} | wrong.get("headers", {})).items():
            if value is not None:
                self.send_header(key, value)
        self.end_headers()
        for i in range(0, min(len(body), wrong.get("drop", len(body))), 8192):
            self.wfile.write(body[i : i + 8192])
            if i == 131072 and "hold" in wrong:
                wrong["hold"].wait(120)
        time.sleep(wrong.get("freeze", 0))

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *args):
        pass  # clients that go away are wanted here


@pytest.fixture
def server(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "GPT2_MODELS_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"RETRIES": 2, "BACKOFF": 0.001, "TIMEOUT": (5, 0.5), "PIECE": 4096}.items():
        monkeypatch.setattr(download, name, value)
    with Server(("127.0.0.1", 0), Handler) as server:
        server.plan, server.log = {}, []
        server.url = f"http://127.0.0.1:{server.server_port}/gpt-2/models"
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def complete(model_dir):
    """Whether the seven files are there as served, and nothing else is."""
    return {path.name: path.read_bytes() for path in model_dir.iterdir()} == CONTENT


def asked_for(server, name=DATA):
    return [asked for file, asked in server.log if file == name]


@pytest.mark.parametrize("by", ["argument", "environment"])
def test_what_is_not_there_is_downloaded_once(server, tmp_path, monkeypatch, by):
    monkeypatch.setenv("GPT2_MODELS_URL", server.url + "/" if by == "environment" else "http://127.0.0.1:1")
    url = server.url if by == "argument" else None
    assert load_encoder_hparams_and_params("355M", str(tmp_path), url)[1]["n_layer"] == 3
    assert complete(tmp_path / "355M") and len(server.log) == 7
    (tmp_path / "355M" / "vocab.bpe").write_bytes(b"")
    load_encoder_hparams_and_params("355M", str(tmp_path), url)
    assert complete(tmp_path / "355M") and len(server.log) == 8


HALF, REST = {"drop": 200_000}, "bytes=204800-"
MD5 = base64.b64encode(hashlib.md5(CONTENT[DATA]).digest()).decode()


@pytest.mark.parametrize(
    "plan, asked",
    [
        ([HALF, {}], [None, REST]),
        ([HALF, {"drop": 8192}, {}], [None, REST, "bytes=212992-"]),
        ([HALF | {"freeze": 1}, {}], [None, REST]),
        ([HALF, {"ranges": False}], [None, REST]),
        ([{"content": b"x" * 400_000, "etag": '"0"'} | HALF, {}], [None, REST]),
        ([HALF, {"headers": {"ETag": '"2"'}}, {}], [None, REST, None]),
        ([HALF, {"status": 503}, {}], [None, REST, REST]),
        ([{"status": 500}, {"status": 429, "headers": {"Retry-After": "0"}}, {}], [None] * 3),
        ([{"hang_up": True}, {}], [None, None]),
        ([{"headers": {"Content-MD5": MD5}}], [None]),
        ([{"drop": 8192}], [None] + [f"bytes={8192 * i}-" for i in range(1, 50)]),
    ],
)
def test_what_goes_wrong_once_is_overcome(server, tmp_path, plan, asked):
    server.plan[DATA] = plan
    download_gpt2_files("124M", str(tmp_path), server.url)
    assert complete(tmp_path) and asked_for(server) == asked


def test_the_server_may_ask_to_wait(server, tmp_path):
    server.plan[DATA] = [{"status": 429, "headers": {"Retry-After": "1"}}, {}]
    begun = time.monotonic()
    download_gpt2_files("124M", str(tmp_path), server.url)
    assert complete(tmp_path) and time.monotonic() - begun > 1


def test_without_an_etag_or_a_checksum_a_file_is_begun_again(server, tmp_path):
    large = {"content": bytes(20_000), "headers": {"ETag": None}}
    server.plan["model.ckpt.meta"] = [large | {"drop": 4096}, large]
    download_gpt2_files("124M", str(tmp_path), server.url)
    assert asked_for(server, "model.ckpt.meta") == [None, None]
    assert (tmp_path / "model.ckpt.meta").read_bytes() == bytes(20_000)


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"status": 404}, "answered 404 Not Found"),
        ({"status": 500}, "answered 500"),
        ({"ranges": False, "drop": 8192}, "breaks off every time"),
        ({"stall": 1}, "no connection"),
        ({"content": b"<html>Log in</html>", "headers": {"Content-Type": "text/html; charset=utf-8"}}, "text/html"),
        ({"headers": {"Content-Length": None}}, "does not say how long"),
        ({"content": b""}, "empty"),
        ({"headers": {"Content-Length": "409999"}}, "breaks off every time"),
        ({"headers": {"Content-Length": "400000"}}, "400,000 bytes.*409,536"),
        ({"headers": {"Content-MD5": "1B2M2Y8AsgTpgAmY7PhCfg=="}}, "MD5"),
        ({"status": 302, "headers": {"Location": "file:///etc/passwd"}}, "file:///etc/passwd"),
        ({"content": CONTENT[DATA][:-1] + b"x"}, r"'model/wte'.* crc32c"),
    ],
)
def test_what_stays_wrong_is_an_error_and_not_a_file(server, tmp_path, wrong, message):
    server.plan[DATA] = [wrong]
    with pytest.raises((DownloadError, CheckpointError), match=message) as error:
        download_gpt2_files("124M", str(tmp_path), server.url)
    assert "\n" not in str(error.value) and "model.ckpt" in str(error.value)
    assert not (tmp_path / DATA).exists() and len(asked_for(server)) <= 2 + 2 * download.RETRIES
    server.plan.clear()
    download_gpt2_files("124M", str(tmp_path), server.url)
    assert complete(tmp_path)


def test_a_page_of_html_is_not_the_file(server, tmp_path):
    server.plan["vocab.bpe"] = [{"content": b"<!DOCTYPE html><p>Please log in"}]
    with pytest.raises(CheckpointError, match=r"vocab\.bpe is a page of HTML"):
        download_gpt2_files("124M", str(tmp_path), server.url)
    assert not (tmp_path / "vocab.bpe").exists()


@pytest.mark.parametrize("url", ["nonsense", "file:///etc", "http://127.0.0.1:9"])
def test_an_error_says_what_to_do(tmp_path, monkeypatch, url):
    monkeypatch.setattr(download, "BACKOFF", 0.001)
    with pytest.raises(DownloadError, match=f"cannot download {url}/774M/checkpoint: .*bundled pair"):
        download_gpt2_files("774M", str(tmp_path), url)


@pytest.mark.parametrize(("left", "asked"), [(12_345, "bytes=12345-"), (409_536, "bytes=409536-")])
def test_an_interrupted_download_is_resumed(server, tmp_path, left, asked):
    (tmp_path / (DATA + ".part")).write_bytes(CONTENT[DATA][:left])
    (tmp_path / "vocab.bpe.part").write_bytes(b"from another day")  # nothing would show that it is old
    download_gpt2_files("124M", str(tmp_path), server.url)
    assert complete(tmp_path) and asked_for(server) == [asked] and asked_for(server, "vocab.bpe") == [None]


def test_a_full_disk(server, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:  # seen before the first byte
        patch.setattr(download.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 100_000}))
        with pytest.raises(DownloadError, match="409,536 bytes, and there is room for 100,000"):
            download_gpt2_files("124M", str(tmp_path), server.url)
    assert not (tmp_path / DATA).exists() and not (tmp_path / (DATA + ".part")).exists()

    def fill_up(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(download.os, "fsync", fill_up)
    with pytest.raises(DownloadError, match="No space left on device"):
        download_gpt2_files("124M", str(tmp_path), server.url)
    assert not (tmp_path / DATA).exists()


def start(server, model_dir):
    code = f"from utils import download_gpt2_files; download_gpt2_files('124M', {str(model_dir)!r}, {server.url!r})"
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE, text=True, preexec_fn=listen_to_ctrl_c
    )


def wait_for(path):
    for _ in range(10_000):
        if path.exists() and path.stat().st_size:
            return
        time.sleep(0.01)
    raise AssertionError(f"{path} did not appear")


def test_ctrl_c_leaves_only_a_part(server, tmp_path):
    server.plan[DATA] = [{"hold": threading.Event()}]
    process = start(server, tmp_path)
    wait_for(tmp_path / (DATA + ".part"))
    process.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in process.communicate(timeout=120)[1]
    assert not (tmp_path / DATA).exists() and (tmp_path / (DATA + ".part")).exists()


@pytest.mark.skipif(download.fcntl is None, reason="no locks on this system")
@pytest.mark.parametrize("kill", [False, True])
def test_two_processes_in_one_directory(server, tmp_path, kill):
    """The second waits for the first. If the first is killed, the second resumes its download."""
    hold = threading.Event()
    server.plan[DATA] = [{"hold": hold}, {}]
    first = start(server, tmp_path)
    wait_for(tmp_path / (DATA + ".part"))
    second = start(server, tmp_path)
    assert second.stderr.readline().startswith("waiting for another process")
    if kill:
        first.kill()
    hold.set()
    first.communicate(timeout=120)
    assert "Traceback" not in second.communicate(timeout=120)[1] and second.returncode == 0
    assert complete(tmp_path) and len(asked_for(server)) == (2 if kill else 1)
