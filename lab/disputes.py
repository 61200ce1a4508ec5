"""Claims that people argue about, and what enumeration says of them: tables in Markdown.

    python -m studies.making.write  # writes them into docs/exactness.md

Everything is computed for the pair of lab/gallery/setting.py, except where another is named.
"""

import numpy as np

from enumeration import output_distribution, total_variation
from lab.block import verify_block
from lab.gallery import GALLERY, SETTING, P, Q
from lab.gallery.draft import marginals
from lab.gallery.names import one_hot, without
from lab.gallery.resampling import greedy_draft
from lab.gallery.setting import mean_length, round_distribution, tenths
from lab.tables import four, shown, table
from runs import overlap
from sampling import sample
from speculative import verify

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


def of_disputes():
    same = GALLERY["same-draw"].verify
    by_token, by_block, by_draw = (
        round_distribution(rule, greedy_draft) for rule in (verify, verify_block, same)
    )
    q = {(t,): probability for t, probability in enumerate(Q[0])}
    eagle = total_variation(output_distribution(ordered_children), q)
    of_the_argmax = float(Q[0][P[0].argmax()])
    of_a_draw = float(sum(P[0] * Q[0]))
    by_marginals = GALLERY["own-marginals"].tokens_per_round()
    by_marginal_argmax = mean_length(round_distribution(verify, marginal_argmax))
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
        ["block verification may stop at the first refused h", "no", distance("block-left")],
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
    ]  # fmt: skip
    return table(["claim", "verdict", "computed"], rows, n_left=3)
