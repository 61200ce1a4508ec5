"""utils against a server on this machine that misbehaves in every way we could think of, and against damaged models."""

import base64
import errno
import hashlib
import http.server
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import bundle_writer as writer
import numpy as np
import pytest
from test_tensor_bundle import mutate, write

import tensor_bundle
import utils
from encoder import bytes_to_unicode
from tensor_bundle import CheckpointError
from utils import DATA, FILES, INDEX, DownloadError, download_gpt2_files, load_encoder_hparams_and_params

ROOT = Path(utils.__file__).parent
MICRO = Path(__file__).parent / "fixtures" / "micro"
HPARAMS = {"n_vocab": 300, "n_ctx": 64, "n_embd": 48, "n_head": 4, "n_layer": 3}


def seven_files():
    """The micro checkpoint, and a vocabulary of 300 tokens to go with it -> {name: bytes}."""
    chars = list(bytes_to_unicode().values())
    merges = [(chars[0], char) for char in chars[:43]]
    tokens = [*chars, *(a + b for a, b in merges), "<|endoftext|>"]
    files = {name: (MICRO / name).read_bytes() for name in ("checkpoint", "hparams.json", INDEX, DATA)}
    files["encoder.json"] = json.dumps({token: id for id, token in enumerate(tokens)}).encode()
    files["vocab.bpe"] = "\n".join(["#version: 0.2", *(f"{a} {b}" for a, b in merges), ""]).encode()
    files["model.ckpt.meta"] = b"\x0ameta" * 1000
    return files


CONTENT = seven_files()


@pytest.fixture
def models_dir(tmp_path):
    """A models directory with the micro model in the place of 124M."""
    (tmp_path / "124M").mkdir()
    for name, content in CONTENT.items():
        (tmp_path / "124M" / name).write_bytes(content)
    return tmp_path


# ---- Load ----


def test_params_are_nested_as_in_picogpt(models_dir):
    encoder, hparams, params = load_encoder_hparams_and_params("124M", str(models_dir))
    tensors = tensor_bundle.load(str(MICRO / "model.ckpt"))
    assert hparams == HPARAMS
    assert encoder.decode(encoder.encode("Once upon a time")) == "Once upon a time"
    assert sorted(params) == ["blocks", "ln_f", "wpe", "wte"] and len(params["blocks"]) == 3
    found = {f"model/{name}": params[name] for name in ("wte", "wpe")}
    found |= {f"model/ln_f/{leaf}": tensor for leaf, tensor in params["ln_f"].items()}
    for i, block in enumerate(params["blocks"]):
        for ln in ("ln_1", "ln_2"):
            found |= {f"model/h{i}/{ln}/{leaf}": tensor for leaf, tensor in block[ln].items()}
        for part in ("attn", "mlp"):
            for name, leaves in block[part].items():
                assert leaves["w"].ndim == 2 and not leaves["w"].flags.owndata
                found |= {f"model/h{i}/{part}/{name}/{leaf}": tensor for leaf, tensor in leaves.items()}
    assert sorted(found) == sorted(tensors)
    for name, tensor in found.items():
        np.testing.assert_array_equal(tensor, tensors[name].reshape(tensor.shape))


@pytest.mark.parametrize("size", ["../../etc", "124m", "", "124M/../124M", "/etc", "124M\0"])
def test_unknown_sizes_are_refused_with_those_there_are(models_dir, size):
    with pytest.raises(ValueError, match=r"unknown model size.*draft, target, 124M, 355M, 774M, 1558M"):
        load_encoder_hparams_and_params(size, str(models_dir))
    with pytest.raises(ValueError, match=r"unknown model size.*124M, 355M, 774M, 1558M"):
        download_gpt2_files(size, str(models_dir / "new"))
    assert not (models_dir / "new").exists()


