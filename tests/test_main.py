"""main.py as its user meets it: a subprocess, its two texts, its one-line errors."""

import http.server
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from bundle_writer import write_bundle

from encoder import bytes_to_unicode
from gpt2 import rows_are_independent
from utils import expected_shapes

ROOT = Path(__file__).parent.parent


def run(*args, cwd=ROOT, **env):
    command = [sys.executable, str(ROOT / "main.py"), *map(str, args)]
    return subprocess.run(command, cwd=cwd, env=os.environ | env, capture_output=True, text=True, timeout=120)


def fails(*args, **env):
    """The one line of an error."""
    result = run(*args, **env)
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    line = result.stderr.replace("\r", "\n").strip().split("\n")[-1]
    assert line.startswith("main.py: error: ") and "Traceback" not in result.stderr and "Warning" not in result.stderr
    return line


def write_model(directory, n_layer, n_vocab=257, n_ctx=64, ends=False):
    """A random GPT-2 that knows bytes and `<|endoftext|>`, and may have nothing else to say than the latter."""
    directory.mkdir(parents=True)
    hparams = dict(n_vocab=n_vocab, n_ctx=n_ctx, n_embd=16, n_head=2, n_layer=n_layer)
    rng = np.random.default_rng(n_layer)
    tensors = {name: rng.standard_normal(shape, np.float32) for name, shape in expected_shapes(**hparams).items()}
    if ends:
        tensors["model/ln_f/b"] = 100 * tensors["model/wte"][-1]
    write_bundle(str(directory / "model.ckpt"), list(tensors.items()))
    tokens = [*bytes_to_unicode().values(), *(f"<{i}>" for i in range(n_vocab - 257)), "<|endoftext|>"]
    (directory / "encoder.json").write_text(json.dumps({token: id for id, token in enumerate(tokens)}))
    (directory / "hparams.json").write_text(json.dumps(hparams))
    (directory / "vocab.bpe").write_text("#version: 0.2\n")
    (directory / "checkpoint").write_text('model_checkpoint_path: "model.ckpt"\n')
    (directory / "model.ckpt.meta").write_text("no graph")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The URL of a server with models of OpenAI's form, 124M and 1558M by name."""
    root = tmp_path_factory.mktemp("served")
    write_model(root / "124M", n_layer=1)
    write_model(root / "1558M", n_layer=2)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=root)

        def copyfile(self, source, outputfile):
            if self.path.startswith("/slow"):
                time.sleep(0.1)  # for 14 files more than a second, however fast all else is
                outputfile.write(source.read(10_000))
                time.sleep(0.1)
            super().copyfile(source, outputfile)

        def translate_path(self, path):
            return super().translate_path(path.removeprefix("/slow"))

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *args: None  # of clients that were interrupted
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def text_of(title, output):
    return re.search(rf"{title}\n-+\nTime = [\d.]+s\nText = (.*?)\n\n(?:Spec|models)", output, re.DOTALL)[1]


# ---- The main job ----


