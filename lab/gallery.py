"""Ways to get speculative sampling wrong, each with its exact distance from the target.

    python -m studies.making.write  # writes the tables into docs/exactness.md and docs/drafts.md

Most look right, and some rules that look wrong are exact. Every variant decodes texts of
three tokens after A, with K = 2. The code shows only the idea, and is not taken from
other projects. The rows are Fractions, so the distances are exact, but for two rules with
an exp or a log. P and Q were searched for, among tables in tenths: each wrong line has a
distance of its own, and none has 0.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from enumeration import sum_over_paths, total_variation
from lab.block import block_probabilities, verify_block
from lab.trees import balanced, bottom_up, top_down, tree_sampling
from sampling import sample
from speculative import acceptance, max_fn, one_round, propose, residual, verify


def tenths(*numbers):
    return np.array(numbers) * Fraction(1, 10)


# The rows of the draft and of the target. Which one follows a text is decided by all of it:
# its number is the sum of the tokens, modulo 4. So A leaves the row as it is.
P = tenths([4, 1, 3, 2], [5, 2, 2, 1], [1, 7, 1, 1], [1, 2, 2, 5])
Q = tenths([1, 5, 1, 3], [1, 1, 1, 7], [2, 3, 4, 1], [2, 4, 2, 2])
EOS, STOP = 2, (1, 2)  # for the variants that are about the end of a text
HALF = Fraction(1, 2)
LENIENCY = Fraction(8, 10)
LEAST = Fraction(4, 10)  # guesses with less are unsure


@dataclass(frozen=True, eq=False)
class Setting:
    """What a text is decoded with: models by their tables, a prompt, N, K, a shape for trees."""

    P: np.ndarray
    Q: np.ndarray
    prompt: tuple = (0,)
    N: int = 3
    K: int = 2
    shape: tuple = balanced(2)

    def index(self, ids):
        """Which row of a table follows each of the ids, as the sum of the tokens up to it says."""
        return np.cumsum(ids) % len(self.P)

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


def with_rows(rows, memory, setting):
    """The target of a round whose rows are rows(setting, x, drafted, memory)."""

    def target(ids, n_rows):
        n = len(ids) - n_rows + 1
        return rows(setting, ids[:n], ids[n:], memory)

    return target


def decode(rng, setting, verify=verify, propose=propose, rows=target_rows, eos=None, end_of=None):
    """`speculative_sampling` with parts that can be exchanged.

    end_of(new, emitted) says how many of the new tokens the text keeps, if it ends there.
    """
    x = np.array(setting.prompt)
    n = len(x)
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


def plain(rng, setting, **options):
    """Plain sampling from the target."""
    return decode(rng, setting, propose=lambda x, *_: (x[:0], ()), **options)


def round_distribution(verify=verify, propose=propose, rows=target_rows, setting=SETTING):
    """The distribution of what a round with K guesses emits after the prompt."""
    x = np.array(setting.prompt)

    def emitted(rng):
        target = with_rows(rows, {}, setting)
        return one_round(x, setting.draft_model, target, setting.K, rng, verify, propose).emitted

    return sum_over_paths(emitted)


def mean_length(distribution):
    return sum(mass * len(ids) for ids, mass in distribution.items())


class Variant(NamedTuple):
    id: str
    name: str
    looks: str  # what it looks like
    seen: str = ""  # where
    formula: tuple = ()  # accept with, replace by: its rule, as one types it in docs/play.html
    verify: Callable = verify
    propose: Callable = propose
    rows: Callable = target_rows
    decode: Callable | None = None  # decode(rng, setting) -> ids, if the three above do not say it
    tree_rule: Callable | None = None  # rule(node, rng) -> a list of tokens, for trees
    own: Callable = plain  # own(rng, setting) -> ids: what it should do
    about: str = ""  # "penalty" or "eos", if it is about one of these
    family: str = ""  # the same mistake in several places, which is one line of the table
    exact: bool = False

    def text(self, rng, setting=SETTING):
        if self.decode is not None:
            return self.decode(rng, setting)
        if self.tree_rule is not None:
            return tree(self.tree_rule, rng, setting)
        return decode(rng, setting, self.verify, self.propose, self.rows)

    @cache  # noqa: B019  # there are only some dozens of them
    def distance(self):
        """The total variation distance between its texts and those that it should write."""
        found = sum_over_paths(self.text)
        return total_variation(found, sum_over_paths(partial(self.own, setting=SETTING)))

    def tokens_per_round(self, setting=SETTING):
        """How many tokens a round adds after the prompt, on average."""
        return mean_length(round_distribution(self.verify, self.propose, self.rows, setting))


def V(id, name, looks, seen="", formula=(), **parts):
    """A `Variant`, whose rule follows from its formula if it has one."""
    if formula:
        parts = {"verify": typed(formula)} | parts
    return Variant(id, name, looks, seen, formula, **parts)


# ---- Rules ----

ACCEPT, REPLACE = "min(1, q / p)", "max(q - p, 0)"
CALLS = {"min": np.minimum, "max": np.maximum, "abs": np.abs}


def typed(formula, λ=LENIENCY):
    """The rule of a formula: accept with, replace by, as docs/play.html reads them.

    p and q are the probabilities of a token, P and Q those of the guess. What replaces a
    guess is normalised.
    """
    accept, replace = (eval(f"lambda p, q, P, Q: {text}", CALLS | {"λ": λ}) for text in formula)

    def probability(p, q, i, t):
        return accept(p[i][t], q[i][t], p[i][t], q[i][t])

    def row(p, q, i, t):
        found = replace(p[i], q[i], p[i][t], q[i][t])
        return max_fn(found) if found.any() else q[i]

    return changed(probability, row)


def ratio(p, q, i, t):
    return acceptance(p[i][t], q[i][t])


def what_q_lacks(p, q, i, t):
    return residual(p[i], q[i])


def changed(
    accept=ratio,
    replacement=what_q_lacks,
    bonus=lambda p, q: q[-1],
    draw=sample,
    draw_bonus=sample,
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


def afterwards(change):
    """`verify`, whose tokens become change(emitted, drafted, q, rng)."""

    def variant(drafted, p, q, rng):
        return change(verify(drafted, p, q, rng), drafted, q, rng)

    return variant


def from_q(p, q, i, t):
    return q[i]


def from_q_without_it(p, q, i, t):
    return without(q[i], t)


def only(row, kept):
    """The entries of a row where kept is true, normalised."""
    return max_fn(np.where(kept, row, 0))


def without(row, *tokens):
    return only(row, ~np.isin(np.arange(len(row)), tokens))


def favourite(row, rng=None):
    return int(np.argmax(row))


def one_hot(row, token=None):
    return np.eye(len(row), dtype=int)[favourite(row) if token is None else token]


def colder(row):
    """A row at half its temperature."""
    return max_fn(row**2)


def keeps_the_rejected_guess(emitted, drafted, q, rng):
    n_accepted = len(emitted) - 1
    return np.insert(emitted, n_accepted, drafted[n_accepted : n_accepted + 1])


def bonus_after_a_rejection(emitted, drafted, q, rng):
    if len(emitted) > len(drafted):
        return emitted
    return np.append(emitted, sample(q[len(emitted)], rng))


def changed_draft(draw=sample, reported=lambda row, token: row):
    """`propose` with up to two changes.

    draw(row, rng) is the token, and reported(row, token) the row that it returns.
    """

    def variant(x, draft_model, k, rng, stop=None):
        n, rows = len(x), []
        for _ in range(k):
            row = draft_model(x)[-1]
            x = np.append(x, draw(row, rng))
            rows.append(reported(row, x[-1]))
        return x[n:], np.array(rows)

    return variant


def changed_rows(change, last=None):
    """Rows change(row) where guesses are checked, and last(row) for the one after all of them."""
    last = last or change

    def rows(setting, x, drafted, memory):
        *checks, bonus = target_rows(setting, x, drafted, memory)
        return np.array([*map(change, checks), last(bonus)])

    return rows


def same(row):
    return row


def top_k(row, k=2):
    return only(row, row >= np.sort(row)[-k])


def top_p(row, p=Fraction(55, 100)):
    order = np.argsort(-row, kind="stable")
    n = np.argmax(row[order].cumsum() >= p) + 1
    return only(row, np.isin(np.arange(len(row)), order[:n]))


def min_p(row, share=HALF):
    return only(row, row >= share * row.max())


# ---- The acceptance ----


def tests_of_all_guesses(drafted, p, q, rng):
    return [rng.random() < ratio(p, q, i, token) for i, token in enumerate(drafted)]


def first_refused(drafted, p, q, rng):
    """Where the first refused guess is, after a test of all."""
    passed = tests_of_all_guesses(drafted, p, q, rng)
    return [*passed, False].index(False)


def favourites(is_good):
    """Accept each guess t with is_good(q, t), and add the target's favourite otherwise."""

    def accept(p, q, i, t):
        return int(is_good(q[i], t))

    return changed(accept, from_q, draw=favourite, draw_bonus=favourite)