def test_the_bundled_pair_is_found_wherever_models_dir_points(models_dir, monkeypatch):
    (models_dir / "124M").rename(models_dir / "draft")
    monkeypatch.setattr(utils, "MODELS_DIR", str(models_dir))
    assert load_encoder_hparams_and_params("draft", "/nowhere")[1] == HPARAMS


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        *((name, content, " is missing or empty") for name in FILES if name != DATA for content in (None, b"")),
        (DATA, None, ", which has 409,536 bytes by its index, cannot be read: No such file"),
        (DATA, b"", " has 0 bytes, but its index describes 409,536"),
    ],
)
def test_a_bundled_file_that_is_missing_or_empty_is_named(models_dir, name, content, complaint):
    (models_dir / "124M").rename(models_dir / "target")
    path = models_dir / "target" / name
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(CheckpointError, match=f"target/{re.escape(name)}{complaint}"):
        load_encoder_hparams_and_params("target", str(models_dir))


def test_truncated_data_is_named_with_the_size_expected(models_dir):
    (models_dir / "124M" / DATA).write_bytes(CONTENT[DATA][:-100])
    with pytest.raises(CheckpointError, match=r"124M/model.ckpt.data.* has 409,436 bytes.* 409,536"):
        load_encoder_hparams_and_params("124M", str(models_dir))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"n_layer": 10**12}, "n_layer = 1000000000000"),
        ({"n_layer": 2**31 - 1}, "n_layer = 2147483647 but only 40 tensors"),
        ({"n_layer": 2}, "'model/h2/attn/c_attn/b' is unknown.* and 9 more"),
        ({"n_layer": 4}, "model/h3/ln_1/g is missing.* and 9 more"),
        ({"n_layer": True}, "n_layer = True"),
        ({"n_layer": 3.0}, "n_layer = 3.0"),
        ({"n_layer": 0}, "n_layer = 0"),
        ({"n_embd": -48}, "n_embd = -48"),
        ({"n_embd": 44}, r"model/wte is \[300, 48\], not \[300, 44\]"),
        ({"n_head": 5}, "n_embd = 48 is no multiple of n_head = 5"),
        ({"n_head": None}, "n_head = NoneType"),
        ({"n_ctx": "64"}, "n_ctx = str"),
        ({"n_ctx": 65}, r"model/wpe is \[64, 48\], not \[65, 48\]"),
        ({"n_vocab": 299}, r"model/wte is \[300, 48\], not \[299, 48\]"),
    ],
)
def test_wrong_hparams_are_named(models_dir, change, message):
    (models_dir / "124M" / "hparams.json").write_text(json.dumps(HPARAMS | change))
    with pytest.raises(CheckpointError, match=message) as error:
        load_encoder_hparams_and_params("124M", str(models_dir))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["{", "[]", "12", "\ufeff{}", "[" * 100_000, '{"n_layer": ' + "9" * 5000 + "}", "\0"])
