"""Ways to get speculative sampling wrong, each with its exact distance from the target, and a few that look wrong.

    python -m lab.gallery  # prints the tables of docs/exactness.md and docs/trees.md

Every variant decodes texts of three tokens after A, with K = 2. Most look right. The code
shows only the idea, and is not taken from other projects. The tables P and Q are blind to
nothing here: with residuals of a single token, for example, it would not matter how the
replacement is drawn.
"""

import argparse
import re
from collections.abc import Callable
from functools import cache, partial
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from enumeration import output_distribution, total_variation
from lab.block import block_probabilities, verify_block
from lab.trees import balanced, bottom_up, top_down, tree_sampling
from sampling import logits_to_probs, sample
from speculative import acceptance, max_fn, propose, residual, verify

# P[t] and Q[t] are the rows of the draft and of the target after token t.
P = np.array([[0.2, 0.5, 0.3], [0.1, 0.2, 0.7], [0.2, 0.3, 0.5]])
Q = np.array([[0.3, 0.2, 0.5], [0.5, 0.4, 0.1], [0.3, 0.5, 0.2]])
PROMPT, N, K = (0,), 3, 2
EOS, TOP_P = 2, 0.55  # for the variants that are about the end of a text, or the order of cuts


def draft_model(ids, n_rows=1):
    return P[ids[-n_rows:]]


def target_model(ids, n_rows=1):
    return Q[ids[-n_rows:]]


def target_rows(x, drafted, memory):
    """The rows q of a round. memory is a dict that lasts for a text; a right target needs none."""
    return target_model(np.append(x, drafted).astype(int), len(drafted) + 1)


def decode(rng, verify=verify, propose=propose, rows=target_rows, draft=draft_model, eos=None):
    """`speculative_sampling` with parts that can be exchanged."""
    x, memory, end = np.array(PROMPT), {}, len(PROMPT) + N
    while len(x) < end and x[-1] != eos:
        drafted, p = propose(x, draft, min(K, end - len(x) - 1), rng)
        p = p if len(p) else np.zeros((0, len(P)))
        x = np.append(x, verify(drafted, p, rows(x, drafted, memory), rng))
    return x


def plain(rng, rows=target_rows, eos=None):
    """Plain sampling from the target."""
    return decode(rng, rows=rows, eos=eos, propose=lambda x, draft, k, rng: (x[:0], ()))


class Variant(NamedTuple):
    name: str
    looks: str  # what it looks like
    seen: str = ""  # where
    exact: bool = False
    verify: Callable = verify
    propose: Callable = propose
    rows: Callable = target_rows
    decode: Callable | None = None  # decode(rng) -> ids, if the three above do not say it
    own: Callable = plain  # own(rng) -> ids: what it should do

    def text(self, rng):
        if self.decode is not None:
            return self.decode(rng)
        return decode(rng, self.verify, self.propose, self.rows)

    @cache  # noqa: B019  # there are only some dozens of them
    def distance(self):
        """The total variation distance between its texts and those that it should write."""
        return total_variation(output_distribution(self.text), output_distribution(self.own))

    def tokens_per_round(self):
        """How many tokens a round adds after the prompt, on average."""

        def first_round(rng):
            drafted, p = self.propose(np.array(PROMPT), draft_model, K, rng)
            return self.verify(drafted, p, self.rows(PROMPT, drafted, {}), rng)

        found = sum(mass * len(emitted) for emitted, mass in output_distribution(first_round).items())
        return round(found, 12)  # so that Python 3.12, which adds up more precisely, prints the same


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


def without(row, token):
    return max_fn(np.where(np.arange(len(row)) == token, 0, row))


def favourite(row, rng=None):
    return int(np.argmax(row))


def continues_after_a_rejection(drafted, p, q, rng):
    emitted = drafted.copy()
    for i, token in enumerate(drafted):
        if not rng.random() < acceptance(p[i, token], q[i, token]):
            emitted[i] = sample(residual(p[i], q[i]), rng)
    return np.append(emitted, sample(q[-1], rng))