def continues_after_a_rejection(drafted, p, q, rng):
    emitted = drafted.copy()
    for i, token in enumerate(drafted):
        if not rng.random() < ratio(p, q, i, token):
            emitted[i] = sample(residual(p[i], q[i]), rng)
    return np.append(emitted, sample(q[-1], rng))


def withdraws_an_unsure_guess(drafted, p, q, rng):
    k = 0
    while k < len(drafted) and p[k][drafted[k]] >= LEAST:
        k += 1
    return verify(drafted[:k], p[:k], q[: k + 1], rng)


def block(numbers=lambda w, h: h, row=lambda p, q, w: max_fn(residual(p, w * q))):
    """`verify_block` with changes: the numbers that random ones are compared with, the residual."""

    def variant(drafted, p, q, rng):
        w, h = block_probabilities(drafted, p, q)
        keep = numbers(w, h)
        i = len(drafted)
        while i > 0 and not rng.random() < keep[i]:
            i -= 1
        last = q[i] if i == len(drafted) else row(p[i], q[i], w[i])
        return np.append(drafted[:i], sample(last, rng))

    return variant


def block_from_the_left(drafted, p, q, rng):
    w, h = block_probabilities(drafted, p, q)
    i = 0
    while i < len(drafted) and rng.random() < h[i + 1]:
        i += 1
    last = q[i] if i == len(drafted) else residual(p[i], w[i] * q[i])
    return np.append(drafted[:i], sample(last, rng))


def numbers_for_a_product(w, h):
    """What h becomes where guess i is tested with a product of i random numbers, for i up to 2.

    The product of two is below w with probability w (1 - log w).
    """
    if len(w) < 3:
        return w
    _, first, both = w
    if both == 0:
        return [0, first, 0]
    keeps_both = both * (1 - math.log(both))
    if first <= both:
        return [0, 0, keeps_both]
    keeps_one = first - both - both * math.log(first / both)
    return [0, keeps_one / (1 - keeps_both), keeps_both]


def on_a_grid(count):
    """Both loops with random numbers 0, .1, ... .9, of which count(10 a) pass a test against a."""

    def accept(p, q, i, t):
        return min(1, Fraction(count(10 * q[i][t] / p[i][t]), 10))

    return partial(decode, verify=changed(accept), rows=changed_rows(top_k))


