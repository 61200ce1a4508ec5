"""What to say of a right function: how much it saves, and in one line why it is right."""

import numpy as np

from enumeration import sum_over_paths
from exercise.steps import (
    ENDS,
    LOOPS,
    NAMES,
    README,
    first_token,
    grown,
    quoted,
    with_loop,
)
from lab.gallery import EOS
from lab.gallery.setting import mean_length, round_distribution


def praise(step, function):
    if step.as_rule:
        function = step.as_rule(function)
    saved = SAVED[step.function](function) if step.function in SAVED else ""
    return [f"exact{saved}", WHY[step.function](function)]


# ---- How much it saves ----


def in_rounds(rule):
    found = round_distribution(rule, setting=README)
    return f", with {mean_length(found):.2f} tokens per round"


def in_loops(function):
    N, K = README.N, README.K

    def n_passes(rng):
        x = np.array(README.prompt)
        passes = []

        def target_model(ids, n_rows=1):
            passes.append(n_rows)
            return README.target_model(ids, n_rows)

        function(x, README.draft_model, target_model, N, K, rng)
        return len(passes)

    found = sum_over_paths(n_passes)
    passes = sum(mass * n for (n,), mass in found.items())
    return f", with {N / passes:.2f} tokens per pass of the target"


SAVED = {
    "verify": in_rounds,
    "speculative_sampling": in_loops,
}


# ---- Why it is right ----


def why_accept(rule):
    kept, _ = first_token(rule)
    q = listed(README.Q[0])
    return f'after "A", it guesses and keeps {listed(kept)}, nowhere more than q: {q}'


def why_residual(rule):
    _, replaced = first_token(rule)
    rejected = f"{sum(replaced):g} is rejected"
    return f'after "A", {rejected}, and q lacks just as much: {listed(replaced)}'


def why_verify(rule):
    kept, replaced = map(listed, first_token(rule))
    return f'after "A", it guesses and keeps {kept}, and adds {replaced}: together q'


def listed(row):
    return ", ".join(f"{name} {x:.4g}" for name, x in zip(NAMES, row))


def why_loop(function):
    """The most probable text, as a product of probabilities of q."""
    found = LOOPS[0].distribution(with_loop(function), README)
    text = max(found, key=found.get)
    q = README.target_model(text[:-1], README.N)
    factors = q[range(README.N), text[1:]]
    product = " * ".join(f"{x:g}" for x in factors)
    return f"{quoted(text)} has probability {found[text]:g}, as by q alone: {product}"


def why_eos(function):
    """The two most probable texts, which end early."""
    found = ENDS[0].distribution(with_loop(function, eos=EOS), README)
    first, second = sorted(found, key=found.get)[:-3:-1]
    one = f"{quoted(first)} has probability {found[first]:g}"
    other = f"{quoted(second)} has {found[second]:g}"
    return f"a text ends with its first new {NAMES[EOS]}: {one}, {other}"


def why_propose(function):
    return "a guess that is certain has p = 1, so it is kept with probability q / 1"


def why_penalised(function):
    return "each row counts all that stands before its own token, guesses included"


def why_siblings(function):
    """Which of both guesses the first token is, or neither."""

    def place(rng):
        root = grown(README, rng)
        guesses = [child.token for child in root.children]
        token = function(root, rng)[0]
        return [*guesses, token].index(token)

    found = sum_over_paths(place)
    first, second, neither = (f"{found.get((i,), 0):.2f}" for i in range(3))
    return f"it emits guess 1 with {first}, guess 2 with {second}, else {neither}: in all as q says"


WHY = {
    "accept": why_accept,
    "residual": why_residual,
    "verify": why_verify,
    "speculative_sampling": why_loop,
    "until_eos": why_eos,
    "propose": why_propose,
    "penalised": why_penalised,
    "siblings": why_siblings,
}
