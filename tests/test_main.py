"""main.py and the lab as a user meets them: two texts and a table, and errors of one line."""

import ast
import os
import re
import sys
from unittest.mock import Mock, patch

import pytest
from support.programs import ROOT, printed_by, read, run, texts_of

import fast
import lab.__main__ as lab_main
import main
import runs
from lab.block import verify_block
from lab.pair import LabPair
from runs import Pair
from terminal.ending import report


def test_the_bundled_pair_from_any_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output = printed_by(main, "--K", 4)
    plain, guessed = texts_of(output)
    assert plain == guessed and len(plain) > 300
    assert plain.startswith(
        "Once upon a time there was a king who had three sons, and they were all very happy."
    )
    assert os.listdir(tmp_path) == []
    for figure in "acceptance rate", "tokens per round", "same text":
        assert re.search(rf"^{figure}.*\n", output, re.MULTILINE)[0].strip() in read(
            "docs/terminal.svg"
        )


def test_two_samples_and_the_settings():
    settings = "--temperature 1 --top_k 9 --top_p 0.9 --seed 7 --n_tokens_to_generate 20"
    options = settings.split()
    output = printed_by(main, *options)
    plain, guessed = texts_of(output)
    assert plain != guessed and "no: two samples differ, unless" in output
    assert texts_of(printed_by(lab_main, *options)) == (plain, guessed)
    assert texts_of(printed_by(main, *options, "--seed", 8))[0] != plain


@pytest.mark.parametrize(
    "options",
    ["--temperature 1", "--temperature 1 --same_text --seed 0", "--K 0", "--n_tokens_to_generate 1",
     "--draft_model_size target --target_model_size target"],
)  # fmt: skip
def test_the_figures_close_the_formula(options, monkeypatch):
    monkeypatch.setattr("terminal.figures.LEAST_V", 0)
    output = printed_by(main, "--n_tokens_to_generate", 15, *options.split())
    lines = output[output.index("tokens per second") :].splitlines()
    figures = {line[:18].strip(): line[18:] for line in lines}
    shown = " ".join(figures[name] for name in ("speedup", "tokens per round", "cost of a round"))
    speedup, tokens, cost, *parts = map(float, re.findall(r"\d+\.\d+", shown))
    assert sum(parts) == pytest.approx(cost, abs=0.02)
    assert tokens / cost == pytest.approx(speedup, rel=0.02, abs=0.006)  # it has two digits
    assert "same text         yes" in output or options == "--temperature 1"
    drafts_nothing = options in ("--K 0", "--n_tokens_to_generate 1")
    assert ("nothing was guessed" in figures["alpha"]) == drafts_nothing
    assert "slower" not in figures or speedup <= 1


TITLES = "Autoregressive Decode", "Speculative Decode"


def test_each_turn_decodes_the_same_text_and_the_first_is_shown(monkeypatch):
    monkeypatch.setattr(runs, "SECONDS", 99)
    monkeypatch.setattr("terminal.figures.LEAST_V", 0)
    timed = Pair.timed
    decoded = []

    def noted(*args, **kwargs):
        decoded.append(timed(*args, **kwargs))
        return decoded[-1]

    with patch.object(Pair, "timed", noted):
        output = printed_by(main, "--n_tokens_to_generate", 9, "--temperature", 1)
    assert "the median of 5 turns" in output
    assert [output.count(title) for title in TITLES] == [1, 1]
    plain, guessed = decoded[2::2], decoded[3::2]  # the first two are for the weights to be read
    assert len(plain) == len(guessed) == 5
    for several in plain, guessed:
        assert len({(*run.ids,) for run in several}) == 1


