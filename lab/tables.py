"""Tables in Markdown: the gallery, disputes that enumeration closes, and what lossy rules cost.

    python -m studies.making.write  # writes them into the pages

Everything is computed for the pair of lab/gallery.py, except where another is named.
"""

import re
from fractions import Fraction

import numpy as np

from enumeration import output_distribution, total_variation
from lab import gallery
from lab.block import verify_block
from lab.gallery import (
    GALLERY,
    VARIANTS,
    V,
    changed,
    changed_draft,
    favourite,
    favourites,
    mean_length,
    one_hot,
    ratio,
    round_distribution,
    tenths,
    typed,
)
from runs import overlap
from sampling import sample
from speculative import verify

PAIRS = [  # p and q, where p's favourite is accepted less often, and more often, than a draw
    (tenths(2, 5, 3), tenths(3, 2, 5)),
    (tenths(5, 3, 2), tenths(8, 1, 1)),
]
REPOSITORIES = {
    "1bit-MONSTER": "1bit-MONSTER/1bit-MONSTER",
    "EAGLE": "SafeAILab/EAGLE",
    "fms-extras": "foundation-model-stack/fms-extras",
    "keras-hub": "keras-team/keras-hub",
    "lattice": "ohdearquant/lattice",
    "llama.cpp": "ggml-org/llama.cpp",
    "ml-recurrent-drafter": "apple/ml-recurrent-drafter",
    "mlx-lm": "ml-explore/mlx-lm",
    "mlxcel": "lablup/mlxcel",
    "openvino.genai": "openvinotoolkit/openvino.genai",
    "picolm": "RightNow-AI/picolm",
    "rMLX": "Pushkinist/rMLX",
    "rtp-llm": "alibaba/rtp-llm",
    "sglang": "sgl-project/sglang",
    "transformers": "huggingface/transformers",
    "vLLM": "vllm-project/vllm",
    "vllm-ascend": "vllm-project/vllm-ascend",
    "vmlx-swift": "osaurus-ai/vmlx-swift",
}


def table(header, rows, n_left=1):
    """Rows as a table, whose columns are right-aligned except for the first n_left."""
    rule = ["---" if i < n_left else "---:" for i in range(len(header))]
    return "\n".join(f"| {' | '.join(map(cell, row))} |" for row in [header, rule, *rows])


def cell(value):
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def shown(distance):
    """0.2800 = 7/25, or without the fraction, if it is long. Exact rules have 0."""
    if distance == 0:
        return "0"
    short = f" = {distance}" if len(str(distance)) < 8 else ""
    return f"{float(distance):.4f}{short}"


def four(number):
    return f"{float(number):.4f}"


def linked(seen):
    """Links for what seen names: a thread, "vLLM #18902", or a repository, "lab/engine"."""

    def link(found):
        place = found[0]
        if found[2]:
            place = f"{REPOSITORIES[found[1]]}/issues/{found[2]}"
        return f"[{found[0]}](https://github.com/{place})"

    return re.sub(r"([\w.-]+) #(\d+)|[\w.-]+/[\w.-]+", link, seen)


def of_gallery(variants):
    """The wrong variants, the worst first, and then the exact ones."""
    rows = []
    for v in sorted(variants, key=lambda v: (v.exact, -v.distance())):
        name = f"{v.name} (exact)" if v.exact else v.name
        rows.append([name, v.looks, linked(v.seen), shown(v.distance())])
    return table(["variant", "what it looks like", "seen in", "distance"], rows, n_left=3)


def of_exact_rules():
    """The exact rules, with the tokens that a round adds."""
    rates = {v.name: v.tokens_per_round() for v in VARIANTS if v.exact and v.own is gallery.plain}
    ranked = [name for name in sorted(rates, key=rates.get) if rates[name] > 1]
    rows = [[name, four(rates[name])] for name in ranked]
    return table(["exact rule", "tokens per round"], rows)


def of_famous():
    """Four rows for the README."""
    seen = {
        "greedy-draft": "transformers, until "
        "[#33534](https://github.com/huggingface/transformers/pull/33534)",
        "from-row-after": "openvino.genai "
        "[#4190](https://github.com/openvinotoolkit/openvino.genai/issues/4190)",
        "one-noise": "vLLM, as an option, until "
        "[#54282](https://github.com/vllm-project/vllm/pull/54282)",
        "without-it": "EAGLE, until [#20](https://github.com/SafeAILab/EAGLE/issues/20)",
    }
    rows = []
    for id in sorted(seen, key=lambda id: -GALLERY[id].distance()):
        rows.append([GALLERY[id].name, seen[id], shown(GALLERY[id].distance())])
    return table(["bug", "seen in", "distance"], rows, n_left=2)


# ---- Disputes ----


