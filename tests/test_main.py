"""main.py as a user meets it: the two texts that it prints, and errors of one line. Most tests start a process."""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from unittest.mock import Mock, call, patch

import numpy as np
import pytest
from support import ROOT, read, run

import main
from checkpoint.download import FILES
from checkpoint.writer import vocabulary, write_bundle
from pair import Pair
from speculative import verify_block
from utils import expected_shapes


def texts_of(result):
    assert result.returncode == 0, result.stderr
    text = r" Decode\n-+\nTime = [\d.]+s\nText = (.*?)\n\n"
    return re.search(f"Autoregressive{text}Speculative{text}models", result.stdout, re.DOTALL).groups()


def write_pair(models_dir):
    """Write a draft and a target whose tokens are the bytes and <|endoftext|>. They predict only <|endoftext|>."""
    hparams = dict(n_vocab=257, n_ctx=64, n_embd=16, n_head=2, n_layer=1)
    rng = np.random.default_rng(0)
    tensors = {name: rng.standard_normal(shape, np.float32) for name, shape in expected_shapes(**hparams).items()}
    tensors["model/ln_f/b"] = 100 * tensors["model/wte"][-1]
    files = {"hparams.json": json.dumps(hparams).encode(), "checkpoint": b"1", "model.ckpt.meta": b"1"}
    for directory in models_dir / "draft", models_dir / "target":
        directory.mkdir()
        write_bundle(str(directory / "model.ckpt"), tensors.items())
        for name, content in (files | vocabulary(257)).items():
            (directory / name).write_bytes(content)


# ---- The main job ----


def test_the_bundled_pair_from_any_directory(tmp_path):
    result = run("--K", 4, cwd=tmp_path)
    plain, fast = texts_of(result)
    assert plain == fast and len(plain) > 300
    assert plain.startswith("Once upon a time there was a king who had three sons, and they were all very happy.")
    assert re.search(r"matrix kernel +(groups of|single) rows", result.stdout)
    assert os.listdir(tmp_path) == []
    for figure in "acceptance rate", "tokens per round", "same text":
        assert re.search(rf"^{figure}.*\n", result.stdout, re.MULTILINE)[0] in read("README.md")


@pytest.mark.parametrize("draft", ["ngram", "online", "lookup", "early-exit:1"])
def test_each_draft(draft):
    plain, fast = texts_of(run("--draft", draft, "--schedule", "adaptive", "--n_tokens_to_generate", 40))
    assert plain == fast


def test_every_option_reaches_the_pair(tmp_path):
    """The texts do not show this: at temperature 0 they are the same with any schedule and any rule."""
    options = """
        --draft ngram --prompt A --n_tokens_to_generate 9 --K 3 --seed 7 --temperature 0.7 --top_k 5 --top_p 0.9
        --repetition_penalty 1.2 --bit_identical --eos --schedule target-confidence --threshold 0.3 --verify block
    """
    with (
        patch.object(main, "load_pair", wraps=main.load_pair) as load,
        patch.object(Pair, "decode", side_effect=Pair.decode, autospec=True) as decode,
        patch("numpy.random.default_rng", wraps=np.random.default_rng) as default_rng,
    ):
        main.main([*options.split(), "--models_dir", str(tmp_path), "--draft_corpus", __file__])
    loading = dict(draft="ngram", corpus=__file__, models_dir=str(tmp_path), models_url=None, bit_identical=True)
    sampling = dict(temperature=0.7, top_k=5, top_p=0.9, repetition_penalty=1.2)
    assert load.call_args.kwargs == loading | sampling
    decoded = [each.kwargs for each in decode.call_args_list]
    wanted = dict(K=3, schedule="target-confidence", threshold=0.3, verify=verify_block)
    obeyed = [options.items() >= wanted.items() for options in decoded]
    assert obeyed == [False, True, False, True]  # two warm-ups, then two runs
    assert decoded[2]["eos"] == decoded[3]["eos"] == 2047
    assert default_rng.call_args_list.count(call(7)) == 4


def test_K_auto_takes_the_best_K_and_says_so():
    output = run("--K", "auto").stdout
    found = re.search(r"best K +(\d); rough .*: 1\.00 \(K = 0\)(, \d\.\d\d \(K = \d\)){8}\n", output)
    assert f"with K = {found[1]}, fixed" in output


def test_a_text_that_ends_at_once(tmp_path):
    write_pair(tmp_path)
    result = run("--models_dir", tmp_path, "--prompt", "A", "--n_tokens_to_generate", 3, "--eos", "--K", "auto")
    assert texts_of(result) == ("A<|endoftext|>", "A<|endoftext|>")
    assert "pilot run was too short; 3 was used" in result.stdout and "with K = 3, fixed" in result.stdout
    assert "too few steps were timed" in result.stdout
    assert "acceptance rate   0.50 of 2 drafted tokens" in result.stdout


def test_an_output_that_cannot_hold_all_characters():
    result = run("--prompt", "Café", "--n_tokens_to_generate", 8, PYTHONIOENCODING="ascii")
    assert texts_of(result)[0].startswith("Caf?")


