"""The coloured text, the figures and the page of a run show exactly what happened in it."""

import functools
import io
import re
import sys
import xml.etree.ElementTree as xml
from functools import partial
from html import unescape
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import ROOT, bundled, printed_by, run, texts_of

import lab.__main__ as lab_main
import main
from encoder import get_encoder
from lab.block import block_probabilities, verify_block
from lab.measure import best_K_found
from lab.page import number, page, shown
from lab.pair import LabPair
from lab.rounds import Recorder, most_probable
from runs import Run, origins
from speculative import Round, max_fn, verify
from terminal import COLOURS, RESET, figures, same_text, show

ENCODER = get_encoder("target", ROOT / "models")
PROMPT = ENCODER.encode("Once upon a time")


@functools.cache
def decoded(K=4, N=40, rule=verify, temperature=1.0, **options):
    """A plain run, a speculative run, the rounds as `Round`s, and what the recorder made of them."""
    pair, rounds = LabPair(bundled("draft"), bundled("target"), temperature=temperature), []
    recorder = Recorder(np.random.default_rng(0), rule)

    def on_round(r):
        rounds.append(r)
        recorder(r)

    plain = pair.decode(PROMPT, N, rng=np.random.default_rng(0))
    fast = pair.decode(PROMPT, N, K, recorder.rng, verify=rule, on_round=on_round, **options)
    return plain, fast, rounds, recorder.rounds


def page_of(plain, fast, seen, prompt=PROMPT, command="python -m lab"):
    return page(ENCODER, prompt, plain, fast, seen, figures(plain, fast, "K = 4"), command)


def parsed(html):
    """The page as a tree; fails unless every tag is closed and every text escaped."""
    html = re.sub(r"<(script|style)>.*?</\1>", "", html, flags=re.DOTALL)
    return xml.fromstring(html.removeprefix("<!DOCTYPE html>"))


def text_of(element):
    return "".join(element.itertext())


def uncoloured(text):
    return re.sub("|".join(map(re.escape, [RESET, *COLOURS.values()])), "", text)


PLAIN, FAST, _, SEEN = decoded(N=8)
# A token in the middle of a round. If it is the eos, tokens after it were accepted, but are not in the text.
EOS = next(r.emitted[0] for r in decoded(temperature=0.0)[3] if r.origins.count("accepted") > 2)
RUNS = [
    dict(),
    dict(rule=verify_block),
    dict(temperature=0.0, eos=EOS),
    dict(K=16, N=120, rule=verify),
    dict(K=16, N=120, rule=verify_block, schedule="heuristic"),
    dict(K=0),
]


@pytest.mark.parametrize("options", RUNS)
def test_the_page_shows_every_token_and_every_round_once(options):
    plain, fast, rounds, seen = decoded(**options)
    html = page_of(plain, fast, seen)
    assert not re.search(
        r"https?:|//\w|@import|url\(|<link|<img|<iframe|\bsrc=|fetch\(", html
    )  # from elsewhere
    assert html.count("The text ends with this token.") == ("eos" in options)
    assert html.count(", after the end") == sum(d.kept for r in seen for d in r.drafted) - sum(
        fast.n_accepted
    )
    tree = parsed(html)
    assert ("Block verification" in text_of(tree.find(".//header"))) == (
        options.get("rule") is verify_block
    )
    links = tree.findall(".//a[@data-round]")
    assert "".join(map(text_of, links)) == ENCODER.decode(fast.ids[len(PROMPT) :])
    assert [a.get("class") for a in links] == [origin for r in rounds for origin in origins(r)]
    assert [a.get("data-round") for a in links] == [
        str(i) for i, r in enumerate(rounds, 1) for _ in r.emitted
    ]
    assert len(tree.findall(".//rect[@class='draft']")) == sum(fast.n_drafted)
    assert len(tree.findall(".//rect[@class='target']")) == len(plain.round_seconds) + len(
        fast.round_seconds
    )
    for article, r in zip(tree.findall(".//article"), seen, strict=True):
        head = (
            f"{r.origins.count('accepted')} of {len(r.drafted)} accepted"
            if r.drafted
            else "nothing drafted"
        )
        assert text_of(article.find("h3")).endswith(f": {head}")
        for tr, d in zip(article.findall(".//table/tr")[1:], r.looked_at, strict=True):
            coin = "–" if d.u is None else f"{number(d.u)} {'<' if d.kept else '≥'}"
            token, *cells, verdict = map(text_of, tr.findall("td"))
            assert token == unescape(shown(ENCODER.decode([d.token])))
            assert cells == [*map(number, [*d.probabilities, d.keep]), coin]
            assert verdict.split(",")[0].strip() == ("accepted" if d.kept else "rejected")
        if r.top:  # the rejected token and the one in its place are always there
            assert len(article.findall(".//div/div/p[@class='rejected']")) == 3
            assert len(article.findall(".//div/div/p[@class='resampled']")) == 3


@pytest.mark.parametrize("options", [run for run in RUNS if run.get("N") == 120])
def test_the_recorder_finds_the_verdicts_that_verify_came_to(options):
    """It works them out again from the random numbers and the rows, so the page shows the numbers that decided."""
    _, _, rounds, seen = decoded(**options)
    assert {origin for r in seen for origin in r.origins} == {"accepted", "resampled", "bonus"}
    for r, s in zip(rounds, seen, strict=True):
        assert sum(d.kept for d in s.drafted) == r.n_accepted and s.emitted == r.emitted.tolist()
        w = block_probabilities(r.drafted, r.p, r.q)[0] if s.is_block else []
        for i, d in enumerate(s.drafted):
            assert d.probabilities == [r.p[i, d.token], r.q[i, d.token], *w[i + 1 : i + 2]]
        assert bool(s.top) == ("resampled" in s.origins)
        if s.top:
            p, q, goal = r.p[r.n_accepted], r.q[r.n_accepted], w[r.n_accepted] if w else 1.0
            for name, row in ("p", p), ("q", q), ("residual", max_fn(goal * q - p)):
                assert s.top[name][0] == (row.argmax(), row.max()) and len(s.top[name]) >= 5


