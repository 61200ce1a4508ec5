"""The ways to get it wrong, each with the exact distance of its output from the target's. So this checker can fail.

Every variant looks right, runs, and writes fluent text. `python tests/test_broken_variants.py` prints the table of the
README. Where a docstring names an issue, the mistake was described there in public, by its finders; the code here is
only the idea of it, in our notation. (Most of these projects call the draft q and the target p.)
"""

import numpy as np
import pytest
from enumeration import output_distribution, total_variation

import speculative
from speculative import acceptance, autoregressive_sampling, max_fn, propose, residual, sample, verify, verify_block

# A draft and a target over three tokens, both looking at the last one only; the draft is off, but not by much.
P = np.array([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.1, 0.3, 0.6]])
Q = np.array([[0.3, 0.6, 0.1], [0.4, 0.4, 0.2], [0.3, 0.1, 0.6]])
PROMPT, N, K = [0], 3, 2
GALLERY = []  # (variant, its total variation distance, which function it stands in for)


def draft_model(ids, n_rows=1):
    return P[ids[-n_rows:]]


def target_model(ids, n_rows=1):
    return Q[ids[-n_rows:]]


def wrong_by(distance, part="verify"):
    def add(variant):
        GALLERY.append((variant, distance, part))
        return variant

    return add


@wrong_by(0.1292)
def target_instead_of_residual(drafted, p, q, rng):
    """After a rejection, the token is drawn from the target itself.

    What was accepted has its share of q already: q once more on top gives too much of what both models like.
    """
    for i, token in enumerate(drafted):
        if not rng.random() < acceptance(q[i, token], p[i, token]):
            return np.append(drafted[:i], sample(q[i], rng))
    return np.append(drafted, sample(q[-1], rng))


@wrong_by(0.2253)
def draft_instead_of_residual(drafted, p, q, rng):
    """After a rejection, the token is drawn from the draft once more."""
    for i, token in enumerate(drafted):
        if not rng.random() < acceptance(q[i, token], p[i, token]):
            return np.append(drafted[:i], sample(p[i], rng))
    return np.append(drafted, sample(q[-1], rng))


@wrong_by(0.1500)
def absolute_residual(drafted, p, q, rng):
    """The residual is abs(q - p), normalised: tokens that the draft likes too much come back."""
    for i, token in enumerate(drafted):
        if not rng.random() < acceptance(q[i, token], p[i, token]):
            return np.append(drafted[:i], sample(max_fn(np.abs(q[i] - p[i])), rng))
    return np.append(drafted, sample(q[-1], rng))


@wrong_by(0.0788)
def residual_with_the_rejected_token_removed(drafted, p, q, rng):
    """The residual is q without the rejected token, renormalised: SafeAILab/EAGLE #20, before its fix.

    That is right for a draft that is certain of its token, and for no other.
    """
    for i, token in enumerate(drafted):
        if not rng.random() < acceptance(q[i, token], p[i, token]):
            return np.append(drafted[:i], sample(max_fn(np.where(np.arange(q.shape[1]) == token, 0, q[i])), rng))
    return np.append(drafted, sample(q[-1], rng))


@wrong_by(0.0800)
def residual_of_the_first_row(drafted, p, q, rng):
    """The residual is that of the round's first position, wherever the rejection was."""
    for i, token in enumerate(drafted):
        if not rng.random() < acceptance(q[i, token], p[i, token]):
            return np.append(drafted[:i], sample(residual(q[0], p[0]), rng))
    return np.append(drafted, sample(q[-1], rng))


@wrong_by(0.3742)
def accept_with_the_targets_probability(drafted, p, q, rng):
    """A token is accepted with probability q, whatever p it was drawn with; the residual is as it should be."""
    for i, token in enumerate(drafted):
        if not rng.random() < q[i, token]:
            return np.append(drafted[:i], sample(residual(q[i], p[i]), rng))
    return np.append(drafted, sample(q[-1], rng))


@wrong_by(0.7600)
def accept_where_q_is_not_below_p(drafted, p, q, rng):
    """A token is accepted if q >= p and rejected if not: the coin is left out."""
    for i, token in enumerate(drafted):
        if not q[i, token] >= p[i, token]:
            return np.append(drafted[:i], sample(residual(q[i], p[i]), rng))
    return np.append(drafted, sample(q[-1], rng))


@wrong_by(0.3400)
def accept_the_ratio_upside_down(drafted, p, q, rng):
    """A token is accepted with probability min(1, p / q), as happens when the letters of two papers meet."""
    for i, token in enumerate(drafted):
        if not rng.random() < acceptance(p[i, token], q[i, token]):
            return np.append(drafted[:i], sample(residual(q[i], p[i]), rng))
    return np.append(drafted, sample(q[-1], rng))


