"""speculative.py beyond the proof: block verification, options, the loop, and probabilities at the edge of float64."""

import random
from collections import Counter
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import (
    EXACT,
    Table,
    assert_lossless,
    both_verifiers,
    bundled,
    models,
    pairs,
    product_of_conditionals,
)

from enumeration import output_distribution
from lab import schedules
from lab.block import block_probabilities, verify_block
from lab.drafts import AsNetwork, lookup, shared_vocabulary
from lab.ngrams import ngram, online
from lab.schedules import SCHEDULES, make_schedule
from sampling import as_model, last_rows
from speculative import autoregressive_sampling, max_fn, propose, speculative_sampling, verify

# Block verification: Sun et al. 2024, Algorithm 2


def expected_tokens(verifier, draft, target, x, K):
    """The mean number of tokens that one round emits."""

    def n_emitted(rng):
        drafted, p = propose(x, draft, K, rng)
        return len(verifier(drafted, p, target(np.append(x, drafted), K + 1), rng))

    return sum(n * mass for (n,), mass in output_distribution(n_emitted).items())


@pytest.mark.parametrize("K", [0, 1, 2, 3])
@given(drawn=models())
def test_block_never_accepts_less_on_average(drawn, K):
    token_by_token, block = (
        expected_tokens(verifier, *drawn, K) for verifier in (verify, verify_block)
    )
    assert block > token_by_token - EXACT
    if K < 2:  # with at most one drafted token, the two rules are the same
        assert block == pytest.approx(token_by_token, abs=EXACT)


@pytest.mark.parametrize(
    ("p", "q", "token", "block"),
    [
        ([2 / 3, 1 / 3], [1 / 3, 2 / 3], 10 / 9, 11 / 9),
        ([0.2, 0.5, 0.3], [0.3, 0.2, 0.5], 1.19, 1.25),
    ],
    ids=["Sun et al. 2024", "lab/block.py"],
)
def test_how_many_guesses_both_rules_accept(p, q, token, block):
    for rule, n in (verify, token), (verify_block, block):
        assert expected_tokens(rule, Table([p]), Table([q]), np.array([0]), 2) - 1 == pytest.approx(
            n, abs=EXACT
        )


@pytest.mark.parametrize("K", [0, 1, 2, 3, 4])
@given(pair=pairs(sizes=[3, 2, 1]))
def test_expected_tokens_per_round(pair, K):
    """1 + alpha + ... + alpha^K, if rows do not depend on the context: Leviathan et al. 2023, equation 1."""
    p, q = pair
    expected = sum(np.minimum(p, q).sum() ** i for i in range(K + 1))
    assert expected_tokens(verify, Table([p]), Table([q]), np.array([0]), K) == pytest.approx(
        expected, abs=1e-11
    )


def decode(drawn, N, K, seed, **options):
    """Decode with NumPy's generator, with the calls of both models recorded. Returns the ids and the rounds."""
    draft, target, x = drawn
    draft.calls.clear()
    target.calls.clear()
    rounds = []
    ids = speculative_sampling(
        x, draft, target, N, K, np.random.default_rng(seed), on_round=rounds.append, **options
    )
    return ids, rounds


# The options


def hashed(ks):
    """A schedule that may depend on all that happened in the last round: a hash of that round picks k."""

    def schedule(last):
        happened = () if last is None else (*last.drafted.tolist(), *last.emitted.tolist())
        return ks[hash(happened) % len(ks)]

    return schedule


@st.composite
def networks(draw):
    """Models of networks, with settings of their own for draft and target. A penalty looks at all tokens before."""
    rows = st.lists(st.integers(-3, 3), min_size=3, max_size=3)
    tables = zip(*draw(st.lists(st.tuples(rows, rows), min_size=1, max_size=3)))
    settings = st.tuples(
        st.sampled_from([0, 0, 1e-6, 0.5, 1, 2, 1e6]), st.integers(0, 3), st.sampled_from([1e-9, 0.3, 0.5, 0.9, 1]),
        st.sampled_from([1, 1, 1.5, 3]),
    )  # fmt: skip
    draft, target = (as_model(Table(table), *draw(settings)) for table in tables)
    return draft, target, np.array([0, 2])