def test_the_most_probable_tokens():
    assert most_probable(np.array([0.25, 0, 0.75, 0])) == [(2, 0.75), (0, 0.25)]
    assert most_probable(np.array([0.25, 0, 0.75, 0]), (3, 2)) == [(2, 0.75), (0, 0.25), (3, 0)]
    assert [token for token, _ in most_probable(np.tile([0, 0.05], 20))] == [1, 3, 5, 7, 9]


@pytest.mark.parametrize(
    ("shift", "is_sample", "verdict"),
    [(0, False, "yes"), (1, False, "NO: "), (0, True, "yes"), (1, True, "no: ")],
)
def test_the_same_text_is_a_claim_about_ids(shift, is_sample, verdict):
    """Because two sequences of ids may have the same text."""
    assert same_text(PLAIN.ids, PLAIN.ids + shift, is_sample).startswith(verdict)


@pytest.mark.parametrize(
    ("cost", "cause"),
    [
        ((1.0, 1.3, 0.1), "the guesses cost most"),
        ((0.2, 2.0, 0.1), "the check costs most"),
        ((0.2, 1.1, 0.4), "drawing"),
    ],
)
def test_the_part_that_makes_a_round_slow_is_named(cost, cause):
    """A plain step costs 1 in any case, so only what a check costs beyond that is a cause."""
    plain = SimpleNamespace(n_new=9, tokens_per_second=2.0, ids=[1])
    fast = SimpleNamespace(
        n_looked_at=1,
        cost=lambda plain: cost,
        alpha=1.0,
        predicted=lambda tokens: 2.0,
        n_drafted=[1],
        acceptance_rate=1.0,
        tokens_per_second=1.0,
        tokens_per_round=2.0,
        ids=[1],
    )
    assert figures(plain, fast, "K = 1")["slower"].startswith(f"because {cause}")


def test_the_words_for_the_best_K():
    assert best_K_found(2, np.array([1, 0, 1.5])).endswith(": 1.00 (K = 0), 1.50 (K = 2)")


texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(text=texts)
def test_any_prompt_is_shown_and_not_run(text):
    prompt = text + "\0\x80\ufffe<script>alert(1)</script>&amp;"
    html = page_of(PLAIN, FAST, SEEN, ENCODER.encode(prompt), f"python -m lab --prompt {prompt}")
    assert html.count("<script>") == 1
    displayed = text_of(parsed(html).find(".//span[@class='prompt']"))
    assert displayed.endswith("␀\ufffd\ufffd<script>alert(1)</script>&amp;")
    assert not text.isprintable() or displayed.startswith(text)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def replay(rounds, on_round):
    run = Run()
    for r in rounds:
        run.add(r, seconds=1.0)
        on_round(r)
    return run


@given(text=texts, half=st.booleans(), n_accepted=st.integers(0, 3))
def test_coloured_text_without_its_colours_is_the_text(text, half, n_accepted):
    """Also where a token ends in the middle of a character: nothing is written until the character is whole."""
    ids = ENCODER.encode(text) + ENCODER.encode("é")[:half]
    rounds = [Round(np.zeros(3), None, None, [id], min(n_accepted, 1)) for id in ids]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", output := Terminal())
        patch.setenv("TERM", "xterm")
        show("", ENCODER, len(ids), "Title", partial(replay, rounds))
    found = output.getvalue().split("\nText = ")[1].rpartition("\nTime = ")[0]
    assert uncoloured(found) == uncoloured(text) + "\ufffd" * half
    assert found.count(RESET) - text.count(RESET) <= len(ids)
    assert not ids or half or found.startswith(COLOURS["accepted" if n_accepted else "resampled"])


def test_trace_on_the_command_line(tmp_path):
    options = ("--n_tokens_to_generate", 12, "--temperature", 1)
    odd = (
        "\udcff" if sys.platform == "linux" else ""
    )  # a byte that is not UTF-8; not every system has such file names
    trace = tmp_path / f"{odd}t.html"
    (tmp_path / "play.html").touch()
    output = run(*options, "--trace", trace, script="lab").stdout
    html = trace.read_text(encoding="utf-8")
    assert (
        html.startswith("<!DOCTYPE html>")
        and '<a href="play.html">' in html
        and "written to" in output
    )
    assert texts_of(output) == texts_of(printed_by(lab_main, *options)) and "\x1b" not in output


def test_a_terminal_shows_the_text_while_it_is_decoded(monkeypatch, capsys):
    printed, original = [], show

    def watching(title, prompt, encoder, N, decode):
        def watched(on_round):
            return decode(on_round=lambda r: (on_round(r), printed.append(capsys.readouterr().out)))

        return original(title, prompt, encoder, N, watched)

    monkeypatch.setattr(main, "show", watching)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for no_colour in "", "1":
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("NO_COLOR", no_colour)
        main.main("--prompt Once --n_tokens_to_generate 6".split())
        assert printed[0].startswith(
            "\nAutoregressive Decode\n---------------------\nText = Once"
        ) and all(printed)
        assert ("\x1b[3" in "".join(printed)) == (not no_colour)
        printed.clear()
        capsys.readouterr()
