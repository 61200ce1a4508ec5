"""The coloured text, the figures and the page of a run show exactly what happened in it."""

import functools
import io
import re
import sys
import xml.etree.ElementTree as xml
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.models import bundled
from support.programs import ROOT, printed_by, texts_of
from support.server import files_of

import lab.__main__ as lab_main
from lab.pair import LabPair
from lab.trace.page import number, page, write_page
from lab.trace.rounds import Recorder
from runs import Run, origins
from speculative import Round, max_fn
from terminal.figures import figures
from terminal.text import COLOURS, RESET, show
from utils import get_encoder

ENCODER = get_encoder("target", ROOT / "models")
PROMPT = ENCODER.encode("Once upon a time")


@functools.cache
def decoded(K=4, N=40, temperature=1.0, **options):
    """A plain run, a speculative run, its rounds, and what the recorder made of them."""
    pair = LabPair(bundled("draft"), bundled("target"), temperature=temperature)
    recorder = Recorder(np.random.default_rng(0))
    rounds = []

    def on_round(r):
        rounds.append(r)
        recorder(r)

    plain = pair.decode(PROMPT, N, rng=0)
    fast = pair.decode(PROMPT, N, K, recorder.rng, on_round=on_round, **options)
    return plain, fast, rounds, recorder.rounds


def page_of(plain, fast, recorded, prompt=PROMPT, command="python -m lab"):
    rows = figures(plain, fast, "K = 4")
    return page(ENCODER, prompt, plain, fast, recorded, rows, 1.0, command)


def parsed(html):
    """The page as a tree; fails unless every tag is closed and every text escaped."""
    html = re.sub(r"<(script|style)>.*?</\1>", "", html, flags=re.DOTALL)
    return xml.fromstring(html.removeprefix("<!DOCTYPE html>"))


def text_of(element):
    return "".join(element.itertext())


def uncoloured(text):
    return re.sub("|".join(map(re.escape, [RESET, *COLOURS.values()])), "", text)


def in_the_middle():
    """A token that was accepted before others. If it is the eos, they are not in the text."""
    *_, recorded = decoded(temperature=0.0)
    return next(r.emitted[0] for r in recorded if r.origins.count("accepted") > 2)


RUNS = {
    "sampled": dict,
    "ended": lambda: dict(temperature=0.0, eos=in_the_middle()),
    "without a draft": lambda: dict(K=0),
}


@pytest.mark.parametrize("options_of", RUNS.values(), ids=RUNS)
def test_the_page_shows_every_token_and_every_round_once(options_of):
    options = options_of()
    plain, fast, rounds, recorded = decoded(**options)
    html = page_of(plain, fast, recorded)
    elsewhere = r"https?:|//\w|@import|url\(|<link|<img|<iframe|\bsrc=|fetch\("
    assert not re.search(elsewhere, html)
    assert html.count("The text ends with this token.") == ("eos" in options)
    n_kept = sum(guess.is_accepted for r in recorded for guess in r.drafted)
    assert html.count(", after the end") == n_kept - sum(fast.n_accepted)

    tree = parsed(html)
    links = tree.findall(".//a[@data-round]")
    assert "".join(map(text_of, links)) == ENCODER.decode(fast.ids[len(PROMPT) :])
    expected = []
    for i, r in enumerate(rounds, start=1):
        expected += [(str(i), origin) for origin in origins(r)]
    assert [(link.get("data-round"), link.get("class")) for link in links] == expected
    for article, r in zip(tree.findall(".//article"), recorded, strict=True):
        check_card(article, r)


def check_card(article, r):
    rows = article.findall(".//table/tr")[1:]
    for row, guess in zip(rows, r.looked_at, strict=True):
        _, *cells, verdict = map(text_of, row.findall("td"))
        numbers = map(number, [*guess.probabilities, guess.acceptance])
        assert cells == [*numbers, f"{number(guess.u)} {'<' if guess.is_accepted else '≥'}"]
        assert verdict.split(",")[0].strip() == ("accepted" if guess.is_accepted else "rejected")


