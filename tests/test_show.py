"""The coloured text, the page and the picture of a run show exactly what happened in it."""

import functools
import itertools
import re
import sys
import xml.etree.ElementTree as xml
from html import unescape
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import bundled, run

import main
from encoder import get_encoder
from pair import Pair, predicted
from show.figures import best_K_figure, figures
from show.page import number, page, shown
from show.picture import LEFT, WIDTH, picture, typical_round
from show.rounds import Recorder, most_probable, origins
from show.terminal import COLOURS, RESET, Writer, wants_colour
from speculative import block_probabilities, max_fn, verify, verify_block
from utils import MODELS_DIR

ENCODER = get_encoder("target", MODELS_DIR)
PROMPT = ENCODER.encode("Once upon a time")


@functools.cache
def decoded(K=4, N=40, rule=verify, temperature=1.0, **options):
    """A plain run, a speculative run, the rounds as `Round`s, and what the recorder made of them."""
    pair, rounds = Pair(bundled("draft"), bundled("target"), temperature=temperature), []
    recorder = Recorder(np.random.default_rng(0), rule)

    def on_round(r):
        rounds.append(r)
        recorder(r)

    plain = pair.decode(PROMPT, N, rng=np.random.default_rng(0))
    fast = pair.decode(PROMPT, N, K, recorder, verify=rule, on_round=on_round, **options)
    return plain, fast, rounds, recorder.rounds


def page_of(plain, fast, seen, prompt=PROMPT, command="python main.py"):
    found = figures(plain, fast, "draft & <target>", "target", 4, "fixed", 1.0)
    return page(ENCODER, prompt, plain, fast, seen, found, command)


def parsed(html):
    """The page as a tree; fails unless every tag is closed and every text escaped."""
    html = re.sub(r"<(script|style)>.*?</\1>", "", html, flags=re.DOTALL)
    return xml.fromstring(html.removeprefix("<!DOCTYPE html>"))


def uncoloured(text):
    return re.sub("|".join(map(re.escape, [RESET, *COLOURS.values()])), "", text)


def text_of(element):
    return "".join(element.itertext())


PLAIN, FAST, _, SEEN = decoded(N=8)
# A token in the middle of a round. If it is the eos, tokens after it were accepted, but are not in the text.
EOS = next(r.emitted[0] for r in decoded(temperature=0.0)[3] if r.origins.count("accepted") > 2)
RUNS = [
    dict(),
    dict(rule=verify_block),
    dict(temperature=0.0),
    dict(temperature=0.0, eos=EOS),
    dict(K=16, N=200, rule=verify),
    dict(K=16, N=200, rule=verify_block, schedule="heuristic"),
    dict(schedule="target-confidence"),
    dict(K=0),
    dict(N=1),
]