@st.composite
def almost_equal(draw):
    """Like the rows of one network that were computed in two ways. The residual is rounding errors, or zero."""
    _, target, x = draw(models(sizes=[3, 2]))
    away = draw(
        st.lists(st.sampled_from([-1, 0, 1]), min_size=target.rows.size, max_size=target.rows.size)
    )
    directions = np.where(target.rows > 0, np.array(away).reshape(target.rows.shape), 0)
    draft = Table(
        np.where(directions == 0, target.rows, np.nextafter(target.rows, directions * 2.0))
    )
    return (draft, target, x) if draw(st.booleans()) else (target, draft, x)


@st.composite
def counted(draw):
    """A draft that has counted tokens, or copies them."""
    _, target, x = draw(models(sizes=[3]))
    row = draw(
        st.sampled_from(
            [
                ngram([2, 0, 1, 0, 1, 1, 0], 3, 3),
                partial(online, n_vocab=3),
                partial(lookup, n_vocab=3),
            ]
        )
    )
    return as_model(AsNetwork(row), draw(st.sampled_from([1, 0.5, 0]))), target, x


@st.composite
def another_vocabulary(draw):
    """A draft that knows some of the target's tokens, under other ids, and some more."""
    draft, target, x = draw(models(sizes=[3]))
    known = draw(st.permutations([*range(3), -1, -1]))[: len(target.rows[0])]
    return shared_vocabulary(draft, np.array(known if max(known) >= 0 else [0, -1, -1])), target, x


def test_a_draft_that_shares_no_token_is_refused():
    with pytest.raises(ValueError, match="share no token"):
        shared_vocabulary(Table(np.eye(2)), [-1, -1])


EXTREME = (0, 1, 2, 1e-2, 1e-4, 1 - 2**-53, 1 + 2**-52, 2**-53, 1e-17, 1e-300, 5e-324)
STOPS = {
    "never": None,
    "after an unsure row": lambda row, token: row.max() < 0.6,
    "after an unlikely token": lambda row, token: row[token] < 0.5,
    "after token 0": lambda row, token: token == 0,
    "always": lambda row, token: True,
}
thresholds = st.sampled_from([0, 0.3, 0.5, 0.7, 1.1])
plans = st.tuples(st.sampled_from(SCHEDULES), thresholds) | st.tuples(
    st.lists(st.integers(0, 5), min_size=1, max_size=4).map(hashed), st.sampled_from([*STOPS])
)


@both_verifiers
@pytest.mark.parametrize(
    "drawn", [models(), models(weights=EXTREME), networks(), almost_equal(), counted(), another_vocabulary()],
    ids=["made-up rows", "rows at the edge of float64", "networks", "rows almost equal", "counts and copies",
         "another vocabulary"],
)  # fmt: skip
@settings(max_examples=30)
@given(
    data=st.data(),
    N=st.integers(1, 4),
    K=st.integers(0, 4),
    eos=st.sampled_from([None, 0]),
    plan=plans,
)
def test_lossless(verifier, drawn, data, N, K, eos, plan):
    """With any models, rule, schedule, stop and eos. One schedule serves many runs, so schedule(None) must reset it."""
    name, rest = plan
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            schedules, "EVERY", 3
        )  # so that `adaptive` tries the second best within a few tokens
        costs = lambda K: 1 + 0.3 * np.arange(K + 1)  # noqa: E731
        schedule, stop = (name, STOPS[rest]) if callable(name) else make_schedule(name, K, costs)
        if name == "target-confidence":
            schedule = schedules.target_confidence(K, rest)
        if name == "draft-confidence":
            stop = schedules.draft_confidence(rest)
        assert_lossless(
            data.draw(drawn), N, K, eos=eos, verify=verifier, schedule=schedule, stop=stop
        )