def test_the_recorder_finds_the_verdicts_that_verify_came_to():
    """It finds them from the random numbers and the rows, so the page shows what decided."""
    _, _, rounds, recorded = decoded(K=16, N=60)
    assert {origin for r in recorded for origin in r.origins} == {"accepted", "resampled", "bonus"}
    for r, s in zip(rounds, recorded, strict=True):
        assert sum(guess.is_accepted for guess in s.drafted) == r.n_accepted
        assert s.emitted == r.emitted.tolist()
        for p, q, guess in zip(r.p, r.q, s.drafted):
            assert guess.probabilities == (p[guess.token], q[guess.token])
        if "resampled" in s.origins:
            missing = max_fn(r.q[r.n_accepted] - r.p[r.n_accepted])
            assert s.top["residual"][0] == (missing.argmax(), missing.max())


texts = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize("text", ["", " a  b\n", "é\u2028中", "</span>&lt;"])
def test_any_prompt_is_shown_and_not_run(text):
    plain, fast, _, recorded = decoded(N=8)
    prompt = text + "\0\x80\ufffe<script>alert(1)</script>&amp;"
    html = page_of(
        plain, fast, recorded, ENCODER.encode(prompt), f"python -m lab --prompt {prompt}"
    )
    assert html.count("<script>") == 1
    displayed = text_of(parsed(html).find(".//span[@class='prompt']"))
    assert displayed == text + "\ufffd\ufffd\ufffd<script>alert(1)</script>&amp;"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def replay(rounds, on_round):
    run = Run()
    for r in rounds:
        run.add(r, seconds=1.0)
        on_round(r)
    return run


@given(text=texts, half=st.booleans(), n_accepted=st.integers(0, 1))
def test_coloured_text_without_its_colours_is_the_text(text, half, n_accepted):
    """A token may end in the middle of a character: nothing is written until it is whole."""
    ids = ENCODER.encode(text) + ENCODER.encode("é")[:half]
    rounds = [Round(np.zeros(3), np.ones((3, 1)), np.ones((4, 1)), [id], n_accepted) for id in ids]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", output := Terminal())
        patch.setenv("TERM", "xterm")
        show("", ENCODER, "Title", partial(replay, rounds))
    coloured = output.getvalue().split("\nText = ")[1].rpartition("\nTime = ")[0]
    assert uncoloured(coloured) == uncoloured(text) + "\ufffd" * half
    colour = COLOURS["accepted" if n_accepted else "resampled"]
    assert not ids or half or coloured.startswith(colour)


def test_trace_on_the_command_line(tmp_path):
    trace = tmp_path / "é.html"
    (tmp_path / "play.html").touch()
    options = "--n_tokens_to_generate", 12, "--temperature", 1
    output = printed_by(lab_main, *options, "--trace", trace)
    assert "written to" in output and texts_of(output) == texts_of(printed_by(lab_main, *options))
    assert '<a href="play.html">' in trace.read_text(encoding="utf-8")


def test_a_full_disk_leaves_the_older_page(tmp_path, monkeypatch):
    def write_half(path, content, **options):
        path.write_bytes(content[:2].encode())
        raise OSError("No space left on device")

    trace = tmp_path / "trace.html"
    trace.write_text("older")
    monkeypatch.setattr(Path, "write_text", write_half)
    with pytest.raises(OSError, match="No space left"):
        write_page(trace, "newer")
    assert files_of(tmp_path) == {"trace.html": b"older"}


@pytest.mark.parametrize("no_colour", ["", "1"])
def test_a_terminal_shows_each_round_at_once(no_colour, monkeypatch):
    _, _, rounds, _ = decoded()
    lengths = []
    output = Terminal()
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", no_colour)

    def decode(on_round):
        return replay(rounds, lambda r: on_round(r) or lengths.append(output.tell()))

    show("Once", ENCODER, "Title", decode)
    assert lengths == sorted({*lengths}) and len(lengths) == len(rounds)
    assert output.getvalue().startswith("\nTitle\n-----\nText = Once")
    assert ("\x1b[3" in output.getvalue()) == (not no_colour)