ACCEPTANCE = [
    V("accept-above", "accepts where q >= p", "rejects each guess with q < p",
      formula=("q >= p", REPLACE)),
    V("accept-q", "accepts with probability q", "and draws from the residual otherwise",
      formula=("q", REPLACE)),
    V("accept-q-max", "accepts with q / max q", "and draws from q otherwise", "1bit-MONSTER #637",
      verify=changed(lambda p, q, i, t: q[i][t] / q[i].max(), from_q)),
    V("accept-favourite", "accepts only the favourite", "and draws from q otherwise",
      "claimed in mlxcel #902, taken back in mlxcel #992",
      verify=changed(lambda p, q, i, t: int(t == favourite(q[i])), from_q)),
    V("upside-down", "ratio upside down", "min(1, p / q), if two papers are mixed up",
      formula=("min(1, p / q)", REPLACE)),
    V("lenient", "lenient acceptance", "min(1, q / 0.8 p), which trades exactness for speed",
      "Leviathan et al. 2023, appendix A.5", ("min(1, q / (λ * p))", REPLACE)),
    V("accept-all", "accepts everything", "no guess is ever rejected",
      "transformers #28508, vllm-ascend #13730", ("1", REPLACE)),
    V("first-unchecked", "first guess not checked", "it is always accepted", "lattice #243",
      verify=changed(lambda p, q, i, t: ratio(p, q, i, t) if i else 1)),
    V("u-at-most", "u <= ratio", "where u may be 0, a token with q = 0 is accepted",
      "sglang #35771", own=on_a_grid(math.ceil), decode=on_a_grid(lambda a: math.floor(a) + 1)),
    V("favourites", "favourites in place of draws", "greedy decoding, at any temperature",
      "rMLX #519, sglang #31214", verify=favourites(lambda q, t: t == favourite(q))),
    V("continues", "continues after a rejection", "the guesses behind it are still considered",
      verify=continues_after_a_rejection),
    V("withdraws-unsure", "withdraws an unsure guess",
      "guesses with p < 0.4, and those behind, are deleted before the check",
      verify=withdraws_an_unsure_guess),
    V("block-w", "block verification with w",
      "in place of h: but w[i] is the probability of keeping i guesses *or more*",
      verify=block(lambda w, h: w),
      family="block verification with other numbers"),
    V("block-left", "block verification from the left", "stops at the first refused h",
      "asked for in vllm-ascend #11985", verify=block_from_the_left,
      family="block verification with other numbers"),
    V("block-product", "block verification with a product of random numbers",
      "guess i is tested with the product of i of them, in place of one",
      "vllm-ascend #3794, with another replacement", verify=block(numbers_for_a_product),
      family="block verification with other numbers"),
]  # fmt: skip

# ---- The replacement ----


def changes_a_row_in_place(rng, setting):
    """The residual is computed in a row of a model that computes each row once, and keeps it."""
    table, places = setting.Q.copy(), []

    def rows(setting, x, drafted, memory):
        places[:] = setting.index(np.append(x, drafted).astype(int))[len(x) - 1 :]
        return table[places]

    def rule(drafted, p, q, rng):
        emitted = verify(drafted, p, q, rng)
        i = len(emitted) - 1
        if i < len(drafted):
            table[places[i]] = residual(p[i], q[i])
        return emitted

    return decode(rng, setting, rule, rows=rows)


def softmax_of_what_q_lacks(p, q, i, t):
    row = np.exp(np.maximum(q[i] - p[i], 0).astype(float))
    return row / row.sum()


def shared_part_of_what_q_lacks(p, q, i, t):
    """The residual without the last token, which the draft does not have."""
    last = len(q[i]) - 1
    row = residual(p[i], q[i])
    return without(row if row[:last].any() else q[i], last)


def lacks_the_last_token(x, draft_model, k, rng, stop=None):
    def small_draft(ids, n_rows=1):
        rows = draft_model(ids, n_rows)
        return np.array([without(row, len(row) - 1) for row in rows])

    return propose(x, small_draft, k, rng)


REPLACEMENT = [
    V("from-target", "draws the replacement from the target", "from q in place of the residual",
      "ccs96307/fast-llm-inference", (ACCEPT, "q")),
    V("from-draft", "draws the replacement from the draft", "from p again",
      formula=(ACCEPT, "p")),
    V("from-row-after", "draws the replacement from the row after",
      "from q[i + 1], a row for the next position", "openvino.genai #4190",
      verify=changed(replacement=lambda p, q, i, t: q[i + 1]),
      family="replacement from another row"),
    V("without-it", "removes the rejected token from q", "right for a greedy draft alone",
      "until EAGLE #20", verify=changed(replacement=from_q_without_it)),
    V("absolute", "absolute residual", "abs(q - p), normalised",
      formula=(ACCEPT, "abs(q - p)")),
    V("softmax", "softmax of the residual", "in place of normalising it",
      "unreleased, until transformers #28508",
      verify=changed(replacement=softmax_of_what_q_lacks)),
    V("shared-residual", "replaces by shared tokens alone",
      "the draft lacks a token of the target, and the residual leaves it out as well",
      propose=lacks_the_last_token, verify=changed(replacement=shared_part_of_what_q_lacks)),
    V("first-residual", "residual of the first row", "wherever the rejection was",
      verify=changed(replacement=lambda p, q, i, t: residual(p[0], q[0])),
      family="replacement from another row"),
    V("favourite-replaces", "the favourite as replacement",
      "the largest entry of the residual, in place of a draw", "vllm-ascend #4443",
      verify=changed(draw=favourite)),
    V("one-hot-redrawn", "one-hot draft, drawn again after a miss",
      "the target's own draw refuses the guess, and another one replaces it",
      "romsto/Speculative-Decoding", ("q", "q"), propose=changed_draft(favourite, one_hot)),
    V("in-place", "changes a row in place",
      "the residual is computed in a row that the model keeps", "a kind of vLLM #16952",
      decode=changes_a_row_in_place),
    V("keeps-rejected", "keeps the rejected guess", "and adds the replacement behind it",
      verify=afterwards(keeps_the_rejected_guess)),
    V("block-residual", "block verification with the residual of q", "q - p in place of w q - p",
      "vllm-ascend #7807, which has other h",
      verify=block(row=lambda p, q, w: residual(p, q)),
      family="block verification with another residual"),
    V("block-from-q", "block verification that replaces from q", "in place of the residual",
      verify=block(row=lambda p, q, w: q),
      family="block verification with another residual"),
]  # fmt: skip

# ---- The bonus ----

BONUS = [
    V("bonus-row-before", "bonus from the row before",
      "from the row that the last guess was checked with", "AlphaGPU/leetgpu-challenges",
      verify=changed(bonus=lambda p, q: q[-2]),
      family="bonus from another row"),
    V("bonus-residual", "bonus from a residual",
      "max_fn(q - p) of the last rows, which belong to two positions",
      verify=changed(bonus=lambda p, q: residual(p[-1], q[-1]))),
    V("bonus-first-row", "bonus from the first row", "q[0], however many guesses there are",
      verify=changed(bonus=lambda p, q: q[0]),
      family="bonus from another row"),
    V("favourite-bonus", "the favourite as bonus", "the largest entry of q, in place of a draw",
      "shreyansh26/Speculative-Decoding", verify=changed(draw_bonus=favourite)),
    V("bonus-after-rejection", "bonus after a rejection",
      "a replacement, and then a draw from the row after it",
      verify=afterwards(bonus_after_a_rejection)),
]  # fmt: skip

