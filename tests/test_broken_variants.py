"""A gallery of ways to get speculative sampling wrong, each with the exact distance of its output from the target's.

Every variant runs, and most look right. The table in docs/exactness.md explains each of them, names the issue if the
mistake was reported somewhere, and states the distance. The code here shows only the idea, and is not taken from other
projects. Most variants are `verify` with one change, and `changed(...)` builds them from this change.

The distance is the total variation distance, which is the largest error in the probability of any set of outputs.
enumeration.py computes it exactly, so a distance of 0.0001 is found as reliably as one of 0.7.
`PYTHONPATH=. python tests/test_broken_variants.py` prints the table with the distances that it computes.
"""

import re
from functools import cache, partial
from types import SimpleNamespace

import numpy as np
import pytest
from support import read

import speculative
from benchmarks import hsd
from enumeration import output_distribution, total_variation
from lab.block import block_probabilities, verify_block
from sampling import logits_to_probs, sample
from speculative import acceptance, autoregressive_sampling, max_fn, residual, verify

# P[t] and Q[t] are the rows of the draft and of the target after token t.
P = np.array([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.1, 0.3, 0.6]])
Q = np.array([[0.3, 0.6, 0.1], [0.4, 0.4, 0.2], [0.3, 0.1, 0.6]])
PROMPT, N, K = [0], 3, 2


def draft_model(ids, n_rows=1):
    return P[ids[-n_rows:]]


def target_model(ids, n_rows=1):
    return Q[ids[-n_rows:]]


def without(row, token):  # (`max_fn` normalises)
    return max_fn(np.where(np.arange(len(row)) == token, 0, row))


# ---- Variants of `verify` ----


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
                return np.append(drafted[:i], sample(replacement(p, q, i, token), rng))
        row = extra(p, q) if len(drafted) else q[-1]  # (without a drafted token, only q[-1] exists)
        return np.append(drafted, sample(row, rng))

    return variant


def continues_after_a_rejection(drafted, p, q, rng):
    emitted = drafted.copy()
    for i, token in enumerate(drafted):
        if not rng.random() < acceptance(p[i, token], q[i, token]):
            emitted[i] = sample(residual(p[i], q[i]), rng)
    return np.append(emitted, sample(q[-1], rng))


def one_random_number_for_all(drafted, p, q, rng):
    u = rng.random()
    return verify(drafted, p, q, SimpleNamespace(random=lambda: u, choice=rng.choice))


def withdraws_an_unsure_token(drafted, p, q, rng):
    unsure = [row[token] < 0.4 for row, token in zip(p, drafted, strict=True)]
    k = [*unsure, True].index(True)
    return verify(drafted[:k], p[:k], q[: k + 1], rng)


def block_with_w(drafted, p, q, rng):
    w, _ = block_probabilities(drafted, p, q)
    i = len(drafted)
    while i > 0 and not rng.random() < w[i]:
        i -= 1
    return np.append(drafted[:i], sample(q[i] if i == len(drafted) else residual(p[i], w[i] * q[i]), rng))


def accept_a_token_if_the_target_draws_it_too(drafted, p, q, rng):
    for i, token in enumerate(drafted):
        own = sample(q[i], rng)
        if own != token:
            return np.append(drafted[:i], own)
    return np.append(drafted, sample(q[-1], rng))


# ---- Shared noise: one number u in [0, 1) decides a draw, and the draft's numbers are used again ----

NOISE = []  # the numbers of this round


def picked(row, u):
    """The token in whose part of [0, 1) u lies, as a one-hot row."""
    return np.eye(len(row))[np.sum(row.cumsum()[:-1] <= u)]


def noisy_draft(once):
    """`propose` that draws by NOISE, which is filled once per text or once per round."""

    def variant(x, draft_model, k, rng, stop=None):
        if not once or len(x) == len(PROMPT):
            NOISE[:] = [rng.random() for _ in range(K)]
        numbers = iter(NOISE)
        return changed_draft(draw=lambda row, rng: picked(row, next(numbers)).argmax())(x, draft_model, k, rng)

    return variant