@pytest.mark.parametrize("options", RUNS)
def test_the_page_shows_every_token_and_every_round_once(options):
    plain, fast, rounds, seen = decoded(**options)
    html = page_of(plain, fast, seen)
    assert not re.search(r"https?:|//\w|@import|url\(|<link|<img|<iframe|\bsrc=|fetch\(", html)  # from elsewhere
    assert len(html.encode()) < 1_000_000 and html.count("<script>") == html.count("<style>") == 1
    assert html.count("The text ends with this token.") == ("eos" in options)
    assert html.count(", after the end") == sum(d.kept for r in seen for d in r.drafted) - fast.n_accepted.sum()
    tree = parsed(html)
    header = text_of(tree.find(".//header"))
    assert "p is the probability" in header
    assert ("Block verification" in header) == (options.get("rule") is verify_block)
    links = tree.findall(".//a[@data-round]")
    assert "".join(text_of(a) for a in links) == ENCODER.decode(fast.ids[len(PROMPT) :])
    assert [a.get("class") for a in links] == [origin for r in rounds for origin in origins(r)]
    assert sum(a.get("class") == "accepted" for a in links) == fast.n_accepted.sum()
    assert [a.get("data-round") for a in links] == [str(i) for i, r in enumerate(rounds, 1) for _ in r.emitted]
    articles = tree.findall(".//article")
    assert [a.get("id") for a in articles] == [f"round-{i}" for i in range(1, len(rounds) + 1)]
    assert [f"round-{g.get('data-round')}" for g in tree.findall(".//svg/g")] == [a.get("id") for a in articles]
    for svg, lasted in zip(tree.findall(".//svg"), (plain.lasted, fast.lasted)):
        ends = [float(e.get("x")) + float(e.get("width")) for e in svg.findall(".//rect[@class='rest']")]
        np.testing.assert_allclose(ends, 1000 * np.cumsum(lasted) / max(plain.seconds, fast.seconds), atol=0.02)
    assert len(tree.findall(".//rect[@class='draft']")) == fast.n_drafted.sum()
    for g in tree.findall(".//svg/g"):
        rest, *passes = ([float(e.get(name)) for name in ("x", "width")] for e in g.findall("rect"))
        begins = rest[0] + np.cumsum([0, *(width for _, width in passes)])[:-1]
        np.testing.assert_allclose([x for x, _ in passes], begins, atol=0.1)
    assert len(tree.findall(".//rect[@class='target']")) == len(plain.lasted) + len(fast.lasted)
    for article, r in zip(articles, seen):
        drafted = article.findall(".//table/tr/td[1]") + article.findall(".//s")
        assert [text_of(e) for e in drafted] == [unescape(shown(ENCODER.decode([d.token]))) for d in r.drafted]
        assert r.drafted or "nothing was rejected" not in text_of(article)
        for tr, d in zip(article.findall(".//table/tr")[1:], r.looked_at, strict=True):
            numbers = [number(x) for x in [*d.probabilities, d.keep]]
            coin = "–" if d.coin is None else f"{number(d.coin)} {'<' if d.kept else '≥'}"
            assert [text_of(td) for td in tr.findall("td")[1:-1]] == [*numbers, coin]
            assert tr.find(".//b[@style]").get("style") == f"width:{100 * d.keep:.0f}%"
            assert text_of(tr.findall("td")[-1]).split(",")[0].strip() == ("accepted" if d.kept else "rejected")
        names = ["drafted", "p", "q", *(["w", "h"] if r.is_block else ["min(1, q/p)"]), "drawn", ""]
        assert [text_of(th) for th in article.findall(".//th")] == (names if r.looked_at else [])
        added = [text_of(p)[2:].split(" ")[0] for p in article.findall("p") if text_of(p).startswith("+ ")]
        assert added == [unescape(shown(ENCODER.decode(r.emitted[-1:])))] * (r.origins[-1] != "accepted")
        head = f"{r.origins.count('accepted')} of {len(r.drafted)} accepted" if r.drafted else "nothing drafted"
        assert text_of(article.find("h3")).endswith(f": {head}")
        for bars, top in zip(article.findall("./div/div"), r.top.values(), strict=True):
            assert [p.find("span").tail for p in bars.findall("p")] == [number(probability) for _, probability in top]
        drawing = [e.get("class", "") for e in xml.fromstring(picture(ENCODER, PROMPT, [r])).iter()]
        boxes = [*("accepted" if d.kept else "rejected" for d in r.drafted), *r.origins]
        assert [kind for kind in drawing if kind.startswith("box ")] == [f"box {kind}" for kind in boxes]
        assert drawing.count("bar") == len([d for d in r.drafted if d.kept or d.coin is not None])


@pytest.mark.parametrize("options", [run for run in RUNS if run.get("N") == 200])
def test_the_recorder_finds_the_verdicts_that_verify_came_to(options):
    """It works them out again from the random numbers and the rows, so the page shows the numbers that decided."""
    _, _, rounds, seen = decoded(**options)
    assert {origin for r in seen for origin in r.origins} == {"accepted", "residual", "extra"}
    for r, s in zip(rounds, seen, strict=True):
        assert sum(d.kept for d in s.drafted) == r.n_accepted and s.emitted == r.emitted.tolist()
        assert bool(s.top) == ("residual" in s.origins)
        w = block_probabilities(r.drafted, r.p, r.q)[0] if s.is_block else []
        for i, d in enumerate(s.drafted):
            assert d.probabilities == [r.p[i, d.token], r.q[i, d.token], *w[i + 1 : i + 2]]
        if s.top:
            assert s.emitted[-1] in np.flatnonzero(r.q[r.n_accepted])
            p, q, goal = r.p[r.n_accepted], r.q[r.n_accepted], w[r.n_accepted] if w else 1.0
            for name, row in ("p", p), ("q", q), ("residual", max_fn(goal * q - p)):
                assert s.top[name][0] == (row.argmax(), row.max()) and len(s.top[name]) == 5