# ---- The draft: it reports another p than the one that it drew from ----


def best_of_two_beams(x, draft_model, k, rng, stop=None):
    """Beam search is not greedy: a worse first token may lead to the better text."""
    beams = [(1, x, [])]
    for _ in range(k):
        longer = []
        for mass, ids, rows in beams:
            row = draft_model(ids)[-1]
            for token, share in enumerate(row):
                longer.append((mass * share, np.append(ids, token), [*rows, row]))
        longer.sort(key=lambda beam: -beam[0])
        beams = longer[:2]
    _, ids, rows = beams[0]
    return ids[len(x) :], np.array(rows)


def rows_of_another_sequence(x, draft_model, k, rng, stop=None):
    drafted, p = propose(x, draft_model, k, rng)
    if k == 0:
        return drafted, p
    other = (np.append(x, drafted) + 1) % p.shape[1]
    return drafted, draft_model(other[:-1], k)


def forgets_its_own_tokens(x, draft_model, k, rng, stop=None):
    row = draft_model(x)[-1]
    drafted = np.array([sample(row, rng) for _ in range(k)], dtype=int)
    return drafted, draft_model(np.append(x, drafted)[:-1], k) if k else row[:0]


def marginals(x, draft_model, k):
    """The distribution of each of the next k tokens, with those between summed out."""
    rows = []
    masses = {(): 1}
    for _ in range(k):
        longer = {}
        for tokens, mass in masses.items():
            row = draft_model([*x, *tokens])[-1]
            for token, share in enumerate(row):
                longer[(*tokens, token)] = mass * share
        masses = longer
        marginal = np.zeros_like(row)
        for tokens, mass in masses.items():
            marginal[tokens[-1]] += mass
        rows.append(marginal)
    return rows


def from_marginals(draw=sample, reported=lambda row, token: row):
    """Each guess comes from its marginal distribution, whatever the ones before it are."""

    def variant(x, draft_model, k, rng, stop=None):
        rows = marginals(x, draft_model, k)
        drafted = np.array([draw(row, rng) for row in rows], dtype=int)
        return drafted, np.array([reported(row, t) for row, t in zip(rows, drafted)])

    return variant


def from_marginals_with_an_autoregressive_p(x, draft_model, k, rng, stop=None):
    drafted, p = from_marginals()(x, draft_model, k, rng)
    return drafted, draft_model(np.append(x, drafted)[:-1], k) if k else p


DRAFT = [
    V("greedy-draft", "greedy draft with its ordinary p",
      "it takes its favourite, as if it had drawn it", "until transformers #33534",
      propose=changed_draft(favourite)),
    V("beam", "the best beam with its ordinary p", "a beam search is no draw either",
      "ml-recurrent-drafter #6", propose=best_of_two_beams),
    V("top-k-draft", "top-k draft with the p of all tokens",
      "it draws from two tokens, and reports p before the cut", "transformers #47932",
      propose=changed_draft(lambda row, rng: sample(top_k(row), rng)),
      family="drawn with one setting, reported with another"),
    V("cold-p", "warm draft with a cold p", "it draws at temperature 1, and reports p at 0.5",
      propose=changed_draft(reported=lambda row, t: colder(row)),
      family="drawn with one setting, reported with another"),
    V("mapped", "the token mapped to the target's ids, its row not",
      "so p is that of another token", "rtp-llm #1311",
      propose=changed_draft(reported=lambda row, t: np.roll(row, 1))),
    V("other-sequence", "the rows of another sequence",
      "as where a batch has been put in another order", "feared in vLLM #41044",
      propose=rows_of_another_sequence),
    V("forgets", "draft that forgets its own tokens", "all guesses are drawn from its first row",
      propose=forgets_its_own_tokens, family="guesses that ignore one another"),
    V("marginals", "drawn from marginals, with the p of an autoregressive draft",
      "it is right for the first guess alone", propose=from_marginals_with_an_autoregressive_p,
      family="guesses that ignore one another"),
]  # fmt: skip

# ---- Rows and their context ----


def own_continuation(setting, x, drafted, memory):
    """Rows after what the target itself finds most probable, in place of the guesses."""
    for _ in drafted:
        x = np.append(x, favourite(setting.target_model(x)[-1]))
    return setting.target_model(x, len(drafted) + 1)


def reads_accepted_guesses_twice(setting, x, drafted, memory):
    """The rows that check guesses have the guesses before them twice."""
    found = target_rows(setting, x, drafted, memory)
    for i in range(len(drafted)):
        found[i] = setting.target_model([*x, *drafted[:i], *drafted[:i]])[-1]
    return found


def fate(x, memory):
    """The guesses of the round before that were accepted, and those that were not."""
    n, drafted = memory.get("round", (len(x) - 1, []))
    n_accepted = len(x) - n - 1
    return drafted[:n_accepted], drafted[n_accepted:]


def never_rolled_back(setting, x, drafted, memory):
    """The sum of the tokens is a recurrent state, which has read the rejected guesses, too."""
    rejected = fate(x, memory)[1]
    memory["extra"] = [*memory.get("extra", []), *rejected]
    memory["round"] = len(x), [*drafted]
    read = [*memory["extra"], *x, *drafted]
    return setting.target_model(read, len(drafted) + 1)


def masked_rows(sees_the_round):
    """After token B, a grammar forbids A, in all rows or only in those of later rounds."""

    def rows(setting, x, drafted, memory):
        found = target_rows(setting, x, drafted, memory)
        new = x[len(setting.prompt) :]
        for i, row in enumerate(found):
            read = np.append(new, drafted[:i]) if sees_the_round else new
            if 1 in read:
                found[i] = without(row, 0)
        return found

    return rows


