"""speculative.py beyond the proof: options, the loop, and probabilities at the edge of float64."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.exact import assert_lossless, both_verifiers
from support.models import Table, bundled, models, reusing

from enumeration import sum_over_paths
from lab.schedules import SCHEDULES, drafting, make_schedule
from lab.wrappers import last_rows, shared_vocabulary
from sampling import as_model
from speculative import autoregressive_sampling, max_fn, speculative_sampling

HALF = [0.5, 0.5]
RANDOM = Table(np.random.default_rng(0).dirichlet(np.ones(5), size=9))


def decode(drawn, N, K, seed, **options):
    """Decode with NumPy's generator -> ids, rounds. The models record their calls."""
    draft, target, x = drawn
    draft.calls.clear()
    target.calls.clear()
    rounds = []
    ids = speculative_sampling(x, draft, target, N, K, seed, on_round=rounds.append, **options)
    return ids, rounds


# The options


def hashed(ks):
    """A schedule that may depend on all of the last round: a hash of that round picks k."""

    def schedule(last):
        happened = () if last is None else (*last.drafted.tolist(), *last.emitted.tolist())
        return ks[hash(happened) % len(ks)]

    return schedule


EXTREME = (0, 1, 2, 1e-2, 1e-4, 1 - 2**-53, 1 + 2**-52, 2**-53, 1e-17, 1e-300, 5e-324)
KINDS = {
    "made-up rows": models(),
    "rows at the edge of float64": models(weights=EXTREME),
}
STOPS = {
    "never": None,
    "after an unsure row": lambda row, token: row.max() < 0.6,
    "after an unlikely token": lambda row, token: row[token] < 0.5,
    "always": lambda row, token: True,
}
own_schedules = st.lists(st.integers(0, 5), min_size=1, max_size=4).map(hashed)


@pytest.mark.exact
@both_verifiers
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30)
@given(
    data=st.data(),
    N=st.integers(1, 4),
    K=st.integers(0, 4),
    eos=st.sampled_from([None, 0]),
    schedule=own_schedules | st.sampled_from(SCHEDULES),
    own_stop=st.sampled_from([*STOPS.values()]),
)
def test_lossless(verifier, kind, data, N, K, eos, schedule, own_stop):
    """Speculative sampling is lossless with any models, rule, schedule, stop and eos."""

    def parts():
        chosen, stop = make_schedule(schedule, K)
        propose, on_round = drafting(chosen, stop or own_stop)
        return {"propose": propose, "on_round": on_round}

    assert_lossless(data.draw(KINDS[kind]), N, K, eos, parts, verify=verifier)


def test_a_schedule_gets_the_last_round_and_a_stop_ends_the_drafting():
    schedule = hashed([0, 1, 3, 5])
    stop = STOPS["after an unlikely token"]
    propose, see = drafting(schedule, stop)
    rounds = [None]

    def on_round(r):
        rounds.append(r)
        see(r)

    speculative_sampling([0], RANDOM, RANDOM, 60, 4, 0, propose=propose, on_round=on_round)
    for last, r in pairwise(rounds):
        assert len(r.drafted) <= min(4, schedule(last))
        assert not any(map(stop, r.p[:-1], r.drafted[:-1]))


@pytest.mark.exact
def test_lossless_with_the_bundled_pair():
    settings = dict(temperature=0.7, top_k=2, top_p=0.9)
    draft, target = (as_model(bundled(name), **settings) for name in ("draft", "target"))
    assert_lossless((draft, target, [5, 6, 7]), 3, 2)


# The loop


@both_verifiers
@given(
    drawn=models(sizes=[1, 2, 4]), N=st.integers(0, 9), K=st.integers(0, 12), seed=st.integers(0, 9)
)
def test_each_round_records_what_happened(verifier, drawn, N, K, seed):
    draft, target, x = drawn
    ids, rounds = decode(drawn, N, K, seed, verify=verifier)
    assert len(ids) == len(x) + N
    assert len(draft.calls) == sum(len(r.drafted) for r in rounds)
    n = len(x)
    for r, (ids_of_pass, _) in zip(rounds, target.calls, strict=True):  # one pass in each round
        k = min(K, len(x) + N - n - 1)  # no more than can still be used
        assert ids_of_pass == [*ids[:n], *r.drafted] and len(r.drafted) == k
        assert r.p.tolist() == [draft.row(ids_of_pass[: n + i]).tolist() for i in range(k)]
        assert r.q.tolist() == [target.row(ids_of_pass[: n + i]).tolist() for i in range(k + 1)]
        assert r.n_accepted == len(r.emitted) - 1
        n += len(r.emitted)
        assert r.emitted.tolist() == ids[n - len(r.emitted) : n].tolist()