@given(
    drawn=models(),
    N=st.integers(1, 9),
    K=st.integers(1, 4),
    ks=st.lists(st.integers(0, 5), min_size=1, max_size=4),
)
def test_a_schedule_gets_each_round_but_the_last_and_a_stop_ends_the_drafting(drawn, N, K, ks):
    asked_with, schedule, stop = [], hashed(ks), STOPS["after an unlikely token"]
    _, rounds = decode(
        drawn, N, K, 0, schedule=lambda last: asked_with.append(last) or schedule(last), stop=stop
    )
    assert asked_with[0] is None and all(
        a is b for a, b in zip(asked_with[1:], rounds[:-1], strict=True)
    )
    for r in rounds:
        assert len(r.drafted) <= K and not any(map(stop, r.p[:-1], r.drafted[:-1]))
        # (a token that replaces a rejected one always differs from it)
        assert r.n_accepted == sum(a == b for a, b in zip(r.emitted, r.drafted))


@both_verifiers
def test_lossless_with_the_bundled_pair(verifier):
    draft, target = (
        as_model(bundled(name), temperature=0.7, top_k=2, top_p=0.9) for name in ("draft", "target")
    )
    assert_lossless((draft, target, [5, 6, 7]), 3, 2, verify=verifier)


@both_verifiers
def test_lossless_with_the_generator_of_numpy(verifier):
    """Each share of 2,000 samples is within four standard deviations of its exact probability."""
    draft, target = (
        Table([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3]]),
        Table([[0.3, 0.6, 0.1], [0.4, 0.4, 0.2]]),
    )
    rng, n = np.random.default_rng(0), 2_000
    found = Counter(
        tuple(speculative_sampling([0], draft, target, 2, 2, rng, verify=verifier))
        for _ in range(n)
    )
    for ids, probability in product_of_conditionals([0], target, 2).items():
        assert abs(found[ids] / n - probability) < 4 * np.sqrt(probability * (1 - probability) / n)


# The loop


@both_verifiers
@given(
    drawn=models(sizes=[1, 2, 4]), N=st.integers(0, 9), K=st.integers(0, 12), seed=st.integers(0, 9)
)
def test_each_round_records_what_happened(verifier, drawn, N, K, seed):
    draft, target, x = drawn
    ids, rounds = decode(drawn, N, K, seed, verify=verifier)
    assert ids.dtype.kind == "i" and ids.shape == (len(x) + N,)
    assert ids.tolist() == [*x.tolist(), *(t for r in rounds for t in r.emitted.tolist())]
    assert len(draft.calls) == sum(
        len(r.drafted) for r in rounds
    )  # one call for each drafted token
    n = len(x)
    for r, (seen, n_rows) in zip(
        rounds, target.calls, strict=True
    ):  # one pass of the target in each round
        k = len(r.drafted)
        assert k == min(K, len(x) + N - n - 1)  # no more than can still be used
        assert n_rows == k + 1 and seen == [*ids[:n].tolist(), *r.drafted.tolist()]
        assert r.p.shape == (k, len(target.rows[0]))
        assert r.p.tolist() == [draft.row(seen[: n + i]).tolist() for i in range(k)]
        assert r.q.tolist() == [target.row(seen[: n + i]).tolist() for i in range(k + 1)]
        assert 1 <= len(r.emitted) <= k + 1 and r.n_accepted == len(r.emitted) - 1
        n += len(r.emitted)


@given(drawn=models(sizes=[3]), N=st.integers(1, 9), K=st.integers(1, 4), seed=st.integers(0, 9))
def test_an_accepted_eos_has_no_token_of_the_target_behind_it(drawn, N, K, seed):
    ids, rounds = decode(drawn, N, K, seed, eos=0)
    *others, last = rounds
    assert all(r.n_accepted == len(r.emitted) - 1 for r in others)
    agreed = [*last.drafted[: len(last.emitted)]] == [
        *last.emitted
    ]  # a replacement differs from its guess
    assert last.n_accepted == len(last.emitted) - (not agreed) and 0 not in ids[len(drawn[2]) : -1]