ROWS = [
    V("first-row-for-all", "all guesses checked with the first row",
      "p[0] and q[0], also for the second guess",
      verify=changed(lambda p, q, i, t: ratio(p, q, 0, t)),
      family="guesses checked with another row"),
    V("row-after", "row off by one", "guess i is checked with q[i + 1]",
      verify=changed(lambda p, q, i, t: ratio(p, q[1:], i, t),
                     lambda p, q, i, t: residual(p[i], q[i + 1])),
      family="guesses checked with another row"),
    V("own-continuation", "rows of the target's own continuation",
      "after its favourites, in place of the guesses", rows=own_continuation),
    V("context-twice", "accepted guesses twice in the context",
      "the check of a guess reads the ones before it twice",
      "levvius/adaptive-speculative-decoding", rows=reads_accepted_guesses_twice),
    V("recurrent", "recurrent state not rolled back", "it has read the rejected guesses",
      "mlx-lm #846", rows=never_rolled_back),
    V("late-grammar", "grammar that waits for the next round",
      "its mask misses the rows behind the token that turns it on", "vLLM #36138",
      rows=masked_rows(False), own=partial(plain, rows=masked_rows(True))),
]  # fmt: skip

# ---- Penalties and cuts ----


def penalised(row, seen):
    """A row of the target, where each time that a token was seen halves its probability."""
    counts = np.bincount(np.array(seen, dtype=int), minlength=len(row))
    return max_fn(row * [HALF**n for n in counts.tolist()])


def penalised_rows(seen):
    """Rows with a penalty for what row i has seen: seen(x, drafted, i, memory).

    None is a row without a penalty.
    """

    def rows(setting, x, drafted, memory):
        found = target_rows(setting, x, drafted, memory)
        for i, row in enumerate(found):
            tokens = seen([*x], [*drafted], i, memory)
            if tokens is not None:
                found[i] = penalised(row, tokens)
        memory["round"] = len(x), [*drafted]
        return found

    return rows


def remembers(which):
    """What an object has seen that is told of each guess.

    0 sees accepted ones twice, 1 keeps rejected ones.
    """

    def seen(x, drafted, i, memory):
        more = memory.setdefault("more", [])
        if i == 0:
            more += fate(x, memory)[which]
        return [*x, *more, *drafted[:i]]

    return seen


def penalty_before_the_first_token(x, drafted, i, memory):
    is_first = i == 0 and "round" not in memory
    return x if is_first else None


right_penalty = penalised_rows(lambda x, drafted, i, memory: [*x, *drafted[:i]])


SOME_ROWS = "penalty on some rows only"
OTHER_TOKENS = "penalty for other tokens"
CUT_ON_SOME_ROWS = "temperature or cut on some rows only"


def penalty(family, id, name, looks, seen, tokens):
    parts = {"rows": penalised_rows(tokens), "own": partial(plain, rows=right_penalty)}
    return V(id, name, looks, seen, about="penalty", family=family, **parts)


def cut_for_the_bonus_alone(id, name, looks, seen, cut):
    parts = {"rows": changed_rows(same, cut), "own": partial(plain, rows=changed_rows(cut))}
    return V(id, name, looks, seen, family=CUT_ON_SOME_ROWS, **parts)


def no_cut_in_rounds(id, name, looks, seen, cut):
    """Rounds without guesses have it."""

    def rows(setting, x, drafted, memory):
        change = same if len(drafted) else cut
        return changed_rows(change)(setting, x, drafted, memory)

    own = partial(plain, rows=changed_rows(cut))
    return V(id, name, looks, seen, rows=rows, own=own, family=CUT_ON_SOME_ROWS)


PENALTIES = [
    penalty(SOME_ROWS, "penalty-bonus", "penalty on the bonus only",
            "the rows that check guesses have none", "defended in sglang #28242",
            lambda x, drafted, i, memory: [*x, *drafted] if i == len(drafted) else None),
    penalty(SOME_ROWS, "no-penalty-in-rounds", "no penalty in rounds with guesses",
            "it is ignored without a word", "vLLM #18902",
            lambda x, drafted, i, memory: None if drafted else x),
    penalty(SOME_ROWS, "penalty-first-row", "penalty on the first row of each round only",
            "the other rows have none", "",
            lambda x, drafted, i, memory: x if i == 0 else None),
    penalty(SOME_ROWS, "penalty-first-token", "penalty before the first token only",
            "it is forgotten where speculation begins", "found in mlx-node #11",
            penalty_before_the_first_token),
    penalty(OTHER_TOKENS, "penalty-before", "penalty of the round before",
            "all rows count the text without the guesses", "sglang #22049",
            lambda x, drafted, i, memory: x),
    penalty(OTHER_TOKENS, "penalty-all", "penalty of all guesses",
            "all rows count all guesses, those that come later as well",
            "warned of in transformers #48281",
            lambda x, drafted, i, memory: [*x, *drafted]),
    penalty(OTHER_TOKENS, "penalty-rejected", "penalty that keeps rejected guesses",
            "they stay counted", "vmlx-swift #357", remembers(1)),
    penalty(OTHER_TOKENS, "penalty-twice", "penalty that counts accepted guesses twice",
            "as a guess, and as a part of the text", "vmlx-swift #357", remembers(0)),
    penalty(OTHER_TOKENS, "penalty-last-token",
            "penalty for the last token in place of the guesses",
            "each row counts it again, and no guess", "in the MTP branch, mlx-lm #1175",
            lambda x, drafted, i, memory: [*x, *[x[-1]] * i]),
    no_cut_in_rounds("no-temperature-in-rounds", "temperature forgotten in rounds with guesses",
                     "their rows are warm, plain ones are at 0.5", "lattice #974", colder),
    cut_for_the_bonus_alone("temperature-bonus", "temperature for the bonus alone",
                            "the rows that check guesses are warm",
                            "keras-hub #2735, vLLM #10198", colder),
    cut_for_the_bonus_alone("top-p-bonus", "top-p for the bonus alone",
                            "the rows that check guesses are not cut", "picolm #30", top_p),
    cut_for_the_bonus_alone("min-p-bonus", "min-p for the bonus alone",
                            "the rows that check guesses are not cut", "feared in vLLM #42744",
                            min_p),
    no_cut_in_rounds("no-min-p-in-rounds", "min-p ignored in rounds with guesses",
                     "without a word", "vLLM #38202", min_p),
    V("other-order", "checks against q cut in another order",
      "top-k, then top-p, where plain sampling has top-p first", "sglang #36173",
      rows=changed_rows(lambda row: top_p(top_k(row))),
      own=partial(plain, rows=changed_rows(top_p))),
]  # fmt: skip

