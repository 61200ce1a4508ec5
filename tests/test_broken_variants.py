"""A gallery of ways to get speculative sampling wrong, each with the exact distance of its output from the target's.

Every variant runs, and most look right. docs/exactness.md shows the table that
`PYTHONPATH=. python tests/test_broken_variants.py` prints. Most variants are `verify` with one change, so only the
change is written down. A wrong variant that names an issue shows a mistake that was reported there. The code here
is ours, and only shows the idea. (Most of these projects call the draft q and the target p.)

The distance is the total variation distance, which is the largest error in the probability of any set of outputs.
enumeration.py computes it exactly, so a distance of 0.0001 is found as reliably as one of 0.7.
"""

import numpy as np
import pytest

import speculative
from enumeration import output_distribution, total_variation
from sampling import sample
from speculative import acceptance, autoregressive_sampling, block_probabilities, max_fn, residual, verify, verify_block

# P[t] and Q[t] are the rows of the draft and of the target after token t.
P = np.array([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.1, 0.3, 0.6]])
Q = np.array([[0.3, 0.6, 0.1], [0.4, 0.4, 0.2], [0.3, 0.1, 0.6]])
PROMPT, N, K = [0], 3, 2
GALLERY = []  # (name, summary, total variation distance, function, the function of speculative.py that it replaces)


def draft_model(ids, n_rows=1):
    return P[ids[-n_rows:]]


def target_model(ids, n_rows=1):
    return Q[ids[-n_rows:]]


def without(row, token):
    return max_fn(np.where(np.arange(len(row)) == token, 0, row))


def add(name, summary, distance, variant, part="verify"):
    GALLERY.append((name, summary, distance, variant, part))


def in_gallery(name, summary, distance, part="verify"):
    """A decorator that adds a function to the gallery."""

    def register(function):
        add(name, summary, distance, function, part)
        return function

    return register


# ---- `verify` with one change ----


def changed(
    accept=lambda p, q, i, token: acceptance(p[i, token], q[i, token]),
    replacement=lambda p, q, i, token: residual(p[i], q[i]),
    extra=lambda p, q: q[-1],
):
    """`verify` with up to three changes.

    accept(p, q, i, token) is the probability to accept drafted token i. replacement(p, q, i, token) is the row that its
    replacement is drawn from. extra(p, q) is the row of the token that is added if all are accepted.
    """

    def variant(drafted, p, q, rng):
        for i, token in enumerate(drafted):
            if not rng.random() < accept(p, q, i, token):
                row = replacement(p, q, i, token)
                return np.append(drafted[:i], sample(row, rng))
        row = extra(p, q) if len(drafted) else q[-1]  # (without a drafted token, only q[-1] exists)
        return np.append(drafted, sample(row, rng))

    return variant


add("draws the replacement from the target",
    "After a rejection, the token is drawn from q, not from the residual. But each token t also gets into the text by "
    "being drafted and accepted, with probability min(p(t), q(t)). The replacement must add only the rest, "
    "q(t) - min(p(t), q(t)).",
    0.1292, changed(replacement=lambda p, q, i, token: q[i]))  # fmt: skip
add("draws the replacement from the draft", "After a rejection, the token is drawn from p again.",
    0.2253, changed(replacement=lambda p, q, i, token: p[i]))  # fmt: skip
add("absolute residual",
    "The residual is abs(q - p), normalised. So it contains tokens that the draft already proposes too often.",
    0.1500, changed(replacement=lambda p, q, i, token: max_fn(np.abs(q[i] - p[i]))))  # fmt: skip
add("draws the replacement from the row after",
    "After a rejection, the added token is drawn from q[i + 1], the row after the rejected token. So the rejected "
    "word is missing, and a word that fits after it stands in its place: openvinotoolkit/openvino.genai #4190.",
    0.1827, changed(replacement=lambda p, q, i, token: q[i + 1]))  # fmt: skip
add("removes the rejected token from q",
    "The residual is q without the rejected token: SafeAILab/EAGLE #20, before its fix. This is right for a draft "
    "that gives its token probability 1 (a greedy draft), but not in general.",
    0.0788, changed(replacement=lambda p, q, i, token: without(q[i], token)))  # fmt: skip
add("residual of the first row", "The residual is that of the first position of the round, wherever the rejection was.",
    0.0800, changed(replacement=lambda p, q, i, token: residual(p[0], q[0])))  # fmt: skip
add("accepts with probability q",
    "A token is accepted with probability q, whatever p is. After a rejection, a token is drawn from the residual. (A "
    "different replacement makes it exact, see below.)",
    0.3742, changed(accept=lambda p, q, i, token: q[i, token]))  # fmt: skip
