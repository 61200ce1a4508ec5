"""The pages in a browser.

play.html has the numbers of the gallery, of docs/speed.md and of lab/theory.py.
"""

import html
import json
import re
import shutil
import subprocess
from urllib.parse import urlencode

import numpy as np
import pytest
from support.exact import EXACT
from support.programs import ROOT, read

import runs
from gallery import GALLERY, Setting
from lab import theory

PAGE = read("docs/play.html")
NAMES = "chromium", "chromium-browser", "google-chrome", "chrome", "msedge"
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
ASK = """<pre id="found"></pre><script>
const ids = Object.keys(MENU);
const outcomes = asked.pairs.map(([p, q]) => ids.map((id) => ({ id, ...outcome(id, p, q, 0.8) })));
const values = asked.expressions.map((text) => parsed(text)({ p: 0.2, q: 0.3, P: 0.5, Q: 0.2 }));
const refused = asked.wrong.map((text) => {
  try { return parsed(text); } catch (error) { return error.message; }
});
const speedups = asked.loops.map((loop) => speedup(...loop));
const checks = Object.entries(MACHINES).map(([name, row]) => [name, passes(row, 1.25)]);
for (const x of [1, 0.5]) move("p", 1, x);
const all = { outcomes, values, refused, speedups, checks, moved: state.p };
document.getElementById("found").textContent = JSON.stringify(all);
</script>"""


def answers(asked, folder):
    page = folder / "play.html"
    script = ASK.replace("<script>", f"<script>const asked = {json.dumps(asked)};")
    page.write_text(PAGE.replace("</body>", script + "</body>"), encoding="utf-8")
    printed = re.search(r'<pre id="found">(.*?)</pre>', opened(page.as_uri(), folder), re.DOTALL)[1]
    return json.loads(html.unescape(printed))


def opened(address, folder):
    options = "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"
    command = [BROWSER, *options, f"--user-data-dir={folder}", address]
    return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout


def play(folder, **asked):
    """What the page shows at this address."""
    page = opened(f"{(ROOT / 'docs' / 'play.html').as_uri()}#{urlencode(asked)}", folder)
    return re.sub("<script>.*?</script>", "", page, flags=re.DOTALL)


def measured():
    """{machine: v for K = 0 to 16}, by docs/speed.md: up to 9 positions, then a straight line."""
    table = read("docs/speed.md").split("## One pass")[1]
    names = re.search(r"^\| \| (.*) \|$", table, re.MULTILINE)[1].split(" | ")
    lines = re.findall(r"^\| \d positions \| (.*) \|$", table, re.MULTILINE)
    columns = zip(*(map(float, line.split(" | ")) for line in lines))
    costs = {}
    for name, column in zip(names, columns):
        row = [1, *column]
        row.append(3 * row[-1] - 2 * row[-2])  # 17 positions
        costs[name] = np.interp(range(1, 18), [1, 2, 3, 4, 5, 9, 17], row)
    return costs


EXPRESSIONS = [
    "-p - -q * .5", "p - q - P", "p / q / P * Q", "2 * (p + q) / 1.25e-1", "-(p) - -(q)",
    "min(p, q, 1) - max(P, Q)", "abs(p - q) * -1", "(p < q) + (p <= .2) * 2 + (P > Q) * 4",
    "(p >= .2) - (q == .3) / 2", "max(-min(p, 2), (q < P) * Q)", "1 - 2 - 3 * 4 / 5 / 6",
    "q**2", "-p ** 2 * 2**-1", "2 ** 3 ** p - (-q) ** 2",
]  # fmt: skip
needs_a_browser = pytest.mark.skipif(
    not BROWSER, reason="needs a browser: apt-get install chromium, or Google Chrome"
)
WRONG = [
    "", "p +", "(p", "p)", "p q", "2p", "q / r", "min(1)", "abs(p, q)", "p < q < 1", "1 = 1",
    "p.q", "np.max(p, q)", "x => x", "constructor", "toString()", "p[0]", "`p`", "alert(1)",
    "((" * 101, "p **", "* 2",
]  # fmt: skip
NUMPY = {"np.maximum(q - p, 0)": 0.1, "np.minimum(p, q)": 0.2, "np.abs(q - P)": 0.2}


def check_outcome(outcome, p, q):
    """What the page says of a rule is what the gallery's code does, in a round with one guess."""
    variant = GALLERY[outcome["id"]]
    setting = Setting(np.tile(p, (len(p), 1)), np.tile(q, (len(q), 1)), K=1)
    emitted = np.zeros(len(p))
    accepted = 0
    for (token, *more), probability in variant.round_distribution(setting).items():
        emitted[token] += probability
        accepted += probability * len(more)
    distance = np.abs(emitted - q).sum() / 2
    shown = [*outcome["emitted"], outcome["accepted"], outcome["distance"]]
    assert np.allclose(shown, [*emitted, accepted, distance], rtol=0, atol=EXACT), variant.id
    assert distance < EXACT or not variant.exact