@given(drawn=models(sizes=[3]), N=st.integers(1, 9), K=st.integers(1, 4), seed=st.integers(0, 9))
def test_an_accepted_eos_has_no_token_of_the_target_behind_it(drawn, N, K, seed):
    ids, rounds = decode(drawn, N, K, seed, eos=0)
    *earlier, last = rounds
    assert 0 not in ids[len(drawn[2]) : -1]
    assert all(r.n_accepted == len(r.emitted) - 1 for r in earlier)
    n = len(last.emitted)
    is_accepted = last.drafted[:n].tolist() == last.emitted.tolist()  # a replacement differs
    assert last.n_accepted == (n if is_accepted else n - 1)


# Models


def draft_of_lists(ids, n_rows=1):
    return [[0.5, 0.3, 0.2]] * n_rows


def all_rows(ids):
    """A model as in J. Mody's blog post: it returns a row for each of the ids."""
    return [[0.3, 0.6, 0.1] if token else [0.1, 0.2, 0.7] for token in ids]


def test_the_smallest_models_that_work():
    """Functions that return lists, as docs/your_models.md shows them."""
    assert_lossless((draft_of_lists, draft_of_lists, [0]), 2, 2)
    assert_lossless((draft_of_lists, last_rows(all_rows), [0]), 2, 2)
    rounds = []
    autoregressive_sampling([0, 1], all_rows, 1, on_round=rounds.append)
    assert rounds[0].q.tolist() == [[0.3, 0.6, 0.1]]  # of all rows, the one that was drawn from


@pytest.mark.parametrize(
    ("target", "K"),
    [
        (Table(np.eye(2)), 1),  # has another vocabulary than the draft
        (lambda ids, n_rows: np.eye(3)[ids], 1),  # returns a row for each of the ids
        (lambda ids, n_rows: np.eye(3)[:2], 0),
    ],
)
def test_rows_that_do_not_fit_together_are_an_error(target, K):
    needed = rf"\[{K}, n_vocab\] and \[{K + 1}, n_vocab\]"
    with pytest.raises(ValueError, match=f"found p .* and q .*, but {needed}"):
        speculative_sampling([0, 1, 1], Table(np.eye(3)), target, 2, K)


# What callers may get wrong: the same in both loops


def fast(x, model, N, **options):
    return speculative_sampling(x, model, model, N, 4, **options)


both_loops = pytest.mark.parametrize("loop", [autoregressive_sampling, fast])


def writing_into_ids(model):
    def call(ids, n_rows=1):
        rows = model(ids, n_rows)
        ids[:] = 0
        return rows

    return call


def in_float16(model):  # so no row has a sum of 1
    return lambda ids, n_rows=1: model(ids, n_rows).astype(np.float16)


def test_a_draft_of_another_vocabulary():
    """The draft's tokens 2 and 0 are the target's 0 and 2. It reads the target's 1 as a 3."""
    draft = Table(np.random.default_rng(1).dirichlet(np.ones(4), size=9))
    rows = draft([2, 3, 0], 3)[:, [2, 0]]
    rows_of_target = shared_vocabulary(draft, [2, -1, 0], unknown=3)(np.array([0, 1, 2]), 3)
    assert rows_of_target[:, [0, 2]] == pytest.approx(rows / rows.sum(axis=-1, keepdims=True))
    assert not rows_of_target[:, 1].any()


@both_loops
@pytest.mark.parametrize("odd", [reusing, writing_into_ids, in_float16])
def test_odd_models_write_the_same_text(loop, odd):
    rounds, expected = [], []
    text = loop([0], RANDOM, 30, rng=7, on_round=expected.append)
    assert loop([0], odd(RANDOM), 30, rng=7, on_round=rounds.append).tolist() == text.tolist()
    for r, plain in zip(rounds, expected, strict=True):
        assert r.q.dtype == np.float64 and r.q == pytest.approx(plain.q, abs=1e-3)
        assert r.q.sum(axis=-1) == pytest.approx(1, abs=1e-15)


def rows_of(row):
    return lambda ids, n_rows=1: row


class FromTransformers:
    __module__ = "transformers.models.gpt2"


@both_loops
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("x", "text", "the prompt must be token ids"),
        ("x", [], "the prompt must be token ids"),
        ("x", [[0, 1]], "the prompt must be token ids"),
        ("x", [0.5], "the prompt must be token ids"),
        ("x", [2**63], "the prompt must be token ids"),
        ("N", -1, "must be whole numbers from 0 up; found -1"),
        ("N", 2.5, "must be whole numbers from 0 up; found 2.5"),
        ("model", FromTransformers(), "transformers has to be wrapped; docs/your_models.md"),
        ("model", rows_of(None), r"must return probabilities \[n_rows, n_vocab\]; found \[\]"),
        ("model", rows_of(HALF), r"must return probabilities \[n_rows, n_vocab\]; found \[2\]"),
        ("model", rows_of([[2.0, -1.0]]), "entries from -1 and sums off by 0.*as_model takes"),
        ("model", rows_of([[0.5, 0.6]]), "rows must be >= 0 and sum to 1"),
        ("model", rows_of([[np.nan, 1.0]]), "entries from nan"),
        ("eos", "1", "cannot be interpreted as an integer"),
    ],
)
def test_odd_calls(loop, name, value, message):
    call = {"x": [0], "model": Table([HALF]), "N": 3, name: value}
    with pytest.raises((TypeError, ValueError), match=message):
        loop(**call)


