"""Ways to get speculative sampling wrong, each with its exact distance from the target, and some that look wrong.

    python -m studies.making.write  # writes the tables into docs/exactness.md and docs/drafts.md

Every variant decodes texts of three tokens after A, with K = 2. Most look right. The code
shows only the idea, and is not taken from other projects. The rows are Fractions, so the
distances are exact. P and Q were searched for, among tables in tenths: each wrong line
has a distance of its own, and none has 0.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from enumeration import output_distribution, total_variation
from lab.block import block_probabilities, verify_block
from lab.trees import balanced, bottom_up, top_down, tree_sampling
from sampling import sample
from speculative import acceptance, max_fn, one_round, propose, residual, verify


def tenths(*numbers):
    return np.array(numbers) * Fraction(1, 10)


# P[t] and Q[t] are the rows of the draft and of the target after token t.
P = tenths([4, 1, 3, 2], [5, 2, 2, 1], [1, 7, 1, 1], [1, 2, 2, 5])
Q = tenths([1, 5, 1, 3], [1, 1, 1, 7], [2, 3, 4, 1], [4, 2, 2, 2])
EOS, STOP = 2, (1, 2)  # for the variants that are about the end of a text
HALF = Fraction(1, 2)


@dataclass(frozen=True, eq=False)
class Setting:
    """What a text is decoded with: two models by their tables, a prompt, N, K, a shape for trees."""

    P: np.ndarray
    Q: np.ndarray
    prompt: tuple = (0,)
    N: int = 3
    K: int = 2
    shape: tuple = balanced(2)

    def index(self, ids):
        """Which row of a table follows each of the ids."""
        return np.asarray(ids)

    def draft_model(self, ids, n_rows=1):
        return self.P[self.index(ids)[-n_rows:]]

    def target_model(self, ids, n_rows=1):
        return self.Q[self.index(ids)[-n_rows:]]


SETTING = Setting(P, Q)
draft_model = SETTING.draft_model
target_model = SETTING.target_model


def target_rows(setting, x, drafted, memory):
    """The rows q of a round. memory is a dict that lasts for a text; a right target needs none."""
    return setting.target_model(np.append(x, drafted).astype(int), len(drafted) + 1)


def decode(rng, setting, verify=verify, propose=propose, rows=target_rows, eos=None, end_of=None):
    """`speculative_sampling` with parts that can be exchanged.

    end_of(new, emitted) says how many of the new tokens the text keeps, if it ends there.
    """
    x, n = np.array(setting.prompt), len(setting.prompt)
    target = with_rows(rows, {}, setting)
    while len(x) < n + setting.N:
        k = min(setting.K, n + setting.N - len(x) - 1)
        emitted = one_round(x, setting.draft_model, target, k, rng, verify, propose).emitted
        x = np.append(x, emitted)
        kept = None if end_of is None else end_of(x[n:], emitted)
        if kept is not None:
            return x[: n + kept]
        if x[-1] == eos:
            return x
    return x


def with_rows(rows, memory, setting):
    """The target of a round whose rows are rows(setting, x, drafted, memory)."""

    def target(ids, n_rows):
        n = len(ids) - n_rows + 1
        return rows(setting, ids[:n], ids[n:], memory)

    return target


def one_round_law(verify=verify, propose=propose, rows=target_rows, setting=SETTING):
    """The distribution of what a round with K guesses emits after the prompt."""
    x = np.array(setting.prompt)
    target = with_rows(rows, {}, setting)

    def emitted(rng):
        return one_round(x, setting.draft_model, target, setting.K, rng, verify, propose).emitted

    return output_distribution(emitted)


def plain(rng, setting, **options):
    """Plain sampling from the target."""
    return decode(rng, setting, propose=lambda x, *_: (x[:0], ()), **options)


class Variant(NamedTuple):
    name: str
    looks: str  # what it looks like
    seen: str = ""  # where
    exact: bool = False
    verify: Callable = verify
    propose: Callable = propose
    rows: Callable = target_rows
    decode: Callable | None = None  # decode(rng, setting) -> ids, if the three above do not say it
    tree_rule: Callable | None = None  # rule(node, rng) -> a list of tokens, for trees
    own: Callable = plain  # own(rng, setting) -> ids: what it should do
    about: str = ""  # "penalty" or "eos", if it is about one of these

    def text(self, rng, setting=SETTING):
        if self.decode is not None:
            return self.decode(rng, setting)
        if self.tree_rule is not None:
            return tree(self.tree_rule, rng, setting)
        return decode(rng, setting, self.verify, self.propose, self.rows)

    @cache  # noqa: B019  # there are only some dozens of them
    def distance(self):
        """The total variation distance between its texts and those that it should write."""
        found = output_distribution(self.text)
        return total_variation(found, output_distribution(partial(self.own, setting=SETTING)))

    def tokens_per_round(self, setting=SETTING):
        """How many tokens a round adds after the prompt, on average."""
        found = one_round_law(self.verify, self.propose, self.rows, setting)
        return sum(mass * len(emitted) for emitted, mass in found.items())


# ---- The rule ----


def changed(
    accept=lambda p, q, i, t: acceptance(p[i][t], q[i][t]),
    replacement=lambda p, q, i, t: residual(p[i], q[i]),
    bonus=lambda p, q: q[-1],
    draw=lambda row, rng: sample(row, rng),
    draw_bonus=lambda row, rng: sample(row, rng),
):
    """`verify` with changes.

    accept(p, q, i, t) is the probability to accept guess i, the token t; replacement and
    bonus give the rows that are drawn from otherwise, draw and draw_bonus how.
    """

    def variant(drafted, p, q, rng):
        for i, token in enumerate(drafted):
            if not rng.random() < accept(p, q, i, token):
                return np.append(drafted[:i], draw(replacement(p, q, i, token), rng))
        row = bonus(p, q) if len(drafted) else q[-1]  # without a guess, only q[-1] exists
        return np.append(drafted, draw_bonus(row, rng))

    return variant


def without(row, *tokens):
    return max_fn(np.where(np.isin(np.arange(len(row)), tokens), 0, row))


def favourite(row, rng=None):
    return int(np.argmax(row))


def one_hot(row, token=None):
    return np.eye(len(row), dtype=int)[favourite(row) if token is None else token]


def colder(row):
    """A row at half its temperature."""
    return max_fn(row**2)


def continues_after_a_rejection(drafted, p, q, rng):
    emitted = drafted.copy()
    for i, token in enumerate(drafted):
        if not rng.random() < acceptance(p[i, token], q[i, token]):
            emitted[i] = sample(residual(p[i], q[i]), rng)
    return np.append(emitted, sample(q[-1], rng))


def bonus_after_a_rejection(drafted, p, q, rng):
    for i, token in enumerate(drafted):
        if not rng.random() < acceptance(p[i, token], q[i, token]):
            return np.append(drafted[:i], [sample(residual(p[i], q[i]), rng), sample(q[i + 1], rng)])
    return np.append(drafted, sample(q[-1], rng))


def keeps_the_rejected_guess(drafted, p, q, rng):
    for i, token in enumerate(drafted):
        if not rng.random() < acceptance(p[i, token], q[i, token]):
            return np.append(drafted[: i + 1], sample(residual(p[i], q[i]), rng))
    return np.append(drafted, sample(q[-1], rng))


def one_random_number_for_all(drafted, p, q, rng):
    u = rng.random()
    return verify(drafted, p, q, SimpleNamespace(random=lambda: u, choice=rng.choice))


def u_draws_the_replacement(drafted, p, q, rng):
    for i, token in enumerate(drafted):
        if not (u := rng.random()) < acceptance(p[i, token], q[i, token]):
            return np.append(drafted[:i], favourite(picked(residual(p[i], q[i]), u)))
    return np.append(drafted, sample(q[-1], rng))


def withdraws_an_unsure_guess(drafted, p, q, rng, least=Fraction(4, 10)):
    k = [*(row[token] < least for row, token in zip(p, drafted)), True].index(True)
    return verify(drafted[:k], p[:k], q[: k + 1], rng)


def favourites(drafted, p, q, rng):
    for i, token in enumerate(drafted):
        if favourite(q[i]) != token:
            return np.append(drafted[:i], favourite(q[i]))
    return np.append(drafted, favourite(q[-1]))


def accepts_what_the_target_draws(drafted, p, q, rng):
    for i, token in enumerate(drafted):
        own = sample(q[i], rng)
        if own != token:
            return np.append(drafted[:i], own)
    return np.append(drafted, sample(q[-1], rng))


def draws_again_after_a_miss(drafted, p, q, rng):
    for i, token in enumerate(drafted):
        if sample(q[i], rng) != token:
            return np.append(drafted[:i], sample(q[i], rng))
    return np.append(drafted, sample(q[-1], rng))


def changes_a_row_in_place(rng, setting):
    """The residual is computed in a row of a model that computes each row once, and keeps it."""
    table = setting.Q.copy()
    x = np.array(setting.prompt)
    end = len(x) + setting.N

    def rule(drafted, p, q, rng):
        for i, token in enumerate(drafted):
            if not rng.random() < acceptance(p[i][token], q[i][token]):
                q[i][:] = residual(p[i], q[i])
                return np.append(drafted[:i], sample(q[i], rng))
        return np.append(drafted, sample(q[-1], rng))

    while len(x) < end:
        drafted, p = propose(x, setting.draft_model, min(setting.K, end - len(x) - 1), rng)
        places = setting.index(np.append(x, drafted))[len(x) - 1 :]
        x = np.append(x, rule(drafted, p, [table[i] for i in places], rng))
    return x


def block(keep=lambda w, h: h, row=lambda p, q, w: max_fn(residual(p, w * q)), shortest_first=False):
    """`verify_block` with changes."""

    def variant(drafted, p, q, rng):
        w, h = block_probabilities(drafted, p, q)
        numbers, k = keep(w, h), len(drafted)
        if shortest_first:
            i = next((i for i in range(1, k + 1) if not rng.random() < numbers[i]), k + 1) - 1
        else:
            i = next((i for i in range(k, 0, -1) if rng.random() < numbers[i]), 0)
        return np.append(drafted[:i], sample(q[i] if i == k else row(p[i], q[i], w[i]), rng))

    return variant


# ---- One noise: a number u in [0, 1) decides a draw, and the draft's numbers are used again ----

NOISE = []  # the numbers of this round


def picked(row, u):
    """The token in whose part of [0, 1) u lies, as a one-hot row."""
    return one_hot(row, int(np.sum(row.cumsum()[:-1] <= u)))


def drafted_by(noise, x, draft_model, k, rng):
    """`propose` with numbers that are given."""
    numbers = iter(noise)
    draft = changed_draft(draw=lambda row, rng: favourite(picked(row, next(numbers))))
    return draft(x, draft_model, k, rng)


def noisy_draft(x, draft_model, k, rng, stop=None):
    NOISE[:] = [rng.random() for _ in range(k)]
    return drafted_by(NOISE, x, draft_model, k, rng)


def noise_once_per_text(rng, setting):
    noise = [rng.random() for _ in range(setting.K)]
    return decode(rng, setting, propose=lambda *args: drafted_by(noise, *args[:4]))


def noise_tests_its_guess(drafted, p, q, rng):
    numbers = iter(NOISE[:])
    return verify(drafted, p, q, SimpleNamespace(random=lambda: next(numbers), choice=rng.choice))


# ---- The draft: it reports another p than the one that it drew from ----


def changed_draft(draw=sample, reported=lambda row, token: row):
    """`propose` with up to two changes: draw(row, rng) is the token, and reported(row, token) the row it returns."""

    def variant(x, draft_model, k, rng, stop=None):
        n, rows = len(x), []
        for _ in range(k):
            row = draft_model(x)[-1]
            x = np.append(x, draw(row, rng))
            rows.append(reported(row, x[-1]))
        return x[n:], np.array(rows)

    return variant


def forgets_its_own_tokens(x, draft_model, k, rng, stop=None):
    n, before = len(x), x
    for _ in range(k):
        x = np.append(x, sample(draft_model(before)[-1], rng))
    return x[n:], draft_model(x[:-1], k) if k else draft_model(x)[:0]


def rows_of_another_sequence(x, draft_model, k, rng, stop=None):
    drafted, p = propose(x, draft_model, k, rng)
    if k == 0:
        return drafted, p
    other = (np.append(x, drafted) + 1) % p.shape[1]
    return drafted, draft_model(other[:-1], k)


def best_of_two_beams(x, draft_model, k, rng, stop=None):
    """Beam search with two beams is not greedy: a worse first token may lead to the better text."""
    beams = [(1, x, [])]
    for _ in range(k):
        longer = [
            (mass * row[t], np.append(ids, t), [*rows, row])
            for mass, ids, rows in beams
            for row in draft_model(ids)
            for t in range(len(row))
        ]
        beams = sorted(longer, key=lambda beam: -beam[0])[:2]
    _, ids, rows = beams[0]
    return ids[len(x) :], np.array(rows)


def withdraws_an_unsure_favourite(x, draft_model, k, rng, stop=None):
    """A greedy draft: whether it stops depends on its row alone, and not on a draw."""
    drafted, rows = changed_draft(favourite, one_hot)(x, draft_model, k, rng)
    sure = [draft_model(np.append(x, drafted[:i]))[-1].max() >= HALF for i in range(len(drafted))]
    n = [*sure, False].index(False)
    return drafted[:n], rows[:n]


# ---- A target that looks at more than the last token, or whose rows are changed ----


def changed_rows(change, last=None):
    """Rows change(row) for those that check guesses, and last(row) for the one after all of them."""

    def rows(setting, x, drafted, memory):
        *checks, bonus = target_rows(setting, x, drafted, memory)
        return np.array([*map(change, checks), (last or change)(bonus)])

    return rows


def same(row):
    return row


def top_k(row, k=2):
    return max_fn(np.where(row >= np.sort(row)[-k], row, 0))


def top_p(row, p=Fraction(55, 100)):
    order = np.argsort(-row, kind="stable")
    kept = order[: np.argmax(row[order].cumsum() >= p) + 1]
    return max_fn(np.where(np.isin(np.arange(len(row)), kept), row, 0))


def min_p(row, share=HALF):
    return max_fn(np.where(row >= share * row.max(), row, 0))


def own_continuation(setting, x, drafted, memory):
    """Rows after what the target itself finds most probable, in place of the guesses."""
    for _ in drafted:
        x = np.append(x, favourite(setting.target_model(x)[-1]))
    return setting.target_model(x, len(drafted) + 1)


def penalised_row(row, seen):
    """A row of the target, where each time that a token was seen halves its probability."""
    counts = np.bincount(np.array(seen, dtype=int), minlength=len(row)).tolist()
    return max_fn(row * [HALF**n for n in counts])


def penalised_rows(seen):
    """Rows with a penalty for seen(x, drafted, i, memory), the tokens that row i looks at, or without one for None."""

    def rows(setting, x, drafted, memory):
        found = target_rows(setting, x, drafted, memory)
        for i, row in enumerate(found):
            tokens = seen([*x], [*drafted], i, memory)
            if tokens is not None:
                found[i] = penalised_row(row, tokens)
        memory["round"] = len(x), [*drafted]
        return found

    return rows


def fate(x, memory):
    """The guesses of the round before that were accepted, and those that were not."""
    n, drafted = memory.get("round", (len(x) - 1, []))
    return drafted[: len(x) - n - 1], drafted[len(x) - n - 1 :]


def remembers(which):
    """What an object has seen that is told of each guess: 0, accepted ones twice; 1, rejected ones."""

    def seen(x, drafted, i, memory):
        more = memory.setdefault("more", [])
        if i == 0:
            more += fate(x, memory)[which]
        return [*x, *more, *drafted[:i]]

    return seen


right_penalty = penalised_rows(lambda x, drafted, i, memory: [*x, *drafted[:i]])


def recurrent_rows(rolls_back):
    """Rows that depend on a state, the sum of all tokens that were read, modulo their number."""

    def rows(setting, x, drafted, memory):
        extra = 0 if rolls_back else memory.get("extra", 0) + sum(fate(x, memory)[1])
        memory.update(extra=extra, round=(len(x), [*drafted]))
        return setting.Q[(sum(x) + extra + np.cumsum([0, *drafted])) % len(setting.Q)]

    return rows


def masked_rows(sees_the_round):
    """After token B, a grammar forbids A: a mask that is put on all rows, or on those of the rounds that follow."""

    def rows(setting, x, drafted, memory):
        found = target_rows(setting, x, drafted, memory)
        new = x[len(setting.prompt) :]
        for i, row in enumerate(found):
            if 1 in new or (sees_the_round and 1 in drafted[:i]):
                found[i] = without(row, 0)
        return found

    return rows


# ---- The loop ----


def overlooks_an_eos(rng, setting, verify=verify):
    """It looks at the last token of a round only."""
    return decode(rng, setting, verify, eos=EOS)


def verification_of_the_note(drafted, p, q, rng):
    accepted = [rng.random() < acceptance(p[i, token], q[i, token]) for i, token in enumerate(drafted)]
    kept = accepted if all(accepted) else np.logical_and(accepted, drafted != EOS)
    i = [*kept, False].index(False)
    return np.append(drafted[:i], sample(q[i], rng))


def stopped(counts):
    """Texts that end behind the tokens STOP, where counts(length, new, emitted) says so."""

    def end_of(new, emitted):
        for length in range(len(STOP), len(new) + 1):
            is_end = (*new[length - len(STOP) : length],) == STOP
            if is_end and counts(length, new, emitted):
                return length

    return {"end_of": end_of}


STOPPED = stopped(lambda length, new, emitted: True)


class Grid:
    """A generator whose numbers are 0, 1/n, ..., (n - 1)/n, so that 0 is among them. It only tells how they compare."""

    def __init__(self, rng, n=10):
        self.rng, self.n, self.choice, self.random = rng, n, rng.choice, lambda: self

    def __lt__(self, a):
        return self.rng.random() < Fraction(math.ceil(self.n * a), self.n)

    def __le__(self, a):
        return self.rng.random() < Fraction(math.floor(self.n * a) + 1, self.n)


def at_most(drafted, p, q, rng):
    for i, token in enumerate(drafted):
        if not rng.random() <= q[i, token] / p[i, token]:
            return np.append(drafted[:i], sample(residual(p[i], q[i]), rng))
    return np.append(drafted, sample(q[-1], rng))


# ---- Trees, in texts of two tokens: one round and a part of the next ----


def tree(rule, rng, setting):
    args = np.array(setting.prompt), setting.draft_model, setting.target_model, setting.N - 1
    return tree_sampling(*args, setting.shape, rng, rule)


def plain_tree(rng, setting):
    return tree(top_down, rng, replace(setting, shape=()))


def walks(
    row_of=lambda child, node, r: child.p,
    against=lambda child, node, r: r,
    left=lambda child, node, r: residual(child.p, r),
    last=lambda node, r, rng: sample(r, rng),
):
    """`top_down` with changes: the p and the q of a child's test, what is left after it, and the last draw."""

    def rule(node, rng):
        r = node.q
        for child in node.children:
            p, q = row_of(child, node, r), against(child, node, r)
            if rng.random() < acceptance(p[child.token], q[child.token]):
                return [child.token, *rule(child, rng)]
            r = left(child, node, r)
        return [last(node, r, rng)]

    return rule


