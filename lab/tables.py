"""Tables in Markdown: the gallery, disputes that enumeration closes, and what lossy rules cost.

    python -m studies.making.write  # writes them into the pages

Everything is computed for the pair of lab/gallery.py, except where another is named.
"""

from fractions import Fraction

import numpy as np

from enumeration import output_distribution, total_variation
from lab import gallery
from lab.block import verify_block
from lab.gallery import (
    TREES,
    VARIANTS,
    Variant,
    changed,
    changed_draft,
    favourite,
    one_hot,
    one_round_law,
    tenths,
)
from runs import overlap
from sampling import sample
from speculative import acceptance, verify

GALLERY = {variant.name: variant for variant in [*VARIANTS, *TREES]}
PAIRS = [  # p and q, where the favourite of p is accepted less often, and more often, than a draw from p
    (tenths(2, 5, 3), tenths(3, 2, 5)),
    (tenths(5, 3, 2), tenths(8, 1, 1)),
]


def table(header, rows, n_left=1):
    """Rows of text and numbers as a table, whose columns are right-aligned except for the first n_left."""
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


def of_gallery(variants):
    """The wrong variants, the worst first, and then the exact ones."""
    ranked = sorted(variants, key=lambda v: (v.exact, -v.distance()))
    rows = [
        [v.name + " (exact)" * v.exact, v.looks, gallery.linked(v.seen), shown(v.distance())]
        for v in ranked
    ]
    return table(["variant", "what it looks like", "seen in", "distance"], rows, n_left=3)


def of_exact_rules():
    """The exact rules, with the tokens that a round adds."""
    rates = {v.name: v.tokens_per_round() for v in VARIANTS if v.exact and v.own is gallery.plain}
    ranked = [name for name in sorted(rates, key=rates.get) if rates[name] > 1]
    return table(
        ["exact rule", "tokens per round"], [[name, f"{float(rates[name]):.4f}"] for name in ranked]
    )


def of_famous():
    """Four rows for the README."""
    names = {
        "greedy draft with its ordinary p": "transformers, until [#33534](https://github.com/huggingface/transformers/pull/33534)",
        "draws the replacement from the row after": "openvino.genai [#4190](https://github.com/openvinotoolkit/openvino.genai/issues/4190)",
        "one noise for two draws": "vLLM, as an option, until [#54282](https://github.com/vllm-project/vllm/pull/54282)",
        "removes the rejected token from q": "EAGLE, until [#20](https://github.com/SafeAILab/EAGLE/issues/20)",
    }
    rows = [[name, seen, shown(GALLERY[name].distance())] for name, seen in names.items()]
    return table(
        ["bug", "seen in", "distance"], sorted(rows, key=lambda row: row[2], reverse=True), n_left=2
    )


# ---- Disputes ----


def ordered_children(rng):
    """EAGLE's rule for children that are not drawn, such as the top 2: p counts as 1, and a refused token leaves q."""
    q = gallery.Q[0].copy()
    for token in np.argsort(-gallery.P[0], kind="stable")[:2].tolist():
        if rng.random() < q[token]:
            return [token]
        q[token] = 0
        q /= q.sum()
    return [sample(q, rng)]