@needs_a_browser
def test_the_page_computes_what_python_computes(tmp_path):
    rng = np.random.default_rng(0)
    pairs = [rng.dirichlet(np.ones(n), size=2) for n in np.resize([3, 4, 5], 20)]
    loops = []
    for K in [0, 1, 2, 4, 16]:
        alpha, c, v, r = rng.random(4).tolist()
        loops.append([alpha, K, c, 1 + v, r])
    letters = {"p": 0.2, "q": 0.3, "P": 0.5, "Q": 0.2}
    values = {text: eval(text, letters) for text in EXPRESSIONS} | NUMPY
    asked = {"loops": loops, "wrong": WRONG, "expressions": [*values]}
    page = answers(asked | {"pairs": [pair.tolist() for pair in pairs]}, tmp_path)
    assert np.allclose(page["values"], [*map(float, values.values())], rtol=EXACT, atol=EXACT)
    for why in page["refused"]:
        assert re.search(r"not understood|missing|longer|abs takes", str(why))
    for (p, q), outcomes in zip(pairs, page["outcomes"]):
        for outcome in outcomes:
            check_outcome(outcome, p, q)
        assert abs(runs.overlap(p, q) - outcomes[0]["accepted"]) < EXACT
    speedups = [theory.improvement(*loop) for loop in loops]
    assert np.allclose(page["speedups"], speedups, rtol=0, atol=EXACT)
    checks = measured() | {"flat": np.full(17, 1.25)}
    assert [name for name, _ in page["checks"]] == [*checks]
    assert np.allclose([v for _, v in page["checks"]], [*checks.values()], rtol=0, atol=EXACT)
    assert np.allclose(page["moved"], [0.2, 0.5, 0.3])  # to 1 and back


@needs_a_browser
def test_a_rule_of_an_address_is_computed_and_its_errors_are_named(tmp_path):
    page = play(tmp_path, rule="yours", accept="q >= p", seen=1)
    assert (
        "Too often: A by 0.0667, C by 0.1333. In all it's wrong by 0.2000, half the sum of "
        "the errors' sizes, and 0.5 of the guesses are accepted." in page
    )
    for part, text, why in (
        ("accept", "q / r", '"r" is not understood here.'),
        ("replace", "q - p", "This is -0.3 for B, and a probability can't be negative. What .*?"),
    ):
        page = play(tmp_path, rule="yours", seen=1, **{part: text})
        assert re.search(rf'id="{part}-bad"[^>]*>{why}<', page) and "Too often" not in page


CHOOSE = """<script>$("rule").value = "from-draft"; $("rule").onchange();
  document.title = $("again").textContent; $("again").querySelectorAll("button")[1].click();
</script></body>"""


@needs_a_browser
def test_a_rule_of_the_menu_keeps_the_bars_and_asks(tmp_path):
    path = tmp_path / "play.html"
    path.write_text(PAGE.replace("</body>", CHOOSE), encoding="utf-8")
    page = opened(path.as_uri(), tmp_path)
    assert "<title>Which token comes too often now? A B C none  </title>" in page
    assert "Right. Too often: B by 0.15." in page and ">0.2 +&nbsp;0.15<" in page


@needs_a_browser
def test_nothing_of_an_address_runs(tmp_path):
    assert not re.search(
        r"\beval\b|Function\(|import\(|document\.write|outerHTML|insertAdjacent", PAGE
    )
    code = 'document.title = "run"'
    picture = f"<img src=x onerror='{code}'>"
    page = play(
        tmp_path, rule="yours", accept=f"({code})", replace=picture, machine=picture, l=picture
    )
    assert (
        '"document" is not understood here.' in page
        and "read a part of its address: machine=&lt;img" in page
    )
    assert "<title>Speculative sampling, to play with</title>" in page and "<img" not in page


NARROW = """<pre id="found"></pre><script>function look(page) {
  for (let i = 0; i < 2; i++) page.getElementById("more")?.click();
  page.querySelector(".tokens a")?.click(); // opens its round
  const boxes = [page.documentElement, ...page.querySelectorAll("input, #peek article")];
  const bad = boxes.filter((box) => box.scrollWidth > box.clientWidth || !box.clientWidth);
  const found = bad.map((box) => box.outerHTML.slice(0, 99));
  document.getElementById("found").textContent += "too wide, or not there: " + found + ";";
}</script>"""
FRAME = '<iframe width="360" height="740" onload="look(this.contentDocument)" srcdoc="{}"></iframe>'


@needs_a_browser
def test_the_pages_fit_a_phone(tmp_path):
    frames = NARROW
    for name in "index", "play", "trace":
        page = read(f"docs/{name}.html").replace("[0.2, 0.5, 0.3]", "[0.222, 0.555, 0.223]")
        frames += FRAME.format(html.escape(page))
    path = tmp_path / "narrow.html"
    path.write_text(frames, encoding="utf-8")
    fits = 3 * "too wide, or not there: ;"
    assert f'<pre id="found">{fits}</pre>' in opened(path.as_uri(), tmp_path)
