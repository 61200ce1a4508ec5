"""main.py --mine: the rounds of a loop that reports none, how it ends, and the grader's word."""

import time
from functools import partial

import numpy as np
import pytest
from support.models import Table
from support.programs import printed_by

import main
from checkpoint import UserError
from exercise import demo
from runs import chances_of_verify
from speculative import speculative_sampling, verify


def rounds_of(decode, loop, N=40, K=3, seed=0):
    """What is reported of each round of a loop over random tables."""
    rng = np.random.default_rng(seed)
    draft, target = (Table(rng.dirichlet(np.ones(3), 4)) for _ in range(2))
    rounds = []
    decode(*loop, np.array([0]), draft, target, N, K, seed, on_round=rounds.append)
    return [(*r.drafted, *r.emitted, r.n_accepted, *chances_of_verify(r)[1]) for r in rounds]


LOOP = speculative_sampling, __file__


@pytest.mark.parametrize("seed", range(8))
def test_the_rounds_of_a_loop_are_those_that_it_would_report(seed):
    sizes = np.random.default_rng(seed).integers([1, 0], [40, 6])
    reported = rounds_of(speculative_sampling, [], *sizes, seed)
    assert rounds_of(demo.run, LOOP, *sizes, seed) == reported


def twice_and_for_all_rows(target, ids, n):
    target(ids[: len(ids) - n + 1])
    return target(ids, len(ids))[-n:]


def test_a_loop_that_asks_the_target_in_its_own_way_is_shown():
    def loop(x, draft, target, *args):
        return speculative_sampling(x, draft, partial(twice_and_for_all_rows, target), *args)

    *rounds, _ = rounds_of(demo.run, [loop, __file__])
    assert len(rounds) > 10 and rounds == rounds_of(demo.run, LOOP)[: len(rounds)]


def test_a_round_without_a_bonus_ends_where_the_next_guess_begins():
    loop = partial(speculative_sampling, verify=lambda drafted, p, q, rng: [*drafted] or [0])
    assert len(rounds_of(demo.run, [loop, __file__], N=9)) == 3


def burning(seconds, function):
    """The function, preceded by so much time of the processor."""

    def call(*args):
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass
        return function(*args)

    return call


@pytest.mark.parametrize(
    ("loop", "message"),
    [
        (lambda x, draft, *args: len(draft(x)) and any(x is None for _ in iter(int, 1)),
         "line .*: it spent 0.1 seconds in a round, without the models"),
        (lambda x, draft, *args: any(burning(0.01, draft)(x) is None for _ in range(50)),
         "line .*: it spent 0.1 seconds in a round, without the models"),
        (lambda x, draft, *args: any(draft(x) is None for _ in iter(int, 1)),
         "line .*: it called the models 106 times without a new token"),
        (lambda *args: undefined, "line .*: NameError: name 'undefined'"),  # noqa: F821
        (lambda *args: open("/"), "line .*: IsADirectoryError"),
        (lambda *args: exit("bye"), "line .*: SystemExit: bye"),
        (lambda x, draft, target, N, *args: speculative_sampling(x, draft, target, N - 1, *args),
         "the text must have 1 . N = 41 tokens, the prompt first; found 40"),
        (lambda *args: speculative_sampling(*args) + 9, "the text must be a list of tokens, whole"),
    ],
)  # fmt: skip
def test_a_loop_that_ends_never_or_badly_is_one_line(loop, message, monkeypatch):
    monkeypatch.setattr(demo, "LIMIT", 0.1)
    with pytest.raises(UserError, match=f"test_demo.py: {message}"):
        rounds_of(demo.run, [loop, __file__])


def test_many_guesses_a_slow_model_and_slow_rounds_are_not_endless(monkeypatch):
    assert rounds_of(demo.run, LOOP, N=121, K=120)
    monkeypatch.setattr(demo, "LIMIT", 0.3)
    loop = partial(speculative_sampling, verify=burning(0.1, verify))
    monkeypatch.setattr(Table, "__call__", burning(0.1, Table.__call__))
    assert len(rounds_of(demo.run, [loop, __file__], N=5, K=0)) == 5


def test_a_wrong_rule_writes_fluently_and_the_grader_tells():
    options = "--temperature 1 --n_tokens_to_generate 40 --mine tiny.py accept_all".split()
    output = printed_by(main, *options)
    assert "accept_all is wrong by 0.4400" in output and "no: two samples differ" in output
    assert "rate above alpha  no right rule accepts more" in output
    assert output.endswith("would you have seen that?\n")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (None, "is not there; python -m exercise begins yours"),
        ("x = 1", "verify: not in this file; --mine takes speculative_sampling, or else"),
        ("def verify(*args):\n    return undefined", "line 2, return undefined: NameError"),
        ("def speculative_sampling(*args): 1 / 0\nfrom speculative import verify", "ZeroDivision"),
    ],
)
def test_what_is_wrong_with_their_file_is_one_line(tmp_path, source, message):
    path = tmp_path / "their.py"
    if source:
        path.write_text(source)
    with pytest.raises(UserError, match=f"their.py.*{message}") as error:
        printed_by(main, "--mine", path)
    assert "\n" not in str(error.value)