def ordered_children(rng):
    """EAGLE's rule for children that are not drawn, such as the top 2.

    p counts as 1, and a refused token leaves q.
    """
    x = np.array(gallery.SETTING.prompt)
    p = gallery.draft_model(x)[-1]
    q = gallery.target_model(x)[-1]
    for token in np.argsort(-p, kind="stable")[:2].tolist():
        if rng.random() < q[token]:
            return [token]
        q = gallery.without(q, token)
    return [sample(q, rng)]


def of_disputes():
    greedy = changed_draft(favourite, one_hot)
    same = GALLERY["same-draw"].verify
    by_token, by_block, by_draw = (
        round_distribution(rule, greedy) for rule in (verify, verify_block, same)
    )
    q = {(t,): mass for t, mass in enumerate(gallery.Q[0])}
    eagle = total_variation(output_distribution(ordered_children), q)
    less, more = ((float(q[p.argmax()]), float(overlap(p, q))) for p, q in PAIRS)

    def rate(id):
        return four(GALLERY[id].tokens_per_round())

    def distance(id):
        return shown(GALLERY[id].distance())

    rows = [
        ["accepting what the target draws too is biased", "no", distance("same-draw")],
        ["it accepts as much as `verify`", "if p is one-hot",
         f"{rate('same-draw')} tokens per round, `verify` {rate('verify')}; with one-hot guesses "
         f"{four(mean_length(by_draw))} and {four(mean_length(by_token))}"],
        ["up to K = 2, block verification decides as `verify`", "no",
         f"{rate('verify-block')} tokens per round, `verify` {rate('verify')}"],
        ["with one-hot guesses, block verification accepts less", "no",
         f"the two distributions are {shown(total_variation(by_token, by_block))} apart"],
        ["block verification may stop at the first refused h", "no", distance("block-left")],
        ["EAGLE's children with p = 1 are lossless", "yes", shown(eagle)],
        ["one coin for all siblings is biased", "no", distance("one-coin")],
        ["a drawn guess must come with its p", "no", distance("one-hot-p")],
        ["greedy guesses are accepted more often than drawn ones", "it depends",
         "{:.1f} against {:.1f}, and {:.1f} against {:.1f}".format(*less, *more)],
        ["a penalty on the bonus alone is self-consistent", "no", distance("penalty-bonus")],
    ]  # fmt: skip
    return table(["claim", "verdict", "computed"], rows, n_left=3)


# ---- Lossy rules ----


def lenient(λ):
    """Leviathan et al. 2023, appendix A.5."""
    return typed(GALLERY["lenient"].formula, λ)


def typical(epsilon, delta):
    """Medusa (Cai et al. 2024, arXiv 2401.10774), as evaluate_posterior of its code."""

    def is_good(q, t):
        row = q.astype(float)
        return row[t] > min(epsilon, delta * np.exp((row * np.log(row)).sum()))

    return favourites(is_good)


def relaxed(n, delta):
    """TensorRT-LLM: one of the n most probable tokens, at most delta below the first."""
    return favourites(lambda q, t: t in np.argsort(-q)[:n] and q[t] >= q.max() - delta)


def cascade(alpha):
    """A speculative cascade, as in MTPLX #485: what is nearly a favourite is always accepted."""

    def accept(p, q, i, t):
        nearly = q[i][t] >= q[i].max() * (1 - alpha)
        return 1 if nearly else ratio(p, q, i, t)

    return changed(accept)


def synthetic(rate):
    """vLLM's rule for benchmarks: accept at a fixed rate."""
    return changed(lambda p, q, i, t: rate)


def prices():
    """[(rule, distance, tokens per round), ...]"""
    tenth = Fraction(1, 10)
    rules = {"`verify`": verify, "`verify_block`": verify_block}
    for l in (8, 5, 3):
        rules[f"leniency, λ = 0.{l}"] = lenient(l * tenth)
    for a in (3, 5):
        rules[f"cascade, α = 0.{a}"] = cascade(a * tenth)
    for r in (7, 9):
        rules[f"accepted at a rate of 0.{r}"] = synthetic(r * tenth)
    for epsilon, delta in ((0.09, 0.3), (0.3, 0.55), (0.6, 1)):
        rules[f"typical, ε = {epsilon:g}, δ = {delta:g}"] = typical(epsilon, delta)
    for n, delta in ((1, 0), (2, 1), (2, 3)):
        rules[f"relaxed, N = {n}, δ = {delta / 10:g}"] = relaxed(n, delta * tenth)
    found = []
    for name, rule in rules.items():
        variant = V(name, name, "", verify=rule)
        found.append((name, variant.distance(), variant.tokens_per_round()))
    return found


def of_prices():
    rows = [[name, shown(distance), four(rate)] for name, distance, rate in prices()]
    return table(["rule", "distance", "tokens per round"], rows)
