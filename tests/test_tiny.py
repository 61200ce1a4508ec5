"""tiny.py agrees with the rest of the project, and takes what readers try."""

import json
import os
import re
import shutil
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import (
    EXACT,
    MICRO,
    ROOT,
    assert_same,
    models,
    printed_by,
    product_of_conditionals,
    read,
    run,
    texts_of,
)

import gpt2
import main
import tiny
from checkpoint.openai import DATA
from checkpoint.read import read as read_model
from encoder import get_encoder
from enumeration import sum_over_paths, total_variation
from terminal import PROMPT

ENCODER = tiny.Encoder(ROOT / "models" / "target")


@settings(max_examples=20)
@given(drawn=models(), N=st.integers(0, 4), K=st.integers(0, 3))
def test_both_loops_have_the_targets_distribution_and_both_checks_agree(drawn, N, K):
    draft, target, x = drawn
    expected = product_of_conditionals(x, target, N)
    for loop in (
        lambda rng: tiny.autoregressive_sampling(x, target, N, rng),
        lambda rng: tiny.speculative_sampling(x, draft, target, N, K, rng),
    ):
        found, n_paths = tiny.distribution(loop)
        assert_same(sum_over_paths(loop), expected)
        assert total_variation(found, expected) < EXACT
        assert n_paths >= len(found)


@given(drawn=models(), N=st.integers(0, 9), K=st.integers(0, 4))
def test_a_round_is_one_pass_of_the_target(drawn, N, K):
    draft, target, x = drawn
    tiny.speculative_sampling(x, draft, target, N, K, np.random.default_rng(0))
    before = [len(ids) - n_rows + 1 for ids, n_rows in target.calls]  # tokens before each round
    assert before == sorted({*before}) and len(before) <= N


def test_its_check_sees_a_mistake(monkeypatch, capsys):
    tiny.check()
    assert capsys.readouterr().out == EXACTLY
    monkeypatch.setattr(np, "maximum", lambda a, b: np.abs(a))
    tiny.check()
    found = re.search(r"distance (\d+/\d+), or (0\.\d{4})\n$", capsys.readouterr().out)
    assert found[2] == f"{float(Fraction(found[1])):.4f}" > "0.01"


# ---- What a reader may try ----

EXACTLY = "981 paths, 81 texts of total probability 1\ndistance 0, or 0.0000\n"
JUDGE = "if rng.random() >= q[i][token] / p[i][token]:"
BONUS = "x = np.append(x, rng.choice(len(q[-1]), p=q[-1]))  # all accepted: a bonus"
REPLACE = "x = np.append(x[: n + i], rng.choice(len(residual), p=residual / residual.sum()))"


ENDLESS = "the loop has no end"


def edited(old, new):
    """The names of tiny.py after a reader has replaced a line of it."""
    source, names = read("tiny.py"), {"__name__": "edited"}
    assert source.count(old) == 1
    exec(source.replace(old, new), names)
    return names


CONDITIONS = [
    "not rng.random() < q[i][token] / p[i][token]",
    "rng.random() > q[i][token] / p[i][token]",
    "not rng.random() <= q[i][token] / p[i][token]",
    "q[i][token] / p[i][token] <= rng.random()",
    "not q[i][token] / p[i][token] > rng.random()",
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_its_check_takes_any_comparison(condition, capsys):
    edited(JUDGE, f"if {condition}:")["check"]()
    assert capsys.readouterr().out == EXACTLY


def test_a_probability_below_0_is_0(capsys):
    edited(JUDGE, "if rng.random() >= q[i][token] - p[i][token]:")["check"]()
    assert "of total probability 1\n" in capsys.readouterr().out


RESIDUAL = "residual = np.maximum(q[i] - p[i], 0)"
MISTAKES = {  # a line, what a reader writes in its place, and the error
    "no bonus": (BONUS, "pass", ENDLESS),
    "no replacement": (REPLACE, "x = x[: n + i]", ENDLESS),
    "a loop in a round": (RESIDUAL, "while rng.random() < 0.5: residual = q[i]", ENDLESS),
    "two comparisons": (JUDGE, "if (u := rng.random()) < 0.5 or u > 0.9:", "one comparison"),
}


@pytest.mark.parametrize(("old", "new", "message"), MISTAKES.values(), ids=MISTAKES)
def test_its_check_stops_with_one_line(old, new, message):
    with pytest.raises(SystemExit, match=f"tiny.py: error: .*{message}"):
        edited(old, new)["check"]()


def test_decoding_stops_with_one_line_too(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["tiny.py", "--N", "3", "--K", "1"])
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit, match=ENDLESS):
        edited(BONUS, "pass")["main"]()


# ---- The program ----


@pytest.mark.parametrize("prompt", [PROMPT, "The old woman", "'Why?' asked the 2 kings\n"])
def test_it_writes_the_text_of_main(prompt, monkeypatch, capsys):
    expected = printed_by(main, "--prompt", prompt, "--n_tokens_to_generate", 15)
    monkeypatch.setattr(sys, "argv", ["tiny.py", prompt, "--N", "15"])
    monkeypatch.chdir(ROOT)
    tiny.main()
    output = capsys.readouterr().out
    found = re.search(r"^Target alone.*?:\n(.*)\n\nWith a draft.*?:\n(.*)\n\n\d", output, re.DOTALL)
    assert found.groups() == texts_of(expected)
    per_round = re.search(r"tokens per round +([\d.]+)", expected)[1]
    assert f"\n{per_round} tokens per round, " in output
    assert output.endswith("\nBoth texts are the same.\n")


