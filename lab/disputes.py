"""Claims that people argue about, and what enumeration says of them: tables in Markdown.

    python -m studies.pages.write  # writes them into docs/exactness.md

Everything is computed for the pair of lab/gallery/setting.py, except where another is named.
"""

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np

from enumeration import sum_over_paths, total_variation
from lab.block import verify_block
from lab.gallery import GALLERY, SETTING, P, Q
from lab.gallery.draft import marginals
from lab.gallery.names import one_hot, only, without
from lab.gallery.resampling import greedy_draft
from lab.gallery.setting import (
    emitted,
    mean_length,
    plain,
    round_distribution,
    tenths,
    text_distribution,
)
from lab.gallery.variant import ACCEPTED, edited
from lab.tables import four, shown, table
from runs import overlap
from sampling import sample
from speculative import acceptance, max_fn, residual, verify

PAIRS = [  # p and q, where p's argmax is accepted less often, and more often, than a draw
    (tenths(2, 5, 3), tenths(3, 2, 5)),
    (tenths(5, 3, 2), tenths(8, 1, 1)),
]


def ordered_children(rng):
    """EAGLE's rule for children that are not drawn, such as the top 2.

    p counts as 1, and a rejected token leaves q.
    """
    x = np.array(SETTING.prompt)
    p = SETTING.draft_model(x)[-1]
    q = SETTING.target_model(x)[-1]
    for token in np.argsort(-p, kind="stable")[:2].tolist():
        if rng.random() < q[token]:
            return [token]
        q = without(q, token)
    return [sample(q, rng)]


def marginal_argmax(x, draft_model, k_max, rng):
    rows = [one_hot(row) for row in marginals(x, draft_model, k_max)]
    drafted = [row.argmax() for row in rows]
    return np.array(drafted, dtype=int), np.array(rows)


def old_text(verify, rng):
    """All of a text is a draft. What follows a rejection is written without one."""
    found = emitted(np.array(SETTING.prompt), SETTING.N, rng, SETTING, verify)[: SETTING.N]
    text = (*SETTING.prompt, *found.tolist())
    return plain(rng, replace(SETTING, prompt=text, N=SETTING.N - len(found)))


def of_disputes():
    same = GALLERY["same-draw"].verify
    by_token, by_block, by_draw = (
        round_distribution(rule, greedy_draft) for rule in (verify, verify_block, same)
    )
    q = {(t,): probability for t, probability in enumerate(Q[0])}
    eagle = total_variation(sum_over_paths(ordered_children), q)
    of_the_argmax = float(Q[0][P[0].argmax()])
    of_a_draw = float(sum(P[0] * Q[0]))
    by_marginals = GALLERY["own-marginals"].tokens_per_round()
    by_marginal_argmax = mean_length(round_distribution(verify, marginal_argmax))
    own = sum_over_paths(partial(plain, setting=SETTING))
    on_policy, off_policy = (
        shown(total_variation(sum_over_paths(partial(old_text, rule)), own))
        for rule in (verify, GALLERY["from-target"].verify)
    )
    less, more = ((float(q[p.argmax()]), float(overlap(p, q))) for p, q in PAIRS)

    def rate(id):
        return four(GALLERY[id].tokens_per_round())

    def distance(id):
        return shown(GALLERY[id].distance)

    rows = [
        ["accepting what the target draws too is biased", "no", distance("same-draw")],
        ["it accepts as much as `verify`", "if p is one-hot",
         f"{rate('same-draw')} tokens per round, `verify` {rate('verify')}; with one-hot guesses "
         f"{four(mean_length(by_draw))} and {four(mean_length(by_token))}"],
        ["up to K = 2, block verification decides as `verify`", "no",
         f"{rate('verify-block')} tokens per round, `verify` {rate('verify')}"],
        ["with one-hot guesses, block verification accepts less", "no",
         f"the two distributions are {shown(total_variation(by_token, by_block))} apart"],
        ["block verification may stop at the first h that fails", "no", distance("block-left")],
        ["EAGLE's children with p = 1 are lossless", "yes", shown(eagle)],
        ["one coin for all siblings is biased", "no", distance("one-coin")],
        ["a drawn guess must come with its p", "no", distance("one-hot-p")],
        ["greedy guesses are accepted more often than drawn ones", "it depends",
         "{:.1f} against {:.1f}, and {:.1f} against {:.1f}".format(*less, *more)],
        ["argmax maximizes exact-match acceptance", "no",
         f"{of_the_argmax:.2f} against {of_a_draw:.2f}"],
        ["argmax of marginals is accepted more often than draws", "not on every pair",
         f"{four(by_marginal_argmax)} tokens per round against {four(by_marginals)}"],
        ["a penalty on the bonus alone is self-consistent", "no", distance("penalty-bonus")],
        ["RL with an old text as draft is on-policy", "not if it goes on from q",
         f"{off_policy}, from the residual {on_policy}"],
    ]  # fmt: skip
    return table(["claim", "verdict", "computed"], rows, n_left=3)


