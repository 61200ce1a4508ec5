"""What to say of a right function: how much it saves."""

from dataclasses import replace
from functools import partial

import numpy as np

from enumeration import sum_over_paths
from exercise.adapters import as_verify, with_siblings
from exercise.returned import Wrong
from exercise.rounds import Rounds
from exercise.tables import CYCLE
from gallery.setting import mean_length, round_distribution
from lab.trees import top_down
from speculative import speculative_sampling, verify

ROUNDING = 1e-9


def praise(step, function):
    """The verdict on an exact function, with what it could do better."""
    saved = SAVED.get(step.function)
    return f"exact, with {saved(function)}" if saved else "exact"


def in_rounds(function):
    rules = as_verify(function), verify
    return per_round(*(mean_length(round_distribution(rule, setting=CYCLE)) for rule in rules))


def in_trees(function):
    setting = replace(CYCLE, shape=(((), ()), ()))
    rules = with_siblings(function), with_siblings(top_down)
    texts = [sum_over_paths(partial(rule, setting=setting)) for rule in rules]
    return per_round(*(mean_length(text) - 1 for text in texts))  # the prompt is one token


def per_round(tokens, possible):
    return f"{tokens:.2f} tokens per round{more_than(tokens, possible)}"


def more_than(tokens, possible):
    return f" ({possible:.2f} are possible)" if tokens < possible - ROUNDING else ""


def in_loops(function):
    try:
        passes, rounds, guesses, accepted = calls_of(function)
    except Wrong as error:
        return str(error)
    passes_needed, _, guesses_needed, _ = calls_of(speculative_sampling)
    tokens, possible = CYCLE.N / passes, CYCLE.N / passes_needed
    praise = f"{tokens:.2f} tokens per pass of the target{more_than(tokens, possible)}"
    # Each round adds one token that is no guess. If rounds and accepted guesses don't add up to
    # N, the loop made guesses that its calls of the draft don't show.
    if rounds + accepted < CYCLE.N - ROUNDING:
        return praise
    right = CYCLE.N / rounds - 1
    made, needed = guesses / rounds, guesses_needed / passes_needed
    if guesses:
        praise += f"; {made:.2f} guesses a round, {right:.2f} of them accepted"
    extra = passes - rounds
    if extra > ROUNDING:
        times = "once more than needed" if abs(extra - 1) < ROUNDING else "more than once a round"
        praise += f"; it asks the target {times}"
    elif guesses and tokens < possible - ROUNDING:
        is_worse = right / made < (possible - 1) / needed
        praise += f"; {SEES if is_worse else GUESS_MORE}"
    elif made > needed + ROUNDING:
        praise += f"; {needed:.2f} are enough, because a round adds one more token"
    return praise


SEES = "does the draft see its own guesses?"
GUESS_MORE = "guess more, up to one less than there are tokens to go"


def calls_of(function):
    """How many passes of the target a loop takes, rounds, guesses, and accepted ones."""

    def count(rng):
        n = np.zeros(3)

        def add(r):
            n[:] += 1, len(r.drafted), r.n_accepted

        x = np.array(CYCLE.prompt)
        rounds = Rounds(x, add)
        models = map(rounds.watched, (CYCLE.draft_model, CYCLE.target_model), "pq")
        text = function(x.copy(), *models, CYCLE.N, CYCLE.K, rng)
        rounds.end(np.array(text))
        return rounds.n_passes, *n

    counts = sum_over_paths(count)
    return sum(mass * np.array(n) for n, mass in counts.items())


def in_endless_texts(function):
    """The same for a loop that waits for an eos that never comes."""
    return in_loops(partial(function, eos=len(CYCLE.P)))


SAVED = {
    "verify": in_rounds,
    "speculative_sampling": in_loops,
    "until_eos": in_endless_texts,
    "siblings": in_trees,
}
