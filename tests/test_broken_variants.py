"""A gallery of ways to get speculative sampling wrong, each with the exact distance of its output from the target's.

Every variant looks right, runs, and writes fluent text. `PYTHONPATH=. python tests/test_broken_variants.py` prints the
table of the README. Most variants are `verify` with one thing changed, so only the change is written down. Where an
issue is named, the mistake was described there in public by its finders; the code here is only the idea of it, in our
notation. (Most of these projects call the draft q and the target p.)

The distance is the total variation distance: the largest error in the probability of any event. It is computed by
taking every way that the random choices can fall (see enumeration.py), so 0.0001 would be seen as well as 0.7.
"""

import numpy as np
import pytest

import speculative
from enumeration import output_distribution, total_variation
from speculative import (
    acceptance,
    autoregressive_sampling,
    block_probabilities,
    max_fn,
    propose,
    residual,
    sample,
    verify,
    verify_block,
)  # fmt: skip

# A draft and a target over three tokens. Both look at the last token only, and the draft is off, but not by much.
P = np.array([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.1, 0.3, 0.6]])
Q = np.array([[0.3, 0.6, 0.1], [0.4, 0.4, 0.2], [0.3, 0.1, 0.6]])
PROMPT, N, K = [0], 3, 2
GALLERY = []  # of (what it looks like, total variation distance, a function, the name of what it stands in for)


def draft_model(ids, n_rows=1):
    return P[ids[-n_rows:]]


def target_model(ids, n_rows=1):
    return Q[ids[-n_rows:]]


# ---- `verify` with one thing changed ----


def changed(accept=None, correct=None, bonus=None):
    """`verify` in which one of three things may be different.

    accept(p, q, i, token) is the probability to accept drafted token i, correct(p, q, i, token) the row that its
    replacement is drawn from, and bonus(p, q) the row for the token that is added when all were accepted.
    """

    def variant(drafted, p, q, rng):
        for i, token in enumerate(drafted):
            a = accept(p, q, i, token) if accept else acceptance(q[i, token], p[i, token])
            if not rng.random() < a:
                return np.append(drafted[:i], sample(correct(p, q, i, token) if correct else residual(q[i], p[i]), rng))
        return np.append(drafted, sample(bonus(p, q) if bonus and len(p) else q[-1], rng))

    return variant


def without(row, token):
    return max_fn(np.where(np.arange(len(row)) == token, 0, row))


def add(name, summary, distance, variant, part="verify"):
    GALLERY.append((name, summary, distance, variant, part))


add("draws the replacement from the target",
    "After a rejection, the token is drawn from q and not from the residual. But what was accepted has its share of q "
    "already.",
    0.1292, changed(correct=lambda p, q, i, token: q[i]))  # fmt: skip
add("draws the replacement from the draft", "After a rejection, the token is drawn from p again.",
    0.2253, changed(correct=lambda p, q, i, token: p[i]))  # fmt: skip
add("absolute residual", "The residual is abs(q - p), normalised: tokens that the draft likes too much come back.",
    0.1500, changed(correct=lambda p, q, i, token: max_fn(np.abs(q[i] - p[i]))))  # fmt: skip
add("removes the rejected token from q",
    "The residual is q without the rejected token: SafeAILab/EAGLE #20, before its fix. That is right for a draft that "
    "is certain of its token, and for no other.",
    0.0788, changed(correct=lambda p, q, i, token: without(q[i], token)))  # fmt: skip
add("residual of the first row", "The residual is that of the round's first position, wherever the rejection was.",
    0.0800, changed(correct=lambda p, q, i, token: residual(q[0], p[0])))  # fmt: skip
add("accepts with probability q", "A token is accepted with probability q, whatever p it was drawn with.",
    0.3742, changed(accept=lambda p, q, i, token: q[i, token]))  # fmt: skip
add("accepts where q >= p", "A token is accepted if q >= p and rejected if not: the random number is left out.",
    0.7600, changed(accept=lambda p, q, i, token: float(q[i, token] >= p[i, token])))  # fmt: skip
add("ratio upside down", "A token is accepted with probability min(1, p / q), which happens when two papers are mixed.",
    0.3400, changed(accept=lambda p, q, i, token: acceptance(p[i, token], q[i, token])))  # fmt: skip