# ---- What papers promise ----


def k_seq(rho, rng):
    """SpecTr (2310.15141): two independent guesses, each tested by a q that is rho times as small.

    If both are rejected, what they leave of q is drawn.
    """
    p, q = P[0], Q[0]
    for _ in range(2):
        token = sample(p, rng)
        if rng.random() < acceptance(rho * p[token], q[token]):
            return [token]
    kept = np.minimum(p, q / rho)
    rejected = 1 - kept.sum()
    return [sample(max_fn(q - (1 + rejected) * kept), rng)]


def group_of(row):
    """A and B are a group, and C and D."""
    return np.array([row[:2].sum(), row[2:].sum()])


def verify_groups(drafted, p, q, rng):
    """PCG (2511.13732): a guess stays if its group is accepted, whichever member it is."""
    for i, token in enumerate(drafted):
        group = token // 2
        of_p, of_q = group_of(p[i]), group_of(q[i])
        if rng.random() < acceptance(of_p[group], of_q[group]):
            continue
        other = sample(residual(of_p, of_q), rng)
        row = only(q[i], np.arange(len(q[i])) // 2 == other)
        return np.append(drafted[:i], sample(row, rng))
    return np.append(drafted, sample(q[-1], rng))


def grouped(distribution, n=None):
    """Of texts, that of their first n groups, or of all."""
    found = Counter()
    for ids, probability in distribution.items():
        groups = tuple(token // 2 for token in ids[1:])
        found[groups[:n]] += probability
    return found


def refusing(row):
    """A guess is rejected, whatever it is, where p and q are flat. Then the row is drawn."""
    flat = "max(p[i].max(), q[i].max()) <= HALF"
    refusal = f"if {flat}: return np.append(drafted[:i], sample({row}, rng))"
    return edited(verify, (f"if {ACCEPTED}:", f"{refusal}\n        if {ACCEPTED}:"))


def of_papers():
    q = {(t,): probability for t, probability in enumerate(Q[0])}
    plain_texts = sum_over_paths(partial(plain, setting=SETTING))
    by_groups = text_distribution(SETTING, verify_groups)

    def two_guesses(rho):
        return shown(total_variation(sum_over_paths(partial(k_seq, rho)), q))

    def groups(n=None):
        return shown(total_variation(grouped(by_groups, n), grouped(plain_texts, n)))

    def refusal(row):
        rule = refusing(row)
        return shown(total_variation(text_distribution(SETTING, rule), plain_texts))

    rows = [
        ["K-SEQ of SpecTr", "yes, with its ρ",
         f"{two_guesses(Fraction(2))} with ρ = 2, {two_guesses(Fraction(1))} with ρ = 1"],
        ["PCG: exact for groups of tokens", "for one group",
         f"{groups(1)} for the first group, {groups()} for texts of groups"],
        ["a guess rejected, whatever it is, where both models are unsure", "if q is drawn next",
         f"{refusal('q[i]')}, from the residual {refusal('residual(p[i], q[i])')}, "
         f"from q without it {refusal('without(q[i], token)')}"],
        ["exact by construction: only the target's own draws are emitted", "yes",
         shown(GALLERY["same-draw"].distance)],
        ["Jacobi decoding with tests, SJD", "yes", shown(GALLERY["jacobi"].distance)],
    ]  # fmt: skip
    return table(["promise", "kept?", "computed"], rows, n_left=3)