VERIFY = {
    "draws the replacement from the target": changed(replacement=lambda p, q, i, token: q[i]),
    "draws the replacement from the draft": changed(replacement=lambda p, q, i, token: p[i]),
    "draws the replacement from the row after": changed(replacement=lambda p, q, i, token: q[i + 1]),
    "absolute residual": changed(replacement=lambda p, q, i, token: max_fn(np.abs(q[i] - p[i]))),
    "residual of the first row": changed(replacement=lambda p, q, i, token: residual(p[0], q[0])),
    "removes the rejected token from q": changed(replacement=lambda p, q, i, token: without(q[i], token)),
    "accepts with probability q": changed(accept=lambda p, q, i, token: q[i, token]),
    # The two changes just above are each wrong alone. Together they are exact:
    "accept with probability q, replace by another token (exact)": changed(
        accept=lambda p, q, i, token: q[i, token],
        replacement=lambda p, q, i, token: without(q[i], token),
    ),
    "accepts where q >= p": changed(accept=lambda p, q, i, token: float(q[i, token] >= p[i, token])),
    "ratio upside down": changed(accept=lambda p, q, i, token: acceptance(q[i, token], p[i, token])),
    "lenient acceptance": changed(accept=lambda p, q, i, token: acceptance(0.8 * p[i, token], q[i, token])),
    "accepts everything": changed(accept=lambda p, q, i, token: 1.0),
    "first token not checked": changed(
        accept=lambda p, q, i, token: acceptance(p[i, token], q[i, token]) if i else 1.0
    ),
    "row off by one": changed(
        accept=lambda p, q, i, token: acceptance(p[i, token], q[i + 1, token]),
        replacement=lambda p, q, i, token: residual(p[i], q[i + 1]),
    ),
    "extra token from the row before": changed(extra=lambda p, q: q[-2]),
    "extra token from a residual": changed(extra=lambda p, q: residual(p[-1], q[-1])),
    "continues after a rejection": continues_after_a_rejection,
    "one random number for all": one_random_number_for_all,
    "withdraws an unsure token": withdraws_an_unsure_token,
    "block verification with w instead of h": block_with_w,
    "accept a token if the target draws it too (exact)": accept_a_token_if_the_target_draws_it_too,
    "accept a token if the same noise picks it from q (exact)": changed(
        accept=lambda p, q, i, token: picked(q[i], NOISE[i])[token],
        replacement=lambda p, q, i, token: picked(q[i], NOISE[i]),
    ),
    "`verify` (exact)": verify,
    "`verify_block` (exact)": verify_block,
}


# ---- Variants of `propose`: drafts that report another p than the one they drew from ----


def changed_draft(draw=sample, reported=lambda row: row):
    """`propose` with up to two changes: draw(row, rng) is the token, and reported(row) is the row that is returned."""

    def variant(x, draft_model, k, rng, stop=None):
        n, rows = len(x), []
        for _ in range(k):
            rows.append(draft_model(x)[-1])
            x = np.append(x, draw(rows[-1], rng))
        return x[n:], np.array([reported(row) for row in rows])

    return variant


def draft_that_forgets_its_own_tokens(x, draft_model, k, rng, stop=None):
    n, before = len(x), x
    for _ in range(k):
        x = np.append(x, sample(draft_model(before)[-1], rng))
    return x[n:], draft_model(x[:-1], k)


PROPOSE = {
    "greedy draft with its ordinary p": changed_draft(draw=lambda row, rng: np.argmax(row)),
    "top-k draft with the p of all tokens": changed_draft(
        draw=lambda row, rng: sample(max_fn(np.where(row >= np.sort(row)[-2], row, 0)), rng)
    ),
    "warm draft with a cold p": changed_draft(reported=lambda row: row**2 / (row**2).sum()),
    "draft that forgets its own tokens": draft_that_forgets_its_own_tokens,
    "noise drawn once per text": noisy_draft(once=True),
    "one noise for two draws": noisy_draft(once=False),
    "accept a token if the same noise picks it from q (exact)": noisy_draft(once=False),
}


# ---- Variants of the loop ----

EOS = 2


def looks_at_the_last_token(verify):
    """Texts that end after a round whose last token is the eos, and nowhere else."""

    def decode(rng):
        x = np.array(PROMPT)
        while len(x) < len(PROMPT) + N and x[-1] != EOS:
            drafted, p = speculative.propose(x, draft_model, min(K, len(PROMPT) + N - len(x) - 1), rng)
            x = np.append(x, verify(drafted, p, target_model(np.append(x, drafted), len(drafted) + 1), rng))
        return x

    return decode


def verification_of_the_note(drafted, p, q, rng):
    accepted = [rng.random() < acceptance(p[i, token], q[i, token]) for i, token in enumerate(drafted)]
    kept = accepted if all(accepted) else np.logical_and(accepted, drafted != EOS)
    i = [*kept, False].index(False)
    return np.append(drafted[:i], sample(q[i], rng))


