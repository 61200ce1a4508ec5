"""The numbers of docs/settled.md: disputes that enumeration closes, and what lossy rules cost.

    python -m benchmarks.settled

Everything is computed for the pair of lab/gallery.py, except where another is named.
"""

import argparse

import numpy as np

from benchmarks.tables import table
from enumeration import output_distribution, total_variation
from lab import gallery
from lab.block import verify_block
from lab.gallery import VARIANTS, Variant, changed, changed_draft, favourite, one_hot, rounded, target_rows
from runs import beta
from sampling import sample
from speculative import acceptance, verify

GALLERY = {variant.name: variant for variant in VARIANTS}
PAIRS = [  # p and q, where the favourite of p is accepted less often, and more often, than a draw from p
    (np.array([0.2, 0.5, 0.3]), np.array([0.3, 0.2, 0.5])),
    (np.array([0.5, 0.3, 0.2]), np.array([0.8, 0.1, 0.1])),
]


def distance(name):
    return rounded(GALLERY[name].distance())


def rate(variant):
    return f"{variant.tokens_per_round():.4f}"


def one_round(rule, draft):
    """The law of what a round with K guesses of this draft emits."""

    def emitted(rng):
        drafted, p = draft(np.array([0]), gallery.draft_model, gallery.K, rng)
        return rule(drafted, p, target_rows([0], drafted, {}), rng)

    return output_distribution(emitted)


def ordered_children(rng, tokens=(1, 0)):
    """EAGLE's rule for children that are not drawn, such as the top 2: p counts as 1, and a refused token leaves q."""
    q = target_rows([0], [], {})[0].copy()
    for token in tokens:
        if rng.random() < q[token]:
            return [token]
        q[token] = 0
        q /= q.sum()
    return [sample(q, rng)]


def verdicts():
    """[(claim, verdict, number), ...]"""
    same, token, by_block = (GALLERY[n] for n in ("accept if the target draws the same", "`verify`", "`verify_block`"))
    laws = [one_round(rule, changed_draft(favourite, one_hot)) for rule in (verify, verify_block, same.verify)]
    tokens, _, tokens_same = (sum(mass * len(out) for out, mass in law.items()) for law in laws)
    q = {(t,): mass for t, mass in enumerate(target_rows([0], [], {})[0])}
    eagle = total_variation(output_distribution(ordered_children), q)
    less, more = ((q[p.argmax()], beta(p, q)) for p, q in PAIRS)
    one_hot_rates = " and ".join(f"{round(n, 12):.4f}" for n in (tokens_same, tokens))
    return [
        ("accepting what the target draws too is biased", "no", distance(same.name)),
        ("it accepts as much as `verify`", "if p is one-hot",
         f"{rate(same)} tokens per round, `verify` {rate(token)}; with one-hot guesses {one_hot_rates}"),
        ("up to K = 2, block verification decides as `verify`", "no",
         f"{rate(by_block)} tokens per round, `verify` {rate(token)}"),
        ("with one-hot guesses, block verification accepts less", "no",
         f"the two laws are {rounded(total_variation(*laws[:2]))} apart"),
        ("block verification may stop at the first refused h", "no", distance("block verification from the left")),
        ("EAGLE's children with p = 1 are lossless", "yes", rounded(eagle)),
        ("greedy guesses are accepted more often than drawn ones", "it depends",
         "{:.1f} against {:.1f}, and {:.1f} against {:.1f}".format(*less, *more)),
        ("a penalty on the bonus alone is self-consistent", "no", distance("penalty on the bonus only")),
    ]  # fmt: skip


# ---- Lossy rules ----


def lenient(l):
    """Leviathan et al. 2023, appendix A.5."""
    return changed(accept=lambda p, q, i, t: acceptance(l * p[i][t], q[i][t]))


def accepting(is_good):
    """Accept each guess t with is_good(q, t), and add the target's favourite otherwise, and as a bonus."""
    accept = lambda p, q, i, t: float(is_good(q[i], t))  # noqa: E731
    return changed(accept, lambda p, q, i, t: q[i], draw=favourite, draw_bonus=favourite)


def typical(epsilon, delta):
    """Medusa (Cai et al. 2024, arXiv 2401.10774), as evaluate_posterior of its code."""
    return accepting(lambda q, t: q[t] > min(epsilon, delta * np.exp((q * np.log(q)).sum())))


def relaxed(n, delta):
    """TensorRT-LLM: one of the n most probable tokens, and at most delta less probable than the first."""
    return accepting(lambda q, t: t in np.argsort(-q)[:n] and q[t] >= q.max() - delta)


def prices():
    """[(rule, distance, tokens per round), ...]"""
    rules = {"`verify`": verify, "`verify_block`": verify_block}
    rules |= {f"leniency, l = {l:g}": lenient(l) for l in (0.8, 0.5, 0.3)}
    typicals = (0.09, 0.3), (0.3, 0.55), (0.6, 1)
    rules |= {f"typical, epsilon = {e:g}, delta = {d:g}": typical(e, d) for e, d in typicals}
    rules |= {f"relaxed, N = {n}, delta = {d:g}": relaxed(n, d) for n, d in ((1, 0), (2, 0.1), (2, 0.3))}
    found = [Variant(name, "", verify=rule) for name, rule in rules.items()]
    return [(v.name, v.distance(), v.tokens_per_round()) for v in found]


def shown():
    """Both tables in Markdown."""
    rows = [[name, rounded(far), f"{rate:.4f}"] for name, far, rate in prices()]
    price_list = table(["rule", "distance", "tokens per round"], rows)
    return table(["claim", "verdict", "computed"], verdicts(), n_left=3), price_list


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(*shown(), sep="\n\n")