@wrong_by(0.1150)
def lenient_acceptance(drafted, p, q, rng, lenience=0.8):
    """A token is accepted with probability min(1, q / (0.8 p)): a few more, and not the target's any longer.

    Leviathan et al. 2023 offer this as a trade, in appendix A.5, and say so.
    """
    for i, token in enumerate(drafted):
        if not rng.random() < acceptance(q[i, token], lenience * p[i, token]):
            return np.append(drafted[:i], sample(residual(q[i], p[i]), rng))
    return np.append(drafted, sample(q[-1], rng))


@wrong_by(0.3400)
def accept_everything(drafted, p, q, rng):
    """The comparison never fails, so all that is drafted is kept: huggingface/transformers #28508, which mends it."""
    return np.append(drafted, sample(q[-1], rng))


@wrong_by(0.3000)
def first_token_not_checked(drafted, p, q, rng):
    """The first drafted token is always kept: ohdearquant/lattice #243 (there for n-gram drafts, decoding greedily)."""
    for i, token in enumerate(drafted[1:], start=1):
        if not rng.random() < acceptance(q[i, token], p[i, token]):
            return np.append(drafted[:i], sample(residual(q[i], p[i]), rng))
    return np.append(drafted, sample(q[-1], rng))


@wrong_by(0.1700)
def row_off_by_one(drafted, p, q, rng):
    """Token i is held against the target's row after it instead of the row before it."""
    for i, token in enumerate(drafted):
        if not rng.random() < acceptance(q[i + 1, token], p[i, token]):
            return np.append(drafted[:i], sample(residual(q[i + 1], p[i]), rng))
    return np.append(drafted, sample(q[-1], rng))


@wrong_by(0.1140)
def bonus_from_the_row_before(drafted, p, q, rng):
    """When all are accepted, the token that is added comes from the last row that was checked, not from the next."""
    for i, token in enumerate(drafted):
        if not rng.random() < acceptance(q[i, token], p[i, token]):
            return np.append(drafted[:i], sample(residual(q[i], p[i]), rng))
    return np.append(drafted, sample(q[max(len(drafted) - 1, 0)], rng))


@wrong_by(0.3345)
def bonus_from_the_residual(drafted, p, q, rng):
    """When all are accepted, the token that is added comes from a residual too, with the p of the position before."""
    for i, token in enumerate(drafted):
        if not rng.random() < acceptance(q[i, token], p[i, token]):
            return np.append(drafted[:i], sample(residual(q[i], p[i]), rng))
    return np.append(drafted, sample(residual(q[-1], p[-1]) if len(p) else q[-1], rng))


@wrong_by(0.0620)
def goes_on_after_a_rejection(drafted, p, q, rng):
    """A rejected token is replaced in its place, and the tokens drafted after the rejected one are still considered.

    Like the output of openvinotoolkit/openvino.genai #4190: a word changes, and what was to follow it stays.
    """
    emitted = drafted.copy()
    for i, token in enumerate(drafted):
        if not rng.random() < acceptance(q[i, token], p[i, token]):
            emitted[i] = sample(residual(q[i], p[i]), rng)
    return np.append(emitted, sample(q[-1], rng))


@wrong_by(0.0900)
def one_coin_for_all(drafted, p, q, rng):
    """One random number is held against every token of the round: each is right alone, and together they are not."""
    u = rng.random()
    for i, token in enumerate(drafted):
        if not u < acceptance(q[i, token], p[i, token]):
            return np.append(drafted[:i], sample(residual(q[i], p[i]), rng))
    return np.append(drafted, sample(q[-1], rng))


@wrong_by(0.2175)
def withdraws_an_unsure_token(drafted, p, q, rng, threshold=0.4):
    """A drafted token whose p is below 0.4 is withdrawn, with all after it, before anything is checked.

    The token was looked at before it was thrown away, so what remains is drawn from another p. Stopping after such a
    token, and checking it, is exact: see `speculative.propose`.
    """
    unsure = [row[token] < threshold for row, token in zip(p, drafted, strict=True)]
    k = unsure.index(True) if any(unsure) else len(drafted)
    return verify(drafted[:k], p[:k], q[: k + 1], rng)


@wrong_by(0.1530)
def block_with_the_plain_product(drafted, p, q, rng):
    """Block verification that accepts the first i tokens with probability w_i, where it takes h_i."""
    w = [1.0]
    for i, token in enumerate(drafted):
        w.append(acceptance(w[i] * q[i, token], p[i, token]))
    kept = next(i for i in range(len(drafted), -1, -1) if i == 0 or rng.random() < w[i])
    return np.append(drafted[:kept], sample(residual(w[kept] * q[kept], p[kept]) if kept < len(p) else q[-1], rng))