add("lenient acceptance",
    "A token is accepted with probability min(1, q / (0.8 p)). Leviathan et al. 2023 offer this as a trade, in "
    "appendix A.5.",
    0.1150, changed(accept=lambda p, q, i, token: acceptance(q[i, token], 0.8 * p[i, token])))  # fmt: skip
add("accepts everything", "The comparison never fails: huggingface/transformers #28508, which fixes it.",
    0.3400, changed(accept=lambda p, q, i, token: 1.0))  # fmt: skip
add("first token not checked",
    "The first drafted token is always kept: ohdearquant/lattice #243 (there for n-gram drafts, decoding greedily).",
    0.3000, changed(accept=lambda p, q, i, token: acceptance(q[i, token], p[i, token]) if i else 1.0))  # fmt: skip
add("row off by one", "Drafted token i is compared with the target's row after it instead of the row before it.",
    0.1700, changed(lambda p, q, i, token: acceptance(q[i + 1, token], p[i, token]),
                    lambda p, q, i, token: residual(q[i + 1], p[i])))  # fmt: skip
add("bonus from the row before", "If all are accepted, the added token comes from the last row that was checked.",
    0.1140, changed(bonus=lambda p, q: q[-2]))  # fmt: skip
add("bonus from a residual", "If all are accepted, the added token comes from a residual too, with the last row of p.",
    0.3345, changed(bonus=lambda p, q: residual(q[-1], p[-1])))  # fmt: skip


# ---- Other rules for accepting ----


def variant(name, summary, distance, part="verify"):
    return lambda function: add(name, summary, distance, function, part) or function


@variant("continues after a rejection",
         "A rejected token is replaced, but the tokens that were drafted after it are still considered. The output of "
         "openvinotoolkit/openvino.genai #4190 looks like this: a word changes, and what was to follow it stays.",
         0.0620)  # fmt: skip
def continues_after_a_rejection(drafted, p, q, rng):
    emitted = drafted.copy()
    for i, token in enumerate(drafted):
        if not rng.random() < acceptance(q[i, token], p[i, token]):
            emitted[i] = sample(residual(q[i], p[i]), rng)
    return np.append(emitted, sample(q[-1], rng))


@variant("one random number for all",
         "One random number is compared with all acceptances of a round. Each token is right by itself, but not "
         "together with the others.",
         0.0900)  # fmt: skip
def one_random_number_for_all(drafted, p, q, rng):
    u = rng.random()
    for i, token in enumerate(drafted):
        if not u < acceptance(q[i, token], p[i, token]):
            return np.append(drafted[:i], sample(residual(q[i], p[i]), rng))
    return np.append(drafted, sample(q[-1], rng))


@variant("withdraws an unsure token",
         "A drafted token whose p is below 0.4 is thrown away before anything is checked. Stopping after such a token, "
         "and checking it, would be exact.",
         0.2175)  # fmt: skip
def withdraws_an_unsure_token(drafted, p, q, rng):
    unsure = [row[token] < 0.4 for row, token in zip(p, drafted, strict=True)]
    k = unsure.index(True) if any(unsure) else len(drafted)
    return verify(drafted[:k], p[:k], q[: k + 1], rng)


@variant("block verification with w instead of h", "The first i tokens are kept with probability w[i] instead of h[i].",
         0.1530)  # fmt: skip
def block_with_w(drafted, p, q, rng):
    w, _ = block_probabilities(drafted, p, q)
    i = next(i for i in range(len(drafted), -1, -1) if i == 0 or rng.random() < w[i])
    return np.append(drafted[:i], sample(residual(w[i] * q[i], p[i]) if i < len(p) else q[-1], rng))


# ---- Drafts that hand over another p than they drew from ----


@variant("argmax weighed with softmax",
         "The draft takes its most probable token, and hands over its probabilities as if it had drawn from them: "
         "jaymody/speculative-sampling #3; huggingface/transformers #33534, which fixes it.",
         0.4100, "propose")  # fmt: skip
def argmax_weighed_with_softmax(x, draft_model, k, rng, stop=None):
    n, p = len(x), []
    for _ in range(k):
        p.append(draft_model(x)[-1])
        x = np.append(x, np.argmax(p[-1]))
    return x[n:], np.array(p)