def of_disputes():
    same, token, by_block = (
        GALLERY[n] for n in ("accept if the target draws the same", "`verify`", "`verify_block`")
    )
    laws = [
        one_round_law(rule, changed_draft(favourite, lambda row, t: one_hot(row)))
        for rule in (verify, verify_block, same.verify)
    ]
    tokens, _, tokens_same = (
        float(sum(mass * len(out) for out, mass in law.items())) for law in laws
    )
    q = {(t,): mass for t, mass in enumerate(gallery.Q[0])}
    eagle = total_variation(output_distribution(ordered_children), q)
    less, more = ((float(q[p.argmax()]), float(overlap(p, q))) for p, q in PAIRS)
    rate = {v.name: f"{float(v.tokens_per_round()):.4f}" for v in (same, token, by_block)}
    distance = {name: shown(v.distance()) for name, v in GALLERY.items()}
    rows = [
        ["accepting what the target draws too is biased", "no", distance[same.name]],
        ["it accepts as much as `verify`", "if p is one-hot",
         f"{rate[same.name]} tokens per round, `verify` {rate[token.name]}; "
         f"with one-hot guesses {tokens_same:.4f} and {tokens:.4f}"],
        ["up to K = 2, block verification decides as `verify`", "no",
         f"{rate[by_block.name]} tokens per round, `verify` {rate[token.name]}"],
        ["with one-hot guesses, block verification accepts less", "no",
         f"the two laws are {shown(total_variation(*laws[:2]))} apart"],
        ["block verification may stop at the first refused h", "no", distance["block verification from the left"]],
        ["EAGLE's children with p = 1 are lossless", "yes", shown(eagle)],
        ["one coin for all siblings is biased", "no", distance["one coin for all siblings"]],
        ["a drawn guess must come with its p", "no", distance["a drawn guess, reported as one-hot"]],
        ["greedy guesses are accepted more often than drawn ones", "it depends",
         "{:.1f} against {:.1f}, and {:.1f} against {:.1f}".format(*less, *more)],
        ["a penalty on the bonus alone is self-consistent", "no", distance["penalty on the bonus only"]],
    ]  # fmt: skip
    return table(["claim", "verdict", "computed"], rows, n_left=3)


# ---- Lossy rules ----


def lenient(l):
    """Leviathan et al. 2023, appendix A.5."""
    return changed(accept=lambda p, q, i, t: acceptance(l * p[i][t], q[i][t]))


def accepting(is_good):
    """Accept each guess t with is_good(q, t), and add the target's favourite otherwise, and as a bonus."""
    accept = lambda p, q, i, t: int(is_good(q[i], t))  # noqa: E731
    return changed(accept, lambda p, q, i, t: q[i], draw=favourite, draw_bonus=favourite)


def typical(epsilon, delta):
    """Medusa (Cai et al. 2024, arXiv 2401.10774), as evaluate_posterior of its code."""

    def is_good(q, t):
        row = q.astype(float)
        return row[t] > min(epsilon, delta * np.exp((row * np.log(row)).sum()))

    return accepting(is_good)


def relaxed(n, delta):
    """TensorRT-LLM: one of the n most probable tokens, and at most delta less probable than the first."""
    return accepting(lambda q, t: t in np.argsort(-q)[:n] and q[t] >= q.max() - delta)


def cascade(alpha):
    """A speculative cascade, as in MTPLX #485: the exact rule, but what is nearly a favourite is always accepted."""
    return changed(
        accept=lambda p, q, i, t: (
            1 if q[i][t] >= q[i].max() * (1 - alpha) else acceptance(p[i][t], q[i][t])
        )
    )


def synthetic(rate):
    """vLLM's rule for benchmarks: accept at a fixed rate."""
    return changed(accept=lambda p, q, i, t: rate)


def prices():
    """[(rule, distance, tokens per round), ...]"""
    tenth = Fraction(1, 10)
    rules = {"`verify`": verify, "`verify_block`": verify_block}
    rules |= {f"leniency, λ = 0.{l}": lenient(l * tenth) for l in (8, 5, 3)}
    rules |= {f"cascade, α = 0.{a}": cascade(a * tenth) for a in (3, 5)}
    rules |= {f"accepted at a rate of 0.{r}": synthetic(r * tenth) for r in (7, 9)}
    typicals = (0.09, 0.3), (0.3, 0.55), (0.6, 1)
    rules |= {f"typical, ε = {e:g}, δ = {d:g}": typical(e, d) for e, d in typicals}
    rules |= {
        f"relaxed, N = {n}, δ = {d / 10:g}": relaxed(n, d * tenth)
        for n, d in ((1, 0), (2, 1), (2, 3))
    }
    found = [Variant(name, "", verify=rule) for name, rule in rules.items()]
    return [(v.name, v.distance(), v.tokens_per_round()) for v in found]


def of_prices():
    rows = [[name, shown(far), f"{float(rate):.4f}"] for name, far, rate in prices()]
    return table(["rule", "distance", "tokens per round"], rows)