def test_every_option_of_the_lab_reaches_the_pair(tmp_path):
    """At temperature 0 the texts are the same whatever reaches the pair, so they don't show it."""
    options = """
        --draft ngram --prompt A --n_tokens_to_generate 9 --K 3 --seed 0
        --temperature 0.7 --top_k 5 --top_p 0.9 --repetition_penalty 1.2
        --eos --schedule target-confidence --verify block --same_text
    """
    with (
        patch.object(lab_main, "load_pair", wraps=lab_main.load_pair) as load,
        patch.object(LabPair, "decode", side_effect=LabPair.decode, autospec=True) as decode,
    ):
        lab_main.main([*options.split(), "--models_dir", str(tmp_path), "--draft_corpus", __file__])
    sampling = dict(temperature=0.7, top_k=5, top_p=0.9, repetition_penalty=1.2)
    assert (
        load.call_args.kwargs
        == dict(draft="ngram", corpus=__file__, models_dir=str(tmp_path), seed=0) | sampling
    )
    decoded = [call.kwargs for call in decode.call_args_list]
    wanted = dict(K=3, schedule="target-confidence", verify=verify_block)
    obeyed = [options.items() >= wanted.items() for options in decoded]
    assert obeyed == [False, True, False, True]  # two warm-ups, then two runs
    assert decoded[2]["eos"] == decoded[3]["eos"] == (2047,)


def test_numpy_takes_the_plain_network(monkeypatch):
    monkeypatch.setattr(fast, "GPT2", None)
    assert "speedup" in printed_by(main, "--numpy", "--n_tokens_to_generate", 2)


def test_edges():
    for program in main, lab_main:
        output = printed_by(program, "--prompt", "", "--n_tokens_to_generate", 0)
        assert "<|endoftext|>" not in output and "nothing was decoded" in output
        printed_by(program, "--n_tokens_to_generate", 1, "--K", 10**12)
    prompt = " the" * 504  # with 8 more, all of n_ctx
    printed_by(main, "--n_tokens_to_generate", 8, "--prompt", prompt, "--temperature", 1)


# ---- Bad input: one line, exit code 2 ----


def complaint(capsys, program, *args):
    """The one line of a program that fails with exit code 2, in this process."""
    with pytest.raises(SystemExit, match="2"):
        report(lambda: program.main(list(map(str, args))), "main.py")
    output = capsys.readouterr()
    [line] = output.err.splitlines()
    assert output.out == "" and line.startswith("main.py: error: ")
    return line


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["--K", -1], "argument --K: '-1' is not a whole number from 0 up"),
        (
            ["--K", "auto"],
            "'auto' is not a whole number from 0 up; see --help, and python -m lab --help",
        ),
        (
            ["--schedule", "heuristic"],
            "unrecognized arguments: --schedule heuristic; see --help, and python -m lab",
        ),
        (
            ["--n_tokens_to_generate", -5],
            "--n_tokens_to_generate: '-5' is not a whole number from 0 up",
        ),
        (["--temperature", "inf"], "--temperature: 'inf' is not a number from 0 up"),
        (["--top_p", 0], "--top_p: '0' is not a number above 0 and at most 1"),
        (
            ["--n_tokens_to_generate", 9, "--prompt", " the" * 504],
            "the prompt has 504 tokens and 9 more are wanted",
        ),
        (
            ["--target_model_size", "gpt3"],
            "there is no model or folder 'gpt3': give one of draft, target, 124M",
        ),
        (
            ["--draft_model_size", ""],
            "there is no model or folder '': give one of draft, target, 124M",
        ),
        (["--prompt", "half \udcd8"], "the text is not UTF-8: 'utf-8' codec can't"),
    ],
)
def test_bad_arguments(args, problem, capsys):
    assert problem in complaint(capsys, main, *args)


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["--K", "4x"], "argument --K: '4x' is not a whole number from 0 up"),
        (["--schedule", "sometimes"], "invalid choice: 'sometimes'"),
        (
            ["--repetition_penalty", 101],
            "--repetition_penalty: '101' is not a number from 0.01 to 100",
        ),
        (["--trace", "trace.txt"], "'trace.txt' is not the name of a .html file"),
        (
            ["--trace", "no/such/folder/trace.html"],
            "No such file or directory: 'no/such/folder/trace.html.part'",
        ),
        (
            ["--trace", "trace.html", "--n_tokens_to_generate", "0"],
            "--n_tokens_to_generate must be above 0",
        ),
        (["--draft", "early-exit:L"], "'early-exit:L' is not one of model, unigram"),
        (["--draft", "early-exit:2x"], "'early-exit:2x' is not one of model, unigram"),
        (["--draft", "early-exit:7"], "early exit after 7 layers was asked for; choose 1 to 6"),
        (
            ["--draft", "bigram", "--draft_corpus", "nowhere.txt"],
            "No such file or directory: 'nowhere.txt'",
        ),
        (
            ["--draft", "bigram", "--draft_corpus", os.devnull],
            "the text to count n-grams in is empty",
        ),
        (
            ["--draft", "lookup", "--draft_corpus", os.devnull],
            "corpus needs --draft unigram or bigram or ngram, but",
        ),
        (["--draft", "lookup", "--schedule", "draft-confidence"], "--draft lookup stops by itself"),
        (
            ["--draft", "online", "--draft_model_size", "draft"],
            "--draft_model_size needs --draft model, but",
        ),
        (
            ["--verify", "block", "--trace", "t.html"],
            "--trace shows rounds of --verify token",
        ),
    ],
)
def test_bad_arguments_of_the_lab(args, problem, capsys):
    assert problem in complaint(capsys, lab_main, *args)