def test_edge_lengths_and_an_empty_prompt():
    assert not texts_of(run("--prompt", "", "--n_tokens_to_generate", 8))[0].startswith("<|endoftext|>")
    nothing = run("--n_tokens_to_generate", 0, "--prompt", "A king")
    assert texts_of(nothing) == ("A king", "A king") and "nothing was decoded" in nothing.stdout
    one = run("--n_tokens_to_generate", 1, "--prompt", "A king", "--K", 10**12, "--temperature", 1)
    plain, fast = texts_of(one)  # one token is never drafted, so both loops draw it with the same random number
    assert plain == fast != "A king" and "with K = 1, fixed" in one.stdout
    assert "acceptance rate   nothing was drafted" in one.stdout
    all_of_n_ctx = run("--n_tokens_to_generate", 8, "--prompt", " the" * 504, "--temperature", 1, "--K", "auto")
    assert all_of_n_ctx.returncode == 0, all_of_n_ctx.stderr


def test_released_models_are_downloaded_and_decoded(server, tmp_path):
    args = "--prompt", "Alan", "--n_tokens_to_generate", 40, "--target_model_size", "1558M", "--models_dir", tmp_path
    result = run(*args, GPT2_MODELS_URL=server.url)
    plain, fast = texts_of(result)
    assert plain == fast and 'target "1558M", draft "124M"' in result.stdout
    assert "model.ckpt.data-00000-of-00001: 100%" in result.stderr  # a bar for each file
    assert sorted(p.name for p in (tmp_path / "124M").iterdir()) == sorted(FILES)
    assert run(*args, GPT2_MODELS_URL="http://127.0.0.1:9").returncode == 0  # nothing is downloaded twice
    assert main.arguments(["--draft_model_size", "124M"], "").target_model_size == "1558M"


# ---- Bad input: one line, exit code 2 ----


def complaints(capsys, *args):
    """Run main.py in this process, assert that it fails with exit code 2, and return the lines of standard error."""
    with pytest.raises(SystemExit, match="2"):
        main.main(list(map(str, args)))
    output = capsys.readouterr()
    lines = output.err.splitlines()
    assert output.out == "" and lines[-1].startswith("main.py: error: ")
    return lines


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["--K", -1], "main.py: error: argument --K: '-1' is not a whole number from 0 up, or auto"),
        (["--K", "4x"], "argument --K: '4x' is not a whole number from 0 up, or auto"),
        (["--schedule", "sometimes"], "invalid choice: 'sometimes'"),
        (["--n_tokens_to_generate", -5], "--n_tokens_to_generate: '-5' is not a whole number from 0 up"),
        (["--temperature", -0.1], "--temperature: '-0.1' is not a number from 0 up"),
        (["--temperature", "inf"], "--temperature: 'inf' is not a number from 0 up"),
        (["--top_p", 0], "--top_p: '0' is not a number above 0 and at most 1"),
        (["--repetition_penalty", 1e-300], "--repetition_penalty: '1e-300' is not a number from 0.01 to 100"),
        (["--target_model_size", ""], "unknown model size ''; there are"),
        (["--draft_model_size", ""], "unknown model size ''; there are"),
        (["--n_tokens_to_generate", 9, "--prompt", " the" * 504], "the prompt has 504 tokens and 9 more are wanted"),
        (["--prompt", "half \udcd8"], "lone surrogate, U+DCD8"),
        (["--trace", "trace.txt"], "'trace.txt' is not the name of a .html or .svg file"),
        (["--trace", "no/such/folder/trace.html"], "No such file or directory: 'no/such/folder/trace.html'"),
        (["--trace", "trace.html", "--n_tokens_to_generate", "0"], "--n_tokens_to_generate must be above 0"),
        (["--draft", "early-exit:" + 5000 * "1"], "11' is not one of model, unigram"),
        (["--draft", "early-exit:L"], "'early-exit:L' is not one of model, unigram"),
        (["--draft", "early-exit:0"], "early exit after 0 layers was asked for; choose 1 to 6"),
        (["--draft", "early-exit:7"], "early exit after 7 layers was asked for; choose 1 to 6"),
        (["--draft", "bigram", "--draft_corpus", "nowhere.txt"], "'nowhere.txt' is not a file"),
        (["--draft_model_size", "draft", "--target_model_size", "1558M"], "a bundled model and one of OpenAI's cannot"),
        (["--draft", "ngram", "--target_model_size", "124M"], "--draft ngram needs a --draft_corpus"),
        (["--draft", "bigram", "--draft_corpus", os.devnull], "the text to count n-grams in is empty"),
        (["--draft", "lookup", "--draft_corpus", os.devnull], "corpus needs --draft unigram or bigram or ngram, but"),
        (["--draft", "online", "--draft_model_size", "draft"], "--draft_model_size needs --draft model, but"),
        (["--repetition_penalty", 101], "--repetition_penalty: '101' is not a number from 0.01 to 100"),
        (["--threshold", "0"], "--threshold needs --schedule target-confidence or draft-confidence"),
        (["--threshold", "1.5", "--schedule", "target-confidence"], "'1.5' is not a probability"),
    ],
)
def test_bad_arguments(args, complaint, capsys):
    [line] = complaints(capsys, *args)
    assert complaint in line


