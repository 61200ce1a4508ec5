"""docs/play.html in a browser: its numbers are those of the gallery and of lab/theory.py."""

import html
import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from support import EXACT, ROOT, read

import runs
from enumeration import output_distribution
from lab import gallery, theory

PAGE = read("docs/play.html")
NAMES = "chromium", "chromium-browser", "google-chrome", "chrome", "msedge"
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
ASK = """<pre id="found"></pre><script>
const found = asked.pairs.map(([p, q]) => Object.keys(RULES).map((name) => ({ name, ...law(name, p, q, 0.8) })));
const speedups = asked.loops.map((loop) => speedup(...loop));
document.getElementById("found").textContent = JSON.stringify({ found, speedups });
</script>"""


def answers(asked, folder):
    page = folder / "play.html"
    script = ASK.replace("<script>", f"<script>const asked = {json.dumps(asked)};")
    page.write_text(PAGE.replace("</body>", script + "</body>"), encoding="utf-8")
    return json.loads(
        html.unescape(re.search(r'<pre id="found">(.*?)</pre>', shown(page.as_uri(), folder), re.DOTALL)[1])
    )


def shown(address, folder):
    options = "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}", "--dump-dom"
    return subprocess.run([BROWSER, *options, address], capture_output=True, text=True, timeout=60).stdout


needs_a_browser = pytest.mark.skipif(not BROWSER, reason="needs a browser: apt-get install chromium, or Google Chrome")


@needs_a_browser
def test_the_page_computes_what_the_enumeration_computes(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    pairs = [rng.dirichlet(np.ones(n), size=2) for n in np.resize([3, 4, 5], 20)]
    loops = [[*rng.random(1), int(rng.integers(17)), *rng.random(1), 1 + rng.random(), *rng.random(1)] for _ in pairs]
    page = answers({"pairs": [pair.tolist() for pair in pairs], "loops": loops}, tmp_path)
    variants = {variant.name: variant for variant in gallery.VARIANTS}
    for (p, q), laws in zip(pairs, page["found"]):
        monkeypatch.setattr(gallery, "P", np.tile(p, (len(p), 1)))
        monkeypatch.setattr(gallery, "Q", np.tile(q, (len(q), 1)))
        for found in laws:
            variant = variants[found["name"]]

            def one_round(rng, variant=variant):
                drafted, p = variant.propose(np.zeros(1, dtype=int), gallery.draft_model, 1, rng)
                return variant.verify(drafted, p, gallery.target_rows([0], drafted, {}), rng)

            emitted, accepted = np.zeros(len(p)), 0
            for (token, *more), mass in output_distribution(one_round).items():
                emitted[token] += mass
                accepted += mass * len(more)
            assert np.abs(emitted - found["emitted"]).max() < EXACT, found["name"]
            assert abs(np.abs(emitted - q).sum() / 2 - found["distance"]) < EXACT
            assert abs(accepted - found["accepted"]) < EXACT
            assert found["distance"] < EXACT or not variant.exact
        assert abs(runs.beta(p, q) - laws[0]["accepted"]) < EXACT
    wanted = [theory.improvement(alpha, K, c, v if K else 1, r if K else 0) for alpha, K, c, v, r in loops]
    assert np.allclose(page["speedups"], wanted, rtol=0, atol=EXACT)


@needs_a_browser
def test_what_an_address_says_is_read_or_named(tmp_path):
    address = (ROOT / "docs" / "play.html").as_uri() + "#K=0x5&alpha=.875&p=1e308,1e308,1e308&q=.3,.2,.5"
    page = shown(address, tmp_path)
    assert re.search(r'id="K"[^>]*><output>5<', page)
    assert "read a part of its address: alpha=.875 p=1e308,1e308,1e308 p and q, of which both" in page


def test_the_page_looks_like_the_trace_and_needs_no_other_file():
    colours = read("lab/page.css").split("* {")[0]
    assert colours in PAGE and not re.search(r"src=|@import|url\(|fetch\(|https?:", PAGE)


def test_the_page_names_who_shipped_what_as_the_gallery_does():
    rules = re.search(r"const RULES = \{(.*?)\n\};", PAGE, re.DOTALL)[1]
    seen = dict(re.findall(r'^  "([^"]+)": \{[^\n]*?seen: "([^"]+)"', rules, re.MULTILINE))
    variants = {variant.name: variant.seen for variant in gallery.VARIANTS}
    assert len(seen) > 7 and all(sorted(variants[name].split()) for name in seen)
    assert {name: set(re.findall(r"[\w-]+/[\w-]+|#\d+", text)) for name, text in seen.items()} == {
        name: set(re.findall(r"[\w-]+/[\w-]+|#\d+", variants[name])) for name in seen
    }