def test_the_most_probable_tokens_are_possible_and_ties_go_to_the_lower_ids():
    assert most_probable(np.array([0.25, 0, 0.75, 0])) == [(2, 0.75), (0, 0.25)]
    assert [token for token, _ in most_probable(np.tile([0, 0.05], 20))] == [1, 3, 5, 7, 9]


texts = st.text(st.characters(exclude_categories=["Cs"]))


def values(plain, fast, temperature=1.0):
    return {name: value for name, value, _ in figures(plain, fast, "draft", "target", 4, "fixed", temperature)}


@pytest.mark.parametrize(
    ("shift", "temperature", "verdict"), [(0, 0, "yes"), (1, 0, "NO: a bug"), (0, 1, "yes; above"), (1, 1, "no; above")]
)
def test_the_same_text_is_a_claim_about_ids(shift, temperature, verdict):
    """Because two sequences of ids may have the same text."""
    found = values(PLAIN, FAST._replace(ids=PLAIN.ids + shift), temperature)["same text"]
    assert found.startswith(verdict) and (temperature == 0) == ("two samples" not in found)


def test_the_figures_are_those_of_the_runs():
    plain, fast, _, _ = decoded()
    found = values(plain, fast)
    draft, target = (100 * calls.sum() / fast.seconds for calls in (fast.steps, fast.passes))
    assert found["time"] == f"{draft:.0f} % draft, {target:.0f} % target, {100 - draft - target:.0f} % the rest"
    assert found["tokens per second"] == f"{40 / plain.seconds:.1f} autoregressive, {40 / fast.seconds:.1f} speculative"
    numbers = [float(x) for x in re.findall(r"\d+\.\d+", found["speedup"])]
    assert numbers == pytest.approx([plain.seconds / fast.seconds, *predicted([plain], [fast])], abs=0.006)
    assert "; the texts have 40 and 8 tokens" in values(plain, FAST)["speedup"] and "texts" not in found["speedup"]
    assert values(plain, decoded(K=0)[1])["speedup"].endswith("; nothing was drafted")
    assert best_K_figure(2, np.array([1, 0, 1.5]))[1].endswith(": 1.00 (K = 0), 1.50 (K = 2)")
    assert best_K_figure(1, np.array([1, 1.5]))[1].endswith(": 1.00 (K = 0), 1.50 (K = 1)")


def test_numbers_and_control_characters_on_the_page():
    assert [*map(number, [None, 0, 0.0012345, 0.01, 0.5])] == ["–", "0.000", "0.00123", "0.010", "0.500"]
    assert shown("\0\x1f\x7f\x80\x9f\xa0\n\ufffe\uffff", {}) == "␀␟␡\ufffd\ufffd\xa0\n\ufffd\ufffd"


@given(text=texts)
def test_any_prompt_is_shown_and_not_run(text):
    prompt = text + "<script>alert(1)</script>&amp;"
    html = page_of(PLAIN, FAST, SEEN, ENCODER.encode(prompt), f"main.py --prompt {prompt}")
    tree = parsed(html)
    assert html.count("<script>") == 1
    displayed = text_of(tree.find(".//span[@class='prompt']"))
    assert displayed.endswith("<script>alert(1)</script>&amp;")
    if text.isprintable():
        assert displayed == prompt


@given(text=texts, half=st.booleans(), cuts=st.lists(st.sampled_from(sorted(COLOURS)), min_size=1))
def test_text_without_colour_is_the_text(text, half, cuts):
    """Also where a token ends in the middle of a character: nothing is written until the character is whole."""
    ids, pieces, coloured = ENCODER.encode(text) + ENCODER.encode("é")[:half], [], []
    for parts, colour in (pieces, False), (coloured, True):
        writer = Writer(ENCODER, parts.append, colour)
        for token, origin in zip(ids, itertools.cycle(cuts)):
            writer.add([token], [origin])
        assert uncoloured("".join(parts)) == uncoloured(text)
        writer.close()
    assert "".join(pieces) == text + "\ufffd" * half
    assert all(piece.endswith(RESET) for piece in coloured if piece.startswith("\x1b[3"))
    assert uncoloured("".join(coloured)) == uncoloured("".join(pieces))