def refused_tokens(node):
    return [child.token for child in node.children]


def divides_the_norms_to_get_w(node, rng, w=1):
    r = node.q
    for child in node.children:
        kept = divides_the_norms_to_get_w(child, rng, acceptance(child.p[child.token], w * r[child.token]))
        if kept is not None:
            return [child.token, *kept]
        surplus, left = np.maximum(w * r - child.p, 0).sum(), 1 - child.p[child.token]
        r, w = (residual(child.p, w * r) if surplus > 0 else node.q), acceptance(left, surplus)
    is_root = node.token is None  # here w may be below 1 even there, but a round must add a token
    return [sample(r, rng)] if is_root or rng.random() < w else None


def judges_the_best_of_its_siblings(node, rng):
    best = max(node.children, key=lambda child: node.q[child.token] / child.p[child.token], default=None)
    if best is None:
        return [sample(node.q, rng)]
    if rng.random() < acceptance(best.p[best.token], node.q[best.token]):
        return [best.token, *judges_the_best_of_its_siblings(best, rng)]
    return [sample(residual(best.p, node.q), rng)]


def draws_for_each_branch(node, rng):
    own = [sample(node.q, rng) for _ in node.children] or [sample(node.q, rng)]
    for child, token in zip(node.children, own):
        if child.token == token:
            return [token, *draws_for_each_branch(child, rng)]
    return own[:1]