def top_k_first(ids, n_rows=1):
    return logits_to_probs(np.log(target_model(ids, n_rows)), top_k=2, top_p=0.65)


def top_p_first(ids, n_rows=1):  # top-p comes first and leaves two tokens, so top_k = 2 cuts nothing more
    return logits_to_probs(np.log(target_model(ids, n_rows)), top_p=0.65)


def plain(model=target_model, eos=None):
    return lambda rng: autoregressive_sampling(PROMPT, model, N, rng, eos=eos)


def fast(draft=draft_model, target=target_model, verify=verify):
    return lambda rng: speculative.speculative_sampling(PROMPT, draft, target, N, K, rng, verify=verify)


replaces_by_the_same_noise = changed(replacement=lambda p, q, i, token: picked(residual(p[i], q[i]), NOISE[i]))

LOOP = {  # (the loop, plain sampling)
    "overlooks an eos inside a round": (looks_at_the_last_token(verify), plain(eos=EOS)),
    "the note's verification": (looks_at_the_last_token(verification_of_the_note), plain(eos=EOS)),
    "checks against q cut in another order": (fast(target=top_k_first), plain(top_p_first)),
    # Draft and target swap roles, because a residual with a single token needs no noise.
    "one noise for two draws": (fast(target_model, draft_model, replaces_by_the_same_noise), plain(draft_model)),
}


# ---- The distances ----

PAGE = read("docs/exactness.md")
ROWS = re.findall(r"^\| (.+) \| (.+) \| ([\d.]+|< 1e-15) \|$", PAGE, re.MULTILINE)  # name, explanation, distance


@cache
def distance(name):
    """The total variation distance between the outputs of a variant and of plain sampling from the target."""
    decode, own = LOOP.get(name, (fast(verify=VERIFY.get(name, verify)), plain()))
    with pytest.MonkeyPatch.context() as patch:  # `speculative_sampling` has no argument for another `propose`
        patch.setattr(speculative, "propose", PROPOSE.get(name, speculative.propose))
        return total_variation(output_distribution(decode), output_distribution(own))


def tokens_per_round(name):
    """How many tokens a round adds after the prompt, on average."""

    def first_round(rng):
        drafted, p = PROPOSE.get(name, speculative.propose)(PROMPT, draft_model, K, rng)
        return VERIFY[name](drafted, p, target_model(np.append(PROMPT, drafted), K + 1), rng)

    return sum(mass * len(emitted) for emitted, mass in output_distribution(first_round).items())


def rounded(name):
    return f"{distance(name):.4f}" if distance(name) > 1e-15 else "< 1e-15"


@pytest.mark.parametrize(("name", "stated"), [(name, stated) for name, _, stated in ROWS])
def test_a_variant_is_as_far_off_as_stated(name, stated):
    assert rounded(name) == stated and name.endswith("(exact)") == (stated == "< 1e-15")


def test_every_variant_is_explained():
    assert sorted(name for name, *_ in ROWS) == sorted({*VERIFY, *PROPOSE, *LOOP})


def table():
    lines = ["| variant | what it looks like | total variation distance |", "| --- | --- | ---: |"]
    for name, explanation, _ in sorted(ROWS, key=lambda row: round(distance(row[0]), 4), reverse=True):
        lines.append(f"| {name} | {explanation} | {rounded(name)} |")
    return "\n".join(lines)


def exact_rules():
    lines = ["| exact rule | tokens per round |", "| --- | ---: |"]
    rates = {name: tokens_per_round(name) for name in VERIFY if name.endswith("(exact)")}
    return "\n".join([*lines, *(f"| {name} | {rates[name]:.4f} |" for name in sorted(rates, key=rates.get))])


def test_the_exact_rules_accept_as_many_tokens_as_stated():
    assert exact_rules() in PAGE


def test_hsd_is_block_verification_and_its_published_code_is_not_exact():
    for p, q, k in hsd.pairs(1):
        block = hsd.one_round(verify_block, p, q, k)
        assert total_variation(block, hsd.one_round(hsd.hsd, p, q, k)) < 1e-12 > hsd.distance(block, q, k)
    p, q = np.tile([2 / 3, 1 / 3], (2, 1)), np.tile([1 / 3, 2 / 3], (2, 1))  # worked out by hand in docs/audit.md
    published = hsd.one_round(partial(hsd.hsd, published=True), p, q, 2)
    assert np.allclose([hsd.mean_length(published), hsd.distance(published, q, 2)], [21 / 9, 1 / 9], rtol=0, atol=1e-12)


if __name__ == "__main__":
    print(table(), exact_rules(), sep="\n\n")