def test_hparams_that_are_no_object_are_refused(models_dir, text):
    (models_dir / "124M" / "hparams.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"hparams\.json"):
        load_encoder_hparams_and_params("124M", str(models_dir))


def test_missing_extra_and_misshapen_tensors_are_all_named(models_dir):
    tensors = dict(tensor_bundle.load(str(MICRO / "model.ckpt")))
    del tensors["model/h1/attn/c_attn/w"]
    tensors |= {"model/h1/attn/extra": np.zeros(3, np.float32), "model/ln_f/g": np.ones(47, np.float32)}
    writer.write_bundle(str(models_dir / "124M" / "model.ckpt"), tensors.items())
    with pytest.raises(CheckpointError) as error:
        load_encoder_hparams_and_params("124M", str(models_dir))
    for part in (
        "model/h1/attn/c_attn/w is missing",
        "'model/h1/attn/extra' is unknown",
        "model/ln_f/g is [47], not [48]",
    ):
        assert part in str(error.value)


def test_a_vocabulary_of_another_size_is_refused(models_dir):
    tokens = json.loads(CONTENT["encoder.json"])
    (models_dir / "124M" / "encoder.json").write_text(json.dumps(tokens | {"more": 300}))
    with pytest.raises(CheckpointError, match="n_vocab = 300 but 301 tokens"):
        load_encoder_hparams_and_params("124M", str(models_dir))


def test_mutated_hparams_are_an_error_or_a_model(tmp_path):
    rng, path, refused = random.Random(0), tmp_path / "hparams.json", 0
    for name in (INDEX, DATA):
        (tmp_path / name).write_bytes(CONTENT[name])
    for _ in range(8000):
        write(path, mutate(CONTENT["hparams.json"], rng))
        try:
            hparams = utils.read_hparams(str(path))
            if hparams == HPARAMS or rng.random() < 0.2:  # the rest takes longer
                utils.load_hparams_and_params(str(tmp_path))
        except CheckpointError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 4000


def test_verify_on_demand(models_dir):
    command = [sys.executable, "-m", "utils", "verify", str(models_dir / "124M")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "all tensors" in done.stdout
    (models_dir / "124M" / DATA).write_bytes(CONTENT[DATA][:-1] + b"x")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "'model/wte'" in done.stderr and "Traceback" not in done.stderr


# ---- Fetch ----


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves server.content. A request for a file takes what to do wrong from server.plan[name], the last for good."""

    def do_GET(self):
        name = self.path.rpartition("/")[2]
        plan = self.server.plan.get(name)
        wrong = (plan.pop(0) if len(plan) > 1 else plan[0]) if plan else {}
        content, etag = wrong.get("content", self.server.content.get(name)), wrong.get("etag", '"1"')
        asked = self.headers.get("Range")
        self.server.log.append((name, asked))
        time.sleep(wrong.get("stall", 0))
        if wrong.get("hang_up"):
            return
        status, start, headers = wrong.get("status", 200 if content is not None else 404), 0, {"ETag": etag}
        content = content or b""
        if asked and wrong.get("ranges", True) and self.headers.get("If-Range", etag) == etag and status == 200:
            start = int(asked[len("bytes=") : -1])
            status, span = (206, f"{start}-{len(content) - 1}") if start < len(content) else (416, "*")
            headers["Content-Range"] = f"bytes {span}/{len(content)}"
        body = content[start:]
        headers["Content-Length"] = str(len(body))
        headers |= wrong.get("headers", {})
        self.send_response(status)
        for key, value in headers.items():
            if value is not None:
                self.send_header(key, value)
        self.end_headers()
        for i in range(0, len(body), 8192):
            if i >= wrong.get("drop", len(body)):
                time.sleep(wrong.get("freeze", 0))
                return
            self.wfile.write(body[i : i + 8192])
            if i == 131072 and "hold" in wrong:
                wrong["hold"].wait(120)

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *args):
        pass  # clients that go away are what we want


@pytest.fixture
def server(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "GPT2_MODELS_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"RETRIES": 2, "BACKOFF": 0.001, "TIMEOUT": (5, 1), "PIECE": 4096}.items():
        monkeypatch.setattr(utils, name, value)
    with Server(("127.0.0.1", 0), Handler) as server:
        server.content, server.plan, server.log = dict(CONTENT), {}, []
        server.url = f"http://127.0.0.1:{server.server_port}/gpt-2/models"
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def whole(model_dir):
    """Whether the seven files are there as served, and nothing else is."""
    return {path.name: path.read_bytes() for path in model_dir.iterdir()} == CONTENT


def asked_for(server, name=DATA):
    return [asked for file, asked in server.log if file == name]


@pytest.mark.parametrize("by", ["argument", "environment"])
def test_what_is_not_there_is_fetched_once(server, tmp_path, monkeypatch, by):
    monkeypatch.setenv("GPT2_MODELS_URL", server.url + "/" if by == "environment" else "http://127.0.0.1:1")
    url = server.url if by == "argument" else None
    assert load_encoder_hparams_and_params("355M", str(tmp_path), url)[1] == HPARAMS
    assert whole(tmp_path / "355M") and len(server.log) == 7
    (tmp_path / "355M" / "vocab.bpe").write_bytes(b"")
    load_encoder_hparams_and_params("355M", str(tmp_path), url)
    assert whole(tmp_path / "355M") and len(server.log) == 8


HALF = {"drop": 200_000}
REST = "bytes=204800-"


@pytest.mark.parametrize(
    "plan, asked",
    [
        ([HALF, {}], [None, REST]),
        ([HALF, {"drop": 8192}, {}], [None, REST, "bytes=212992-"]),
        ([HALF | {"freeze": 2}, {}], [None, REST]),
        ([HALF, {"ranges": False}], [None, REST]),
        ([{"content": b"x" * 400_000, "etag": '"0"'} | HALF, {}], [None, REST]),
        ([HALF, {"headers": {"Content-Range": "bytes 7-409535/409536"}}, {}], [None, REST, None]),
        ([HALF, {"headers": {"ETag": '"2"'}}, {}], [None, REST, None]),
        ([HALF, {"headers": {"Content-Range": "bytes ²-3/4"}}, {}], [None, REST, None]),
        ([HALF, {"status": 503}, {}], [None, REST, REST]),
        ([{"status": 500}, {"status": 429}, {}], [None] * 3),
        ([{"hang_up": True}, {}], [None, None]),
        ([{"stall": 2}, {}], [None, None]),
        ([{"headers": {"Content-MD5": base64.b64encode(hashlib.md5(CONTENT[DATA]).digest()).decode()}}], [None]),
    ],
)
def test_what_goes_wrong_once_is_overcome(server, tmp_path, plan, asked):
    server.plan[DATA] = plan
    download_gpt2_files("124M", str(tmp_path), server.url)
    assert whole(tmp_path)
    assert asked_for(server) == asked


def test_many_drops_are_overcome_while_each_attempt_brings_something(server, tmp_path):
    server.plan[DATA] = [{"drop": 8192}]
    download_gpt2_files("124M", str(tmp_path), server.url)
    assert whole(tmp_path) and len(asked_for(server)) == 50


def test_without_an_etag_or_a_checksum_a_file_is_begun_again(server, tmp_path):
    server.plan["model.ckpt.meta"] = [{"drop": 4096, "headers": {"ETag": None}}, {}]
    server.content["model.ckpt.meta"] = CONTENT["model.ckpt.meta"] * 3
    download_gpt2_files("124M", str(tmp_path), server.url)
    assert asked_for(server, "model.ckpt.meta") == [None, None]
    assert (tmp_path / "model.ckpt.meta").read_bytes() == server.content["model.ckpt.meta"]


REFUSED = [
    ({"status": 404}, "answered 404 Not Found"),
    ({"status": 403}, "answered 403 Forbidden"),
    ({"status": 204}, "answered 204"),
    ({"status": 500}, "answered 500"),
    ({"ranges": False, "drop": 8192}, "no connection"),
    ({"stall": 2}, "no connection"),
    ({"content": b"<html>Please log in</html>", "headers": {"Content-Type": "text/html; charset=utf-8"}}, "text/html"),
    ({"headers": {"Content-Length": None}}, "does not say how long"),
    ({"headers": {"Content-Length": "²"}}, "does not say how long"),
    ({"content": b""}, "empty"),
    ({"headers": {"Content-Length": "409999"}}, "no connection|did not go on"),
    ({"headers": {"Content-Length": "400000"}}, "400,000 bytes.*409,536|MD5|JSON"),
    ({"headers": {"Content-MD5": "1B2M2Y8AsgTpgAmY7PhCfg=="}}, "MD5"),
    ({"status": 302, "headers": {"Location": "file:///etc/passwd"}}, "file:///etc/passwd"),
    ({"status": 302, "headers": {"Location": "ftp://127.0.0.1/x"}}, "ftp://"),
    ({"status": 302, "headers": {"Location": "/again"}}, "redirects"),
]


@pytest.mark.parametrize("wrong, message", REFUSED)
def test_what_stays_wrong_is_an_error_and_no_file(server, tmp_path, wrong, message):
    server.plan[DATA] = [wrong]
    server.plan["again"] = [wrong]
    with pytest.raises((DownloadError, CheckpointError), match=message) as error:
        download_gpt2_files("124M", str(tmp_path), server.url)
    assert "\n" not in str(error.value) and DATA in str(error.value)
    assert not (tmp_path / DATA).exists()
    assert len(asked_for(server)) <= 2 + 2 * utils.RETRIES
    server.plan.clear()
    download_gpt2_files("124M", str(tmp_path), server.url)
    assert whole(tmp_path)


@pytest.mark.parametrize("name", [name for name in FILES if name != DATA])
def test_a_page_of_html_is_no_file_even_under_another_name(server, tmp_path, name):
    server.plan[name] = [{"content": b"<!DOCTYPE html><p>Please log in"}]
    with pytest.raises(CheckpointError, match=re.escape(name)):
        download_gpt2_files("124M", str(tmp_path), server.url)
    assert not (tmp_path / name).exists()


def test_tensors_other_than_those_of_the_index_are_no_file(server, tmp_path):
    server.plan[DATA] = [{"content": CONTENT[DATA][:-1] + b"x"}]
    with pytest.raises(CheckpointError, match=r"'model/wte'.* crc32c"):
        download_gpt2_files("124M", str(tmp_path), server.url)
    assert not (tmp_path / DATA).exists() and not (tmp_path / (DATA + ".part")).exists()


def test_no_network_is_said_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(utils, "BACKOFF", 0.001)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{s.getsockname()[1]}"  # bound, but nobody listens
        with pytest.raises(DownloadError, match=f"cannot fetch {url}/774M/checkpoint: no connection.*bundled pair"):
            download_gpt2_files("774M", str(tmp_path), url)


@pytest.mark.parametrize("url", ["file:///etc", "gopher://x", "nonsense", "http://"])
def test_a_url_that_is_none_is_refused(tmp_path, url):
    with pytest.raises(DownloadError, match="cannot fetch"):
        download_gpt2_files("774M", str(tmp_path), url)


def test_what_an_earlier_process_left_is_gone_on_with(server, tmp_path):
    (tmp_path / (DATA + ".part")).write_bytes(CONTENT[DATA][:12345])
    (tmp_path / "vocab.bpe.part").write_bytes(b"of another day")  # nothing would tell
    download_gpt2_files("124M", str(tmp_path), server.url)
    assert whole(tmp_path)
    assert asked_for(server) == ["bytes=12345-"] and asked_for(server, "vocab.bpe") == [None]


def test_what_an_earlier_process_left_whole_is_not_fetched_again(server, tmp_path):
    (tmp_path / (DATA + ".part")).write_bytes(CONTENT[DATA])
    download_gpt2_files("124M", str(tmp_path), server.url)
    assert whole(tmp_path) and asked_for(server) == ["bytes=409536-"]


@pytest.mark.parametrize("size", [100, 409_536, 500_000])
def test_what_an_earlier_process_left_of_another_file_does_no_harm(server, tmp_path, size):
    (tmp_path / (DATA + ".part")).write_bytes(b"x" * size)
    if size < 500_000:
        with pytest.raises(CheckpointError, match="crc32c"):
            download_gpt2_files("124M", str(tmp_path), server.url)
    download_gpt2_files("124M", str(tmp_path), server.url)
    assert whole(tmp_path)


def test_a_full_disk_is_seen_before_the_first_byte(server, tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 100_000})
    monkeypatch.setattr(utils.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(DownloadError, match="409,536 bytes, and there is room for 100,000"):
        download_gpt2_files("124M", str(tmp_path), server.url)
    assert not (tmp_path / DATA).exists() and not (tmp_path / (DATA + ".part")).exists()


def test_a_disk_that_fills_up_is_an_error_and_no_file(server, tmp_path, monkeypatch):
    def fill_up(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(utils.os, "fsync", fill_up)
    with pytest.raises(DownloadError, match="No space left on device"):
        download_gpt2_files("124M", str(tmp_path), server.url)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.part"]


def start(server, model_dir):
    code = f"import utils; utils.download_gpt2_files('124M', {str(model_dir)!r}, {server.url!r})"
    return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE, text=True)


def wait_for(path):
    for _ in range(10_000):
        if path.exists() and path.stat().st_size:
            return
        time.sleep(0.01)
    raise AssertionError(f"{path} did not come")


def test_ctrl_c_leaves_only_a_part(server, tmp_path):
    server.plan[DATA] = [{"hold": threading.Event()}]
    process = start(server, tmp_path)
    wait_for(tmp_path / (DATA + ".part"))
    process.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in process.communicate(timeout=120)[1]
    assert not (tmp_path / DATA).exists() and (tmp_path / (DATA + ".part")).exists()


@pytest.mark.skipif(utils.fcntl is None, reason="no locks on this system")
@pytest.mark.parametrize("kill", [False, True])
def test_two_processes_in_one_directory(server, tmp_path, kill):
    """The second waits for the first; if that is killed, it goes on where the first was."""
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
    assert whole(tmp_path)
    assert len(asked_for(server)) == (2 if kill else 1)
