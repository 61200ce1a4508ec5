"""Tables in Markdown: the gallery, disputes that enumeration closes, and what lossy rules cost.

    python -m studies.making.write  # writes them into the pages

Everything is computed for the pair of lab/gallery.py, except where another is named.
"""

import re
from fractions import Fraction

import numpy as np

from enumeration import sum_over_paths, total_variation
from lab import gallery
from lab.block import verify_block
from lab.gallery import (
    EXACT,
    GALLERY,
    GROUPS,
    TREES,
    WRONG,
    V,
    Variant,
    changed,
    changed_draft,
    favourite,
    favourites,
    from_marginals,
    mean_length,
    one_hot,
    ratio,
    round_distribution,
    tenths,
    tests_of_all_guesses,
    typed,
)
from runs import overlap
from sampling import sample
from speculative import acceptance, residual, verify

HEADER = ["variant", "what it looks like", "seen in", "distance"]
N_WORST = 5
PAIRS = [  # p and q, where p's favourite is accepted less often, and more often, than a draw
    (tenths(2, 5, 3), tenths(3, 2, 5)),
    (tenths(5, 3, 2), tenths(8, 1, 1)),
]
REPOSITORIES = {
    "1bit-MONSTER": "1bit-MONSTER/1bit-MONSTER",
    "EAGLE": "SafeAILab/EAGLE",
    "fms-extras": "foundation-model-stack/fms-extras",
    "dflash": "z-lab/dflash",
    "keras-hub": "keras-team/keras-hub",
    "lattice": "ohdearquant/lattice",
    "llama.cpp": "ggml-org/llama.cpp",
    "ml-recurrent-drafter": "apple/ml-recurrent-drafter",
    "mlx-lm": "ml-explore/mlx-lm",
    "mlx-node": "mlx-node/mlx-node",
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


def of_trees():
    """The wrong variants, the worst first, and then the exact ones."""
    rows = []
    for v in sorted(TREES, key=lambda v: (v.exact, -v.distance())):
        name = f"{v.name} (exact)" if v.exact else v.name
        rows.append([name, v.looks, linked(v.seen), shown(v.distance())])
    return table(HEADER, rows, n_left=3)


def families(variants):
    """The variants as lists, of which each is a line of the table, the worst first."""
    found = {}
    for v in sorted(variants, key=lambda v: -v.distance()):
        found.setdefault(v.family or v.id, []).append(v)
    return [*found.values()]


def family_line(members):
    """One variant, or the same mistake in several places, with the range of their distances."""
    worst, least = members[0], members[-1]
    if worst is least:
        return [worst.name, worst.looks, linked(worst.seen), shown(worst.distance())]
    looks = "; ".join(v.name for v in members)
    seen = dict.fromkeys(v.seen for v in members if v.seen)
    distances = f"{four(least.distance())} to {four(worst.distance())}"
    return [worst.family, looks, linked("; ".join(seen)), distances]


def of_gallery():
    """The worst lines, and then the others by what is wrong."""
    worst = families(WRONG)[:N_WORST]
    parts = [("The worst", worst)]
    for group, variants in GROUPS.items():
        parts.append((group, [line for line in families(variants) if line not in worst]))
    texts = []
    for title, lines in parts:
        texts.append(f"### {title}\n\n{table(HEADER, map(family_line, lines), n_left=3)}")
    return "\n\n".join(texts)


def of_exact_rules():
    """The exact rules, with the tokens that a round adds."""
    rows = []
    for v in sorted(EXACT, key=Variant.tokens_per_round):
        rows.append([v.name, v.looks, linked(v.seen), four(v.tokens_per_round())])
    return table(["exact rule", "what it looks like", "seen in", "tokens per round"], rows, 3)


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
    eagle = total_variation(sum_over_paths(ordered_children), q)
    p_q = [gallery.P[0][t] * mass for (t,), mass in q.items()]
    of_the_favourite = q[(favourite(gallery.P[0]),)]
    by_marginals = GALLERY["own-marginals"].tokens_per_round()
    marginal_favourites = round_distribution(verify, from_marginals(favourite, one_hot))
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
        ["argmax maximizes exact-match acceptance", "no",
         f"{float(of_the_favourite):.2f} against {float(sum(p_q)):.2f}"],
        ["favourites of marginals are accepted more often than draws", "not on every pair",
         f"{four(mean_length(marginal_favourites))} tokens per round against {four(by_marginals)}"],
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


def synthetic(*rates):
    """vLLM's rule for benchmarks: rates[i] is how often guess i is kept, with all before it."""

    def accept(p, q, i, t):
        before = rates[i - 1] if i else 1
        return rates[i] / before

    return changed(accept)


def entropy(row):
    row = row[row > 0].astype(float)
    return -(row * np.log(row)).sum()


def entropy_verify(alpha, most=0.95):
    """vllm-ascend #9772: leniency, whose λ falls as the entropy of q rises."""

    def accept(p, q, i, t):
        λ = min(np.exp(-alpha * entropy(q[i])), most)
        return acceptance(λ * p[i][t], q[i][t])

    return changed(accept)


def fly(least, window=1, n=3):
    """FLy (arXiv 2511.22972), as in vLLM's fly.py.

    A guess that was refused is accepted all the same, if the entropy of the n most probable
    tokens is at least so high, and the window of guesses behind it passes its tests.
    """

    def rule(drafted, p, q, rng):
        passed = tests_of_all_guesses(drafted, p, q, rng)
        for i, token in enumerate(drafted):
            behind = passed[i + 1 : i + 1 + window]
            is_followed = len(behind) == window and all(behind)
            is_open = entropy(np.sort(q[i])[-n:]) >= least and q[i][token] > 0
            if not passed[i] and not (is_followed and is_open):
                return np.append(drafted[:i], sample(residual(p[i], q[i]), rng))
        return np.append(drafted, sample(q[-1], rng))

    return rule


def prices():
    """[(rule, distance, tokens per round), ...]"""
    tenth = Fraction(1, 10)
    rules = {"`verify`": verify, "`verify_block`": verify_block}
    for l in (8, 5, 3):
        rules[f"leniency, λ = 0.{l}"] = lenient(l * tenth)
    for a in (3, 5):
        rules[f"cascade, α = 0.{a}"] = cascade(a * tenth)
    for alpha in (0.4, 1):
        rules[f"Entropy Verify, α = {alpha:g}"] = entropy_verify(alpha)
    rules["FLy, θ = 0.3, W = 1"] = fly(0.3)
    for first, both in ((7, 5), (8, 6), (9, 5), (9, 8)):
        rules[f"accepted at rates of 0.{first} and 0.{both}"] = synthetic(
            first * tenth, both * tenth
        )
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
