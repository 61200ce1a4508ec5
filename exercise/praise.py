"""What to say of a right function: how much it saves."""

import numpy as np

from enumeration import sum_over_paths
from exercise.steps import CYCLE, as_verify
from lab.gallery.setting import mean_length, round_distribution

POSSIBLE, NEEDED = 2.5, 1.75  # tokens per pass, and guesses a round, for CYCLE
ROUNDING = 1e-9


def praise(step, function):
    saved = SAVED.get(step.function)
    return f"exact, with {saved(function)}" if saved else "exact"


def in_rounds(function):
    found = round_distribution(as_verify(function), setting=CYCLE)
    return f"{mean_length(found):.2f} tokens per round"


def in_loops(function):
    passes, guesses, rows = calls_of(function)
    tokens = CYCLE.N / passes
    said = f"{tokens:.2f} tokens per pass of the target"
    if tokens < POSSIBLE - ROUNDING:
        said += f" ({POSSIBLE:.2f} are possible)"
    if guesses and abs(rows - guesses - passes) < ROUNDING:  # one pass for each round,
        said += f"; {guesses / passes:.2f} guesses a round"
        said += f", {tokens - 1:.2f} of them accepted"  # which adds one token that is no guess
        if tokens < POSSIBLE - ROUNDING:
            said += "; does the draft see its own guesses?"
        elif guesses / passes > NEEDED + ROUNDING:
            said += f"; {NEEDED} are enough, for a round adds one more token"
    return said


def calls_of(function):
    """How often a loop calls the target and the draft, and for how many rows of the target."""

    def count(rng):
        n = [0, 0, 0]

        def draft_model(ids, n_rows=1):
            n[1] += 1
            return CYCLE.draft_model(ids, n_rows)

        def target_model(ids, n_rows=1):
            n[0] += 1
            n[2] += n_rows
            return CYCLE.target_model(ids, n_rows)

        function(np.array(CYCLE.prompt), draft_model, target_model, CYCLE.N, CYCLE.K, rng)
        return n

    found = sum_over_paths(count)
    return sum(mass * np.array(n) for n, mass in found.items())


SAVED = {
    "verify": in_rounds,
    "speculative_sampling": in_loops,
}