def one_random_number_for_all(drafted, p, q, rng):
    u = rng.random()
    return verify(drafted, p, q, SimpleNamespace(random=lambda: u, choice=rng.choice))


def withdraws_an_unsure_guess(drafted, p, q, rng):
    k = [*(row[token] < 0.4 for row, token in zip(p, drafted)), True].index(True)
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


def changes_a_row_in_place(drafted, p, q, rng):
    for i, token in enumerate(drafted):
        if not rng.random() < acceptance(p[i][token], q[i][token]):
            q[i] -= p[i]
            np.maximum(q[i], 0, out=q[i])
            q[i] /= q[i].sum()
            return np.append(drafted[:i], sample(q[i], rng))
    return np.append(drafted, sample(q[-1], rng))


def kept_rows(x, drafted, memory):
    """The rows themselves, not copies: a model that computes each row once, and keeps it."""
    table = memory.setdefault("rows", Q.copy())
    return [table[token] for token in (x[-1], *drafted)]


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
    return np.eye(len(row))[np.sum(row.cumsum()[:-1] <= u)]


def noisy_draft(once):
    """`propose` that draws by NOISE, which is filled once per text or once per round."""

    def variant(x, draft_model, k, rng):
        if not once or len(x) == len(PROMPT):
            NOISE[:] = [rng.random() for _ in range(K)]
        numbers = iter(NOISE)
        return changed_draft(draw=lambda row, rng: favourite(picked(row, next(numbers))))(x, draft_model, k, rng)

    return variant


# ---- The draft: it reports another p than the one that it drew from ----


def changed_draft(draw=sample, reported=lambda row: row):
    """`propose` with up to two changes: draw(row, rng) is the token, and reported(row) is the row that is returned."""

    def variant(x, draft_model, k, rng):
        n, rows = len(x), np.zeros((0, len(P)))
        for _ in range(k):
            rows = np.vstack([rows, draft_model(x)[-1]])
            x = np.append(x, draw(rows[-1], rng))
        return x[n:], np.array([reported(row) for row in rows])

    return variant


def one_hot(row):
    return np.eye(len(row))[favourite(row)]


def forgets_its_own_tokens(x, draft_model, k, rng):
    n, before = len(x), x
    for _ in range(k):
        x = np.append(x, sample(draft_model(before)[-1], rng))
    return x[n:], draft_model(x[:-1], k) if k else np.zeros((0, len(P)))


# ---- A target that looks at more than the last token ----


def penalised_row(last, seen):
    """The target's row after a token, where each time that a token was seen halves its probability."""
    return max_fn(Q[last] * 0.5 ** np.bincount(np.array(seen, dtype=int), minlength=len(Q)))


def penalised_rows(seen):
    """Rows with a penalty for seen(x, drafted, i, memory), the tokens that row i looks at, or without one for None."""

    def rows(x, drafted, memory):
        found = []
        for i, last in enumerate([x[-1], *drafted]):
            tokens = seen([*x], [*drafted], i, memory)
            found.append(Q[last] if tokens is None else penalised_row(last, tokens))
        memory["round"] = len(x), [*drafted]
        return np.array(found)

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
    """Rows that depend on a state, the sum of all tokens that were read, modulo 3."""

    def rows(x, drafted, memory):
        extra = 0 if rolls_back else memory.get("extra", 0) + sum(fate(x, memory)[1])
        memory.update(extra=extra, round=(len(x), [*drafted]))
        return Q[(sum(x) + extra + np.cumsum([0, *drafted])) % len(Q)]

    return rows


def masked_rows(sees_the_round):
    """After token B, a grammar forbids A: a mask that is put on all rows, or on those of the rounds that follow."""

    def rows(x, drafted, memory):
        texts = ([*x[1:], *(drafted[:i] if sees_the_round else ())] for i in range(len(drafted) + 1))
        plain_rows = target_rows(x, drafted, memory)
        return np.array([without(row, 0) if 1 in text else row for row, text in zip(plain_rows, texts)])

    return rows