def one_coin(rng, setting, threshold=1):
    """The draft's two favourites, with p = 1, and one u: the first is accepted where u < q / threshold, and so on."""
    x = np.array(setting.prompt)
    for _ in range(setting.N - 1):
        p, q = setting.draft_model(x)[-1], setting.target_model(x)[-1]
        u = rng.random()
        reached = 0
        siblings = np.argsort(-p, kind="stable")[:2].tolist()
        for token in siblings:
            reached += q[token]
            if u < reached / threshold:
                break
        else:
            token = sample(without(q, *siblings), rng)
        x = np.append(x, token)
    return x


REPOSITORIES = {
    "1bit-MONSTER": "1bit-MONSTER/1bit-MONSTER", "EAGLE": "SafeAILab/EAGLE", "fms-extras":
    "foundation-model-stack/fms-extras", "keras-hub": "keras-team/keras-hub", "lattice": "ohdearquant/lattice",
    "llama.cpp": "ggml-org/llama.cpp", "ml-recurrent-drafter": "apple/ml-recurrent-drafter",
    "mlx-lm": "ml-explore/mlx-lm", "mlxcel": "lablup/mlxcel", "openvino.genai": "openvinotoolkit/openvino.genai",
    "picolm": "RightNow-AI/picolm", "rMLX": "Pushkinist/rMLX", "rtp-llm": "alibaba/rtp-llm",
    "sglang": "sgl-project/sglang", "transformers": "huggingface/transformers", "vLLM": "vllm-project/vllm",
    "vllm-ascend": "vllm-project/vllm-ascend", "vmlx-swift": "osaurus-ai/vmlx-swift",
}  # fmt: skip