NEEDED = "must return 1 to 3 tokens; found"
ODD = [None, [], [0, 0, 0, 0], [[0]], [0.5]]


@pytest.mark.parametrize(
    ("emitted", "message"),
    [
        *((emitted, NEEDED) for emitted in ODD),
        ([*np.ones(4, int)], NEEDED + r" \[1, 1, 1, 1\]"),
        ([0, -1], "returned -1, which is no token"),
        ([0, 2], "returned 2, which is no token"),
    ],
)
def test_a_rule_that_returns_no_tokens(emitted, message):
    model = Table([HALF])
    with pytest.raises(ValueError, match=f"verify {message}"):
        speculative_sampling([0], model, model, 9, 2, verify=lambda *args: emitted)


TWO = [0, 0]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "propose must return drafted and p"),
        (([0, 0, 0], [HALF] * 3), "propose must return 0 to 2 tokens"),
        (([-1, 0], [HALF] * 2), "propose returned -1, which is no token"),
        (([[0], [0]], [HALF] * 2), "propose must return 0 to 2 tokens"),
        (([0, 2], [HALF] * 2), "p must be what the guesses .* were drawn from"),
        ((TWO, [HALF]), r"found p \(1, 2\) and q \(3, 2\)"),
        ((TWO, [[0.9, 0.9]] * 2), "rows must be >= 0 and sum to 1"),
        ((TWO, [[np.nan, 1.0]] * 2), "rows must be >= 0 and sum to 1"),
        ((TWO, [[0.0, 1.0]] * 2), "p must be what the guesses .* were drawn from"),
    ],
)
def test_a_propose_that_returns_no_draft(returned, message):
    """Each of them would change the distribution, or the length of the text."""
    model = Table([HALF])
    with pytest.raises(ValueError, match=message):
        speculative_sampling([0], model, model, 9, 2, propose=lambda *args: returned)


def test_a_propose_may_write_to_its_text():
    model = Table([HALF])

    def propose(x, *_):
        x.fill(1)
        return [], []

    assert speculative_sampling([0], model, model, 3, 2, propose=propose)[0] == 0


@both_loops
def test_a_seed_fixes_the_text_and_without_one_it_differs(loop):
    text = loop([0], RANDOM, 30, rng=7).tolist()
    for rng in np.random.default_rng(7), np.random.SeedSequence(7):
        assert loop([0], RANDOM, 30, rng=rng).tolist() == text
    assert loop([0], RANDOM, 50).tolist() != loop([0], RANDOM, 50).tolist()


@both_loops
@pytest.mark.parametrize(
    ("eos", "ends"),
    [([2, 3], {2, 3}), ({2, 3}, {2, 3}), (np.array([2, 3]), {2, 3}), (np.array(2), {2}), (2, {2})],
)
def test_one_eos_or_several(loop, eos, ends):
    *earlier, last = loop([0], RANDOM, 60, rng=7, eos=eos).tolist()
    assert last in ends and not ends & {*earlier}


@both_loops
def test_nobody_writes_into_what_belongs_to_others(loop):
    prompt = np.array([1, 0])
    text = loop(prompt, RANDOM, 30, rng=7).tolist()
    assert loop(prompt, RANDOM, 30, rng=7, on_round=lambda r: r.emitted.fill(0)).tolist() == text
    assert not np.shares_memory(loop(prompt, RANDOM, 0), prompt)


# Numerical edges


def test_max_fn():
    assert max_fn(np.array([5e-324, 0, 5e-324])).tolist() == [0.5, 0, 0.5]


def always(number):
    """A generator whose `random` always returns the same number."""
    return SimpleNamespace(random=lambda: number, choice=np.random.default_rng(0).choice)


LARGEST = 1 - 2**-53  # the largest number that NumPy's `random` returns


@both_verifiers
def test_no_random_number_rejects_a_token_where_q_is_above_p_or_accepts_it_where_q_is_0(verifier):
    guess, p = np.array([0]), np.array([HALF])
    first, second = np.array([[[1.0, 0.0]] * 2, [[0.0, 1.0]] * 2])
    assert verifier(guess, p, first, always(LARGEST)).tolist() == [0, 0]
    assert verifier(guess, p, second, always(0.0)).tolist() == [1]


@both_verifiers
def test_a_rejected_token_does_not_come_back_where_rounding_leaves_no_residual(verifier):
    p, q = np.array([[0.5, 0.5, 1e-17], [0.5, 0.5, 0]])
    tokens = sum_over_paths(lambda rng: verifier(np.array([2]), p[None], np.array([q, q]), rng)[:1])
    assert tokens.keys() == {(0,), (1,)}