def test_the_bundled_pair_from_any_directory(tmp_path):
    result = run("--K", 4, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    text = text_of("Autoregressive Decode", result.stdout)
    assert text.startswith("Once upon a time, long, long ago, there were two") and len(text) > 300
    assert text_of("Speculative Decode", result.stdout) == text
    assert "draft drafts for target" in result.stdout and re.search(r"same text +yes", result.stdout)
    for figure in "tokens per second", "speedup", "acceptance rate", "tokens per round":
        assert float(re.search(rf"{figure} +([\d.]+)", result.stdout)[1]) > 0
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("options", [("--verify", "block"), ("--top_k", 5), ("--top_p", 0.9)])
def test_sampling_differs_with_the_seed_only(options):
    args = ("--temperature", 1, "--n_tokens_to_generate", 20, "--prompt", "The", *options)
    one, again, other = (run(*args, "--seed", seed).stdout for seed in (1, 1, 2))
    texts = [text_of("Speculative Decode", output) for output in (one, again, other)]
    assert texts[0] == texts[1] != texts[2]


def test_empty_prompt_starts_a_text():
    output = run("--prompt", "", "--n_tokens_to_generate", 8).stdout
    assert not text_of("Autoregressive Decode", output).startswith("<|endoftext|>")


def test_a_text_that_ends_at_once(tmp_path):
    write_model(tmp_path / "draft", n_layer=1, ends=True)
    write_model(tmp_path / "target", n_layer=1, ends=True)
    result = run("--models_dir", tmp_path, "--prompt", "A", "--n_tokens_to_generate", 8, "--eos")
    assert result.returncode == 0, result.stderr
    assert text_of("Speculative Decode", result.stdout) == "A<|endoftext|>"
    assert "no prediction" in result.stdout


def test_the_same_draws_give_the_same_text():
    output = run("--K", 0, "--temperature", 1, "--n_tokens_to_generate", 8).stdout
    assert text_of("Speculative Decode", output) == text_of("Autoregressive Decode", output)
    assert re.search(r"same text +yes, and it need not be", output)


def test_a_terminal_that_cannot_show_all_characters():
    result = run("--prompt", "Café", "--n_tokens_to_generate", 8, PYTHONIOENCODING="ascii")
    assert result.returncode == 0 and "Text = Caf?" in result.stdout, result.stderr


def test_bit_identical_is_refused_where_the_blas_does_not_give_it():
    result = run("--n_tokens_to_generate", 4, "--bit_identical")
    assert result.returncode == (0 if rows_are_independent() else 2), result.stderr


def test_edge_lengths():
    assert text_of("Speculative Decode", run("--n_tokens_to_generate", 0, "--prompt", "A king").stdout) == "A king"
    assert text_of("Speculative Decode", run("--n_tokens_to_generate", 1, "--K", 9).stdout).startswith("Once")
    assert run("--n_tokens_to_generate", 511, "--prompt", "A", "--temperature", 1).returncode == 0  # all of n_ctx


def test_released_models_are_downloaded_and_decoded(served, tmp_path):
    prompt = "Alan Turing theorized"
    args = ("--prompt", prompt, "--n_tokens_to_generate", 40, "--target_model_size", "1558M", "--K", 4,
            "--temperature", 0, "--seed", 123, "--models_dir", tmp_path)  # fmt: skip
    result = run(*args, GPT2_MODELS_URL=served)
    assert result.returncode == 0, result.stderr
    assert "124M drafts for 1558M" in result.stdout
    assert text_of("Autoregressive Decode", result.stdout) == text_of("Speculative Decode", result.stdout)
    assert "model.ckpt.data-00000-of-00001: 100%" in result.stderr  # a bar for each file
    assert sorted(p.name for p in (tmp_path / "124M").iterdir()) == [
        "checkpoint", "encoder.json", "hparams.json", "model.ckpt.data-00000-of-00001", "model.ckpt.index",
        "model.ckpt.meta", "vocab.bpe",
    ]  # fmt: skip
    assert run(*args, GPT2_MODELS_URL="http://127.0.0.1:9").returncode == 0  # nothing is fetched twice


# ---- Bad input: one line, exit code 2 ----


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["--K", -1], "--K is -1"),
        (["--repetition_penalty", 1e-300], "--repetition_penalty is 1e-300; it takes a number from 0.01 to 100"),
        (["--K", "four"], "invalid int value: 'four'"),
        (["--n_tokens_to_generate", -5], "--n_tokens_to_generate is -5"),
        (["--temperature", -0.1], "--temperature is -0.1"),
        (["--temperature", "nan"], "--temperature is nan"),
        (["--top_p", 0], "--top_p is 0.0"),
        (["--top_p", 1.5], "--top_p is 1.5"),
        (["--top_p", "nan"], "--top_p is nan"),
        (["--top_k", -3], "--top_k is -3"),
        (["--seed", -3], "--seed is -3"),
        (["--target_model_size", "2B"], "unknown model size '2B'; there are"),
        (["--draft_model_size", "../../etc"], "unknown model size '../../etc'"),
        (["--n_tokens_to_generate", 600], "and 600 to generate are 6"),
        (["--n_tokens_to_generate", 512, "--prompt", "A"], "a prompt of 1 tokens and 512 to generate are 513"),
        (["--prompt", "half \udcd8"], "lone surrogate"),
        (["--colour", "red"], "unrecognized arguments"),
    ],
)
def test_bad_arguments(args, complaint):
    assert complaint in fails(*args)