# ---- Noise: a number u in [0, 1) decides a draw, and is used again ----


def picked(row, u):
    """The token in whose part of [0, 1) u lies."""
    return int(np.sum(row.cumsum()[:-1] <= u))


class Stream:
    """A generator that reads a list of numbers, and draws those that the list lacks."""

    def __init__(self, numbers, rng):
        self.numbers, self.rng, self.i = numbers, rng, 0

    def random(self):
        if self.i == len(self.numbers):
            self.numbers.append(self.rng.random())
        self.i += 1
        return self.numbers[self.i - 1]

    def choice(self, n, p):
        return picked(p, self.random())


draft_by_numbers = changed_draft(draw=lambda row, rng: rng.choice(len(row), row))


class Noise:
    """The numbers that drew the guesses of a round, for a rule that uses them again."""

    def __init__(self):
        self.numbers = []

    def propose(self, x, draft_model, k, rng, stop=None):
        self.numbers = []
        return draft_by_numbers(x, draft_model, k, Stream(self.numbers, rng))

    def tests_its_guess(self, drafted, p, q, rng):
        again = Stream(self.numbers, rng)
        return verify(drafted, p, q, SimpleNamespace(random=again.random, choice=rng.choice))

    def picked(self, row, i):
        return one_hot(row, picked(row, self.numbers[i]))


NOISE = Noise()


def noise_once_per_text(rng, setting):
    numbers = []

    def draft(x, draft_model, k, _, stop=None):
        return draft_by_numbers(x, draft_model, k, Stream(numbers, rng))

    return decode(rng, setting, propose=draft)


def one_seed(rng, setting):
    """Draft and verifier have one seed, and the draft begins with it again in each round."""
    numbers = []
    checks = Stream(numbers, rng)

    def draft(x, draft_model, k, _, stop=None):
        return draft_by_numbers(x, draft_model, k, Stream(numbers, rng))

    def rule(drafted, p, q, _):
        return verify(drafted, p, q, checks)

    return decode(rng, setting, rule, draft)


def keeps_u(rule, from_the_right=False):
    """The number u of a place in the text is drawn once, and used again in later rounds."""

    def text(rng, setting):
        numbers = {}
        start = 0

        def again(drafted, p, q, _):
            nonlocal start
            places = [start + i for i in range(len(drafted))]
            if from_the_right:
                places.reverse()
            unread = iter(places)

            def u():
                place = next(unread)
                if place not in numbers:
                    numbers[place] = rng.random()
                return numbers[place]

            emitted = rule(drafted, p, q, SimpleNamespace(random=u, choice=rng.choice))
            start += len(emitted)
            return emitted

        return decode(rng, setting, again)

    return text


def one_random_number_for_all(drafted, p, q, rng):
    u = rng.random()
    return verify(drafted, p, q, SimpleNamespace(random=lambda: u, choice=rng.choice))


def u_draws_the_replacement(drafted, p, q, rng):
    for i, token in enumerate(drafted):
        u = rng.random()
        if not u < ratio(p, q, i, token):
            return np.append(drafted[:i], picked(residual(p[i], q[i]), u))
    return np.append(drafted, sample(q[-1], rng))


NUMBERS = [
    V("one-u-for-all", "one random number for all", "one u decides about all guesses of a round",
      "feifeibear/LLMSpeculativeSampling", verify=one_random_number_for_all,
      family="one random number for two decisions"),
    V("u-tests", "the u that drew a guess also tests it",
      "so a guess is accepted more often, or less", "vLLM #47386",
      propose=NOISE.propose, verify=NOISE.tests_its_guess,
      family="one random number for two decisions"),
    V("u-replaces", "the u that rejected also draws the replacement",
      "but it is known to lie above the ratio", "vllm-ascend #16370",
      verify=u_draws_the_replacement,
      family="one random number for two decisions"),
    V("one-noise", "one noise for two draws", "the u that drew a guess also draws its replacement",
      "as an option, until vLLM #54282", propose=NOISE.propose,
      verify=changed(replacement=lambda p, q, i, t: NOISE.picked(residual(p[i], q[i]), i)),
      family="one random number for two decisions"),
    V("noise-per-text", "noise drawn once per text",
      "the same number draws guess i in each round",
      "Infini-AI-Lab/Sequoia", decode=noise_once_per_text,
      family="random numbers of an earlier round"),
    V("one-seed", "one seed for draft and verifier, the draft's again in each round",
      "the numbers that drew guesses come back as tests", "in review in llama.cpp #27694",
      decode=one_seed, family="random numbers of an earlier round"),
    V("u-kept-block", "u of a place kept, with block verification",
      "that a guess was kept says something about the u behind it", "avoided in vLLM #46781",
      decode=keeps_u(verify_block, from_the_right=True),
      family="random numbers of an earlier round"),
]  # fmt: skip

# ---- The end of the text ----


def overlooks_an_eos(rng, setting, verify=verify):
    """It looks at the last token of a round only."""
    return decode(rng, setting, verify, eos=EOS)


def verification_of_the_note(drafted, p, q, rng):
    i = first_refused(drafted, p, q, rng)
    if i < len(drafted) and EOS in drafted[:i]:
        i = drafted.tolist().index(EOS)
    return np.append(drafted[:i], sample(q[i], rng))


def withdraws_an_eos(x, draft_model, k, rng, stop=None):
    drafted, p = propose(x, draft_model, k, rng, lambda row, t: t == EOS)
    n = len(drafted)
    if EOS in drafted:
        n -= 1
    return drafted[:n], p[:n]


def drops_its_own_eos(emitted, drafted, q, rng):
    """If nothing is left, it draws once more."""
    if emitted[-1] != EOS:
        return emitted
    return emitted[:-1] if len(emitted) > 1 else np.array([sample(q[0], rng)])


def end_at_eos(new, emitted):
    return new.tolist().index(EOS) + 1 if EOS in new else None


def anywhere(length, new, emitted):
    return True


