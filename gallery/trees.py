"""Wrong rules for trees, in texts of two tokens: one round and a part of the next."""

from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np

from gallery.names import without, λ
from gallery.variant import Place, entry, unchecked
from lab.trees import Node, bottom_up, score, siblings, top_down, tree_sampling
from sampling import sample
from speculative import max_fn

sample_by_trees = unchecked(tree_sampling)


def decode_by_trees(rng, setting, verify=top_down, **parts):
    """A `decode` by trees. Its verify is a rule for trees."""
    x, N = np.array(setting.prompt), setting.N - 1
    models = setting.draft_model, setting.target_model
    return sample_by_trees(x, *models, N, setting.shape, rng, verify)


def without_guesses(rng, setting):
    return decode_by_trees(rng, replace(setting, shape=()))


def draws_for_each_branch(node, rng):
    drawn = []
    for child in node.children:
        drawn.append(sample(node.q, rng))
        if drawn[-1] == child.token:
            return [child.token, *draws_for_each_branch(child, rng)]
    return drawn[:1] or [sample(node.q, rng)]


def one_coin(node, rng, threshold=1):
    """One u for all siblings: the first wins where u < q / threshold, and so on."""
    u = rng.random()
    reached = 0
    for child in node.children:
        reached += node.q[child.token]
        if u < reached / threshold:
            return [child.token]
    return [sample(without(node.q, *[child.token for child in node.children]), rng)]


# ---- The draft's two most probable tokens as siblings, which are there for sure ----


def for_sure(p, rng):
    return [*islice(siblings(p, rng, n_sure=2), 2)]


def as_if_drawn(p, rng):
    first, second = for_sure(p, rng)
    first.p = max_fn(p * (first.p + second.p))
    return [first, second]


def decode_by_two(guesses, rng, setting, verify=top_down, **parts):
    x = np.array(setting.prompt)
    for _ in range(setting.N - 1):
        root = Node(children=guesses(setting.draft_model(x)[-1], rng))
        score(x, setting.target_model, root)
        x = np.append(x, verify(root, rng)[0])
    return x


def of_a_tree(rule):
    return {
        "verify": rule,
        "decode": decode_by_trees,
        "reference": without_guesses,
        "step": "siblings",
    }


TOP_DOWN, BOTTOM_UP = (Place(rule, of_a_tree) for rule in (top_down, bottom_up))
T = partial(entry, of=TOP_DOWN)
of_two = {"decode": partial(decode_by_two, for_sure), "step": ""}

VARIANTS = [
    T("first-p", "all siblings verified with the first p",
      ("child.p[child.token]", "node.children[0].p[child.token]")),
    T("shuffled", "siblings in random order",
      ("in node.children", "in shuffled(node.children, rng)")),
    T("by-their-q", "siblings in the order of their q",
      ("in node.children", "in sorted(node.children, key=lambda child: -node.q[child.token])")),
    T("q-stays", "later siblings verified against q, not the residual",
      ("r[child.token]", "node.q[child.token]",
       "residual(child.p, r)", "residual(child.p, node.q)"),
      seen="xlthu/speculative-decoding, whose children aren't drawn, and which resamples from q"),
    T("without-rejected", "resamples from q without the rejected siblings",
      ("sample(r, rng)", "sample(without(node.q, *[c.token for c in node.children]), rng)")),
    T("draw-per-branch", "each branch draws from q for itself", draws_for_each_branch,
      looks="a token is drawn from q for each child; the first match counts",
      seen="FasterDecoding/REST, with another draw after a miss; warned of in "
           "foundation-model-stack/fms-extras#12"),
    T("node-number", "a node's index read as its token",
      ("for child in node.children:", "for number, child in enumerate(node.children):",
       "acceptance(child.p[child.token], r[child.token])",
       "acceptance(child.p[number], r[number])"),
      seen="sail-sg/LongSpec"),
    T("top-two-by-softmax", "the two most probable tokens, verified with their softmax",
      decode=partial(decode_by_two, as_if_drawn), step="",
      looks="p as if they were drawn from these two",
      seen="NJUNLP/MCSD, at a draft temperature of 0"),
    T("two-norms", "w from the ratio of two norms",
      ("w = 1 if w == 1 else surplus / (surplus + 1 - w)",
       "w = acceptance(1 - child.p[child.token], surplus)",
       "r = residual(child.p, w * r)",
       "r = residual(child.p, w * r) if surplus > 0 else node.q",
       "if rng.random() < w", "if node.token is None or rng.random() < w"), of=BOTTOM_UP,
      seen="brian030128/subspec_v2"),
    T("coin-threshold", "one coin for all siblings, and a threshold",
      partial(one_coin, threshold=λ), **of_two,
      looks="accepts the first with u < the sum of q so far / .8",
      seen="in sgl-project/sglang#35798"),
    T("one-coin", "one coin for all siblings", one_coin, **of_two, exact=True,
      looks="accepts the first with u < the sum of q so far", seen="sgl-project/sglang#35798"),
    T("top-down", "`top_down`", top_down, exact=True,
      looks="each child against what the ones before it left", seen="SpecInfer"),
    T("bottom-up", "`bottom_up`", bottom_up, exact=True,
      looks="leaves first", seen="traversal verification"),
]  # fmt: skip
