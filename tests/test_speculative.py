"""The rest of speculative.py, by exact computation: block verification, the options, the loop, and extreme numbers."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support import EXACT, Table, assert_lossless, mass_where, models, pairs, product_of_conditionals

from enumeration import output_distribution, total_variation
from sampling import logits_to_probs, sample, sampler
from speculative import autoregressive_sampling, max_fn, propose, speculative_sampling, verify, verify_block

pytestmark = pytest.mark.filterwarnings("error")  # an overflow or 0 / 0 on the way is a mistake
both_verifiers = pytest.mark.parametrize("verifier", [verify, verify_block])


@both_verifiers
@given(drawn=models(sizes=[4]), NK=st.sampled_from([(1, 4), (2, 1), (2, 4), (3, 1)]))
def test_lossless_with_four_tokens(verifier, drawn, NK):
    assert_lossless(drawn, *NK, verify=verifier)


# Block verification: Sun et al. 2024, Algorithm 2


@pytest.mark.parametrize("K", [1, 2, 3])
@given(drawn=models())
def test_block_keeps_a_drafted_prefix_with_probability_w(drawn, K):
    """The lemma from which losslessness follows: the first i drafted tokens are kept, given these, as often as w_i."""
    draft, target, x = drawn

    def kept(rng):
        drafted, p = propose(x, draft, K, rng)
        return [*drafted, len(verify_block(drafted, p, target(np.append(x, drafted), K + 1), rng)) - 1]

    outputs = output_distribution(kept)
    for i in range(1, K + 1):
        for prefix in itertools.product(range(len(target.rows[0])), repeat=i):
            drafted_mass, w = 1.0, 1.0
            for j, token in enumerate(prefix):
                p, q = (model.row([*x.tolist(), *prefix[:j]])[token] for model in (draft, target))
                drafted_mass, w = drafted_mass * p, min(1, w * q / p) if p > 0 else 0
            kept_mass = mass_where(outputs, lambda *o, i=i, prefix=prefix: o[:i] == prefix and o[-1] >= i)
            assert kept_mass == pytest.approx(drafted_mass * w, abs=EXACT)


def expected_tokens(verifier, draft, target, x, K):
    """Tokens that one round emits, on average."""

    def n_emitted(rng):
        drafted, p = propose(x, draft, K, rng)
        return len(verifier(drafted, p, target(np.append(x, drafted), K + 1), rng))

    return sum(n * mass for (n,), mass in output_distribution(n_emitted).items())


@pytest.mark.parametrize("K", [0, 1, 2, 3])
@given(drawn=models())
def test_block_never_accepts_less_on_average(drawn, K):
    token_by_token, block = (expected_tokens(verifier, *drawn, K) for verifier in (verify, verify_block))
    assert block > token_by_token - EXACT
    if K < 2:
        assert block == pytest.approx(token_by_token, abs=EXACT)  # a block of one token is a token


def test_block_accepts_more_in_the_papers_example():
    """Sun et al. 2024: two letters, K = 2. 10/9 drafted tokens accepted token by token, 11/9 as a block."""
    draft, target, x = Table([[2 / 3, 1 / 3]]), Table([[1 / 3, 2 / 3]]), np.array([0])
    assert expected_tokens(verify, draft, target, x, 2) - 1 == pytest.approx(10 / 9, abs=EXACT)
    assert expected_tokens(verify_block, draft, target, x, 2) - 1 == pytest.approx(11 / 9, abs=EXACT)


# How many tokens a round emits


@pytest.mark.parametrize("K", [0, 1, 2, 3, 4])
@given(pair=pairs(sizes=[3, 2, 1]))
def test_expected_tokens_per_round(pair, K):
    """(1 - alpha^(K+1)) / (1 - alpha), Leviathan et al. 2023, eq. 1, where the context does not matter."""
    p, q = pair
    alpha = np.minimum(p, q).sum()
    expected = sum(alpha**i for i in range(K + 1))  # the same, and K + 1 at alpha = 1
    assert expected_tokens(verify, Table([p]), Table([q]), np.array([0]), K) == pytest.approx(expected, abs=1e-11)


# The options


logit_rows = st.lists(st.integers(-3, 3), min_size=3, max_size=3)
settings_of_a_sampler = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0, 1e-6, 0.5, 1, 2, 1e6]),
        "top_k": st.integers(0, 3),
        "top_p": st.sampled_from([1e-9, 0.3, 0.5, 0.9, 1]),
    }
)


@both_verifiers
@given(
    logits=st.lists(st.tuples(logit_rows, logit_rows), min_size=1, max_size=3),
    of_draft=settings_of_a_sampler,
    of_target=settings_of_a_sampler,
    K=st.integers(0, 3),
)
def test_lossless_under_any_settings_of_draft_and_target(verifier, logits, of_draft, of_target, K):
    draft_logits, target_logits = zip(*logits, strict=True)
    draft, target, x = sampler(Table(draft_logits), **of_draft), sampler(Table(target_logits), **of_target), [0, 2]
    decoded = output_distribution(lambda rng: speculative_sampling(x, draft, target, 3, K, rng, verify=verifier))
    plain = output_distribution(lambda rng: autoregressive_sampling(x, target, 3, rng))
    same_rows = Table(logits_to_probs(np.array(target_logits), **of_target))
    assert total_variation(decoded, plain) < EXACT
    assert total_variation(decoded, product_of_conditionals(np.array(x), same_rows, 3)) < EXACT


@both_verifiers
@given(logits=st.lists(st.tuples(logit_rows, logit_rows), min_size=1, max_size=3), K=st.integers(0, 4))
def test_temperature_0_is_the_greedy_path(verifier, logits, K):
    draft, target = (Table(table) for table in zip(*logits, strict=True))
    greedy = [1]
    for _ in range(3):
        greedy.append(int(np.argmax(target.row(greedy))))  # the first of equal ones
    for of_draft in ({"temperature": 0}, {}):  # a draft that is sampled changes nothing
        decoded = output_distribution(
            lambda rng, of_draft=of_draft: speculative_sampling(
                [1], sampler(draft, **of_draft), sampler(target, temperature=0), 3, K, rng, verify=verifier
            )
        )
        assert list(decoded) == [tuple(greedy)]
    assert autoregressive_sampling([1], sampler(target, temperature=0), 3).tolist() == greedy


@both_verifiers
@pytest.mark.parametrize("N", [1, 2, 4])
@given(drawn=models(), K=st.integers(1, 4))
def test_lossless_with_eos_and_nothing_after_it(verifier, drawn, N, K):
    _, target, x = drawn
    decoded = assert_lossless(drawn, N, K, eos=0, verify=verifier)  # the prompt may hold it as well
    for ids in decoded:
        new = ids[len(x) :]
        assert 0 not in new[:-1]
        assert len(new) == N or new[-1] == 0
    plain = output_distribution(lambda rng: autoregressive_sampling(x, target, N, rng, eos=0))
    assert total_variation(decoded, plain) < EXACT


def test_a_drafted_eos_counts_as_accepted():
    """A draft that says eos 0 right away, and a target that agrees: the rest of what was drafted is not in the text."""
    model = Table([[1.0, 0.0]])
    _, [only] = decode((model, model, np.array([1])), 9, 4, seed=0, eos=0)
    assert (only.drafted.tolist(), only.emitted.tolist(), only.n_accepted) == ([0, 0, 0, 0], [0], 1)
    draft = Table([[0.0, 1.0]])
    _, [only] = decode((draft, model, np.array([1])), 9, 4, seed=0, eos=0)
    assert (only.drafted.tolist(), only.emitted.tolist(), only.n_accepted) == ([1, 1, 1, 1], [0], 0)


@both_verifiers
@given(
    drawn=models(),
    N=st.sampled_from([4, 3, 2, 1]),
    K=st.integers(1, 4),
    ks=st.lists(st.integers(0, 5), min_size=1, max_size=4),
)
def test_lossless_with_any_schedule(verifier, drawn, N, K, ks):
    """k may depend on all that happened in the last round: here it is picked by a hash of it."""
    asked_with = []

    def schedule(last):
        asked_with.append(last)
        happened = () if last is None else (*last.drafted.tolist(), *last.emitted.tolist())
        return ks[hash(happened) % len(ks)]

    assert_lossless(drawn, N, K, verify=verifier, schedule=schedule)

    rounds, asked_with[:] = [], []
    draft, target, x = drawn
    rng = np.random.default_rng(0)
    speculative_sampling(x, draft, target, N, K, rng, verify=verifier, schedule=schedule, on_round=rounds.append)
    assert asked_with[0] is None  # and then every round but the last
    assert all(a is b for a, b in zip(asked_with[1:], rounds[:-1], strict=True))


@both_verifiers
@given(drawn=models(), N=st.sampled_from([4, 3, 2, 1]), K=st.integers(1, 4), threshold=st.sampled_from([0.3, 0.5, 0.7]))
@pytest.mark.parametrize(
    "stop",
    [
        lambda threshold: lambda row, token: row.max() < threshold,  # the draft is unsure
        lambda threshold: lambda row, token: row[token] < threshold,  # the draft is unsure of this token
        lambda threshold: lambda row, token: token == 0,  # for example the end of the text
        lambda threshold: lambda row, token: True,
    ],
)
def test_lossless_with_any_stop(verifier, stop, drawn, N, K, threshold):
    assert_lossless(drawn, N, K, verify=verifier, stop=stop(threshold))


@given(drawn=models(), K=st.integers(0, 4), token=st.integers(0, 3), seed=st.integers(0, 9))
def test_propose_ends_with_the_token_that_stopped_it(drawn, K, token, seed):
    draft, _, x = drawn
    asked = []

    def stop(row, t):
        asked.append((row.tolist(), int(t)))
        return t == token

    freely, freely_p = propose(x, draft, K, np.random.default_rng(seed))
    drafted, p = propose(x, draft, K, np.random.default_rng(seed), stop)
    n = freely.tolist().index(token) + 1 if token in freely else K
    assert len(freely) == K
    assert drafted.tolist() == freely[:n].tolist()
    assert np.array_equal(p, freely_p[:n])
    assert asked == [(p[i].tolist(), drafted[i]) for i in range(n)]


# The loop


def decode(drawn, N, K, seed, **options):
    """With a real generator, and the calls of the models as a record of it."""
    draft, target, x = drawn
    draft.calls.clear()
    target.calls.clear()
    rounds = []
    ids = speculative_sampling(x, draft, target, N, K, np.random.default_rng(seed), on_round=rounds.append, **options)
    return ids, rounds


@both_verifiers
@given(drawn=models(sizes=[1, 2, 4]), N=st.integers(0, 9), K=st.integers(0, 12), seed=st.integers(0, 9))
def test_rounds_are_what_happened(verifier, drawn, N, K, seed):
    draft, target, x = drawn
    ids, rounds = decode(drawn, N, K, seed, verify=verifier)
    assert ids.dtype.kind == "i" and ids.shape == (len(x) + N,)
    assert ids.tolist() == [*x.tolist(), *(t for r in rounds for t in r.emitted.tolist())]
    assert len(target.calls) == len(rounds)  # one pass a round, however many tokens
    assert len(draft.calls) == sum(len(r.drafted) for r in rounds)  # and no row that is not used
    n = len(x)
    for r, (seen, n_rows) in zip(rounds, target.calls, strict=True):
        k = len(r.drafted)
        assert k == min(K, len(x) + N - n - 1)  # as many as could still be wanted
        assert n_rows == len(r.q) == k + 1 and len(r.p) == k
        assert seen == [*ids[:n].tolist(), *r.drafted.tolist()]
        for i in range(k):
            assert np.array_equal(r.p[i], draft.row(seen[: n + i]))
        for i in range(k + 1):
            assert np.array_equal(r.q[i], target.row(seen[: n + i]))
        assert r.p.shape == (k, len(target.rows[0])) and r.q.shape == (k + 1, len(target.rows[0]))
        assert 1 <= len(r.emitted) <= k + 1 and r.n_accepted == len(r.emitted) - 1
        n += len(r.emitted)


@both_verifiers
@given(drawn=models(sizes=[1, 2, 4]), N=st.integers(0, 9), seed=st.integers(0, 9))
def test_K_0_is_the_autoregressive_loop(verifier, drawn, N, seed):
    """Not only in distribution: draw for draw, and no call of the draft."""
    draft, target, x = drawn
    ids, rounds = decode(drawn, N, 0, seed, verify=verifier)
    calls, plain_rounds = target.calls.copy(), []
    plain = autoregressive_sampling(x, target, N, np.random.default_rng(seed), on_round=plain_rounds.append)
    assert ids.tolist() == plain.tolist()
    assert not draft.calls and calls == target.calls[len(calls) :]
    for a, b in zip(rounds, plain_rounds, strict=True):
        assert len(a.drafted) == len(b.drafted) == len(a.p) == len(b.p) == 0
        assert np.array_equal(a.q, b.q) and np.array_equal(a.emitted, b.emitted)


def test_the_loop_uses_the_verify_and_the_stop_that_it_is_given():
    model, returned = Table([[0.5, 0.25, 0.25], [0, 0.5, 0.5]]), []

    def spy(*args):
        returned.append(verify_block(*args))
        return returned[-1]

    _, rounds = decode((model, model, np.array([0])), 9, 4, seed=0, verify=spy, stop=lambda row, token: True)
    assert all(r.emitted is emitted for r, emitted in zip(rounds, returned, strict=True))
    assert [len(r.drafted) for r in rounds] == [1, 1, 1, 1, 0]


def test_an_equal_draft_is_always_accepted():
    model = Table([[0.5, 0.25, 0.25], [0, 0.5, 0.5]])
    for verifier in (verify, verify_block):
        _, rounds = decode((model, Table(model.rows), np.array([0])), 50, 4, seed=0, verify=verifier)
        assert [len(r.emitted) for r in rounds] == [5] * 10


def test_a_disjoint_draft_is_never_accepted():
    draft, target = Table([[0.5, 0.5, 0, 0]]), Table([[0, 0, 0.5, 0.5]])
    for verifier in (verify, verify_block):
        _, rounds = decode((draft, target, np.array([0])), 7, 4, seed=0, verify=verifier)
        assert [len(r.emitted) for r in rounds] == [1] * 7


def test_without_a_generator_it_draws_its_own():
    model = Table([[0.5, 0.5]])
    for decode_50 in (
        lambda: autoregressive_sampling([0], model, 50),
        lambda: speculative_sampling([0], model, model, 50, 4),
    ):
        assert decode_50().shape == (51,)
        assert decode_50().tolist() != decode_50().tolist()


def test_the_callers_prompt_is_left_alone():
    x, model = np.array([0, 1]), Table([[0.5, 0.5]])
    for ids in (autoregressive_sampling(x, model, 3), speculative_sampling(x, model, model, 3, 2)):
        ids[:] = 7
        assert x.tolist() == [0, 1]


# max_fn


def test_max_fn():
    assert max_fn(np.array([0.25, -0.5, 0.0, 0.75])).tolist() == [0.25, 0, 0, 0.75]
    assert max_fn(np.array([-1.0, 3.0, 1.0])).tolist() == [0, 0.75, 0.25]
    assert max_fn(np.array([5e-324, 0, 5e-324])).tolist() == [0.5, 0, 0.5]
    x = np.array([1.0, -1.0])
    assert max_fn(x) is not x and x.tolist() == [1, -1]
    for nothing in ([0.0, 0.0], [-1.0, 0.0]):
        with pytest.raises(ValueError, match="positive"):
            max_fn(np.array(nothing))


# Numerical edges

EXTREME = (0, 1, 2, 1e-2, 1e-4, 1 - 2**-53, 1 + 2**-52, 2**-53, 1e-17, 1e-300, 5e-324)


@both_verifiers
@pytest.mark.parametrize("K", [1, 2, 3])
@given(drawn=models(weights=EXTREME))
def test_lossless_with_probabilities_at_the_edge_of_float64(verifier, drawn, K):
    assert_lossless(drawn, 3, K, verify=verifier)


@both_verifiers
@pytest.mark.parametrize("K", [1, 2, 3])
@given(drawn=models(sizes=[3, 2]), data=st.data())
def test_lossless_when_p_and_q_differ_by_rounding(verifier, drawn, K, data):
    """As those of one model do that was evaluated in two ways. The residual then is rounding error, or nothing."""
    _, target, x = drawn
    away = data.draw(st.lists(st.sampled_from([-1, 0, 1]), min_size=target.rows.size, max_size=target.rows.size))
    directions = np.where(target.rows > 0, np.array(away).reshape(target.rows.shape), 0)
    draft = Table(np.where(directions == 0, target.rows, np.nextafter(target.rows, directions * 2.0)))
    assert_lossless((draft, target, x), 3, K, verify=verifier)
    assert_lossless((target, draft, x), 3, K, verify=verifier)


class Unlucky:
    """A generator whose every coin is as large as it gets."""

    def random(self):
        return 1 - 2**-53

    def choice(self, n, p):
        return np.random.default_rng(0).choice(n, p=p)  # which checks p


@both_verifiers
@pytest.mark.parametrize("K", [1, 2])
def test_a_rejection_with_no_residual_left_is_drawn_from_q(verifier, K):
    p = np.array([0.25, 0.0, 0.75])
    q = np.nextafter(p, 0)  # below p wherever p is: rejected by a large coin, and q - p has nothing positive
    emitted = verifier(np.full(K, 2), np.tile(p, (K, 1)), np.tile(q, (K + 1, 1)), Unlucky())
    assert q[emitted[-1]] > 0
    with pytest.raises(ValueError, match="positive"):
        max_fn(q - p)


@both_verifiers
def test_a_coin_of_1_never_rejects_what_q_likes_more(verifier):
    p, q = np.array([0.25, 0.75]), np.array([0.5, 0.5])
    assert verifier(np.array([0]), p[None], np.array([q, [1, 0]]), Unlucky()).tolist() == [0, 0]


@both_verifiers
def test_a_coin_of_0_never_accepts_what_q_forbids(verifier):
    class Lucky(Unlucky):
        def random(self):
            return 0.0

    p, q = np.array([0.5, 0.5]), np.array([0.0, 1.0])
    assert verifier(np.array([0]), p[None], np.array([q, q]), Lucky()).tolist() == [1]
    assert verifier(np.array([0, 1]), np.array([p, p]), np.array([q, q, q]), Lucky()).tolist() == [1]


@both_verifiers
@example(N=0, K=0)
@example(N=0, K=3)
@given(N=st.integers(0, 5), K=st.integers(0, 9))
def test_a_vocabulary_of_one(verifier, N, K):
    certain = Table([[1.0]])
    assert speculative_sampling([0], certain, certain, N, K, verify=verifier).tolist() == [0] * (N + 1)
    assert sampler(certain, temperature=0.3, top_k=1, top_p=0.5)([0]).tolist() == [[1]]


@both_verifiers
def test_a_round_with_no_draft_is_a_draw_from_the_target(verifier):
    q = np.array([[0.25, 0.0, 0.75]])
    nothing = np.empty(0, dtype=int), np.empty((0, 3))
    assert output_distribution(lambda rng: verifier(*nothing, q, rng)) == {(0,): 0.25, (2,): 0.75}
    assert output_distribution(lambda rng: sample(q[0], rng)) == {(0,): 0.25, (2,): 0.75}