@both_verifiers
@given(drawn=networks(), N=st.integers(1, 9), K=st.integers(0, 4), seed=st.integers(0, 9))
def test_the_probability_of_an_emitted_token_is_the_one_that_the_plain_loop_reports(
    verifier, drawn, N, K, seed
):
    draft, target, x = drawn
    rounds, rng = [], np.random.default_rng(seed)
    ids = speculative_sampling(x, draft, target, N, K, rng, verify=verifier, on_round=rounds.append)
    found = [r.q[i, token] for r in rounds for i, token in enumerate(r.emitted)]
    assert (
        found == [target(ids[:n])[-1, ids[n]] for n in range(len(x), len(ids))] and min(found) > 0
    )


@both_verifiers
@given(drawn=models(sizes=[1, 2, 4]), N=st.integers(0, 9), seed=st.integers(0, 9))
def test_K_0_is_the_autoregressive_loop(verifier, drawn, N, seed):
    """It draws the same numbers and reports the same rounds."""
    _, rounds = decode(drawn, N, 0, seed, verify=verifier)
    _, target, x = drawn
    plain = []
    autoregressive_sampling(x, target, N, np.random.default_rng(seed), on_round=plain.append)
    assert all(
        np.array_equal(a, b)
        for one, other in zip(rounds, plain, strict=True)
        for a, b in zip(one, other)
    )


def fast(x, model, N, **options):
    return speculative_sampling(x, model, model, N, 4, **options)


both_loops = pytest.mark.parametrize("loop", [autoregressive_sampling, fast])


@pytest.mark.parametrize(
    ("target", "K"),
    [
        (Table(np.eye(2)), 1),  # has another vocabulary than the draft
        (lambda ids, n_rows: np.eye(3)[ids], 1),  # returns a row for each of the ids
        (lambda ids, n_rows: np.eye(3)[:2], 0),
    ],
)
def test_rows_that_do_not_fit_together_are_an_error(target, K):
    with pytest.raises(
        ValueError, match=rf"found p .* and q .*, but \[{K}, n_vocab\] and \[{K + 1}, n_vocab\]"
    ):
        speculative_sampling([0, 1, 1], Table(np.eye(3)), target, 2, K)


@both_verifiers
def test_a_nan_is_an_error(verifier):
    p, q = np.array([[0.5, 0.5]] * 2), np.array([[0.5, 0.5]] * 3)
    for place in range(3):
        wrong = q.copy()
        wrong[place] = np.nan
        with pytest.raises(ValueError, match="NaN"):
            verifier(np.array([0, 1]), p, wrong, always(0.0 if place == 2 else LARGEST))


def test_recorded_rounds_are_not_changed_by_models_that_reuse_an_array():
    out, rounds = np.empty((3, 2)), []

    def reusing(ids, n_rows=1):
        out[:n_rows] = 0.5 / (1 + len(rounds)), 1 - 0.5 / (1 + len(rounds))
        return out[:n_rows]

    speculative_sampling([0], reusing, reusing, 6, 1, on_round=rounds.append)
    autoregressive_sampling([0], reusing, 2, on_round=rounds.append)
    assert [r.q[0, 0] for r in rounds] == [0.5 / (1 + i) for i in range(len(rounds))]