def ends_at_stop(counts=anywhere):
    """A decode whose texts end behind the tokens STOP, where counts(length, new, emitted)."""

    def end_of(new, emitted):
        for length in range(len(STOP), len(new) + 1):
            is_end = (*new[length - len(STOP) : length],) == STOP
            if is_end and counts(length, new, emitted):
                return length

    return {"end_of": end_of}


def at_the_end(length, new, emitted):
    return length == len(new)


def within_a_round(length, new, emitted):
    return length - len(STOP) >= len(new) - len(emitted)


def about_the_eos(id, name, looks, seen, decode, family=""):
    own = partial(plain, eos=EOS)
    return V(id, name, looks, seen, decode=decode, own=own, about="eos", family=family)


def about_a_stop(id, name, looks, seen="", counts=anywhere, **parts):
    own = partial(plain, **ends_at_stop())
    return V(
        id, name, looks, seen, decode=partial(decode, **ends_at_stop(counts)), own=own, **parts
    )


ENDS = [
    about_the_eos("eos-inside", "overlooks an eos inside a round",
                  "it looks at the last token of a round only", "transformers #47912",
                  overlooks_an_eos),
    about_the_eos("eos-redrawn", "redraws an accepted eos",
                  "if a guess behind it is rejected, and replaces from q",
                  "ccs96307/fast-llm-inference",
                  partial(overlooks_an_eos, verify=verification_of_the_note)),
    about_the_eos("eos-withdrawn", "a drawn eos guess withdrawn",
                  "the target shall decide about the end", "Mathews-Tom/no-magic",
                  partial(decode, propose=withdraws_an_eos, eos=EOS), "an eos dropped"),
    about_the_eos("eos-dropped", "an eos dropped as replacement or bonus",
                  "it is drawn, and the text goes on without it", "Mathews-Tom/no-magic",
                  partial(decode, verify=afterwards(drops_its_own_eos), end_of=end_at_eos),
                  "an eos dropped"),
    about_a_stop("stop-at-end", "stop sequence sought at a round's end",
                 "it is overlooked inside a round", "sglang #23802", at_the_end,
                 family="stop sequence sought in a part of the text"),
    about_a_stop("stop-within", "stop sequence sought within a round",
                 "it is overlooked if two rounds have written it", counts=within_a_round,
                 family="stop sequence sought in a part of the text"),
]  # fmt: skip

# ---- What looks wrong, and is exact ----


def accepts_what_the_target_draws(drafted, p, q, rng):
    for i, token in enumerate(drafted):
        own = sample(q[i], rng)
        if own != token:
            return np.append(drafted[:i], own)
    return np.append(drafted, sample(q[-1], rng))


def withdraws_an_unsure_favourite(x, draft_model, k, rng, stop=None):
    """A greedy draft: whether it stops depends on its row alone, and not on a draw."""
    drafted, rows = changed_draft(favourite, one_hot)(x, draft_model, k, rng)
    n = 0
    while n < k and draft_model(np.append(x, drafted[:n]))[-1].max() >= HALF:
        n += 1
    return drafted[:n], rows[:n]


def what_the_noise_picks(p, q, i, t):
    return NOISE.picked(q[i], i)


def drops_the_bonus(emitted, drafted, q, rng):
    return emitted[: len(drafted)] if len(drafted) else emitted


def tests_all_before_it_looks(drafted, p, q, rng):
    i = first_refused(drafted, p, q, rng)
    row = residual(p[i], q[i]) if i < len(drafted) else q[i]
    return np.append(drafted[:i], sample(row, rng))


def stops_behind_an_unsure_guess(x, draft_model, k, rng, stop=None):
    return propose(x, draft_model, k, rng, lambda row, token: row[token] < LEAST)


EXACT = [
    V("q-or-another", "accept with probability q, replace by another token",
      "from q without the guess; p is not used", exact=True,
      verify=changed(lambda p, q, i, t: q[i][t], from_q_without_it)),
    V("one-hot-p", "a drawn guess, reported as one-hot",
      "the same, as the p of a guess that was drawn is taken for 1", "vLLM #40149", exact=True,
      propose=changed_draft(reported=one_hot)),
    V("same-draw", "accept if the target draws the same", "and emit what the target draws",
      "mlxcel #992", exact=True, verify=accepts_what_the_target_draws),
    V("same-noise", "accept if the same noise picks it from q", "and emit what it picks",
      "Daliri et al. 2024", exact=True, propose=NOISE.propose,
      verify=changed(lambda p, q, i, t: what_the_noise_picks(p, q, i, t)[t], what_the_noise_picks)),
    V("withdraws-favourite", "an unsure favourite withdrawn",
      "of a greedy draft, whose row decides, and no draw", "llama.cpp #22506", exact=True,
      propose=withdraws_an_unsure_favourite),
    V("mask-on-target", "a mask on the target alone", "the draft guesses what is forbidden",
      exact=True, rows=masked_rows(True), own=partial(plain, rows=masked_rows(True))),
    about_a_stop("stop-in-text", "stop sequence sought in all of the text", "and cut behind it",
                 exact=True),
    V("no-bonus", "no bonus at all", "where all guesses are accepted, the round ends behind them",
      "until vLLM #5765", exact=True, verify=afterwards(drops_the_bonus)),
    V("own-marginals", "guesses from marginals, with their own p",
      "each ignores what the others are", "z-lab/dflash", exact=True, propose=from_marginals()),
    V("stops-behind", "stops behind an unsure guess", "the guess itself is judged",
      "llama.cpp #22673, llama.cpp #25908", exact=True, propose=stops_behind_an_unsure_guess),
    V("u-kept", "u of a place kept", "and all guesses are tested, those behind a refused one, too",
      "vLLM, which tests fewer", exact=True, decode=keeps_u(tests_all_before_it_looks)),
    V("verify", "`verify`", "one by one", "Chen et al. 2023, Leviathan et al. 2023",
      (ACCEPT, REPLACE), exact=True, verify=verify),
    V("verify-block", "`verify_block`", "block verification", "Sun et al. 2024", exact=True,
      verify=verify_block),
]  # fmt: skip