# ---- The loop ----


def overlooks_an_eos(rng, verify=verify):
    """It looks at the last token of a round only."""
    return decode(rng, verify, eos=EOS)


def cuts_at_an_eos(rng):
    def verify_and_cut(drafted, p, q, rng):
        emitted = verify(drafted, p, q, rng)
        return emitted[: [*emitted, EOS].index(EOS) + 1]

    return decode(rng, verify_and_cut, eos=EOS)


def verification_of_the_note(drafted, p, q, rng):
    accepted = [rng.random() < acceptance(p[i, token], q[i, token]) for i, token in enumerate(drafted)]
    kept = accepted if all(accepted) else np.logical_and(accepted, drafted != EOS)
    i = [*kept, False].index(False)
    return np.append(drafted[:i], sample(q[i], rng))


def cut_rows(**cuts):
    def rows(x, drafted, memory):
        return logits_to_probs(np.log(target_rows(x, drafted, memory)), **cuts)

    return rows


class Grid:
    """A generator whose numbers are 0, 1/n, ..., (n - 1)/n, so that 0 is among them. It only tells how they compare."""

    def __init__(self, rng, n=10):
        self.rng, self.n, self.choice, self.random = rng, n, rng.choice, lambda: self

    def __lt__(self, a):
        return self.rng.random() < np.ceil(self.n * a) / self.n

    def __le__(self, a):
        return self.rng.random() < (np.floor(self.n * a) + 1) / self.n


def at_most(drafted, p, q, rng):
    for i, token in enumerate(drafted):
        if not rng.random() <= q[i, token] / p[i, token]:
            return np.append(drafted[:i], sample(residual(p[i], q[i]), rng))
    return np.append(drafted, sample(q[-1], rng))


two_tokens = cut_rows(top_k=2)  # so that q is 0 for one token of each row


# ---- Trees ----

SHAPE = balanced(2)  # two guesses for each place


def tree(rule, rng):
    return tree_sampling(np.array(PROMPT), draft_model, target_model, N, SHAPE, rng, rule)


def judges_all_siblings_by_the_first_p(node, rng):
    r = node.q
    for child in node.children:
        p = node.children[0].p
        if rng.random() < acceptance(p[child.token], r[child.token]):
            return [child.token, *judges_all_siblings_by_the_first_p(child, rng)]
        r = residual(p, r)
    return [sample(r, rng)]


def leaves_q_as_it_is_between_siblings(node, rng):
    r = node.q
    for child in node.children:
        if rng.random() < acceptance(child.p[child.token], node.q[child.token]):
            return [child.token, *leaves_q_as_it_is_between_siblings(child, rng)]
        r = residual(child.p, node.q)
    return [sample(r, rng)]


def divides_the_norms_to_get_w(node, rng, w=1.0):
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


REPOSITORIES = {
    "1bit-MONSTER": "1bit-MONSTER/1bit-MONSTER", "EAGLE": "SafeAILab/EAGLE", "lattice": "ohdearquant/lattice",
    "fms-extras": "foundation-model-stack/fms-extras", "mlx-lm": "ml-explore/mlx-lm", "rMLX": "Pushkinist/rMLX",
    "openvino.genai": "openvinotoolkit/openvino.genai", "sglang": "sgl-project/sglang", "vLLM": "vllm-project/vllm",
    "transformers": "huggingface/transformers", "vllm-ascend": "vllm-project/vllm-ascend",
    "vmlx-swift": "osaurus-ai/vmlx-swift",
}  # fmt: skip


def linked(seen):
    """Links for what `seen` names: a thread, as in "vLLM #18902", or a repository, as in "lab/engine"."""

    def link(found):
        place = f"{REPOSITORIES[found[1]]}/issues/{found[2]}" if found[2] else found[0]
        return f"[{found[0]}](https://github.com/{place})"

    return re.sub(r"([\w.-]+) #(\d+)|[\w.-]+/[\w.-]+", link, seen)


