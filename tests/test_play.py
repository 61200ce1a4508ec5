"""The pages in a browser.

play.html has the numbers of the gallery, of docs/speed.md and of lab/theory.py.
"""

import html
import json
import random
import re
import shutil
import subprocess
from urllib.parse import urlencode

import numpy as np
import pytest
from support import EXACT, ROOT, read

import runs
from enumeration import sum_over_paths
from lab import gallery, theory

PAGE = read("docs/play.html")
NAMES = "chromium", "chromium-browser", "google-chrome", "chrome", "msedge"
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
ASK = """<pre id="found"></pre><script>
const ids = Object.keys(RULES).filter((id) => id !== "yours");
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
    found = re.search(r'<pre id="found">(.*?)</pre>', opened(page.as_uri(), folder), re.DOTALL)[1]
    return json.loads(html.unescape(found))


def opened(address, folder):
    options = (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder}",
        "--dump-dom",
    )
    return subprocess.run(
        [BROWSER, *options, address], capture_output=True, text=True, timeout=60
    ).stdout


def play(folder, **asked):
    """What the page shows at this address."""
    page = opened(f"{(ROOT / 'docs' / 'play.html').as_uri()}#{urlencode(asked)}", folder)
    return re.sub("<script>.*?</script>", "", page, flags=re.DOTALL)


def expression(rng, depth=4):
    """An expression that Python reads in the same way."""
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(["p", "q", "P", "Q", "2", ".5", "1.25e-1"])
    x, y = (expression(rng, depth - 1) for _ in range(2))
    compared = f"({x} {rng.choice(['<', '<=', '>', '>=', '=='])} {y})"
    called = f"{rng.choice(['min', 'max'])}({x}, {y}, 1)"
    return rng.choice(
        [f"{x} {rng.choice('+-*/')} {y}", f"({x})", f"-{x}", f"abs({x})", called, compared]
    )


def measured():
    """{machine: v for K = 0 to 16}, by docs/speed.md."""
    table = read("docs/speed.md").split("## One pass")[1]
    names = re.search(r"^\| \| (.*) \|$", table, re.MULTILINE)[1].split(" | ")
    cells = re.findall(r"^\| \d positions \| (.*) \|$", table, re.MULTILINE)
    rows = [
        [1, *column] for column in zip(*([float(x) for x in line.split(" | ")] for line in cells))
    ]
    far = [
        [*row, 3 * row[-1] - 2 * row[-2]] for row in rows
    ]  # the line through 5 and 9 positions, at 17
    return {
        name: np.interp(range(1, 18), [1, 2, 3, 4, 5, 9, 17], row) for name, row in zip(names, far)
    }


needs_a_browser = pytest.mark.skipif(
    not BROWSER, reason="needs a browser: apt-get install chromium, or Google Chrome"
)
RNG = random.Random(0)
WRONG = [
    "", "p +", "(p", "p)", "p q", "2p", "q / r", "min(1)", "abs(p, q)", "p < q < 1", "1 = 1",
    "p.q", "x => x", "constructor", "toString()", "p[0]", "`p`", "alert(1)", "((" * 101,
]  # fmt: skip


@needs_a_browser
def test_the_page_computes_what_python_computes(tmp_path):
    rng = np.random.default_rng(0)
    pairs = [rng.dirichlet(np.ones(n), size=2) for n in np.resize([3, 4, 5], 20)]
    loops = [
        [*rng.random(1), int(rng.integers(17)), *rng.random(1), 1 + rng.random(), *rng.random(1)]
        for _ in pairs
    ]
    asked = {
        "pairs": [pair.tolist() for pair in pairs],
        "loops": loops,
        "wrong": WRONG,
    }
    values = {}
    while len(values) < 300:
        text = expression(RNG)
        try:
            values[text] = eval(text, {"p": 0.2, "q": 0.3, "P": 0.5, "Q": 0.2})
        except ZeroDivisionError:
            continue
    page = answers(asked | {"expressions": [*values]}, tmp_path)
    assert np.allclose(page["values"], [*map(float, values.values())], rtol=EXACT, atol=EXACT)
    assert all(
        re.search(r"not understood|missing|longer|abs takes", str(why)) for why in page["refused"]
    )

    for (p, q), outcomes in zip(pairs, page["outcomes"]):
        setting = gallery.Setting(np.tile(p, (len(p), 1)), np.tile(q, (len(q), 1)))
        for found in outcomes:
            variant = gallery.GALLERY[found["id"]]

            def one_round(rng, variant=variant, setting=setting):
                drafted, p = variant.propose(np.zeros(1, dtype=int), setting.draft_model, 1, rng)
                q = gallery.target_rows(setting, [0], drafted, {})
                return variant.verify(drafted, p, q, rng)

            emitted, accepted = np.zeros(len(p)), 0
            for (token, *more), mass in sum_over_paths(one_round).items():
                emitted[token] += mass
                accepted += mass * len(more)
            assert np.abs(emitted - found["emitted"]).max() < EXACT, found["id"]
            assert abs(np.abs(emitted - q).sum() / 2 - found["distance"]) < EXACT
            assert abs(accepted - found["accepted"]) < EXACT
            assert found["distance"] < EXACT or not variant.exact
        assert abs(runs.overlap(p, q) - outcomes[0]["accepted"]) < EXACT
    wanted = [
        theory.improvement(alpha, K, c, v if K else 1, r if K else 0) for alpha, K, c, v, r in loops
    ]
    assert np.allclose(page["speedups"], wanted, rtol=0, atol=EXACT)

    checks = measured() | {"flat": np.full(17, 1.25)}
    assert [name for name, _ in page["checks"]] == [*checks]
    assert np.allclose([v for _, v in page["checks"]], [*checks.values()], rtol=0, atol=EXACT)
    assert np.allclose(page["moved"], [0.2, 0.5, 0.3])  # to 1 and back


@needs_a_browser
@pytest.mark.parametrize("machine", ["Zen 4", "Intel"])
def test_the_best_K_is_that_of_the_machine(machine, tmp_path):
    page = play(tmp_path, machine=machine, alpha=0.9, c=0.05, r=0.05)
    gains = [
        1,
        *(
            theory.improvement(0.9, K, 0.05, v, 0.05)
            for K, v in enumerate(measured()[machine][1:17], start=1)
        ),
    ]
    best = int(np.argmax(gains))
    assert 1 < best < 16 and f"The best K is {best}, with" in page


@needs_a_browser
def test_what_an_address_says_is_read_or_named(tmp_path):
    page = play(tmp_path, K="0x5", alpha=".875", p="1e308,1e308,1e308", q=".3,.2,.5")
    assert re.search(r'id="K"[^>]*><output>5<', page)
    assert (
        "read a part of its address: alpha=.875 p=1e308,1e308,1e308 p and q, of which both" in page
    )


@needs_a_browser
def test_a_rule_of_an_address_is_computed_and_its_errors_are_named(tmp_path):
    page = play(tmp_path, rule="yours", accept="q >= p", seen=1)
    assert (
        "Too often: A by 0.0667, C by 0.1333. Distance of this token 0.2000; accepted: 0.5." in page
    )
    for part, text, why in (
        ("accept", "q / r", '"r" is not understood here.'),
        ("replace", "q - p", "This is -0.3 for B."),
    ):
        page = play(tmp_path, rule="yours", seen=1, **{part: text})
        assert re.search(rf'id="{part}-bad"[^>]*>{why}<', page) and "Too often" not in page


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


NARROW = """<pre id="found"></pre>
<iframe width="360" height="740" srcdoc="{page}" onload="look(this.contentDocument)"></iframe>
<script>function look(page) {{
  for (let i = 0; i < 2; i++) page.getElementById("more")?.click();
  const boxes = [page.documentElement, ...page.querySelectorAll("input")];
  const wide = boxes.filter((box) => box.scrollWidth > box.clientWidth);
  const found = wide.map((box) => box.outerHTML.slice(0, 99));
  document.getElementById("found").textContent = "too wide: " + found;
}}</script>"""


@needs_a_browser
@pytest.mark.parametrize("name", ["index", "play", "trace"])
def test_the_page_fits_a_phone(name, tmp_path):
    page = read(f"docs/{name}.html").replace("[0.2, 0.5, 0.3]", "[0.222, 0.555, 0.223]")
    (tmp_path / "narrow.html").write_text(NARROW.format(page=html.escape(page)), encoding="utf-8")
    assert '<pre id="found">too wide: </pre>' in opened(
        (tmp_path / "narrow.html").as_uri(), tmp_path
    )


def test_the_page_looks_like_the_trace_and_needs_no_other_file():
    style, script = read("lab/page.css"), read("lab/page.js")
    assert style in read("docs/trace.html") and script in read("docs/trace.html")
    assert style.split("* {")[0] in PAGE and not re.search(
        r"src=|@import|url\(|fetch\(|https?:/", PAGE
    )