def test_no_network(tmp_path):
    line = fails("--target_model_size", "1558M", "--models_dir", tmp_path, "--models_url", "http://127.0.0.1:9")
    assert "cannot fetch http://127.0.0.1:9/124M/" in line and "bundled pair" in line
    assert [p for p in tmp_path.rglob("*") if p.is_file() and p.suffix != ".part"] == []


@pytest.mark.parametrize("name", ["hparams.json", "encoder.json", "model.ckpt.index", "model.ckpt.data-00000-of-00001"])
@pytest.mark.parametrize("damage", ["missing", "empty", "truncated"])
def test_damaged_model_directory(tmp_path, name, damage):
    write_model(tmp_path / "draft", n_layer=1)
    shutil.copytree(tmp_path / "draft", tmp_path / "target")
    path = tmp_path / "target" / name
    size = path.stat().st_size
    if damage == "missing":
        path.unlink()
    else:
        os.truncate(path, 0 if damage == "empty" else size - 7)
    line = fails("--models_dir", tmp_path)
    assert str(tmp_path / "target") in line
    if name.startswith("model.ckpt.data") and damage == "truncated":
        assert f"{size:,}" in line and f"{size - 7:,}" in line


def test_vocabularies_must_be_the_same(tmp_path):
    write_model(tmp_path / "draft", n_layer=1, n_vocab=300)
    write_model(tmp_path / "target", n_layer=1)
    assert "differ in their vocabularies" in fails("--models_dir", tmp_path)


def test_a_vocabulary_without_an_end_of_text(tmp_path):
    for size in "draft", "target":
        write_model(tmp_path / size, n_layer=1)
        path = tmp_path / size / "encoder.json"
        path.write_text(path.read_text().replace("<|endoftext|>", "aa"))
    assert "vocabulary of target lacks <|endoftext|>" in fails("--models_dir", tmp_path)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="cannot see here how far a process has come")
@pytest.mark.parametrize("work", ["decoding", "downloading"])
def test_interrupts_at_random_moments(served, tmp_path, work):
    rng = random.Random(0)
    args = ["--temperature", "1", "--n_tokens_to_generate", "500", "--prompt", "A"]
    if work == "downloading":
        args = ["--target_model_size", "1558M", "--models_url", f"{served}/slow", *args[:2], "--models_dir"]
    for i in range(25):
        directory = tmp_path / str(i)
        process = subprocess.Popen(
            [sys.executable, "main.py", *args, *([directory] if work == "downloading" else [])],
            cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        while "numpy" not in Path(f"/proc/{process.pid}/maps").read_text():  # SIGINT is seen to before the imports
            time.sleep(0.001)
        while work == "downloading" and not any(directory.rglob("*/*")):
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.8))
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 130 and "Traceback" not in errors, errors
        for path in directory.rglob("*/*"):
            with urllib.request.urlopen(f"{served}/{path.relative_to(directory)}".removesuffix(".part")) as f:
                content = f.read()
            assert content.startswith(path.read_bytes()) if path.suffix == ".part" else content == path.read_bytes()
    if work == "downloading":
        result = run(*args, directory, "--n_tokens_to_generate", 20, "--prompt", "A")
        assert result.returncode == 0 and "1558M" in result.stdout, result.stderr