def test_when_there_is_colour():
    terminal, file = Mock(isatty=lambda: True), Mock(isatty=lambda: False)
    assert wants_colour("auto", terminal, {}) and wants_colour("auto", terminal, {"NO_COLOR": ""})
    assert not wants_colour("auto", file, {})
    for environment in {"NO_COLOR": "1"}, {"TERM": "dumb"}:
        assert not wants_colour("auto", terminal, environment)
        assert wants_colour("always", file, environment)
    assert not wants_colour("never", terminal, {})


def test_the_picture_shows_the_text_before_its_round():
    _, _, _, seen = decoded()
    i = seen.index(typical_round(seen))
    before = [*PROMPT, *(token for r in seen[:i] for token in r.emitted)]
    drawn = picture(ENCODER, PROMPT, seen)
    assert i > 0 and drawn == picture(ENCODER, before, [seen[i]]) and ">… " in drawn
    assert ">Once upon a time<" in picture(ENCODER, PROMPT, seen[i:])
    whole = [r for r in seen if "residual" not in r.origins]  # without a typical round, the longest one is drawn
    assert len(typical_round(whole).emitted) == max(len(r.emitted) for r in whole) > min(len(r.emitted) for r in whole)


@pytest.mark.parametrize("rule", [verify, verify_block])
def test_the_picture_shows_each_number_next_to_its_name(rule):
    names = ["p, of the draft", "q, of the target", *(["w", "h"] if rule is verify_block else ["min(1, q / p)"])]
    for r in decoded(rule=rule)[3]:
        elements = list(xml.fromstring(picture(ENCODER, PROMPT, [r])).iter("{http://www.w3.org/2000/svg}text"))
        at = {(int(e.get("x")), int(e.get("y"))): e.text for e in elements}
        for i, d in enumerate(r.looked_at):
            column = {at[10, y]: value for (x, y), value in at.items() if x == LEFT + WIDTH * i and (10, y) in at}
            numbers = dict(zip([*names, "number drawn"], map(number, [*d.probabilities, d.keep, d.coin]), strict=True))
            assert numbers.items() <= column.items()
        assert elements[-1].text == f"a draw from the {'residual' if r.origins[-1] == 'residual' else 'target'}"


def test_a_token_of_quotes_is_shown_whole():
    """An escaped quote has 6 letters. To cut the token after it was escaped would leave half of one."""
    encoder = Mock(decode=lambda ids: '""""' if len(ids) == 1 else "")
    drawing = xml.fromstring(picture(encoder, [], SEEN))
    assert '""""' in [e.text for e in drawing.iter()]


def test_trace_and_colour_on_the_command_line(tmp_path):
    arguments = ("--n_tokens_to_generate", 12, "--temperature", 1)
    odd = "\udcff" if sys.platform == "linux" else ""  # a byte that is not UTF-8; not every system has such file names
    trace = tmp_path / f"{odd}t.html"
    plain, coloured = run(*arguments).stdout, run(*arguments, "--color", "always", "--trace", trace).stdout
    assert trace.read_text(encoding="utf-8").startswith("<!DOCTYPE html>") and "written to" in coloured
    assert COLOURS["accepted"] in coloured.split("Text = ")[2] and "drafted and accepted" in coloured
    assert "\x1b" not in coloured.split("Speculative Decode")[0]
    one, other = (uncoloured(output).split("Text = ")[2].split("\n\n")[0] for output in (plain, coloured))
    assert one == other


def test_a_terminal_shows_the_text_while_it_is_decoded(monkeypatch, capsys):
    printed, original = [], Pair.decode

    def decode(*args, on_round=None, **options):
        watched = on_round and (lambda r: (on_round(r), printed.append(capsys.readouterr().out)))
        return original(*args, on_round=watched, **options)

    monkeypatch.setattr(Pair, "decode", decode)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    main.main("--prompt Once --n_tokens_to_generate 6 --color never".split())
    assert printed[0].startswith("\nAutoregressive Decode\n---------------------\nText = Once") and all(printed)
    assert "Text = " not in capsys.readouterr().out  # it is not printed again
