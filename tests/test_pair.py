"""What a run records, how it measures time, and what `Pair` makes of it."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from support import bundled, random_gpt2

import runs
from lab.block import verify_block
from lab.measure import best_K, costs
from lab.pair import LabPair, load_pair
from lab.theory import tokens_by_position
from sampling import as_model
from speculative import verify


def test_a_run_records_what_happened():
    both = LabPair(bundled("draft"), bundled("target"), temperature=1, top_k=9)
    rounds, x = [], np.array([5, 6, 7])
    run = both.decode(x, 30, K=3, rng=np.random.default_rng(0), on_round=rounds.append)
    assert run.n_new == 30 and run.ids[:3].tolist() == x.tolist()
    assert run.n_drafted == [len(r.drafted) for r in rounds]
    assert run.n_accepted == [r.n_accepted for r in rounds]
    looked_at = [runs.overlap(p, q) for r in rounds for p, q in zip(r.p, r.q[: len(r.emitted)])]
    assert np.concatenate([found.kept for found in run.chances]).tolist() == looked_at
    assert run.alpha == pytest.approx(np.mean(looked_at)) and run.n_looked_at == len(looked_at)
    assert run.acceptance_rate == sum(run.n_accepted) / sum(run.n_drafted)
    assert run.tokens_per_round == 30 / len(rounds)
    assert len(run.target_seconds) == len(rounds) and len(run.draft_seconds) == sum(run.n_drafted)
    assert 0 < sum(run.draft_seconds) + sum(run.target_seconds) < run.seconds
    assert all(np.count_nonzero(row) == 9 for r in rounds for row in (*r.p, *r.q))
    plain = both.decode(x, 30, rng=np.random.default_rng(0))
    assert plain.n_new == 30 and plain.n_drafted == [0] * 30 and plain.draft_seconds == []
    assert plain.alpha is None and plain.acceptance_rate is None and plain.tokens_per_round == 1
    # A round costs K c + v + r plain steps, and this is what the speedup is made of.
    assert sum(run.cost(plain)) * plain.seconds / 30 == pytest.approx(run.seconds / len(rounds))


def test_what_there_is_to_say_of_nothing():
    both = LabPair(bundled("draft"), bundled("target"))
    for nothing in both.decode([5], 5, 0), both.decode([5], 0, 4), both.decode([5], 0):
        assert nothing.alpha is None and nothing.acceptance_rate is None
    assert nothing.tokens_per_round is None and nothing.tokens_per_second is None


def test_block_verification_looks_at_all_guesses():
    both, x = LabPair(bundled("draft"), bundled("target"), temperature=1), [5, 6, 7]
    for rule, ones in (verify, True), (verify_block, False):
        run = both.decode(x, 60, 4, np.random.default_rng(0), verify=rule)
        assert (run.n_looked_at < sum(run.n_drafted)) == ones
        assert all((found.reached == 1).all() for found in run.chances) == ones
        tokens = tokens_by_position(run.chances, 4)
        assert run.predicted(tokens) == pytest.approx(run.tokens_per_round, rel=0.2)
    assert run.n_looked_at == sum(run.n_drafted)


def test_a_rule_that_does_not_say_what_it_looks_at():
    both = LabPair(bundled("draft"), bundled("target"))
    options = {"K": 2, "verify": lambda *args: verify(*args)}
    assert both.decode([5], 5, **options).alpha is None
    message = "adaptive needs a rule that says which guesses it looks at"
    with pytest.raises(ValueError, match=message):
        both.decode([5], 5, schedule="adaptive", **options)


def test_the_clock_stops_during_on_round(monkeypatch):
    """Each look at this clock takes a second. A round looks twice at each call, and at its end."""
    both, now = LabPair(bundled("draft"), bundled("target")), itertools.count()
    target = both.target_model
    both.target_model = lambda ids, n_rows=1: [next(now) for _ in range(9)] and target(ids, n_rows)
    monkeypatch.setattr(runs.time, "perf_counter", lambda: next(now))
    run = both.decode([5], 9, K=2, on_round=lambda r: [next(now) for _ in range(1000)])
    assert {*run.draft_seconds} == {1} and {*run.target_seconds} == {10}
    assert run.round_seconds == [12 + 2 * k for k in run.n_drafted]


def test_with_given_costs_the_seed_fixes_the_text():
    def text(costs):
        both = LabPair(bundled("draft"), bundled("target"), temperature=1)
        rng = np.random.default_rng(0)
        options = {"schedule": "adaptive", "costs": lambda K: np.array(costs[: K + 1])}
        run = both.decode([5, 6], 60, K=8, rng=rng, **options)
        return run.ids.tolist(), run.n_drafted

    cheap, dear = np.linspace(1, 1.1, 9), np.linspace(1, 9, 9)
    assert text(cheap)[0] == text(cheap)[0]
    assert text(cheap)[1][0] == 8 and text(dear)[1][0] == 0


def test_each_run_reads_the_prompt_again(n_computed):
    both = LabPair(bundled("draft"), bundled("target"))
    for _ in range(2):
        n_computed.clear()
        both.decode(np.arange(20), 20, K=2)
        assert n_computed[:5] == [20, 20, 1, 1, 3]  # the prompt; two guesses, a pass of the target


@pytest.mark.parametrize("temperature", [0, 0.5])
def test_confidence_is_the_probability_at_temperature_1(temperature):
    both = LabPair(bundled("draft"), bundled("target"), temperature=temperature)
    x, rounds = np.array([5, 6, 7]), []
    draft, target = (as_model(bundled(name)) for name in ("draft", "target"))
    options = dict(K=4, rng=np.random.default_rng(0))
    run = both.decode(x, 40, schedule="target-confidence", **options)
    ends = np.cumsum(run.n_emitted)  # the new tokens after each round
    sure = target(run.ids[:-1], 40)[np.arange(40), run.ids[3:]] >= 0.5
    assert [k > 0 for k in run.n_drafted[1:-1]] == sure[ends[:-2] - 1].tolist()
    assert 0 < sure.mean() < 1
    both.decode(x, 40, schedule="draft-confidence", on_round=rounds.append, **options)
    for r in rounds[:-2]:
        k = len(r.drafted)
        sure = draft(np.append(x, r.drafted[:-1]), k)[np.arange(k), r.drafted] >= 0.4
        assert sure[:-1].all() and (k == 4 or not sure[-1])
        x = np.append(x, r.emitted)


def test_the_smaller_context_is_that_of_the_pair():
    sizes = dict(n_vocab=3, n_embd=8, n_head=2, n_layer=1)
    large, small = random_gpt2(0, n_ctx=8, **sizes), random_gpt2(0, n_ctx=4, **sizes)
    assert LabPair(large, small).n_ctx == LabPair(small, large).n_ctx == 4


@pytest.mark.parametrize("settings", [{"temperature": 0}, {"temperature": 1, "top_k": 1}], ids=str)
def test_a_lookup_that_finds_nothing_ends_the_round(settings):
    """A sampled row has a token with probability 1 here, even if the lookup found nothing."""
    both = load_pair("(not needed)", "target", "lookup", **settings)
    rounds, text = [], np.array([5, 6, 7])
    both.decode(text, 40, K=4, rng=np.random.default_rng(0), on_round=rounds.append)
    for r in rounds:
        prefixes = [np.append(text, r.drafted[:i]) for i in range(len(r.drafted))]
        found = [both.networks[0].row(prefix).max() == 1 for prefix in prefixes]
        assert all(found[:-1])  # only the last token may come from a uniform row
        text = np.append(text, r.emitted)
    assert len(rounds[0].drafted) == 1 and max(len(r.drafted) for r in rounds) == 4
    with pytest.raises(ValueError, match="a stop of its own"):
        both.decode(text, 4, K=4, schedule="draft-confidence")


# The clocks


def test_costs_are_medians():
    def of(times, K):
        return costs(times, K).tolist()

    times = {3: [6.0, 7.0, 8.0, 9.0, 99.0], 0: [1.0]}
    times[None] = [0.1, 0.1, 0.1]  # steps of the plain loop, which do not count
    assert of(times, 2) == [1, math.inf, math.inf]  # 0 was timed once, which does not count either
    times[0] = [2.0, 9.0]
    assert of(times, 4) == [1, 1, math.inf, 4, math.inf]  # now 1 is next
    times |= {1: [2.0, 3.0, 5.0], 4: [1.0]}
    assert of(times, 5) == [1, 1.5, 2, 4, 4.5, 5] and of(times, 0) == [1]
    times = {0: [2.0, 2.0], 1: [1.0, 1.0]}  # by chance, drafting made the rounds faster
    assert of(times, 4) == [1, 0.5, 0.5, 0.5, 0.5]


def test_costs_are_kept_from_run_to_run(monkeypatch):
    """So `adaptive` need not try every K in each run. A plain run in between changes nothing."""
    both, now = LabPair(bundled("draft"), bundled("target")), itertools.count()
    monkeypatch.setattr(runs.time, "perf_counter", lambda: next(now))  # a round takes 3 + 2 k ticks
    first = both.decode([5, 6, 7], 30, K=4, schedule="adaptive")
    before = costs(both.times, 4).tolist()
    both.decode([5, 6, 7], 30)
    assert costs(both.times, 4).tolist() == before
    second = both.decode([5, 6, 7], 30, K=4, schedule="adaptive")
    assert first.n_drafted[:5] == [0, 0, 1, 1, 1] and second.n_drafted[0] == 1


def test_best_K_tries_every_K_and_takes_the_best():
    both = LabPair(bundled("draft"), bundled("target"), temperature=1)
    K, speedups = best_K(both, [5, 6, 7], 80, K_max=5, rng=np.random.default_rng(0))
    assert K == np.argmax(speedups) and len(speedups) == 6 and speedups[0] == 1
    assert set(both.times) == {0, 1, 2, 3, 4, 5} and min(map(len, both.times.values())) > 1
    K, speedups = best_K(LabPair(bundled("draft"), bundled("target")), [5, 6, 7], 12, K_max=5)
    assert not speedups.all()  # 12 tokens are too few to time every K
    K, speedups = best_K(LabPair(bundled("draft"), bundled("target")), [5, 6, 7], 1, K_max=5)
    assert K == 0 and not speedups.any()  # one token is too short to time anything


def test_best_K_divides_tokens_by_costs(monkeypatch):
    both, calls = LabPair(bundled("draft"), bundled("target")), []
    half = runs.Chances(np.ones(2), np.array([0.5, 0.5]))
    pilot = SimpleNamespace(chances=[half] * 13)
    both.times |= {None: [9.0] * 2, 0: [2.0, 9], 1: [5.0, 7], 2: [8.0, 6], 3: [0.1]}

    def decode(x, N, K=None, schedule=None, **rest):
        calls.append((K, rest))
        return pilot

    monkeypatch.setattr(both, "decode", decode)
    K, speedups = best_K(both, [5], 9, K_max=3, eos=7)
    expected = [1, 1.5 * 2 / 5, 1.75 * 2 / 6, 0]  # K = 3 was timed only once
    assert K == 0 and speedups == pytest.approx(expected)
    assert calls == [(3, {"eos": 7})]