def test_defaults_and_extreme_values():
    args = main.arguments([], "")
    assert (args.K, args.schedule, args.verify, args.temperature, args.seed) == (4, "fixed", "token", 0, 123)
    assert (args.top_k, args.top_p, args.repetition_penalty, args.color) == (0, 1, 1, "auto")
    main.arguments("--top_p 1 --repetition_penalty 0.01 --trace t.svg --n_tokens_to_generate 1".split(), "")
    main.arguments("--threshold 1 --schedule draft-confidence --repetition_penalty 100".split(), "")
    main.arguments(["--target_model_size", "124M", "--draft", "ngram", "--draft_corpus", __file__], "")
    main.arguments(["--target_model_size", "124M", "--draft", "lookup"], "")
    main.arguments("--draft_model_size draft --target_model_size 124M --models_dir elsewhere".split(), "")


def test_a_value_that_older_versions_of_argparse_lose(monkeypatch, capsys):
    """Before 3.11.8, 3.12.2 and 3.13, they take "--prompt=--" for an empty list."""
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", lambda self, argv: argparse.Namespace(prompt=[]))
    [line] = complaints(capsys, "--prompt=--")
    assert "argument --prompt: found no value" in line


def test_errors_while_the_models_are_loaded(monkeypatch, capsys):
    """A programming error shows its traceback. Readers edit this code, and one line would not tell them enough."""
    monkeypatch.setattr(main, "load_pair", Mock(side_effect=[MemoryError, ValueError("cannot be broadcast")]))
    [line] = complaints(capsys)
    assert "1558M needs 8 GB" in line
    with pytest.raises(ValueError, match="broadcast"):
        main.main([])


def test_the_reader_of_the_output_goes_away():
    command = [sys.executable, "main.py"]
    env = os.environ | {"PYTHONUNBUFFERED": ""}  # so that Python holds back some text at the end
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env) as process:
        process.stdout.close()
        errors = process.stderr.read()
    assert process.returncode == 1 and b"rror" not in errors, errors


@pytest.mark.skipif(os.name == "nt", reason="the shell of Windows cannot close these")
@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_without_standard_output_or_error(tmp_path, closed):
    command = f"'{sys.executable}' main.py --n_tokens_to_generate 8 --trace '{tmp_path / 't.svg'}' {closed}"
    result = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0 and "Traceback" not in result.stderr and (tmp_path / "t.svg").stat().st_size > 0


@pytest.mark.parametrize("url", ["nonsense", "file:///etc", "http://127.0.0.1:9", "http://a..b"])
def test_a_download_that_cannot_begin(tmp_path, capsys, monkeypatch, url):
    monkeypatch.setattr("checkpoint.download.BACKOFF", 0.001)  # otherwise the test would wait six seconds
    args = ("--target_model_size", "1558M", "--models_dir", tmp_path, "--models_url", url)
    line = complaints(capsys, *args)[-1]
    assert f"cannot download {url}/124M/checkpoint: " in line and "bundled pair" in line
    assert [p for p in tmp_path.rglob("*") if p.is_file() and p.suffix != ".part"] == []


def test_vocabularies_that_do_not_fit(tmp_path, capsys):
    write_pair(tmp_path)
    counts = ("--draft", "bigram", "--draft_corpus", __file__)
    for size, options, problem in (
        ("draft", (), "have different vocabularies"),
        ("target", counts, "target has no token"),
    ):
        path = tmp_path / size / "encoder.json"
        path.write_text(path.read_text().replace("<|endoftext|>", "aa"))
        [line] = complaints(capsys, "--models_dir", tmp_path, *options)
        assert problem in line


def test_a_run_that_fails_leaves_no_trace_file(tmp_path, capsys):
    trace = tmp_path / "trace.html"
    complaints(capsys, "--trace", trace, "--draft", "early-exit:7")
    assert not trace.exists()
    trace.write_text("older")
    complaints(capsys, "--trace", trace, "--draft", "early-exit:7")
    assert trace.read_text() == "older"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signal")
@pytest.mark.parametrize(
    ("handler", "end"), [(signal.default_int_handler, (130, b"\nInterrupted.\n")), (signal.SIG_IGN, (0, b""))]
)
def test_ctrl_c_ends_the_program_unless_it_was_ignored_at_the_start(tmp_path, handler, end):
    """A shell ignores it for the background jobs of a script. It comes early here, from a stand-in for numpy."""
    (tmp_path / "numpy.py").write_text(
        "import os, signal, sys, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(0.1); sys.exit()"
    )
    done = subprocess.run(
        [sys.executable, "main.py"], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, handler),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == end