add("accepts where q >= p", "A token is accepted if q >= p, and rejected otherwise. Chance plays no part in it.",
    0.7600, changed(accept=lambda p, q, i, token: float(q[i, token] >= p[i, token])))  # fmt: skip
# "Observations" in docs/exactness.md says why the next variant has the same distance as "accepts everything" below.
# (This needs N <= K + 1.)
add("ratio upside down",
    "A token is accepted with probability min(1, p / q). This happens when the notations of two papers are mixed up.",
    0.3400, changed(accept=lambda p, q, i, token: acceptance(q[i, token], p[i, token])))  # fmt: skip
add("lenient acceptance",
    "A token is accepted with probability min(1, q / (0.8 p)). Leviathan et al. 2023, appendix A.5, offer this as a "
    "trade of exactness for speed.",
    0.1150, changed(accept=lambda p, q, i, token: acceptance(0.8 * p[i, token], q[i, token])))  # fmt: skip
add("accepts everything",
    "No token is ever rejected. huggingface/transformers #28508 fixed such a mistake, in the count of accepted tokens.",
    0.3400, changed(accept=lambda p, q, i, token: 1.0))  # fmt: skip
add("first token not checked",
    "The first drafted token is always accepted. ohdearquant/lattice #243 reports it for n-gram drafts and greedy "
    "decoding.",
    0.3000, changed(accept=lambda p, q, i, token: acceptance(p[i, token], q[i, token]) if i else 1.0))  # fmt: skip
add("row off by one", "Drafted token i is checked with q[i + 1], the row for the token after it, instead of q[i].",
    0.1700, changed(accept=lambda p, q, i, token: acceptance(p[i, token], q[i + 1, token]),
                    replacement=lambda p, q, i, token: residual(p[i], q[i + 1])))  # fmt: skip
add("extra token from the row before",
    "If all are accepted, the added token comes from the row that the last drafted token was checked with.",
    0.1140, changed(extra=lambda p, q: q[-2]))  # fmt: skip
add("extra token from a residual",
    "If all are accepted, the added token comes from max_fn(q - p) of the last rows. But the last row of q "
    "belongs to a later position than the last row of p.",
    0.3345, changed(extra=lambda p, q: residual(p[-1], q[-1])))  # fmt: skip


# ---- Other rules for accepting ----


@in_gallery("continues after a rejection",
         "A rejected token is replaced, but the tokens that were drafted after it are still considered.",
         0.0620)  # fmt: skip
def continues_after_a_rejection(drafted, p, q, rng):
    emitted = drafted.copy()
    for i, token in enumerate(drafted):
        if not rng.random() < acceptance(p[i, token], q[i, token]):
            emitted[i] = sample(residual(p[i], q[i]), rng)
    return np.append(emitted, sample(q[-1], rng))


@in_gallery("one random number for all",
         "One random number decides about all drafted tokens of a round. Taken alone, each one is accepted with the "
         "right probability. But if one is accepted, the next one is accepted too often.",
         0.0900)  # fmt: skip
def one_random_number_for_all(drafted, p, q, rng):
    u = rng.random()
    for i, token in enumerate(drafted):
        if not u < acceptance(p[i, token], q[i, token]):
            return np.append(drafted[:i], sample(residual(p[i], q[i]), rng))
    return np.append(drafted, sample(q[-1], rng))


@in_gallery("withdraws an unsure token",
         "The first drafted token whose p is below 0.4 is deleted before the check, and so are all later ones. An "
         "exact rule would keep this token, stop drafting there, and check it like the others.",
         0.2175)  # fmt: skip
def withdraws_an_unsure_token(drafted, p, q, rng):
    unsure = [row[token] < 0.4 for row, token in zip(p, drafted, strict=True)]
    k = unsure.index(True) if any(unsure) else len(drafted)
    return verify(drafted[:k], p[:k], q[: k + 1], rng)


@in_gallery("block verification with w instead of h",
            "Each prefix is kept with probability w[i]. But w[i] is the probability to keep this prefix or a longer "
            "one. The longer ones were tried before, so a part of w[i] is used up. h[i] takes that into account.",
            0.1530)  # fmt: skip
def block_with_w(drafted, p, q, rng):
    w, _ = block_probabilities(drafted, p, q)
    i = len(drafted)
    while i > 0 and not rng.random() < w[i]:
        i -= 1
    return np.append(drafted[:i], sample(residual(p[i], w[i] * q[i]) if i < len(p) else q[-1], rng))


# ---- Drafts that report another p than the one they drew from ----


def changed_draft(draw=sample, reported=lambda row: row):
    """`propose` with up to two changes: draw(row, rng) is the token, and reported(row) is the row that is returned."""

    def variant(x, draft_model, k, rng, stop=None):
        n, rows = len(x), []
        for _ in range(k):
            rows.append(draft_model(x)[-1])
            x = np.append(x, draw(rows[-1], rng))
        return x[n:], np.array([reported(row) for row in rows])

    return variant