GROUPS = {
    "The acceptance": ACCEPTANCE,
    "The replacement": REPLACEMENT,
    "The bonus": BONUS,
    "The draft's p": DRAFT,
    "Rows and their context": ROWS,
    "Penalties and cuts": PENALTIES,
    "Noise and seeds": NUMBERS,
    "The end of the text": ENDS,
}
WRONG = [variant for group in GROUPS.values() for variant in group]
VARIANTS = [*WRONG, *EXACT]

# ---- Trees, in texts of two tokens: one round and a part of the next ----


def tree(rule, rng, setting):
    x, N = np.array(setting.prompt), setting.N - 1
    return tree_sampling(x, setting.draft_model, setting.target_model, N, setting.shape, rng, rule)


def plain_tree(rng, setting):
    return tree(top_down, rng, replace(setting, shape=()))


def walks(
    row_of=lambda child, node, r: child.p,
    against=lambda child, node, r: r,
    left=lambda child, node, r: residual(child.p, r),
    last=lambda node, r, rng: sample(r, rng),
    order=lambda node, rng: node.children,
):
    """`top_down` with changes.

    row_of and against are the p and the q of a child's test, left is what is left after
    it, last the last draw, and order lists the children as they are tried.
    """

    def rule(node, rng):
        r = node.q
        for child in order(node, rng):
            p, q = row_of(child, node, r), against(child, node, r)
            if rng.random() < acceptance(p[child.token], q[child.token]):
                return [child.token, *rule(child, rng)]
            r = left(child, node, r)
        return [last(node, r, rng)]

    return rule


def shuffled(node, rng):
    untried = [*node.children]
    order = []
    while untried:
        n = len(untried)
        i = sample(np.full(n, Fraction(1, n)), rng)
        order.append(untried.pop(i))
    return order


def by_their_q(node, rng):
    return sorted(node.children, key=lambda child: -node.q[child.token])


def from_q_without_the_refused(node, r, rng):
    refused = [child.token for child in node.children]
    return sample(without(node.q, *refused), rng)


def from_any_that_is_left(node, r, rng):
    return sample(max_fn(np.where(r > 0, Fraction(1), 0)), rng)


def divides_the_norms_to_get_w(node, rng, w=1):
    r = node.q
    for child in node.children:
        token, p = child.token, child.p
        kept = divides_the_norms_to_get_w(child, rng, acceptance(p[token], w * r[token]))
        if kept is not None:
            return [token, *kept]
        surplus = np.maximum(w * r - p, 0).sum()
        r = residual(p, w * r) if surplus > 0 else node.q
        w = acceptance(1 - p[token], surplus)
    is_root = node.token is None  # here w may be below 1 even there, but a round must add a token
    return [sample(r, rng)] if is_root or rng.random() < w else None


def judges_the_best_of_its_siblings(node, rng):
    def quotient(child):
        return node.q[child.token] / child.p[child.token]

    if not node.children:
        return [sample(node.q, rng)]
    best = max(node.children, key=quotient)
    if rng.random() < min(1, quotient(best)):
        return [best.token, *judges_the_best_of_its_siblings(best, rng)]
    return [sample(residual(best.p, node.q), rng)]


def draws_for_each_branch(node, rng):
    own = [sample(node.q, rng) for _ in node.children] or [sample(node.q, rng)]
    for child, token in zip(node.children, own):
        if child.token == token:
            return [token, *draws_for_each_branch(child, rng)]
    return own[:1]


def one_coin(rng, setting, threshold=1):
    """The draft's two favourites, with p = 1, and one u for both.

    The first is accepted where u < q / threshold, and so on.
    """
    x = np.array(setting.prompt)
    for _ in range(setting.N - 1):
        p, q = setting.draft_model(x)[-1], setting.target_model(x)[-1]
        u, reached = rng.random(), 0
        siblings = np.argsort(-p, kind="stable")[:2].tolist()
        for token in siblings:
            reached += q[token]
            if u < reached / threshold:
                break
        else:
            token = sample(without(q, *siblings), rng)
        x = np.append(x, token)
    return x


def T(id, name, looks, rule=None, seen="", **parts):
    return V(id, name, looks, seen, tree_rule=rule, own=plain_tree, **parts)


TREES = [
    T("first-p", "all siblings judged by the first p",
      "the second was drawn from p without the first",
      walks(row_of=lambda child, node, r: node.children[0].p)),
    T("best-sibling", "the best of the siblings judged",
      "the guess with the largest q / p, as if it were the only one",
      judges_the_best_of_its_siblings),
    T("shuffled", "siblings in random order", "but the second was drawn without the first",
      walks(order=shuffled)),
    T("by-their-q", "siblings in the order of their q", "the larger one is tried first",
      walks(order=by_their_q)),
    T("q-stays", "q left as it is between siblings", "each child has its turn against q",
      walks(against=lambda child, node, r: node.q,
            left=lambda child, node, r: residual(child.p, node.q))),
    T("tree-favourite", "the favourite of what is left",
      "in place of a draw, after the last refusal",
      walks(last=lambda node, r, rng: favourite(r))),
    T("without-refused", "q without the refused ones", "in place of what is left",
      walks(last=from_q_without_the_refused)),
    T("uniform", "uniform over what is left", "in place of what is left",
      walks(last=from_any_that_is_left)),
    T("draw-per-branch", "each branch draws for itself",
      "its own token of the target; the first match counts", draws_for_each_branch,
      "warned of in fms-extras #12"),
    T("two-norms", "w from the ratio of two norms",
      "bottom-up, but w becomes S / (1 - p(x)) and not S / (S + 1 - w)",
      divides_the_norms_to_get_w, "brian030128/subspec_v2"),
    T("coin-threshold", "one coin for all siblings, and a threshold",
      "accepts where u < the q so far / .8", seen="in sglang #35798",
      decode=partial(one_coin, threshold=LENIENCY)),
    T("one-coin", "one coin for all siblings", "accepts where u < the q so far",
      seen="sglang #35798", decode=one_coin, exact=True),
    T("top-down", "`top_down`", "each child against what the ones before it left", top_down,
      "SpecInfer", exact=True),
    T("bottom-up", "`bottom_up`", "leaves first", bottom_up, "traversal verification", exact=True),
]  # fmt: skip

GALLERY = {variant.id: variant for variant in [*VARIANTS, *TREES]}