@wrong_by(0.4100, "propose")
def argmax_weighed_with_softmax(x, draft_model, k, rng, stop=None):
    """The draft takes its most probable token, and hands over its probabilities as if it had drawn from them.

    jaymody/speculative-sampling #3; huggingface/transformers #33534, which mends it.
    """
    n, p = len(x), []
    for _ in range(k):
        p.append(draft_model(x)[-1])
        x = np.append(x, np.argmax(p[-1]))
    return x[n:], np.array(p)


@wrong_by(0.2137, "propose")
def top_k_draft_with_raw_p(x, draft_model, k, rng, stop=None):
    """The draft draws from its top 2 tokens, and hands over the probabilities before that cut.

    huggingface/transformers #47932: drawn from the processed logits, weighed with those before processing.
    """
    n, p = len(x), []
    for _ in range(k):
        p.append(draft_model(x)[-1])
        x = np.append(x, sample(max_fn(np.where(p[-1] >= np.sort(p[-1])[-2], p[-1], 0)), rng))
    return x[n:], np.array(p)


@wrong_by(0.1484, "propose")
def warm_draft_with_cold_p(x, draft_model, k, rng, stop=None):
    """The draft draws at temperature 1, and hands over its probabilities at temperature 0.5."""
    drafted, p = propose(x, draft_model, k, rng)
    return drafted, p**2 / (p**2).sum(axis=-1, keepdims=True) if k else p


@wrong_by(0.1080, "propose")
def draft_that_forgets_its_own_tokens(x, draft_model, k, rng, stop=None):
    """All k tokens are drawn after the prompt alone, but the rows handed over are those after each other."""
    n, prompt = len(x), x
    for _ in range(k):
        x = np.append(x, sample(draft_model(prompt)[-1], rng))
    return x[n:], draft_model(x[:-1], k) if k else np.empty((0, 3))


# Not guilty: two rules that look wrong as well


def accept_with_q_and_redraw_without(drafted, p, q, rng):
    """Accept with probability q; after a rejection draw from q without the rejected token. p is never looked at.

    Exact for any draft, since it is exact for each drafted token x by itself: x comes out with probability q(x), and
    any other y with (1 - q(x)) q(y) / (1 - q(x)). What is lost is speed: fewer tokens are accepted. This is the rule
    that SafeAILab/EAGLE #183 and #283 ask about; with one draft a position it is lossless.
    """
    for i, token in enumerate(drafted):
        if not rng.random() < q[i, token]:
            return np.append(drafted[:i], sample(max_fn(np.where(np.arange(q.shape[1]) == token, 0, q[i])), rng))
    return np.append(drafted, sample(q[-1], rng))


def accept_what_the_target_draws_too(drafted, p, q, rng):
    """Draw from the target at every position and emit that; go on as long as it is what was drafted."""
    for i, token in enumerate(drafted):
        if (own := sample(q[i], rng)) != token:
            return np.append(drafted[:i], own)
    return np.append(drafted, sample(q[-1], rng))


def decode(rng, variant=verify, part="verify"):
    with pytest.MonkeyPatch.context() as patch:
        if part == "propose":
            patch.setattr(speculative, "propose", variant)
        verifier = variant if part == "verify" else verify
        return speculative.speculative_sampling(PROMPT, draft_model, target_model, N, K, rng, verify=verifier)


def distance(variant, part="verify"):
    plain = output_distribution(lambda rng: autoregressive_sampling(PROMPT, target_model, N, rng))
    return total_variation(plain, output_distribution(lambda rng: decode(rng, variant, part)))


@pytest.mark.parametrize(("variant", "stated", "part"), GALLERY, ids=[v.__name__ for v, *_ in GALLERY])
def test_the_variant_is_found_out(variant, stated, part):
    assert distance(variant, part) > 1e-3
    assert distance(variant, part) == pytest.approx(stated, abs=5e-5)  # the table in the README


@pytest.mark.parametrize("exact", [accept_with_q_and_redraw_without, accept_what_the_target_draws_too])
def test_what_only_looks_wrong_is_acquitted(exact):
    assert distance(exact) < 1e-12


@pytest.mark.parametrize("verifier", [verify, verify_block])
def test_the_production_code_on_the_same_pair_is_exact(verifier):
    assert distance(verifier) < 1e-12


if __name__ == "__main__":
    print("| variant | what it looks like | total variation distance |\n| --- | --- | ---: |")
    for variant, _, part in sorted(GALLERY, key=lambda entry: -distance(entry[0], entry[2])):
        name, summary = variant.__name__.replace("_", " "), variant.__doc__.split("\n")[0]
        print(f"| {name} | {summary} | {distance(variant, part):.4f} |")
    for exact in (accept_with_q_and_redraw_without, accept_what_the_target_draws_too, verify, verify_block):
        print(f"| {exact.__name__} (exact) | {exact.__doc__.splitlines()[0]} | {distance(exact):.0e} |")