def test_whether_the_texts_are_the_same(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", ["tiny.py", "--N", "9", "--temperature", "1e-310"])
    tiny.main()
    assert capsys.readouterr().out.endswith("\nBoth texts are the same.\n")
    monkeypatch.setattr(sys, "argv", ["tiny.py", "--N", "9", "--temperature", "1"])
    tiny.main()
    assert capsys.readouterr().out.endswith("\nThe texts differ, as two samples do.\n")
    monkeypatch.setattr(sys, "argv", ["tiny.py", "--N", "9"])
    edited(BONUS, "x = np.append(x, 0)")["main"]()
    assert "\nThe texts differ: a bug, or" in capsys.readouterr().out


COSTS = (1.2, False), (2.5, True), (4.9, True), (59.2, False)


@pytest.mark.parametrize(("several", "explained"), COSTS)
def test_a_reason_only_where_it_was_measured(several, explained, monkeypatch, capsys):
    times = iter([1.0, several])
    monkeypatch.setattr(tiny, "fastest", lambda function, n: (next(times), None))
    tiny.print_cost(None, None, 5)
    output = capsys.readouterr().out
    assert output.startswith(f"5 positions take {several} times as long as one.\n")
    assert ("BLAS first copies" in output) == explained


def test_its_logits_are_those_of_gpt2(tmp_path):
    (tmp_path / "hparams.json").write_bytes((MICRO / "hparams.json").read_bytes())
    data = next(MICRO.glob("*.data*"))
    (tmp_path / data.name).write_bytes(data.read_bytes())
    hparams, params = read_model(MICRO)
    ids = np.random.default_rng(0).integers(300, size=40)
    expected = gpt2.gpt2(ids, **params, n_head=hparams["n_head"])
    model = tiny.GPT2(tmp_path, temperature=1)
    model(np.append(ids[:9], ids[:9]))  # what it keeps of another text must not matter
    for n in 20, 40:
        wanted = gpt2.softmax(expected[n - 5 : n])
        assert np.abs(np.log(model(ids[:n], 5)) - np.log(wanted)).max() < 1e-4
    greedy = tiny.GPT2(tmp_path, temperature=0)(ids, 3)
    assert greedy.argmax(-1).tolist() == expected[-3:].argmax(-1).tolist() and greedy.sum() == 3


@given(text=st.text())
def test_its_tokenizer_is_that_of_the_project(text):
    ids = ENCODER.encode(text)
    assert ids == get_encoder("target", ROOT / "models").encode(text)
    assert ENCODER.decode(ids) == text


def test_its_tokenizer_on_known_texts():
    encoder = get_encoder("target", ROOT / "models")
    for text, _ in json.loads(read("tests/fixtures/bpe/golden.json")):
        assert ENCODER.encode(text) == encoder.encode(text)


ERRORS = [
    (["--K", "-1"], "--K must be 0 or more"),
    (["--N", "0"], "--N must be 1 or more"),
    (["--temperature", "nan"], "--temperature must be finite"),
    (["--temperature", "inf"], "--temperature must be finite"),
    ([""], "the prompt is empty"),
    (["the " * 500], r"501 \+ 100 tokens are too many: these models hold 512"),
    (["--N", "9" * 30], "tokens are too many"),
    (["--check", "--K", "4"], "--check goes with nothing else"),
]


@pytest.mark.parametrize(("options", "message"), ERRORS)
def test_each_mistake_has_a_line_of_its_own(options, message, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", ["tiny.py", *options])
    with pytest.raises(SystemExit, match=rf"^tiny\.py: error: .*{message}"):
        tiny.main()


def error_of(*options):
    done = run(*options, script="tiny.py")
    assert done.returncode == 1 and done.stdout == ""
    return done.stderr.removeprefix("tiny.py: error: ").removesuffix("\n")


def test_a_prompt_that_is_not_utf8():
    assert error_of("half \udcd8").startswith("'utf-8' codec can't encode character '\\udcd8'")


def test_a_folder_that_is_no_checkpoint(tmp_path):
    def copy(*names):
        for name in names:
            shutil.copy(ROOT / "models" / "draft" / name, tmp_path)

    missing = "[Errno 2] No such file or directory: "
    assert error_of("--draft", tmp_path) == f"{missing}{str(tmp_path / 'hparams.json')!r}"
    copy("hparams.json", DATA)
    assert error_of("--draft", tmp_path) == f"{missing}{str(tmp_path / 'encoder.json')!r}"
    copy("encoder.json", "vocab.bpe")
    tokens = (tmp_path / "encoder.json").read_text(encoding="utf-8")
    (tmp_path / "encoder.json").write_text(tokens.replace('"!"', '"other"'), encoding="utf-8")
    assert error_of("--draft", tmp_path) == "draft and target have different vocabularies"
    (tmp_path / DATA).write_bytes(b"x")
    assert error_of("--draft", tmp_path).endswith("has another size than hparams.json says")


FULL = ("> /dev/full", "No space left on device"), ("| true", "Broken pipe")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize(("end", "problem"), FULL)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_output_that_cannot_be_written(end, problem, unbuffered):
    command = f"'{sys.executable}' tiny.py --check {end}"
    env = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, env=env)
    assert re.fullmatch(rf"tiny\.py: error: .*{problem}\n", done.stderr)


def test_the_readme_shows_its_lines():
    blocks = re.findall(r"```python\n(def .*?)```", read("README.md"), re.DOTALL)
    assert len(blocks) == 2 and all(block in read("tiny.py") for block in blocks)