def linked(seen):
    """Links for what `seen` names: a thread, as in "vLLM #18902", or a repository, as in "lab/engine"."""

    def link(found):
        place = f"{REPOSITORIES[found[1]]}/issues/{found[2]}" if found[2] else found[0]
        return f"[{found[0]}](https://github.com/{place})"

    return re.sub(r"([\w.-]+) #(\d+)|[\w.-]+/[\w.-]+", link, seen)


def by_penalty(seen):
    return {"rows": penalised_rows(seen), "own": partial(plain, rows=right_penalty), "about": "penalty"}


def by_cut(cut, first=same):
    """A cut that the rows that check guesses do not have, or that only they lack in rounds with guesses."""
    return {"rows": changed_rows(first, cut), "own": partial(plain, rows=changed_rows(cut))}


def in_rounds(cut):
    """A cut that rounds with guesses ignore."""

    def rows(setting, x, drafted, memory):
        change = same if len(drafted) else cut
        return changed_rows(change)(setting, x, drafted, memory)

    return {"rows": rows, "own": partial(plain, rows=changed_rows(cut))}


V = Variant
VARIANTS = [
    # the acceptance
    V("accepts where q >= p", "rejects each guess with q < p",
      verify=changed(lambda p, q, i, t: int(q[i][t] >= p[i][t]))),
    V("accepts with probability q", "and draws from the residual otherwise",
      verify=changed(lambda p, q, i, t: q[i][t])),
    V("accepts with q / max q", "and draws from q otherwise", "1bit-MONSTER #637",
      verify=changed(lambda p, q, i, t: q[i][t] / q[i].max(), lambda p, q, i, t: q[i])),
    V("accepts only the favourite", "and draws from q otherwise", "claimed in mlxcel #902, taken back in mlxcel #992",
      verify=changed(lambda p, q, i, t: int(t == favourite(q[i])), lambda p, q, i, t: q[i])),
    V("ratio upside down", "min(1, p / q), if two papers are mixed up",
      verify=changed(lambda p, q, i, t: acceptance(q[i][t], p[i][t]))),
    V("lenient acceptance", "min(1, q / 0.8 p), which trades exactness for speed",
      "Leviathan et al. 2023, appendix A.5",
      verify=changed(lambda p, q, i, t: acceptance(Fraction(8, 10) * p[i][t], q[i][t]))),
    V("accepts everything", "no guess is ever rejected", "transformers #28508, vllm-ascend #13730",
      verify=changed(lambda p, q, i, t: 1)),
    V("first guess not checked", "it is always accepted", "lattice #243",
      verify=changed(lambda p, q, i, t: acceptance(p[i][t], q[i][t]) if i else 1)),
    V("all guesses checked with the first row", "p[0] and q[0], also for the second guess",
      verify=changed(lambda p, q, i, t: acceptance(p[0][t], q[0][t]))),
    V("one random number for all", "one u decides about all guesses of a round", "feifeibear/LLMSpeculativeSampling",
      verify=one_random_number_for_all),
    V("the u that drew a guess also tests it", "so a guess is accepted more often, or less", "vLLM #47386",
      propose=noisy_draft, verify=noise_tests_its_guess),
    V("u <= ratio", "where u may be 0, a token with q = 0 is accepted", "sglang #35771",
      decode=lambda rng, setting: decode(Grid(rng), setting, at_most, rows=changed_rows(top_k)),
      own=lambda rng, setting: decode(Grid(rng), setting, rows=changed_rows(top_k))),
    # the replacement
    V("draws the replacement from the target", "from q in place of the residual", "ccs96307/fast-llm-inference",
      verify=changed(replacement=lambda p, q, i, t: q[i])),
    V("draws the replacement from the draft", "from p again", verify=changed(replacement=lambda p, q, i, t: p[i])),
    V("draws the replacement from the row after", "from q[i + 1], a row for the next position", "openvino.genai #4190",
      verify=changed(replacement=lambda p, q, i, t: q[i + 1])),
    V("removes the rejected token from q", "right for a greedy draft alone", "until EAGLE #20",
      verify=changed(replacement=lambda p, q, i, t: without(q[i], t))),
    V("absolute residual", "abs(q - p), normalised",
      verify=changed(replacement=lambda p, q, i, t: max_fn(np.abs(q[i] - p[i])))),
    V("residual of the first row", "wherever the rejection was",
      verify=changed(replacement=lambda p, q, i, t: residual(p[0], q[0]))),
    V("the favourite as replacement", "the largest entry of the residual, in place of a draw", "vllm-ascend #4443",
      verify=changed(draw=favourite)),
    V("the u that rejected also draws the replacement", "but it is known to lie above the ratio", "vllm-ascend #16370",
      verify=u_draws_the_replacement),
    V("changes a row in place", "the residual is computed in a row that the model keeps", "a kind of vLLM #16952",
      decode=changes_a_row_in_place),
    V("keeps the rejected guess", "and adds the replacement behind it", verify=keeps_the_rejected_guess),
    # the bonus
    V("bonus from the row before", "from the row that the last guess was checked with", "AlphaGPU/leetgpu-challenges",
      verify=changed(bonus=lambda p, q: q[-2])),
    V("bonus from a residual", "max_fn(q - p) of the last rows, which belong to two positions",
      verify=changed(bonus=lambda p, q: residual(p[-1], q[-1]))),
    V("bonus from the first row", "q[0], however many guesses there are", verify=changed(bonus=lambda p, q: q[0])),
    V("the favourite as bonus", "the largest entry of q, in place of a draw", "shreyansh26/Speculative-Decoding",
      verify=changed(draw_bonus=favourite)),
    V("bonus after a rejection", "a replacement, and then a draw from the row after it",
      verify=bonus_after_a_rejection),
    # both
    V("row off by one", "guess i is checked with q[i + 1]",
      verify=changed(lambda p, q, i, t: acceptance(p[i][t], q[i + 1][t]), lambda p, q, i, t: residual(p[i], q[i + 1]))),
    V("rows of the target's own continuation", "after its favourites, in place of the guesses",
      rows=own_continuation),
    V("continues after a rejection", "the guesses behind it are still considered", verify=continues_after_a_rejection),
    V("favourites in place of draws", "greedy decoding, at any temperature", "rMLX #519, sglang #31214",
      verify=favourites),
    V("withdraws an unsure guess", "guesses with p < 0.4, and those behind, are deleted before the check",
      verify=withdraws_an_unsure_guess),
    # block verification
    V("block verification with w", "in place of h: but w[i] is the probability of keeping i guesses *or more*",
      verify=block(keep=lambda w, h: w)),
    V("block verification from the left", "stops at the first refused h", "asked for in vllm-ascend #11985",
      verify=block(shortest_first=True)),
    V("block verification with the residual of q", "q - p in place of w q - p", "vllm-ascend #7807, which has other h",
      verify=block(row=lambda p, q, w: residual(p, q))),
    V("block verification that replaces from q", "in place of the residual", verify=block(row=lambda p, q, w: q)),
    # the draft
    V("greedy draft with its ordinary p", "it takes its favourite, as if it had drawn it", "until transformers #33534",
      propose=changed_draft(favourite)),
    V("the best beam with its ordinary p", "a beam search is no draw either", "ml-recurrent-drafter #6",
      propose=best_of_two_beams),
    V("one-hot draft, drawn again after a miss", "the target's own draw refuses the guess, and another one replaces it",
      "romsto/Speculative-Decoding",
      verify=draws_again_after_a_miss, propose=changed_draft(favourite, lambda row, t: one_hot(row))),
    V("top-k draft with the p of all tokens", "it draws from two tokens, and reports p before the cut",
      "transformers #47932", propose=changed_draft(lambda row, rng: sample(top_k(row), rng))),
    V("warm draft with a cold p", "it draws at temperature 1, and reports p at 0.5",
      propose=changed_draft(reported=lambda row, t: colder(row))),
    V("the token mapped to the target's ids, its row not", "so p is that of another token", "rtp-llm #1311",
      propose=changed_draft(reported=lambda row, t: np.roll(row, 1))),
    V("the rows of another sequence", "as where a batch has been put in another order", "feared in vLLM #41044",
      propose=rows_of_another_sequence),
    V("draft that forgets its own tokens", "all guesses are drawn from its first row", propose=forgets_its_own_tokens),
    V("noise drawn once per text", "the same number draws guess i in each round", "Infini-AI-Lab/Sequoia",
      decode=noise_once_per_text),
    V("one noise for two draws", "the u that drew a guess also draws its replacement",
      "as an option, until vLLM #54282",
      propose=noisy_draft,
      verify=changed(replacement=lambda p, q, i, t: picked(residual(p[i], q[i]), NOISE[i]))),
    # what the target has seen
    V("penalty on the bonus only", "the rows that check guesses have none", "defended in sglang #28242",
      **by_penalty(lambda x, drafted, i, memory: [*x, *drafted] if i == len(drafted) else None)),
    V("no penalty in rounds with guesses", "it is ignored without a word", "vLLM #18902",
      **by_penalty(lambda x, drafted, i, memory: None if drafted else x)),
    V("penalty of the round before", "all rows count the text without the guesses", "sglang #22049",
      **by_penalty(lambda x, drafted, i, memory: x)),
    V("penalty of all guesses", "all rows count all guesses, those that come later as well",
      "warned of in transformers #48281",
      **by_penalty(lambda x, drafted, i, memory: [*x, *drafted])),
    V("penalty that keeps rejected guesses", "they stay counted", "vmlx-swift #357", **by_penalty(remembers(1))),
    V("penalty that counts accepted guesses twice", "as a guess, and as a part of the text", "vmlx-swift #357",
      **by_penalty(remembers(0))),
    V("grammar that waits for the next round", "its mask misses the rows behind the token that turns it on",
      "vLLM #36138",
      rows=masked_rows(False), own=partial(plain, rows=masked_rows(True))),
    V("recurrent state not rolled back", "it has read the rejected guesses", "mlx-lm #846",
      rows=recurrent_rows(False), own=partial(plain, rows=recurrent_rows(True))),
    # the cuts
    V("temperature forgotten in rounds with guesses", "their rows are warm, plain ones are at 0.5", "lattice #974",
      **in_rounds(colder)),
    V("temperature for the bonus alone", "the rows that check guesses are warm", "keras-hub #2735, vLLM #10198",
      **by_cut(colder)),
    V("top-p for the bonus alone", "the rows that check guesses are not cut", "picolm #30", **by_cut(top_p)),
    V("min-p for the bonus alone", "the rows that check guesses are not cut", "feared in vLLM #42744", **by_cut(min_p)),
    V("min-p ignored in rounds with guesses", "without a word", "vLLM #38202", **in_rounds(min_p)),
    V("checks against q cut in another order", "top-k, then top-p, where plain sampling has top-p first",
      "sglang #36173",
      rows=changed_rows(lambda row: top_p(top_k(row))), own=partial(plain, rows=changed_rows(top_p))),
    # the loop
    V("overlooks an eos inside a round", "it looks at the last token of a round only", "transformers #47912",
      decode=overlooks_an_eos, own=partial(plain, eos=EOS), about="eos"),
    V("redraws an accepted eos", "if a guess behind it is rejected, and replaces from q", "ccs96307/fast-llm-inference",
      decode=partial(overlooks_an_eos, verify=verification_of_the_note), own=partial(plain, eos=EOS), about="eos"),
    V("stop sequence sought at a round's end", "it is overlooked inside a round", "sglang #23802",
      decode=partial(decode, **stopped(lambda length, new, emitted: length == len(new))),
      own=partial(plain, **STOPPED)),
    V("stop sequence sought within a round", "it is overlooked if two rounds have written it",
      decode=partial(decode, **stopped(
          lambda length, new, emitted: length - len(STOP) >= len(new) - len(emitted))),
      own=partial(plain, **STOPPED)),
    # exact
    V("accept with probability q, replace by another token", "from q without the guess; p is not used", exact=True,
      verify=changed(lambda p, q, i, t: q[i][t], lambda p, q, i, t: without(q[i], t))),
    V("a drawn guess, reported as one-hot", "the same, as the p of a guess that was drawn is taken for 1",
      "vLLM #40149", exact=True, propose=changed_draft(reported=one_hot)),
    V("accept if the target draws the same", "and emit what the target draws", "mlxcel #992", exact=True,
      verify=accepts_what_the_target_draws),
    V("accept if the same noise picks it from q", "and emit what it picks", "Daliri et al. 2024", exact=True,
      propose=noisy_draft,
      verify=changed(lambda p, q, i, t: picked(q[i], NOISE[i])[t], lambda p, q, i, t: picked(q[i], NOISE[i]))),
    V("an unsure favourite withdrawn", "of a greedy draft, whose row decides, and no draw", "llama.cpp #22506",
      exact=True, propose=withdraws_an_unsure_favourite),
    V("a mask on the target alone", "the draft guesses what is forbidden", exact=True,
      rows=masked_rows(True), own=partial(plain, rows=masked_rows(True))),
    V("stop sequence sought in all of the text", "and cut behind it", exact=True,
      decode=partial(decode, **STOPPED), own=partial(plain, **STOPPED)),
    V("`verify`", "one by one", "Chen et al. 2023, Leviathan et al. 2023", exact=True),
    V("`verify_block`", "block verification", "Sun et al. 2024", exact=True, verify=verify_block),
]  # fmt: skip

