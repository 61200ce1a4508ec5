"""Trees of guesses: when the first guess at a token fails, try the second.

A round drafts a tree below the text, and the target accepts a path through it, then
adds a token of its own. `top_down` walks from the root and verifies the children of a
node one after the other (SpecInfer, 2305.09781). If a child is rejected, the next one
is verified against the residual that it leaves. `bottom_up` begins with the leaves
(traversal verification, 2505.12398). On a chain, the first is `verify` and the second
is `verify_block`. Siblings are drawn without replacement, because a guess that was
rejected is no use a second time (RSD, 2402.14160; Sequoia, 2402.12374).

This file is about exactness, not speed: it asks the target path by path. An engine
scores the whole tree in one pass, with a mask that lets each node see its own path.
"""

from typing import NamedTuple

import numpy as np

from checks import check_fit, checked_model, checked_tokens, prepared
from sampling import sample
from speculative import acceptance, max_fn, residual, up_to_eos


class Node:
    """A draft token, the row p that it was drawn from, and the target's row q after it."""

    def __init__(self, token=None, p=None, children=()):
        self.token = token
        self.p = p
        self.children = children
        self.q = None  # until `score`


class TreeRound(NamedTuple):
    root: Node  # it stands for the text, and has no token and no p
    emitted: np.ndarray  # int [n_accepted + 1], or [n_accepted] if an accepted eos ends the text
    n_accepted: int

    @property
    def drafted(self):
        """The guesses that were accepted, and one below them that was not, if there is one."""
        children = self.root.children
        accepted = self.emitted[: self.n_accepted].tolist()
        for token in accepted:
            below = {child.token: child.children for child in children}
            children = below[token]
        return accepted + [child.token for child in children[:1]]


def balanced(*counts):
    """The shape in which each node at depth i has counts[i] children."""
    return (balanced(*counts[1:]),) * counts[0] if counts else ()


def pruned(shape, depth):
    """A shape without what is deeper than this."""
    return tuple(pruned(below, depth - 1) for below in shape) if depth > 0 else ()


def siblings(p, rng, n_sure=0):
    """Guesses at one token, all different, until each token of p has been drawn.

    The first n_sure are not drawn: they are the most probable tokens, for sure.
    """
    row = p
    for i in range(len(p)):
        if i < n_sure:
            row = np.eye(len(p), dtype=p.dtype)[p.argmax()]
        token = sample(row, rng)
        yield Node(token, row)
        p = np.where(np.arange(len(p)) == token, 0, p)
        if not p.any():
            break
        row = p = max_fn(p)


def grow(x, draft_model, shape, rng):
    """Draft a tree below the text x -> its nodes right below x.

    shape has an entry for each of them, the shape of what grows below: ((), ()) is two
    siblings, (((),),) a chain of two.
    """
    if not shape:
        return []
    children = []
    for below, child in zip(shape, siblings(draft_model(x)[-1], rng)):
        child.children = grow(np.append(x, child.token), draft_model, below, rng)
        children.append(child)
    return children


def paths(node):
    """Each way down to a leaf, a list of nodes."""
    below = [path for child in node.children for path in paths(child)]
    return [[node, *path] for path in below or [[]]]


def score(x, target_model, root):
    """Give each node its row q."""
    for path in paths(root):
        guesses = path[1:]
        ids = np.array([*x, *(node.token for node in guesses)])
        q = target_model(ids, len(path))
        p = np.array([node.p for node in guesses]) if guesses else q[:0]
        check_fit(ids[len(x) :], p, q)
        for node, row in zip(path, q):
            node.q = row


def top_down(node, rng):
    """The accepted tokens below a node, and one more."""
    r = node.q
    for child in node.children:
        if rng.random() < acceptance(child.p[child.token], r[child.token]):
            return [child.token, *top_down(child, rng)]
        r = residual(child.p, r)
    return [sample(r, rng)]


def bottom_up(node, rng, w=1):
    """The same, or None if the node is rejected. It is accepted with probability w.

    It is the w of block verification: the children and the token after the node are
    drawn for w q, and not for q. It is always 1 at the root.
    """
    r = node.q
    for child in node.children:
        accepted = bottom_up(child, rng, acceptance(child.p[child.token], w * r[child.token]))
        if accepted is not None:
            return [child.token, *accepted]
        surplus = np.maximum(w * r - child.p, 0).sum()
        r = residual(child.p, w * r)
        w = 1 if w == 1 else surplus / (surplus + 1 - w)
    return [sample(r, rng)] if rng.random() < w else None


def tree_sampling(
    x, draft_model, target_model, N, shape, rng=None, rule=bottom_up, eos=None, on_round=None
):
    """`speculative_sampling` with a tree of this shape in each round, see `grow`.

    rule is `bottom_up` or `top_down`. on_round gets a `TreeRound`.
    """
    x, rng, eos_ids = prepared(x, rng, eos, N)
    draft_model = checked_model(draft_model, must_accept=["ids"])
    target_model = checked_model(target_model, must_accept=["ids", "n_rows"])

    end = len(x) + N
    while len(x) < end:
        root = Node(children=grow(x, draft_model, pruned(shape, end - len(x) - 1), rng))
        score(x, target_model, root)
        most = max(map(len, paths(root)))
        emitted = checked_tokens("verify", rule(root, rng), 1, most, n_vocab=len(root.q))
        r = up_to_eos(TreeRound(root, emitted, len(emitted) - 1), eos_ids)
        x = np.append(x, r.emitted)
        if on_round is not None:
            on_round(r)
        if x[-1] in eos_ids:
            break
    return x