add("greedy draft with its ordinary p",
    "The draft always takes its most probable token. But it reports its softmax as p, as if it had sampled. (The "
    "right p is 1 at this token.) jaymody/speculative-sampling #3 reports it. huggingface/transformers had it too, and "
    "fixed it in #33534.",
    0.4100, changed_draft(draw=lambda row, rng: np.argmax(row)), "propose")  # fmt: skip
add("top-k draft with the p of all tokens",
    "The draft draws from its top 2 tokens, but reports the probabilities before that cut: "
    "huggingface/transformers #47932.",
    0.2137, changed_draft(draw=lambda row, rng: sample(max_fn(np.where(row >= np.sort(row)[-2], row, 0)), rng)),
    "propose")  # fmt: skip
add("warm draft with a cold p", "The draft draws at temperature 1, but reports its probabilities at temperature 0.5.",
    0.1484, changed_draft(reported=lambda row: row**2 / (row**2).sum()), "propose")  # fmt: skip


@in_gallery("draft that forgets its own tokens",
         "All K tokens are drawn from the same row, the draft's row at the start of the round. But the reported "
         "row i is the one after the first i drafted tokens.",
         0.1080, "propose")  # fmt: skip
def draft_that_forgets_its_own_tokens(x, draft_model, k, rng, stop=None):
    n, before = len(x), x
    for _ in range(k):
        x = np.append(x, sample(draft_model(before)[-1], rng))
    return x[n:], draft_model(x[:-1], k) if k else np.empty((0, 3))


# ---- Rules that are exact, although the first two look wrong ----


def accept_a_token_if_the_target_draws_it_too(drafted, p, q, rng):
    for i, token in enumerate(drafted):
        own = sample(q[i], rng)
        if own != token:
            return np.append(drafted[:i], own)
    return np.append(drafted, sample(q[-1], rng))


EXACT_RULES = [
    ("accept with probability q, replace by another token",
     "Accept with probability q, and after a rejection draw from q without the rejected token; p is not used. "
     "Suppose that the draft proposed t. Then t is emitted with probability q(t). Another token y is emitted if t is "
     "rejected (probability 1 - q(t)) and then y is drawn (probability q(y) / (1 - q(t))). The product is q(y). On "
     "average, this rule accepts no more tokens than `verify`. SafeAILab/EAGLE #183 and #283 ask about it.",
     changed(accept=lambda p, q, i, token: q[i, token], replacement=lambda p, q, i, token: without(q[i], token))),
    ("accept a token if the target draws it too",
     "At each position, draw a token from the target, and emit it. Stop after the first one that differs from the "
     "drafted token.",
     accept_a_token_if_the_target_draws_it_too),
    ("`verify`", "The rule of Chen et al. 2023 and Leviathan et al. 2023.", verify),
    ("`verify_block`", "Block verification, Sun et al. 2024.", verify_block),
]  # fmt: skip


def distance(variant, part="verify"):
    """The total variation distance between the outputs of a variant and of plain sampling from the target."""

    def decode(rng):
        with pytest.MonkeyPatch.context() as patch:
            if part == "propose":  # for which `speculative_sampling` has no argument
                patch.setattr(speculative, "propose", variant)
            verifier = variant if part == "verify" else verify
            return speculative.speculative_sampling(PROMPT, draft_model, target_model, N, K, rng, verify=verifier)

    plain = output_distribution(lambda rng: autoregressive_sampling(PROMPT, target_model, N, rng))
    return total_variation(plain, output_distribution(decode))


@pytest.mark.parametrize(("stated", "variant", "part"), [v[2:] for v in GALLERY], ids=[v[0] for v in GALLERY])
def test_a_broken_variant_is_as_far_off_as_stated(stated, variant, part):
    assert distance(variant, part) == pytest.approx(stated, abs=5e-5)


@pytest.mark.parametrize("exact", [rule[2] for rule in EXACT_RULES], ids=[rule[0] for rule in EXACT_RULES])
def test_an_exact_rule_has_distance_0(exact):
    assert distance(exact) < 1e-12


def table():
    lines = ["| variant | what it looks like | total variation distance |", "| --- | --- | ---: |"]
    broken = [(round(distance(variant, part), 4), name, summary) for name, summary, _, variant, part in GALLERY]
    lines += [f"| {name} | {summary} | {far:.4f} |" for far, name, summary in sorted(broken, reverse=True)]
    lines += [f"| {name} (exact) | {summary} | {distance(exact):.0e} |" for name, summary, exact in EXACT_RULES]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
