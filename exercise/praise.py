"""What to say of a right function: how much it saves, and why it is right."""

from enumeration import sum_over_paths
from exercise.steps import LOOPS, README, SIZES, SPARSE_TREE, first_token, grown, spelt, with_loop
from lab.gallery import mean_length, round_distribution
from lab.trees import top_down
from speculative import speculative_sampling, verify

ROUNDING = 1e-12  # differences below are rounding
ONE_TOKEN = "each round adds one token, as if nothing had been guessed"


def praise(step, function):
    """That it is exact, how many tokens it yields beside the papers' rule, and why it is right."""
    why = REASONS[step.function](step, function)
    if step.function not in MEASURES:
        return ["exact", why]
    measure, papers, unit = MEASURES[step.function]
    rate, flaw = measure(function)
    usual, _ = measure(papers)
    beside = f"; the papers' rule has {usual:.2f}" if abs(rate - usual) > ROUNDING else ""
    saved = f"{rate:.2f} tokens per {unit}{beside}"
    return [f"exact, but {flaw}: {saved}"] if flaw else [f"exact, with {saved}", why]


# ---- How much it saves, and what is to be said against it ----


def of_rounds(rule):
    rate = mean_length(round_distribution(rule, setting=README))
    return rate, ONE_TOKEN if rate < 1 + ROUNDING else ""


def of_trees(rule):
    found = sum_over_paths(lambda rng: rule(grown(SPARSE_TREE, rng), rng))
    rate = mean(found, len)
    flaw = "it never uses the guesses below an accepted one" if max(map(len, found)) < 3 else ""
    return rate, ONE_TOKEN if rate < 1 + ROUNDING else flaw


def of_loops(function):
    calls = calls_of(function, README)
    rate = README.N / mean(calls, lambda each: sum(n < 0 for n in each))
    all_calls = [n for each in calls for n in each]
    flaw = ""
    if max(all_calls) < 0:
        flaw = "it never asks the draft"
    elif min(all_calls) == -1:
        flaw = "it calls the target once per row"
    elif rate < 1 - ROUNDING:
        flaw = "it calls the target more often than the plain loop"
    elif rate < 1 + ROUNDING:
        flaw = "it never uses its guesses"
    elif any(drafts_too_much(function, setting) for setting in [README, *SIZES]):
        flaw = "it makes guesses for which the text has no room"
    return rate, flaw


def calls_of(function, setting):
    """{calls: probability}. A call is how many ids the draft got, or -n_rows of the target."""

    def run(rng):
        calls = []
        with_loop(function, calls=calls)(rng, setting)
        return calls

    return sum_over_paths(run)


def drafts_too_much(function, setting):
    """Whether it guesses the last token, or one behind it: the target gives that anyway."""
    last = len(setting.prompt) + setting.N - 1
    return any(max(each, default=-1) >= last for each in calls_of(function, setting))


def mean(distribution, count):
    return sum(mass * count(found) for found, mass in distribution.items())


MEASURES = {  # measure(function) -> rate and flaw, the papers' function, the unit
    "verify": (of_rounds, verify, "round"),
    "siblings": (of_trees, top_down, "round"),
    "speculative_sampling": (of_loops, speculative_sampling, "pass of the target"),
}


# ---- Why it is right ----


def why_rule(step, function):
    """How it makes the first token after A."""
    kept, replaced = first_token(step.as_rule(function))
    numbers = {"kept": kept, "replaced": replaced, "refused": [sum(replaced)], "q": README.Q[0]}
    words = {name: listed(row) for name, row in numbers.items()}
    return RULES[step.function].format(**words)


def listed(row):
    return ", ".join(f"{round(x, 4):g}" for x in row)


RULES = {
    "accept": "after A, it keeps {kept} of A, B, C, nowhere more than q: {q}",
    "residual": "after A, {refused} is rejected, and q lacks as much: {replaced} of A, B, C",
    "verify": "after A, {kept} is kept of A, B, C, and {replaced} added: together q, {q}",
}


def why_loop(step, function):
    """The most probable text, as a product of probabilities of q."""
    found = LOOPS[0].distribution(with_loop(function), README)
    text = max(found, key=found.get)
    q = README.target_model(text[:-1], README.N)
    factors = q[range(README.N), text[1:]]
    product = " * ".join(f"{x:g}" for x in factors)
    return f"{spelt(text)} has probability {found[text]:g}, as by q alone: {product}"


def why_propose(step, function):
    return "a guess that is certain has p = 1, so it is kept with probability q / 1"


def why_penalised(step, function):
    return "each row counts all that stands before its own token, guesses included"


def why_siblings(step, function):
    """Which of both guesses the first token is, or neither."""

    def place(rng):
        root = grown(SPARSE_TREE, rng)
        guesses = [child.token for child in root.children]
        token = function(root, rng)[0]
        return [*guesses, token].index(token)

    found = sum_over_paths(place)
    first, second, neither = (f"{found[i,]:.2f}" for i in range(3))
    return f"it emits guess 1 with {first}, guess 2 with {second}, else {neither}: in all as q says"


REASONS = {
    "accept": why_rule,
    "residual": why_rule,
    "verify": why_rule,
    "speculative_sampling": why_loop,
    "propose": why_propose,
    "penalised": why_penalised,
    "siblings": why_siblings,
}