@variant("top-k draft with the p of all tokens",
         "The draft draws from its top 2 tokens, and hands over the probabilities before that cut: "
         "huggingface/transformers #47932.",
         0.2137, "propose")  # fmt: skip
def top_k_draft_with_the_p_of_all(x, draft_model, k, rng, stop=None):
    n, p = len(x), []
    for _ in range(k):
        p.append(draft_model(x)[-1])
        x = np.append(x, sample(max_fn(np.where(p[-1] >= np.sort(p[-1])[-2], p[-1], 0)), rng))
    return x[n:], np.array(p)


@variant("warm draft with a cold p",
         "The draft draws at temperature 1, and hands over its probabilities at temperature 0.5.", 0.1484, "propose",
         )  # fmt: skip
def warm_draft_with_a_cold_p(x, draft_model, k, rng, stop=None):
    drafted, p = propose(x, draft_model, k, rng)
    return drafted, p**2 / (p**2).sum(axis=-1, keepdims=True) if k else p


@variant("draft that forgets its own tokens",
         "All k tokens are drawn after the prompt alone, but the rows handed over are those after each drafted token.",
         0.1080, "propose")  # fmt: skip
def draft_that_forgets_its_own_tokens(x, draft_model, k, rng, stop=None):
    n, prompt = len(x), x
    for _ in range(k):
        x = np.append(x, sample(draft_model(prompt)[-1], rng))
    return x[n:], draft_model(x[:-1], k) if k else np.empty((0, 3))


# ---- Two rules that look just as wrong, but are exact ----

ACCEPT_WITH_Q = changed(lambda p, q, i, token: q[i, token], lambda p, q, i, token: without(q[i], token))


def accept_what_the_target_draws_too(drafted, p, q, rng):
    for i, token in enumerate(drafted):
        if (own := sample(q[i], rng)) != token:
            return np.append(drafted[:i], own)
    return np.append(drafted, sample(q[-1], rng))


EXACT_RULES = [
    ("accept with q, replace without",
     "Accept with probability q, and after a rejection draw from q without the rejected token; p is not used. Each "
     "drafted token x comes out with probability q(x), and any other y with (1 - q(x)) q(y) / (1 - q(x)). What is lost "
     "is speed. SafeAILab/EAGLE #183 and #283 ask about this rule.", ACCEPT_WITH_Q),
    ("accept what the target draws too",
     "Draw from the target at every position and emit that; continue as long as it is what was drafted.",
     accept_what_the_target_draws_too),
    ("`verify`", "The rule of Chen et al. 2023 and Leviathan et al. 2023.", verify),
    ("`verify_block`", "Block verification, Sun et al. 2024.", verify_block),
]  # fmt: skip


def distance(variant, part="verify"):
    """The total variation distance between the output of a variant and plain sampling from the target."""

    def decode(rng):
        with pytest.MonkeyPatch.context() as patch:
            if part == "propose":
                patch.setattr(speculative, "propose", variant)
            verifier = variant if part == "verify" else verify
            return speculative.speculative_sampling(PROMPT, draft_model, target_model, N, K, rng, verify=verifier)

    plain = output_distribution(lambda rng: autoregressive_sampling(PROMPT, target_model, N, rng))
    return total_variation(plain, output_distribution(decode))


@pytest.mark.parametrize(("stated", "variant", "part"), [v[2:] for v in GALLERY], ids=[v[0] for v in GALLERY])
def test_a_broken_variant_is_as_far_off_as_the_table_says(stated, variant, part):
    assert distance(variant, part) == pytest.approx(stated, abs=5e-5)


@pytest.mark.parametrize("exact", [rule[2] for rule in EXACT_RULES], ids=[rule[0] for rule in EXACT_RULES])
def test_what_only_looks_wrong_is_acquitted(exact):
    assert distance(exact) < 1e-12


def test_with_nothing_changed_it_is_verify():
    assert distance(changed()) < 1e-12


def table():
    lines = ["| variant | what it looks like | total variation distance |", "| --- | --- | ---: |"]
    for name, summary, _, variant, part in sorted(GALLERY, key=lambda v: -distance(v[3], v[4])):
        lines.append(f"| {name} | {summary} | {distance(variant, part):.4f} |")
    lines += [f"| {name} (exact) | {summary} | {distance(exact):.0e} |" for name, summary, exact in EXACT_RULES]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
