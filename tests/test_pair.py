"""What `Pair` records about a run, how it measures time, and the speedup that it predicts."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import bundled, random_gpt2

from errors import UserError
from lab import pair, theory
from lab.measure import best_K, costs, predicted
from lab.pair import Pair, Run, load_pair
from lab.schedules import SCHEDULES
from sampling import sampler


def test_a_run_records_what_happened():
    both, rounds, x = Pair(bundled("draft"), bundled("target"), temperature=1, top_k=9), [], np.array([5, 6, 7])
    run = both.decode(x, 30, K=3, rng=np.random.default_rng(0), on_round=rounds.append)
    assert run.n_new == 30 and run.ids[:3].tolist() == x.tolist()
    assert run.n_drafted.tolist() == [len(r.drafted) for r in rounds]
    assert run.n_accepted.tolist() == [r.n_accepted for r in rounds]
    assert np.concatenate(run.betas).tolist() == np.concatenate([theory.betas(r) for r in rounds]).tolist()
    assert run.acceptance_rate == run.n_accepted.sum() / run.n_drafted.sum()
    assert run.tokens_per_round == 30 / len(rounds)
    assert len(run.passes) == len(rounds) and len(run.steps) == run.n_drafted.sum()
    assert 0 < run.steps.sum() + run.passes.sum() < run.seconds
    assert all(np.count_nonzero(row) == 9 for r in rounds for row in (*r.p, *r.q))
    plain = both.decode(x, 30, rng=np.random.default_rng(0))
    assert plain.n_new == 30 and plain.n_drafted.tolist() == [0] * 30 and len(plain.steps) == plain.acceptance_rate == 0


def test_the_clock_stops_during_on_round(monkeypatch):
    """Each look at this clock takes a second. A round has two looks for each of its k + 1 calls, and one at its end."""
    both, now = Pair(bundled("draft"), bundled("target")), itertools.count()
    target = both.target
    both.target_model.network = lambda ids, n_rows=1: [next(now) for _ in range(9)] and target(ids, n_rows)
    monkeypatch.setattr(pair.time, "perf_counter", lambda: next(now))
    run = both.decode([5], 9, K=2, on_round=lambda r: [next(now) for _ in range(1000)])
    assert {*run.steps} == {1} and {*run.passes} == {10}
    assert run.lasted.tolist() == (12 + 2 * run.n_drafted).tolist()


def test_models_of_your_own():
    """A Pair whose models are replaced by functions asks these, also for confidence, and only misses their times."""
    both = Pair(bundled("draft"), bundled("target"), temperature=0)
    draft, target = (sampler(network, 0.8) for network in (both.draft, both.target))
    both.draft_model, both.target_model = lambda ids: draft(ids), lambda ids, n_rows=1: target(ids, n_rows)
    for schedule in SCHEDULES:
        rounds = []
        run = both.decode([5, 6], 20, K=4, rng=np.random.default_rng(0), schedule=schedule, on_round=rounds.append)
        assert run.n_new == 20 and len(run.steps) == len(run.passes) == 0 and predicted([run], [run]) is None
        if schedule == "draft-confidence":
            sure = [row[token] >= 0.4 for r in rounds for row, token in zip(r.p[:-1], r.drafted)]
            assert sure and all(sure) and len(rounds) > 5
    lookup = load_pair("", "target", "lookup")
    lookup.draft_model = lambda ids: draft(ids)
    assert lookup.decode([5, 6], 9, K=4).n_drafted.max() == 4  # the stop is that of the draft that was replaced


def test_with_given_costs_the_seed_fixes_the_text():
    def text(costs):
        both = Pair(bundled("draft"), bundled("target"), temperature=1)
        rng = np.random.default_rng(0)
        run = both.decode([5, 6], 60, K=8, rng=rng, schedule="adaptive", costs=lambda K: np.array(costs[: K + 1]))
        return run.ids.tolist(), run.n_drafted

    cheap, dear = np.linspace(1, 1.1, 9), np.linspace(1, 9, 9)
    assert text(cheap)[0] == text(cheap)[0] and text(cheap)[1][0] == 8 and text(dear)[1][0] == 0


def test_each_run_reads_the_prompt_again(n_computed):
    both = Pair(bundled("draft"), bundled("target"))
    for _ in range(2):
        n_computed.clear()
        both.decode(np.arange(20), 20, K=2)
        assert n_computed[:3] == [20, 1, 22]  # two steps of the draft, and a pass of the target


@pytest.mark.parametrize("temperature", [0, 0.5])
def test_confidence_is_the_probability_at_the_temperature_or_at_1_instead_of_0(temperature):
    both, x, rounds = Pair(bundled("draft"), bundled("target"), temperature=temperature), np.array([5, 6, 7]), []
    draft, target = (sampler(bundled(name), temperature or 1) for name in ("draft", "target"))
    options = dict(K=4, rng=np.random.default_rng(0))
    run = both.decode(x, 40, schedule="target-confidence", threshold=0.4, **options)
    ends = np.cumsum(run.n_accepted + 1)  # the new tokens after each round
    sure = target(run.ids[:-1], 40)[np.arange(40), run.ids[3:]] >= 0.4
    assert (run.n_drafted[1:-1] > 0).tolist() == sure[ends[:-2] - 1].tolist() and 0 < sure.mean() < 1
    both.decode(x, 40, schedule="draft-confidence", threshold=0.6, on_round=rounds.append, **options)
    for r in rounds[:-2]:
        k = len(r.drafted)
        sure = draft(np.append(x, r.drafted[:-1]), k)[np.arange(k), r.drafted] >= 0.6
        assert sure[:-1].all() and (k == 4 or not sure[-1])
        x = np.append(x, r.emitted)


def test_the_smaller_context_is_that_of_the_pair():
    large, small = (random_gpt2(0, n_vocab=3, n_ctx=n, n_embd=8, n_head=2, n_layer=1) for n in (8, 4))
    assert Pair(large, small).n_ctx == Pair(small, large).n_ctx == 4


@pytest.mark.parametrize("settings", [{"temperature": 0}, {"temperature": 1, "top_k": 1}], ids=str)
def test_a_lookup_that_finds_nothing_ends_the_round(settings):
    """With these settings, a sampled row has a token with probability 1 even if the lookup found nothing."""
    both, rounds, text = load_pair("(not needed)", "target", "lookup", **settings), [], np.array([5, 6, 7])
    both.decode(text, 40, K=4, rng=np.random.default_rng(0), on_round=rounds.append)
    for r in rounds:
        prefixes = [np.append(text, r.drafted[:i]) for i in range(len(r.drafted))]
        found = [both.draft.row(prefix).max() == 1 for prefix in prefixes]
        assert all(found[:-1])  # only the last token may come from a uniform row
        text = np.append(text, r.emitted)
    assert len(rounds[0].drafted) == 1 and max(len(r.drafted) for r in rounds) == 4
    with pytest.raises(UserError, match="a stop of its own"):
        both.decode(text, 4, K=4, schedule="draft-confidence")


# The clocks


def test_costs_are_medians():
    def of(times, K):
        return costs(times, K).tolist()

    times = {3: [6.0, 7.0, 8.0, 9.0, 99.0], 0: [1.0], None: [0.1, 0.1, 0.1]}  # steps of the plain loop do not count
    assert of(times, 2) == [1, math.inf, math.inf]  # 0 was timed once, which does not count, so it is next
    times[0] = [2.0, 9.0]
    assert of(times, 4) == [1, 1, math.inf, 4, math.inf]  # now 1 is next
    times |= {1: [2.0, 3.0, 5.0], 4: [1.0]}
    assert of(times, 5) == [1, 1.5, 2, 4, 4.5, 5] and of(times, 0) == [1]
    times = {0: [2.0, 2.0], 1: [1.0, 1.0]}  # by chance, drafting made the rounds faster
    assert of(times, 4) == [1, 0.5, 0.5, 0.5, 0.5]


def test_costs_are_kept_from_run_to_run(monkeypatch):
    """So that `adaptive` need not try every K in each run. A plain run in between changes nothing."""
    both, now = Pair(bundled("draft"), bundled("target")), itertools.count()
    monkeypatch.setattr(pair.time, "perf_counter", lambda: next(now))  # a round takes 3 + 2 k ticks
    first = both.decode([5, 6, 7], 30, K=4, schedule="adaptive")
    before = costs(both.times, 4).tolist()
    both.decode([5, 6, 7], 30)
    assert costs(both.times, 4).tolist() == before
    second = both.decode([5, 6, 7], 30, K=4, schedule="adaptive")
    assert first.n_drafted[:6].tolist() == [0, 0, 0, 1, 1, 1] and second.n_drafted[0] == 1


# The predicted speedup


def run_with(passes, steps=(), drafted=(), betas=(), rest=0.0, n_new=0):
    """A run with these seconds of each pass and of each step, in which each round took `rest` seconds more."""
    passes, steps = np.array(passes), np.array(steps)
    lasted = np.full(len(passes), (passes.sum() + steps.sum()) / max(len(passes), 1) + rest)
    n_new, drafted = n_new or len(passes), np.array(drafted, dtype=int)
    return Run(None, n_new, drafted, None, list(map(np.array, betas)), lasted, steps, passes)


PLAIN = run_with([2.0] * 7)


@given(seed=st.integers(0, 2**32), K=st.integers(1, 5))
def test_the_prediction_is_what_was_measured_if_no_chance_is_left(seed, K):
    """If each beta is 0 or 1, and each round drafts K tokens, the means of tokens and of times add up to the sums."""
    rng = np.random.default_rng(seed)

    def random_run(n_rounds, k):
        accepted = rng.integers(k + 1, size=n_rounds)
        betas = [([1] * n + [0])[:k] for n in accepted]
        times = rng.random(n_rounds), rng.random(n_rounds * k)
        return run_with(*times, [k] * n_rounds, betas, rng.random(), n_rounds + accepted.sum())

    plain, fast = ([random_run(n, k) for n in rng.integers(6, 20, size=3)] for k in (0, K))
    per_token = [sum(run.seconds for run in runs) / sum(run.n_new for run in runs) for runs in (plain, fast)]
    assert predicted(plain, fast)[0] == pytest.approx(per_token[0] / per_token[1])


def test_the_costs_of_a_prediction():
    plain = run_with([12.0] + [2.0] * 6, rest=0.5)
    fast = run_with([18.0] + [3.0] * 6, [5.5] + [0.5] * 27, [4] * 7, [[0.7] * 4] * 7, rest=1.0)
    assert predicted([plain], [fast])[1:] == pytest.approx((0.7, 0.5 / 2.5, 3.0 / 2.5, 1.0 / 2.5))
    rare = run_with([2.5] * 7 + [9.0] + [2.0] * 9, [0.5] * 18, [2] * 7 + [4] + [0] * 9, [[0.7] * 2] * 8)
    assert predicted([PLAIN], [rare])[3] == 2.5 / 2  # v is that of the usual k above 0, which is 2


def test_the_prediction_for_rounds_that_draft_different_numbers_of_tokens():
    def formula(*ks):
        # c = 0.5 / 2, and v = 2 / 2, 2.5 / 2 and 3 / 2 for k = 0, 2 and 4
        return theory.expected_tokens(0.7, ks).sum() / sum(k * 0.25 + 1 + k / 8 for k in ks)

    # k = 0 costs as much as in the plain run, whatever it took here, and k = 2 lies between 0 and 4
    fast = run_with([2.5, 9.0] + [3.0] * 6, [0.5] * 26, [2, 0] + [4] * 6, [[0.7] * 4] * 7)
    assert predicted([PLAIN], [fast])[0] == pytest.approx(formula(2, 0, *[4] * 6))
    pairs = run_with([2.5] * 8, [0.5] * 16, [2] * 8, [[0.7] * 2] * 8)
    idle = run_with([2.0] * 8, drafted=[0] * 8)  # does not call the draft
    expected = formula(2, 0, *[4] * 6, *[2] * 8, *[0] * 8)
    assert predicted([PLAIN] * 2, [fast, pairs, idle])[0] == pytest.approx(expected)


def test_best_K_tries_every_K_and_takes_the_best():
    both = Pair(bundled("draft"), bundled("target"), temperature=1)
    K, speedups = best_K(both, [5, 6, 7], 80, K_max=5, rng=np.random.default_rng(0))
    assert K == np.argmax(speedups) and len(speedups) == 6 and speedups[0] == 1
    assert set(both.times) == {None, 0, 1, 2, 3, 4, 5} and min(map(len, both.times.values())) > 1
    assert all(times == sorted(times) for times in both.times.values())
    K, speedups = best_K(Pair(bundled("draft"), bundled("target")), [5, 6, 7], 12, K_max=5)
    assert speedups[0] == 1 and not speedups.all()  # 12 tokens are too few to time every K
    K, speedups = best_K(Pair(bundled("draft"), bundled("target")), [5, 6, 7], 1, K_max=5)
    assert K == 0 and not speedups.any()  # one token is too short to time anything


def test_best_K_divides_tokens_by_costs(monkeypatch):
    both, calls = Pair(bundled("draft"), bundled("target")), []
    pilot = run_with([2.0] * 13, drafted=[2] * 13, betas=[[0.5, 0.5]] * 13)
    both.times |= {None: [2.0] * 2, 0: [9.0] * 2, 1: [5.0] * 2, 2: [6.0] * 2, 3: [0.1]}
    monkeypatch.setattr(both, "decode", lambda x, N, K=None, schedule=None, **rest: calls.append((K, rest)) or pilot)
    K, speedups = best_K(both, [5], 9, K_max=3, eos=7)
    assert K == 0 and speedups == pytest.approx([1, 1.5 * 2 / 5, 1.75 * 2 / 6, 0])  # K = 3 was timed only once
    assert calls == [(None, {"eos": 7}), (3, {"eos": 7})]  # the baseline is the plain loop


@pytest.mark.parametrize(("n_plain", "n_draft", "n_fast"), [(4, 8, 6), (9, 4, 6), (9, 9, 4), (9, -1, 9), (-1, -1, -1)])
def test_no_prediction_from_too_few_timings(n_plain, n_draft, n_fast):
    """These are the numbers of calls that read no prompt (-1: there is no call at all)."""
    fast = run_with([3.0] * (n_fast + 1), [0.5] * (n_draft + 1), [4] * (n_fast + 1), [[0.8]])
    assert predicted([run_with([2.0] * (n_plain + 1))], [fast]) is None
    rarely = run_with([3.0] * 9, [0.5] * 9, [4] * 3 + [0] * 6, [[0.8]])  # few passes check drafted tokens
    assert predicted([PLAIN], [rarely]) is None
    just_enough = run_with([3.0] * 6, [0.5] * 6, [4] * 6, [[0.8]])
    assert predicted([run_with([2.0] * 6)], [just_enough]) is not None
