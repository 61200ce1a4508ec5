"""main.py with each draft and each schedule, on a random pair: at temperature 0 the text stays what it was."""

import re

import pytest
from test_main import fails, run, write_model


@pytest.fixture(scope="module")
def models_dir(tmp_path_factory):
    directory = tmp_path_factory.mktemp("models")
    write_model(directory / "draft", n_layer=1)
    write_model(directory / "target", n_layer=2)
    (directory / "corpus.txt").write_text(
        "Once upon a time.\n<|endoftext|>\nA king had three sons.\n", encoding="utf-8"
    )
    return directory


@pytest.mark.parametrize(
    "options",
    [
        "--draft unigram --draft_corpus corpus.txt",
        "--draft bigram --draft_corpus corpus.txt --schedule heuristic",
        "--draft ngram --draft_corpus corpus.txt --schedule draft-confidence",
        "--draft online --repetition_penalty 1.3",
        "--draft lookup --schedule draft-confidence --verify block",
        "--draft early-exit:1 --schedule target-confidence --threshold 0.1",
        "--schedule adaptive --K 6 --eos",
    ],
)
def test_each_draft_and_schedule(models_dir, options):
    arguments = ("--models_dir", models_dir, "--prompt", "A time", "--n_tokens_to_generate", 24, *options.split())
    result = run(*arguments, cwd=models_dir)
    assert result.returncode == 0, result.stderr
    assert re.search(r"same text +yes", result.stdout)
    assert re.search(r"speedup +[\d.]+, [\d.]+ predicted", result.stdout)
    assert re.search(r"time +\d+ % draft, \d+ % target, -?\d+ % the rest", result.stdout)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("--draft parrot", "'parrot' is none of model, unigram"),
        ("--draft early-exit:3", "an exit after 3 layers was asked for; the target has 2"),
        ("--draft bigram --draft_corpus nowhere.txt", "nowhere.txt"),
        ("--draft lookup --draft_corpus corpus.txt", "--draft_corpus is for --draft unigram, bigram, ngram"),
        ("--draft online --draft_model_size draft", "--draft_model_size is for --draft model"),
        ("--schedule sometimes", "invalid choice: 'sometimes'"),
        ("--threshold 0.5", "--threshold is for target-confidence and draft-confidence"),
        ("--threshold 1.5 --schedule target-confidence", "--threshold is 1.5"),
        ("--repetition_penalty 0", "--repetition_penalty is 0.0"),
        ("--repetition_penalty nan", "--repetition_penalty is nan"),
    ],
)
def test_bad_arguments(models_dir, options, complaint):
    arguments = ("--models_dir", models_dir, "--prompt", "A", "--n_tokens_to_generate", 8, *options.split())
    assert complaint in fails(*arguments)
