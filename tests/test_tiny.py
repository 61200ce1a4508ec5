"""tiny.py agrees with the rest of the project: law, text, logits, ids. And the README shows its lines."""

import json
import re
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import EXACT, MICRO, ROOT, assert_same, models, printed_by, product_of_conditionals, read, texts_of

import gpt2
import main
import tiny
from checkpoint.read import read as read_model
from encoder import get_encoder
from enumeration import output_distribution, total_variation
from terminal import PROMPT

ENCODER = tiny.Encoder(ROOT / "models" / "target")


@settings(max_examples=20)
@given(drawn=models(), N=st.integers(0, 4), K=st.integers(0, 3))
def test_both_loops_have_the_law_of_the_target_and_both_checks_agree(drawn, N, K):
    draft, target, x = drawn
    expected = product_of_conditionals(x, target, N)
    for loop in (
        lambda rng: tiny.autoregressive_sampling(x, target, N, rng),
        lambda rng: tiny.speculative_sampling(x, draft, target, N, K, rng),
    ):
        found, n_paths = tiny.law(loop)
        assert_same(output_distribution(loop), expected)
        assert total_variation(found, expected) < EXACT
        assert n_paths >= len(found)


@given(drawn=models(), N=st.integers(0, 9), K=st.integers(0, 4))
def test_a_round_is_one_pass_of_the_target(drawn, N, K):
    draft, target, x = drawn
    tiny.speculative_sampling(x, draft, target, N, K, np.random.default_rng(0))
    before = [len(ids) - n_rows + 1 for ids, n_rows in target.calls]  # tokens of the text before each round
    assert before == sorted({*before}) and len(before) <= N


def test_its_check_sees_a_mistake(monkeypatch, capsys):
    tiny.check()
    assert capsys.readouterr().out == "981 paths, 81 texts of total probability 1, distance 0\n"
    monkeypatch.setattr(np, "maximum", lambda a, b: np.abs(a))
    tiny.check()
    assert re.search(r"distance [1-9]\d*/\d+$", capsys.readouterr().out.strip())


@pytest.mark.parametrize("prompt", [PROMPT, "The old woman", "'Why?' asked the 2 kings\n"])
def test_it_writes_the_text_of_main(prompt, monkeypatch, capsys):
    expected = printed_by(main, "--prompt", prompt, "--n_tokens_to_generate", 15)
    monkeypatch.setattr(sys, "argv", ["tiny.py", prompt, "--N", "15"])
    monkeypatch.chdir(ROOT)
    tiny.main()
    output = capsys.readouterr().out
    found = re.search(r"^Target alone.*?:\n(.*)\n\nWith a draft.*?:\n(.*)\n\n\d", output, re.DOTALL)
    assert found.groups() == texts_of(expected)
    assert re.search(r"(\S+) tokens per round", output)[1] == re.search(r"tokens per round +([\d.]+)", expected)[1]


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
        assert np.abs(np.log(model(ids[:n], 5)) - np.log(gpt2.softmax(expected[n - 5 : n]))).max() < 1e-4
    greedy = tiny.GPT2(tmp_path, temperature=0)(ids, 3)
    assert greedy.argmax(-1).tolist() == expected[-3:].argmax(-1).tolist() and greedy.sum() == 3


@given(text=st.text())
def test_its_tokenizer_is_that_of_the_project(text):
    ids = ENCODER.encode(text)
    assert ids == get_encoder("target", ROOT / "models").encode(text) and ENCODER.decode(ids) == text


def test_its_tokenizer_on_known_texts():
    encoder = get_encoder("target", ROOT / "models")
    for text, _ in json.loads(read("tests/fixtures/bpe/golden.json")):
        assert ENCODER.encode(text) == encoder.encode(text)


SIZES = "K or the temperature is not from 0 up, N below 1, or the prompt not from 1 to"


@pytest.mark.parametrize(("options", "message"), [
    (["--K", "-1"], SIZES), (["--temperature", "nan"], SIZES), (["--temperature", "inf"], SIZES), (["--N", "0"], SIZES),
    ([""], SIZES), (["the " * 500], SIZES), (["--check", "--K", "4"], "--check goes with nothing else"),
    (["--draft", "models"], "models is no folder with a checkpoint of OpenAI"),
])  # fmt: skip
def test_bad_input_is_refused_in_the_words_of_argparse(options, message, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", ["tiny.py", *options])
    with pytest.raises(SystemExit, match="2"):
        tiny.main()
    assert f"tiny.py: error: {message}" in capsys.readouterr().err


def test_the_readme_shows_its_lines():
    blocks = re.findall(r"```python\n(def .*?)```", read("README.md"), re.DOTALL)
    assert len(blocks) == 2 and all(block in read("tiny.py") for block in blocks)