def test_our_errors_show_a_traceback_and_those_of_the_machine_one_line(monkeypatch, capsys):
    errors = MemoryError("no room"), FloatingPointError("a NaN"), ValueError("a bug")
    monkeypatch.setattr(main, "load_models", Mock(side_effect=errors))
    assert "no room" in complaint(capsys, main) and "a NaN" in complaint(capsys, main)
    with pytest.raises(ValueError, match="a bug"):
        report(lambda: main.main([]), "main.py")


@pytest.mark.parametrize("program", ["main.py", "-m lab", "-m exercise"])
def test_without_numpy_a_program_is_one_line(program):
    done = run("-S", *program.split())  # which sees no packages
    assert done.stderr == "error: numpy is missing: run pip install -r requirements.txt\n"


def test_an_import_leaves_the_errors_of_others_alone():
    code = "import sys, exercise, gallery, lab, times; print(sys.excepthook is sys.__excepthook__)"
    assert run("-c", code).stdout == "True\n"


# ---- The imports run one way ----

# What each part may import, of this project's parts and of third parties
IMPORTS = {
    "tiny.py": "numpy",
    "enumeration/*.py": "numpy torch",  # and itself by a dot, so that a copy works anywhere
    "sampling.py": "numpy",
    "checks.py": "numpy",
    "speculative.py": "numpy checks sampling",
    "fast/*.py": "numpy checkpoint fast gpt2",
    "gpt2.py": "numpy",
    "encoder.py": "regex",
    "utils.py": "numpy checkpoint fast",
    "runs.py": "numpy sampling",
    "terminal/ending.py": "checkpoint",
    "terminal/*.py": "numpy runs checkpoint",
    "main.py": "fast gpt2 speculative runs terminal utils exercise",  # for --mine
    "checkpoint/*.py": "numpy requests tqdm tokenizers checkpoint encoder",
    "lab/**/*.py": "numpy checks checkpoint enumeration fast lab runs sampling speculative "
    "terminal utils",
    "gallery/*.py": "numpy enumeration fast gallery lab sampling speculative terminal",
    "exercise/*.py": "numpy checkpoint enumeration exercise fast gallery lab sampling speculative "
    "terminal",
    "times/*.py": "numpy torch transformers checkpoint fast gpt2 lab terminal times utils",
}


@pytest.mark.parametrize("files", IMPORTS)
def test_the_imports_run_one_way(files):
    allowed = {*sys.stdlib_module_names, *IMPORTS[files].split()}
    for path in ROOT.glob(files):
        imported = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:  # no neighbour of its own
                names.append(node.module)
            imported |= {name.split(".")[0] for name in names}
        assert imported <= allowed, path