def test_the_smallest_models_that_work():
    """Two functions that return lists, as docs/your_models.md shows them, and one that returns all rows."""

    def draft(ids, n_rows=1):
        return [[0.5, 0.3, 0.2]] * n_rows

    def target(ids, n_rows=1):
        return [[0.3, 0.6, 0.1]] * n_rows

    assert (
        len(speculative_sampling([0], draft, target, N=10, K=3, rng=np.random.default_rng(0))) == 11
    )
    assert len(autoregressive_sampling([0], target, N=10, rng=np.random.default_rng(0))) == 11
    assert_lossless((draft, target, [0]), 2, 2)
    table = Table(np.random.default_rng(0).dirichlet(np.ones(3), size=5))

    def all_rows(ids):
        return table(ids, len(ids)).tolist()

    assert_lossless((draft, last_rows(all_rows), [0]), 2, 2)
    rounds, half = [], lambda ids, n_rows=1: table(ids, n_rows).astype(np.float16)
    for model in (
        half,
        lambda *args: half(*args).tolist(),
        lambda *args: half(*args).astype(np.longdouble),
    ):
        speculative_sampling(
            [0], model, model, 9, 2, np.random.default_rng(0), on_round=rounds.append
        )
    assert (
        max(abs(row.sum() - 1) for r in rounds for row in (*r.p, *r.q)) < 1e-15
    )  # normalised, as rng.choice does
    autoregressive_sampling([0], lambda ids: all_rows(ids), 3, on_round=rounds.append)
    assert rounds[-1].q.shape == (1, 3)  # of all rows, the one that was drawn from
    with pytest.raises(
        TypeError, match=r"does not take ids and n_rows; .* Does sampling\.last_rows"
    ):
        speculative_sampling([0], draft, all_rows, N=3, K=2)
    with pytest.raises(
        TypeError, match=r"does not take ids alone; a model is model\(ids, n_rows=1\)"
    ):
        speculative_sampling([0], lambda ids, n_rows: draft(ids, n_rows), target, N=3, K=2)


@both_loops
def test_without_rng_the_numbers_differ_and_the_result_shares_no_memory_with_the_prompt(loop):
    x, model = np.array([0, 1]), Table([[0.5, 0.5]])
    assert loop(x, model, 50).tolist() != loop(x, model, 50).tolist()
    for N in (0, 3):
        assert not np.shares_memory(loop(x, model, N), x)


def test_lossless_with_a_draft_that_reuses_its_array():
    draft, target = (
        Table(np.random.default_rng(seed).dirichlet(np.ones(3), size=5)) for seed in (0, 1)
    )
    out = np.empty((1, 3))

    def reusing(ids):
        out[:] = draft(ids)
        return out

    assert_lossless((reusing, target, np.array([0])), 3, 2)


# What callers may get wrong: the same in both loops


def rows_of(row):
    return lambda ids, n_rows=1: row


def writes_into_ids(ids, n_rows=1):
    ids[:] = 0
    return np.full((n_rows, 2), 0.5)


class FromTransformers:
    __module__ = "transformers.models.gpt2"


@both_loops
@pytest.mark.parametrize(
    ("change", "message"),
    [
        *(
            ({"x": x}, "the prompt must be token ids")
            for x in ("text", [], [[0, 1]], [0.5], 3, [0, -1], [2**63])
        ),
        *(
            ({"N": N}, f"N must be a whole number from 0 up; found {N!r}")
            for N in (-1, 2.5, np.nan, None, "3", True)
        ),
        (
            {"model": FromTransformers()},
            "a model of transformers has to be wrapped; docs/your_models.md",
        ),
        ({"model": rows_of(None)}, r"must return probabilities \[n_rows, n_vocab\]; found None"),
        (
            {"model": rows_of([0.5, 0.5])},
            r"must return probabilities \[n_rows, n_vocab\]; found \[2\]",
        ),
        ({"model": rows_of(np.eye(2)[:0])}, r"found \[0, 2\]"),
        ({"model": rows_of([[[0.5, 0.5]]])}, r"found \[1, 1, 2\]"),
        ({"model": rows_of([[2.0, -1.0]])}, "entries from -1, and sums of .*as_model takes logits"),
        ({"model": rows_of([[3.0, 1.0]])}, "rows must be >= 0 and sum to 1"),
        ({"model": rows_of([[np.nan, 1.0]])}, "entries from nan"),
        ({"eos": True}, "eos must be a token id, or several; found True"),
        *(
            ({"eos": e}, f"eos must be a token id, or several; found {e!r:.9}")
            for e in ("1", -1, {1: 2})
        ),
        ({"eos": [[1]]}, r"eos must be a token id, or several; found \[\[1\]\]"),
        *(({"rng": rng}, "rng must be a generator of NumPy") for rng in (random, random.Random(0))),
        ({"rng": "seed"}, "SeedSequence"),
    ],
)
def test_odd_calls(loop, change, message):
    call = {"x": [0], "model": Table([[0.5, 0.5]]), "N": 3} | change
    with pytest.raises((TypeError, ValueError), match=message):
        loop(**call)


