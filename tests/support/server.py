"""A server on this machine that has the files of a small GPT-2, and misbehaves as it is told."""

import http.server
import json
import threading
import time
from pathlib import Path

import pytest

from checkpoint import download, names
from checkpoint.openai import FILES
from support.programs import ROOT

MICRO = ROOT / "tests" / "fixtures" / "micro"  # a GPT-2, and its logits by Transformers


def files_of(directory):
    return {path.name: path.read_bytes() for path in Path(directory).iterdir()}


CONTENT = {name: (MICRO / name).read_bytes() for name in FILES}
BLOCK = 4096  # bytes that the server sends and the client receives at a time


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves CONTENT, or misbehaves.

    server.plan[name] is a list with an entry for each request of this file. The last one
    also holds for all later requests. An entry may have
    - content, status, headers, to send instead. A header that is None is left out.
    - stall, freeze, seconds to wait before and after
    - hang_up, before anything is sent
    - drop, to hang up after so many bytes, rounded up to a BLOCK
    - ranges=False, to ignore Range, or if_range=False, to ignore If-Range alone
    - before, a function to call first
    """

    def do_GET(self):
        name = self.path.rpartition("/")[2]
        asked = self.headers.get("Range")
        plan = self.server.plan.get(name, [{}])
        wrong = plan.pop(0) if len(plan) > 1 else plan[0]
        self.server.log.append((name, asked))
        time.sleep(wrong.get("stall", 0))
        if "before" in wrong:
            wrong["before"]()
        is_wrong_url = "//" in self.path
        may_be_compressed = self.headers["Accept-Encoding"] != "identity"  # which has no length
        if wrong.get("hang_up") or is_wrong_url or may_be_compressed:
            return
        status = wrong.get("status", 200)
        body = wrong.get("content", CONTENT[name])
        headers = {}
        tag = wrong.get("headers", {}).get("ETag")
        is_same = self.headers["If-Range"] == tag or not wrong.get("if_range", True)
        is_asked = asked and "x-ms-version" in self.headers  # which OpenAI's server wants
        if is_asked and status == 200 and wrong.get("ranges", is_same):
            start = int(asked[len("bytes=") : -1])
            status, headers, body = part_of(body, start)
        headers |= {"Content-Length": str(len(body))} | wrong.get("headers", {})
        self.send_response(status)
        for key, value in headers.items():
            if value is not None:
                self.send_header(key, value)
        self.end_headers()
        for i in range(0, min(len(body), wrong.get("drop", len(body))), BLOCK):
            self.wfile.write(body[i : i + BLOCK])
        time.sleep(wrong.get("freeze", 0))

    def log_message(self, *args):
        pass


def part_of(body, start):
    """Status, headers and body of an answer that begins with byte `start`."""
    n = len(body)
    if start >= n:
        return 416, {"Content-Range": f"bytes */{n}"}, b"nothing is left"
    return 206, {"Content-Range": f"bytes {start}-{n - 1}/{n}"}, body[start:]


@pytest.fixture
def server(monkeypatch):
    """A server of CONTENT, which misbehaves as `Handler` says."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    for name in "GPT2_MODELS_URL", "HF_HUB_OFFLINE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE":
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(download, "BACKOFF", 0.001)
    monkeypatch.setattr(download, "TIMEOUT", (5, 0.5))
    monkeypatch.setattr(download, "PIECE", BLOCK)
    released = json.loads(CONTENT["hparams.json"])  # so the model that is served is this one
    for name in "124M", "355M", "1558M", "gpt2":
        monkeypatch.setitem(names.MODELS, name, names.MODELS[name]._replace(sizes=released))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.handle_error = lambda *args: None  # some clients in these tests go away
        server.plan = {}
        server.log = []
        server.url = f"http://127.0.0.1:{server.server_port}/gpt-2/models"
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()
