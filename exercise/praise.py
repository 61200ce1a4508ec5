"""What to say of a right function: how much it saves."""

import numpy as np

from enumeration import sum_over_paths
from exercise.adapters import as_verify
from exercise.tables import CYCLE
from gallery.setting import mean_length, round_distribution
from speculative import speculative_sampling, verify

ROUNDING = 1e-9


def praise(step, function):
    saved = SAVED.get(step.function)
    return f"exact, with {saved(function)}" if saved else "exact"


def in_rounds(function):
    found = [round_distribution(rule, setting=CYCLE) for rule in (as_verify(function), verify)]
    tokens, possible = map(mean_length, found)
    return f"{tokens:.2f} tokens per round{more_than(tokens, possible)}"


def more_than(tokens, possible):
    return f" ({possible:.2f} are possible)" if tokens < possible - ROUNDING else ""


def in_loops(function):
    passes, guesses, rows = calls_of(function)
    passes_needed, guesses_needed, _ = calls_of(speculative_sampling)
    tokens, possible = CYCLE.N / passes, CYCLE.N / passes_needed
    made, needed = guesses / passes, guesses_needed / passes_needed
    is_slow = tokens < possible - ROUNDING
    said = f"{tokens:.2f} tokens per pass of the target{more_than(tokens, possible)}"
    if guesses and abs(rows - guesses - passes) < ROUNDING:  # one pass for each round,
        said += f"; {made:.2f} guesses a round"
        said += f", {tokens - 1:.2f} of them accepted"  # which adds one token that is no guess
        if is_slow and (tokens - 1) / made < (possible - 1) / needed:
            said += "; does the draft see its own guesses?"
        elif is_slow:
            said += "; guess more, up to one less than there are tokens to go"
        elif made > needed + ROUNDING:
            said += f"; {needed:.2f} are enough, for a round adds one more token"
    return said


def calls_of(function):
    """How often a loop calls the target and the draft, and for how many rows of the target."""

    def count(rng):
        n = [0, 0, 0]
        asked = []

        def draft_model(ids, n_rows=1):
            n[1] += 1
            return CYCLE.draft_model(ids, n_rows)

        def target_model(ids, n_rows=1):
            n[0] += 1
            if [*ids] not in asked:  # twice about the same
                n[2] += n_rows
            asked.append([*ids])
            return CYCLE.target_model(ids, n_rows)

        function(np.array(CYCLE.prompt), draft_model, target_model, CYCLE.N, CYCLE.K, rng)
        return n

    found = sum_over_paths(count)
    return sum(mass * np.array(n) for n, mass in found.items())


SAVED = {
    "verify": in_rounds,
    "speculative_sampling": in_loops,
}