@pytest.mark.parametrize("K", [-1, 2.5])
def test_an_odd_K(K):
    with pytest.raises(ValueError, match="K must be a whole number from 0 up"):
        speculative_sampling([0], Table([[0.5, 0.5]]), Table([[0.5, 0.5]]), 3, K)


@pytest.mark.parametrize(
    "emitted", [None, [], (np.array([0]), 1), [0, 0, 0, 0], [[0]], [0.5], 0, [2], [-1]]
)
def test_a_rule_that_returns_no_tokens(emitted):
    with pytest.raises(ValueError, match="verify must return 1 to 3 tokens below 2; found"):
        speculative_sampling(
            [0], Table([[0.5, 0.5]]), Table([[0.5, 0.5]]), 9, 2, verify=lambda *args: emitted
        )


@both_loops
def test_seeds_several_eos_and_those_who_write_into_what_they_get(loop):
    model = Table(np.random.default_rng(0).dirichlet(np.ones(5), size=9))
    texts = [
        loop([0], model, 30, rng=rng).tolist()
        for rng in (7, np.random.default_rng(7), np.random.SeedSequence(7))
    ]
    assert texts[0] == texts[1] == texts[2]
    for eos in [2, 3], {2, 3}, np.array([2, 3]), (2,), np.array(2):
        text = loop([0], model, 60, rng=7, eos=eos).tolist()
        assert text[-1] in (2, 3) and not {*text[:-1]} & {
            *np.ravel([*eos] if isinstance(eos, set) else eos).tolist()
        }
    assert loop([1], writes_into_ids, 5, rng=1)[0] == 1

    def writes(r):
        r.emitted[:] = 0

    assert loop([0], model, 30, rng=7, on_round=writes).tolist() == texts[0]


# Numerical edges


def test_max_fn():
    x = np.array([-1.0, 3.0, 1.0])
    assert max_fn(x).tolist() == [0, 0.75, 0.25] and x[0] == -1
    assert max_fn(np.array([5e-324, 0, 5e-324])).tolist() == [0.5, 0, 0.5]
    for nothing in ([0.0, 0.0], [-1.0, 0.0]):
        with pytest.raises(ValueError, match="positive"):
            max_fn(np.array(nothing))


def test_a_tiny_surplus_counts():
    """Block verification keeps exactly one token with probability surplus / (1 - w + surplus), however small."""
    p, q = (
        np.array([[1, 0], [0.5, 0.5]]),
        np.array([[1 - 1e-9, 1e-9], [0.5 + 1e-9, 0.5 - 1e-9], [1, 0]]),
    )
    w, h = block_probabilities(np.array([0, 1]), p, q)
    assert w[1] == 1 - 1e-9 and h[1] == pytest.approx(1 / 3, rel=1e-6)


def always(number):
    """A generator whose `random` always returns the same number."""
    return SimpleNamespace(random=lambda: number, choice=np.random.default_rng(0).choice)


LARGEST = 1 - 2**-53  # the largest number that NumPy's `random` returns


@both_verifiers
def test_no_random_number_rejects_a_token_where_q_is_above_p_or_accepts_it_where_q_is_0(verifier):
    half, second, first = (
        np.array([0.5, 0.5]),
        np.array([0.0, 1.0]),
        np.array([1.0, 0.0]),
    )  # second: all on token 1
    assert verifier(
        np.array([0]), half[None], np.array([first, first]), always(LARGEST)
    ).tolist() == [0, 0]
    assert verifier(
        np.array([0]), half[None], np.array([second, second]), always(0.0)
    ).tolist() == [1]
    assert verifier(
        np.array([0, 1]), np.array([half] * 2), np.array([second] * 3), always(0.0)
    ).tolist() == [1]
    p, q = (
        np.array([[0.5, 0.5, 1e-17]]),
        np.array([[0.5, 0.5, 0]] * 2),
    )  # q - p has no positive entry
    assert not any(
        2 in ids for ids in output_distribution(lambda rng: verifier(np.array([2]), p, q, rng))
    )