TREES = [V(*args, own=plain_tree, **options) for args, options in [
    (("all siblings judged by the first p", "the second was drawn from p without the first"),
     dict(tree_rule=walks(row_of=lambda child, node, r: node.children[0].p))),
    (("the best of the siblings judged", "the guess with the largest q / p, as if it were the only one"),
     dict(tree_rule=judges_the_best_of_its_siblings)),
    (("q left as it is between siblings", "each child has its turn against q"),
     dict(tree_rule=walks(
         against=lambda child, node, r: node.q,
         left=lambda child, node, r: residual(child.p, node.q)))),
    (("the favourite of what is left", "in place of a draw, after the last refusal"),
     dict(tree_rule=walks(last=lambda node, r, rng: favourite(r)))),
    (("q without the refused ones", "in place of what is left"),
     dict(tree_rule=walks(
         last=lambda node, r, rng: sample(without(node.q, *refused_tokens(node)), rng)))),
    (("uniform over what is left", "in place of what is left"),
     dict(tree_rule=walks(
         last=lambda node, r, rng: sample(max_fn(np.where(r > 0, 1, 0) * Fraction(1)), rng)))),
    (("each branch draws for itself", "its own token of the target; the first match counts",
      "warned of in fms-extras #12"),
     dict(tree_rule=draws_for_each_branch)),
    (("w from the ratio of two norms", "bottom-up, but w becomes S / (1 - p(x)) and not S / (S + 1 - w)",
      "brian030128/subspec_v2"), dict(tree_rule=divides_the_norms_to_get_w)),
    (("one coin for all siblings, and a threshold", "accepts where u < the q so far / .8", "in sglang #35798"),
     dict(decode=partial(one_coin, threshold=Fraction(8, 10)))),
    (("one coin for all siblings", "accepts where u < the q so far", "sglang #35798"),
     dict(exact=True, decode=one_coin)),
    (("`top_down`", "each child against what the ones before it left", "SpecInfer"),
     dict(exact=True, tree_rule=top_down)),
    (("`bottom_up`", "leaves first", "traversal verification"),
     dict(exact=True, tree_rule=bottom_up)),
]]  # fmt: skip