def by_penalty(seen):
    return {"rows": penalised_rows(seen), "own": partial(plain, rows=right_penalty)}


V = Variant
VARIANTS = [
    # the acceptance
    V("accepts where q >= p", "rejects each guess with q < p",
      verify=changed(lambda p, q, i, t: float(q[i][t] >= p[i][t]))),
    V("accepts with probability q", "and draws from the residual otherwise",
      verify=changed(lambda p, q, i, t: q[i][t])),
    V("accepts with q / max q", "and draws from q otherwise", "1bit-MONSTER #637",
      verify=changed(lambda p, q, i, t: q[i][t] / q[i].max(), lambda p, q, i, t: q[i])),
    V("ratio upside down", "min(1, p / q), if two papers are mixed up",
      verify=changed(lambda p, q, i, t: acceptance(q[i][t], p[i][t]))),
    V("lenient acceptance", "min(1, q / 0.8 p), which trades exactness for speed",
      "Leviathan et al. 2023, appendix A.5",
      verify=changed(lambda p, q, i, t: acceptance(0.8 * p[i][t], q[i][t]))),
    V("accepts everything", "no guess is ever rejected", "transformers #28508, vllm-ascend #13730",
      verify=changed(lambda p, q, i, t: 1.0)),
    V("first guess not checked", "it is always accepted", "lattice #243",
      verify=changed(lambda p, q, i, t: acceptance(p[i][t], q[i][t]) if i else 1.0)),
    V("one random number for all", "one u decides about all guesses of a round",
      "feifeibear/LLMSpeculativeSampling, with a seed",
      verify=one_random_number_for_all),
    V("u <= ratio", "where u may be 0, a token with q = 0 is accepted", "sglang #35771",
      decode=lambda rng: decode(Grid(rng), at_most, rows=two_tokens),
      own=lambda rng: decode(Grid(rng), rows=two_tokens)),
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
    V("changes a row in place", "the residual is computed in a row that the model keeps", "a kind of vLLM #16952",
      verify=changes_a_row_in_place, rows=kept_rows),
    # the bonus
    V("bonus from the row before", "from the row that the last guess was checked with",
      "AlphaGPU/leetgpu-challenges, 87",
      verify=changed(bonus=lambda p, q: q[-2])),
    V("bonus from a residual", "max_fn(q - p) of the last rows, which belong to two positions",
      verify=changed(bonus=lambda p, q: residual(p[-1], q[-1]))),
    V("the favourite as bonus", "the largest entry of q, in place of a draw",
      "shreyansh26/Speculative-Decoding, not called",
      verify=changed(draw_bonus=favourite)),
    # both
    V("row off by one", "guess i is checked with q[i + 1]",
      verify=changed(lambda p, q, i, t: acceptance(p[i][t], q[i + 1][t]), lambda p, q, i, t: residual(p[i], q[i + 1]))),
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
    V("one-hot draft, drawn again after a miss", "the target's own draw refuses the guess, and another one replaces it",
      "romsto/Speculative-Decoding", verify=draws_again_after_a_miss, propose=changed_draft(favourite, one_hot)),
    V("top-k draft with the p of all tokens", "it draws from two tokens, and reports p before the cut",
      "transformers #47932",
      propose=changed_draft(lambda row, rng: sample(max_fn(np.where(row >= np.sort(row)[-2], row, 0)), rng))),
    V("warm draft with a cold p", "it draws at temperature 1, and reports p at 0.5",
      propose=changed_draft(reported=lambda row: row**2 / (row**2).sum())),
    V("draft that forgets its own tokens", "all guesses are drawn from its first row", propose=forgets_its_own_tokens),
    V("noise drawn once per text", "the same number draws guess i in each round", "Infini-AI-Lab/Sequoia, 0ff3ff7",
      propose=noisy_draft(once=True)),
    V("one noise for two draws", "the u that drew a guess also draws its replacement",
      "as an option, until vLLM #54282",
      propose=noisy_draft(once=False),
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
    # the loop
    V("checks against q cut in another order", "top-k, then top-p, where plain sampling has top-p first",
      "sglang #36173",
      rows=cut_rows(top_k=2, top_p=TOP_P), own=partial(plain, rows=cut_rows(top_p=TOP_P))),
    V("overlooks an eos inside a round", "it looks at the last token of a round only", "transformers #47912",
      decode=overlooks_an_eos, own=partial(plain, eos=EOS)),
    V("redraws an accepted eos", "if a guess behind it is rejected, and replaces from q", "ccs96307/fast-llm-inference",
      decode=partial(overlooks_an_eos, verify=verification_of_the_note), own=partial(plain, eos=EOS)),
    # exact
    V("accept with probability q, replace by another token", "from q without the guess; p is not used", exact=True,
      verify=changed(lambda p, q, i, t: q[i][t], lambda p, q, i, t: without(q[i], t))),
    V("accept if the target draws the same", "and emit what the target draws", exact=True,
      verify=accepts_what_the_target_draws),
    V("accept if the same noise picks it from q", "and emit what it picks", "Daliri et al. 2024", exact=True,
      propose=noisy_draft(once=False),
      verify=changed(lambda p, q, i, t: picked(q[i], NOISE[i])[t], lambda p, q, i, t: picked(q[i], NOISE[i]))),
    V("`verify`", "one by one", "Chen et al. 2023, Leviathan et al. 2023", exact=True),
    V("`verify_block`", "block verification", "Sun et al. 2024", exact=True, verify=verify_block),
]  # fmt: skip

TREES = [
    V("all siblings judged by the first p", "the second was drawn from p without the first",
      decode=partial(tree, judges_all_siblings_by_the_first_p)),
    V("the best of the siblings judged", "the guess with the largest q / p, as if it were the only one",
      decode=partial(tree, judges_the_best_of_its_siblings)),
    V("q left as it is between siblings", "each child has its turn against q",
      decode=partial(tree, leaves_q_as_it_is_between_siblings)),
    V("each branch draws for itself", "its own token of the target; the first match counts",
      "warned of in fms-extras #12",
      decode=partial(tree, draws_for_each_branch)),
    V("w from the ratio of two norms", "bottom-up, but w becomes S / (1 - p(x)) and not S / (S + 1 - w)",
      "brian030128/subspec_v2, ce2c3ab", decode=partial(tree, divides_the_norms_to_get_w)),
    V("`top_down`", "each child against what the ones before it left", "SpecInfer", exact=True,
      decode=partial(tree, top_down)),
    V("`bottom_up`", "leaves first", "traversal verification", exact=True, decode=partial(tree, bottom_up)),
]  # fmt: skip


def rounded(distance):
    return f"{round(distance, 12):.4f}" if distance > 1e-15 else "< 1e-15"


def table(variants):
    """The variants in Markdown, the worst first."""
    distances = {variant.name: variant.distance() for variant in variants}
    lines = ["| variant | what it looks like | seen in | distance |", "| --- | --- | --- | ---: |"]
    for v in sorted(variants, key=lambda v: (v.exact, -round(distances[v.name], 12))):
        lines.append(
            f"| {v.name}{' (exact)' * v.exact} | {v.looks} | {linked(v.seen)} | {rounded(distances[v.name])} |"
        )
    return "\n".join(lines)


def exact_rules():
    """The exact rules in Markdown, with the tokens that a round adds."""
    rates = {v.name: v.tokens_per_round() for v in VARIANTS if v.exact}
    lines = ["| exact rule | tokens per round |", "| --- | ---: |"]
    return "\n".join([*lines, *(f"| {name} | {rates[name]:.4f} |" for name in sorted(rates, key=rates.get))])


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(table(VARIANTS), exact_rules(), table(TREES), sep="\n\n")
