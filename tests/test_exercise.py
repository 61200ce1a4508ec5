"""The grader: the project's own functions are exact, and each bug of the gallery is named."""

import re
import shutil
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from support import ROOT, printed_by, read, run

import exercise.__main__
from enumeration import total_variation
from exercise.__main__ import grade, graded
from exercise.steps import STEPS
from lab.gallery import changed, changed_draft, favourite, one_hot, walks
from lab.trees import top_down
from sampling import sample
from speculative import (
    acceptance,
    autoregressive_sampling,
    propose,
    residual,
    speculative_sampling,
    verify,
)

STEP = {step.function: step for step in STEPS}


def said_of(step, function):
    """The first line about a function that is exact."""
    lines, is_exact = graded(STEP[step], function, "")
    assert is_exact, lines
    return lines[0]


def found_in(step, function):
    """The lines about a function that is wrong."""
    lines, is_exact = graded(STEP[step], function, "")
    assert is_exact is False, lines
    return lines


# ---- Right functions ----


def accept(p, q, token, rng):
    return rng.random() < q[token] / p[token]


def accept_that_changes_its_rows(p, q, token, rng):
    ratio = q[token] / p[token]
    p[:], q[:] = 0, 1
    return rng.random() / 2 < ratio / 2


def residual_in_fractions_of_floats(p, q):
    """Their sum is hardly ever 1 exactly."""
    return [Fraction(x) for x in residual(p, q)]


def draft_with(reported, pick=favourite):
    """A greedy draft in plain Python that reports reported(row, token)."""

    def draft(x, draft_model, k, rng):
        x, rows = [*x], []
        for _ in range(k):
            row = draft_model(np.array(x))[-1]
            x.append(pick(row))
            rows.append(reported(row, x[-1]))
        return [x[len(x) - k :], rows]

    return draft


def last_favourite(row):
    return int(np.flatnonzero(row == row.max())[-1])


def penalised(rows, ids):
    for i, row in enumerate(rows):
        np.multiply.at(row, ids[: len(ids) - len(rows) + 1 + i], 0.5)
        row /= row.sum()
    return rows


def plain_loop(x, draft_model, target_model, n, k, rng, eos=None):
    return autoregressive_sampling(x, target_model, n, rng, eos=eos)


LOOP = """
def speculative_sampling(x, draft_model, target_model, N, K, rng, eos=None):
    n = len(x)
    while len(x) < n + N and (len(x) == n or x[-1] != eos):
        k = min(K, n + N - len(x) - 1)
        drafted, p = propose(x, draft_model, k, rng)
        q = target_model(np.append(x, drafted), len(drafted) + 1)
        x = np.append(x, verify(drafted, p, q, rng))
        if eos in x[n:]:
            x = x[: n + x[n:].tolist().index(eos) + 1]
    return x
"""


def loop_with(*changes, verify=verify):
    """LOOP as a function, with other code in some places, or with another rule."""
    source = LOOP
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    exec(source, names := {"np": np, "propose": propose, "verify": verify, "sample": sample})
    return names["speculative_sampling"]


K_MAX = "min(K, n + N - len(x) - 1)"
CALL = "q = target_model(np.append(x, drafted), len(drafted) + 1)"
ROW_BY_ROW = "q = [target_model(np.append(x, drafted[:i]))[-1] for i in range(k + 1)]"
eager_at_first = loop_with(
    (K_MAX, f"K if len(x) == n else {K_MAX}"),
    ("return x", "return x[: n + N]"),
)
loop_with_a_call_per_row = loop_with((CALL, f"{ROW_BY_ROW}; q = np.array(q)"))
loop_with_two_calls = loop_with((CALL, f"{CALL}; {CALL}"))
loop_that_ignores_its_guesses = loop_with(("verify(drafted, p, q, rng)", "sample(q[0], rng)"))


def siblings_that_leave_no_tree(node, rng):
    emitted = top_down(node, rng)
    node.children.clear()
    return emitted


def judged(below):
    """Siblings judged as they should be, and below(child, node, rng) if one is accepted."""

    def rule(node, rng):
        r = node.q
        for child in node.children:
            if rng.random() < acceptance(child.p[child.token], r[child.token]):
                return [child.token, *below(child, node, rng)]
            r = residual(child.p, r)
        return [sample(r, rng)]

    return rule


NO_ROOM = "exact, but it makes guesses for which the text has no room"
LOOPED = "tokens per pass of the target"
ONE_TOKEN = "exact, but each round adds one token, as if nothing had been guessed: 1.00 tokens .*"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "function", "message"),
    [
        ("accept", accept, "exact"),
        ("accept", accept_that_changes_its_rows, "exact"),
        ("residual", residual_in_fractions_of_floats, "exact"),
        ("verify", verify, "exact, with 2.13 tokens per round"),
        ("verify", lambda drafted, p, q, rng: verify(drafted[:1], p[:1], q[:2], rng),
         "exact, with 1.70 tokens per round; the papers' rule has 2.13"),
        ("verify", lambda drafted, p, q, rng: [sample(q[0], rng)], ONE_TOKEN + "has 2.13"),
        ("speculative_sampling", loop_with(), f"exact, with 1.81 {LOOPED}"),
        ("speculative_sampling", plain_loop,
         f"exact, but it never asks the draft: 1.00 {LOOPED}; the papers' rule has 1.81"),
        ("speculative_sampling", loop_that_ignores_its_guesses,
         f"exact, but it never uses its guesses: 1.00 {LOOPED}; .*"),
        ("speculative_sampling", loop_with_a_call_per_row,
         f"exact, but it calls the target once per row: 0.76 {LOOPED}; .*"),
        ("speculative_sampling", loop_with_two_calls,
         f"exact, but it calls the target more often than the plain loop: 0.90 {LOOPED}; .*"),
        ("speculative_sampling", eager_at_first, f"{NO_ROOM}: 1.81 {LOOPED}"),
        ("propose", changed_draft(favourite, one_hot), "exact"),
        ("propose", draft_with(one_hot, last_favourite), "exact"),
        ("penalised", penalised, "exact"),
        ("siblings", top_down, "exact, with 2.10 tokens per round"),
        ("siblings", siblings_that_leave_no_tree, "exact, with 2.10 tokens per round"),
        ("siblings", judged(lambda child, node, rng: [sample(child.q, rng)]),
         "exact, but it never uses the guesses below an accepted one: 1.71 tokens per round; "
         "the papers' rule has 2.10"),
        ("siblings", judged(lambda child, node, rng: []), ONE_TOKEN),
        ("siblings", lambda node, rng: [sample(node.q, rng)], ONE_TOKEN),
    ],
)  # fmt: skip
def test_an_exact_function_and_what_it_saves(step, function, message):
    assert re.fullmatch(message, said_of(step, function))


@pytest.mark.parametrize(
    ("step", "function", "why"),
    [
        ("accept", accept,
         "after A, it keeps 0.2, 0.2, 0.3 of A, B, C, nowhere more than q: 0.3, 0.2, 0.5"),
        ("residual", residual,
         "after A, 0.3 is rejected, and q lacks as much: 0.1, 0, 0.2 of A, B, C"),
        ("verify", verify,
         "after A, 0.2, 0.2, 0.3 is kept of A, B, C, and 0.1, 0, 0.2 added: "
         "together q, 0.3, 0.2, 0.5"),
        ("verify", lambda drafted, p, q, rng: [sample(q[0], rng)], None),
        ("speculative_sampling", loop_with(),
         "A C B C has probability 0.125, as by q alone: 0.5 * 0.5 * 0.5"),
        ("propose", draft_with(one_hot),
         "a guess that is certain has p = 1, so it is kept with probability q / 1"),
        ("penalised", penalised,
         "each row counts all that stands before its own token, guesses included"),
        ("siblings", top_down,
         "it emits guess 1 with 0.50, guess 2 with 0.21, else 0.29: in all as q says"),
    ],
)  # fmt: skip
def test_a_right_answer_shows_why_it_is_right(step, function, why):
    lines, _ = graded(STEP[step], function, "")
    assert lines[1:] == ([why] if why else [])


# ---- Wrong functions ----


def handed_in(name, variant):
    """A variant of the gallery as a solution of a step."""
    if name == "speculative_sampling":

        def loop(x, draft_model, target_model, n, k, rng, eos=None):
            models = {"draft_model": draft_model, "target_model": target_model}
            return variant.text(rng, SimpleNamespace(prompt=tuple(x), N=n, K=k, **models))

        return loop
    if name == "penalised":

        def penalise(rows, ids):
            n = len(ids) - len(rows) + 1
            setting = SimpleNamespace(target_model=lambda ids, n_rows: rows)
            return variant.rows(setting, ids[:n], ids[n:], {})

        return penalise
    functions = {"verify": variant.verify, "propose": variant.propose}
    return functions.get(name, variant.tree_rule)


def fits(name, variant):
    if name == "penalised":  # without a memory, these are right, or look like others
        return variant.id not in ("penalty-rejected", "penalty-twice", "penalty-first-token")
    return name != "propose" or variant.id == "greedy-draft"


BUGS = [
    pytest.param(step, check, v, id=f"{step.function}-{v.id}")
    for step in STEPS[2:]
    for check in step.checks
    for v in check.rivals
    if not v.exact and fits(step.function, v)
]


@pytest.mark.slow
@pytest.mark.parametrize(("step", "check", "variant"), BUGS)
def test_a_bug_of_the_gallery_is_named(step, check, variant):
    lines = grade(check, handed_in(step.function, variant))
    assert f'the distribution of "{variant.name}"' in lines[0] and lines[1].startswith("after ")


def test_the_table_and_the_first_wrong_number():
    lines = found_in("residual", lambda p, q: q)
    assert lines[0] == (
        "wrong by 0.0600 in the first token, 0.0924 in the text: "
        'the distribution of "draws the replacement from the target" (ccs96307/fast-llm-inference)'
    )
    assert lines[1] == "after A, A is emitted with probability 0.29, but should be 0.3"
    numbers = [[float(x) for x in line.split()[-3:]] for line in lines[3:]]
    assert numbers == [[0.2, 0.2, 0.3], [0.09, 0.06, 0.15], [0.29, 0.26, 0.45], [0.3, 0.2, 0.5]]


def test_a_text_that_should_have_ended():
    no_cut = loop_with(("if eos in x[n:]", "if False"))
    headline, first = found_in("speculative_sampling", no_cut)
    assert first == "after A C, the text should have ended, but A follows with probability 0.18"
    assert headline.endswith(", where C is the eos")


def right_in_one_pair(p, q):
    """Right for the first pair of tables alone, where no row has a zero."""
    return residual(p, q) if p.all() and q.all() else q


right_for_two_guesses = changed(lambda p, q, i, t: acceptance(p[i][t], q[i][t]) if i < 2 else 1)
bonus_for_two_guesses = changed(bonus=lambda p, q: q[-1] if len(p) < 3 else q[0])


def replacement_for_two_guesses(p, q, i, t):
    row = residual(p[i], q[i])
    return row if i < 2 else one_hot(row)


def accept_but_for_a_tie(p, q, token, rng):
    return q[token] != p[token] and accept(p, q, token, rng)


def residual_without_equals(p, q):
    row = residual(p, q)
    return one_hot(row) if np.sum(row == row.max()) > 1 else row


def residual_remembered_by(key):
    """key(p, q) is the row that a cache goes by."""
    cache = {}
    return lambda p, q: cache.setdefault(key(p, q).tobytes(), residual(p, q))


def siblings_remembered_by(key):
    cache = {}
    return walks(left=lambda child, node, r: cache.setdefault(key(child, r), residual(child.p, r)))


def certain_of_the_second(node, rng):
    """A second guess that was certain is always accepted."""
    r = node.q
    for child in node.children:
        p = child.p[child.token]
        is_second = child is not node.children[0]
        if (is_second and p == 1) or rng.random() < acceptance(p, r[child.token]):
            return [child.token, *certain_of_the_second(child, rng)]
        r = residual(child.p, r)
    return [sample(r, rng)]


def loop_for_other_sizes(x, draft_model, target_model, n, k, rng, eos=None):
    rule = verify if k != n else changed(replacement=lambda p, q, i, t: q[i])
    return speculative_sampling(x, draft_model, target_model, n, k, rng, eos=eos, verify=rule)


@pytest.mark.parametrize(
    ("step", "function"),
    [
        ("accept", accept_but_for_a_tie),
        ("residual", right_in_one_pair),
        ("residual", residual_without_equals),
        ("residual", residual_remembered_by(lambda p, q: p)),
        ("residual", residual_remembered_by(lambda p, q: q)),
        ("verify", right_for_two_guesses),
        ("verify", bonus_for_two_guesses),
        ("verify", changed(replacement=replacement_for_two_guesses)),
        ("speculative_sampling", loop_for_other_sizes),
        ("siblings", certain_of_the_second),
        ("siblings", siblings_remembered_by(lambda child, r: child.p.tobytes())),
        ("siblings", siblings_remembered_by(lambda child, r: (child.token, r.tobytes()))),
    ],
)
def test_a_mistake_that_only_one_table_shows(step, function):
    assert found_in(step, function)[0].startswith("wrong by 0.")


def is_seen(step, function):
    """Whether some table shows that a function is wrong. `graded` would look for its name, too."""
    for check in STEP[step].checks:
        for setting in check.settings:
            found = check.distribution(check.sampler(function), setting)
            if total_variation(found, check.distribution(check.reference, setting)) > 1e-12:
                return True
    return False


def cut(row, least):
    kept = np.where(row < least, 0, row)
    return kept / kept.sum() if kept.any() else row


SMALL = 0.02, 0.05, 0.15, 0.25, 0.3


@pytest.mark.slow
@pytest.mark.parametrize("least", SMALL)
@pytest.mark.parametrize(
    "chance",
    [
        lambda p, q, least: min(1, q / max(p, least)),
        lambda p, q, least: 1 if p < least else acceptance(p, q),
        lambda p, q, least: 0 if p < least else acceptance(p, q),
        lambda p, q, least: 1 if 0 < q < least else acceptance(p, q),
        lambda p, q, least: 0 if q < least else acceptance(p, q),
        lambda p, q, least: 1 if abs(p - q) < least else acceptance(p, q),
        lambda p, q, least: 1 if p > 1 - least else acceptance(p, q),
    ],
)
def test_a_wrong_chance_where_something_is_small(chance, least):
    def accept(p, q, token, rng):
        return bool(rng.random() < chance(p[token], q[token], least))

    rule = changed(lambda p, q, i, t: chance(p[i][t], q[i][t], least))
    assert is_seen("accept", accept)
    assert is_seen("speculative_sampling", loop_with(verify=rule))


@pytest.mark.slow
@pytest.mark.parametrize("least", SMALL)
@pytest.mark.parametrize("K", [1, 2, 3])
def test_a_wrong_chance_in_rounds_of_K(K, least):
    def chance(p, q, i, t):
        divisor = max(p[i][t], least) if len(p) == K else p[i][t]
        return acceptance(divisor, q[i][t])

    assert is_seen("verify", changed(chance))


@pytest.mark.slow
@pytest.mark.parametrize("least", SMALL)
def test_a_wrong_row_where_something_is_small(least):
    def unless_small(p, q):
        return q if np.maximum(q - p, 0).sum() < least else residual(p, q)

    def if_sure(row, token):
        return one_hot(row, token) if row.max() > 1 - least else row

    assert is_seen("residual", lambda p, q: cut(residual(p, q), least))
    assert is_seen("residual", unless_small)
    assert is_seen("verify", changed(bonus=lambda p, q: cut(q[-1], least)))
    assert is_seen("propose", draft_with(if_sure))


def split(row, token):
    return (row == row.max()) / np.sum(row == row.max())


def always_the_first(row, token):
    return one_hot(row, 0)


@pytest.mark.parametrize("reported", [split, lambda row, token: row, always_the_first])
def test_a_draft_that_reports_another_row(reported):
    assert found_in("propose", draft_with(reported))[0].startswith("wrong by 0.")


@pytest.mark.parametrize(
    "change",
    [
        ("len(x) == n or ", ""),
        ("np.append(x, drafted),", "np.append(x, drafted)[n - 1 :],"),
        ("np.append(x, drafted),", "np.append(x, drafted)[-k - 4 :],"),
        ("if eos in x[n:]", "if eos and eos in x[n:]"),
        ("n + N", "1 + N"),
        ("n = len(x)", "n, N = len(x), max(N, K + 1)"),
        (K_MAX, "K if len(x) == n else " + K_MAX),
        (K_MAX, "max(1, n + N - len(x) - 1)"),
        ("len(x) < n + N", "len(x) < n + max(1, N)"),
    ],
)
def test_a_mistake_that_needs_another_prompt_or_other_sizes(change):
    found_in("speculative_sampling", loop_with(change))


def test_where_a_mistake_was_found_is_said():
    one_token_at_least = loop_with(("len(x) < n + N", "len(x) < n + max(1, N)"))
    line = found_in("speculative_sampling", one_token_at_least)[0]
    assert line.endswith(", where N = 0 and K = 2")
    crash = loop_with(("n = len(x)", "n, _ = len(x), 1 / (N - 1)"))
    line = found_in("speculative_sampling", crash)[0]
    assert "ZeroDivisionError" in line and line.endswith(", where N = 1 and K = 2")


BELOW = {
    "accepts each guess": walks(against=lambda child, node, r: np.ones(4)),
    "judges the second against q": walks(against=lambda child, node, r: node.q),
    "draws last from q": walks(last=lambda node, r, rng: sample(node.q, rng)),
    "takes the first p for both": walks(row_of=lambda child, node, r: node.children[0].p),
    "leaves q as it is": walks(left=lambda child, node, r: residual(child.p, node.q)),
    "leaves p": walks(left=lambda child, node, r: child.p),
    "takes the favourite of what is left": walks(last=lambda node, r, rng: favourite(r)),
    "draws the bonus from p": walks(
        last=lambda node, r, rng: sample(r if node.children else node.p, rng),
    ),
    "accepts what is rare": walks(against=lambda child, node, r: np.where(child.p < 0.02, 1, r)),
}


@pytest.mark.slow
@pytest.mark.parametrize("below", BELOW.values(), ids=BELOW)
def test_a_mistake_below_an_accepted_guess(below):
    lines = found_in("siblings", judged(lambda child, node, rng: below(child, rng)))
    assert lines[0].startswith("wrong by 0.") and lines[1].startswith("after A ")


def last_first(child, node, rng):
    child.children.reverse()
    return top_down(child, rng)


def bonus_from_the_row_before(child, node, rng):
    child.q = child.q if child.children else node.q
    return top_down(child, rng)


def with_its_parents_q(child, node, rng):
    child.q = node.q
    return top_down(child, rng)


def below_the_first_of_both(child, node, rng):
    return top_down(node.children[0], rng)


WAYS_DOWN = [last_first, bonus_from_the_row_before, with_its_parents_q, below_the_first_of_both]


@pytest.mark.slow
@pytest.mark.parametrize("below", WAYS_DOWN)
def test_a_wrong_way_down(below):
    assert found_in("siblings", judged(below))[0].startswith("wrong by 0.")


def test_a_mistake_of_a_billionth_is_shown_with_its_digits():
    def accept(p, q, token, rng):
        return rng.random() < q[token] / (p[token] + 1e-7)

    headline, first, *_ = found_in("accept", accept)
    assert re.match(r"wrong by \de-08", headline)
    assert first.endswith("with probability 0.30000001, but should be 0.3")


# ---- What cannot be graded ----

NUMPYS_OWN = "return verify_with(drafted, p, q, np.random)"
VERIFY = """
def verify_with(drafted, p, q, rng):
    for i, token in enumerate(drafted):
        if rng.random() >= q[i, token] / p[i, token]:
            return [*drafted[:i], 0]
    return [*drafted, 0]
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "step", "message"),
    [
        ("pass", "accept", "it returned None; is a return missing?"),
        ("if p[token] > 0.4: raise NotImplementedError(1)\n    return True", "accept",
         "NotImplementedError: 1"),
        ("return 0.5", "accept", "True or False is needed; found 0.5"),
        ("return np.random.random() < q[token] / p[token]", "accept",
         "it draws from np.random; draw from rng alone"),
        (NUMPYS_OWN, "verify", "it draws from np.random; draw from rng alone"),
        ("import random\n    return random.random() < 0.5", "accept",
         "it draws from random; draw from rng alone"),
        ("return np.random.default_rng().random() < 0.5", "accept",
         "asks the operating system for random numbers"),
        ("raise SystemExit", "accept", "line 3, raise SystemExit: SystemExit"),
        ("return rng.integers(10**7) < 5", "accept",
         "accept                a choice among 10,000,000 items"),
        ("return q[token] / 0 < rng.randm()", "accept",
         "line 3, return q[token] / 0 < rng.randm(): AttributeError"),
        ("while q > p:\n        pass", "accept",
         "line 3, while q > p: ValueError: The truth value"),
        ("while rng.random() < 1: pass", "accept", "a loop may go on for ever"),
        ("while True: p", "accept",
         "line 3, while True: p: it did not end within 0.3 seconds of computing\n"),
        ("return q - p", "residual",
         "the residual must be a distribution, with a sum of 1; found [0.1, -0.3, 0.2]"),
        ("return [0.5, 0.5]", "residual", "the residual must have the shape [3]; found [2]"),
        ("return ['0.5', p, q]", "residual",
         "the residual must be an array; found ['0.5', array(["),
        ("pass", "verify", "it returned None; is a return missing?"),
        ("return drafted, 1", "verify", "the round must be an array"),
        ("return [7]", "verify", "the round must be tokens from 0 to 2; found [7]"),
        ("return x", "speculative_sampling", "the text must have 1 + N = 4 tokens"),
        ("return np.ones(4, int)", "speculative_sampling",
         "the prompt first; found array([1, 1, 1, 1])"),
        ("return rows / 2", "penalised",
         "the rows must be a distribution, with a sum of 1; found [[0.15"),
        ("return x[:0]", "propose", "a draft returns the guesses and their rows"),
        ("return np.array([0] * k), np.eye(3)[[0] * k]", "propose",
         "its favourite, B after A; found A"),
        ("return rows[-1]", "penalised", "the rows must have the shape [3, 3]; found [3]"),
        ("return [0] * 9", "siblings", "a list of 1 to 3 tokens is needed; found [0, 0"),
        ("return [7]", "siblings", "the list must be tokens from 0 to 3; found [7]"),
        ("return []", "verify", "a round of 2 guesses emits 1 to 3 tokens; found"),
        ("return 0", "siblings", "a list of 1 to 3 tokens is needed; found 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_graded_is_said_in_one_line(tmp_path, body, step, message):
    result = graded_in_a_process(tmp_path, body, step)
    assert result.returncode == 1 and message in result.stdout, result.stderr
    assert result.stdout.count("\n") == 1


def graded_in_a_process(tmp_path, body, step, before=""):
    """What the grader prints about a step, with a limit of 0.3 seconds, after some other code."""
    stub = re.search(rf"def {step}\(.*", read("exercise/stubs.py"))[0]
    (tmp_path / "mine.py").write_text(f"import numpy as np\n{stub}\n    {body}\n{VERIFY}")
    args = [str(tmp_path / "mine.py"), step]
    main = f"grader.LIMIT = 0.3\nreport(lambda: grader.main({args}), '')"
    imports = "import exercise.__main__ as grader\nfrom terminal import report"
    (tmp_path / "go.py").write_text(f"{before}\n{imports}\n{main}")
    return run(script=str(tmp_path / "go.py"))


def test_where_nothing_can_interrupt_a_loop_python_ends_and_says_where(tmp_path):
    """As on Windows."""
    before = "import signal; del signal.setitimer"
    result = graded_in_a_process(tmp_path, "while True: p", "accept", before)
    assert result.returncode == 1 and result.stdout == ""
    assert re.search(r'Timeout .*\n.*\n  File ".*mine\.py", line 3 in accept', result.stderr)


def test_a_loop_that_catches_every_exception_ends_as_well(tmp_path):
    body = "while True:\n        try: sum(range(10_000))\n        except Exception: pass"
    result = graded_in_a_process(tmp_path, body, "accept")
    assert "it did not end within 0.3 seconds" in result.stdout


def test_an_interrupt_ends_the_grader(tmp_path):
    assert graded_in_a_process(tmp_path, "raise KeyboardInterrupt", "accept").returncode == 130


@pytest.mark.slow
def test_a_wrong_part_of_the_same_file_is_named(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import numpy as np\nfrom speculative import propose\n"
        "def residual(p, q): return q\n"
        "def verify(drafted, p, q, rng): return [*drafted, q[-1].argmax()]\n" + LOOP
    )
    said = run(tmp_path / "mine.py", "4", script="exercise").stdout
    assert said.splitlines()[1] == "    your verify, which is wrong, is part of this"
    assert "which is wrong" not in run(tmp_path / "mine.py", "3", script="exercise").stdout


# ---- Files ----


def test_a_file_imports_its_own_neighbours(tmp_path):
    (tmp_path / "sampling.py").write_text("def sample(p, rng): return p.argmax()")
    (tmp_path / "mine.py").write_text(read("speculative.py"))
    for file, verdict in ("speculative.py", "exact"), (tmp_path / "mine.py", "wrong by 0."):
        assert f"3 verify                {verdict}" in run(file, "verify", script="exercise").stdout


def test_a_copy_of_the_checker_may_lie_beside_the_file(tmp_path):
    shutil.copytree(ROOT / "enumeration", tmp_path / "enumeration")
    endless = "def accept(p, q, token, rng):\n    while rng.random() < 1: pass\n"
    (tmp_path / "mine.py").write_text(f"import enumeration\n{read('speculative.py')}\n{endless}")
    for step, verdict in ("verify", "exact, with 2.13"), ("accept", "a loop may go on for ever"):
        assert verdict in run(tmp_path / "mine.py", step, script="exercise").stdout


def test_the_stubs_are_copied_once_and_then_yours(tmp_path, monkeypatch):
    monkeypatch.setattr(exercise.__main__, "MINE", mine := tmp_path / "mine.py")
    assert printed_by(exercise.__main__).count("not written yet") == len(STEPS)
    mine.write_text(mine.read_text().replace("accept(", "accept_later("))
    assert printed_by(exercise.__main__).count("not written yet") == len(STEPS) - 1
    assert "accept_later" in mine.read_text()


def test_odd_files(tmp_path):
    (tmp_path / "half.py").write_text("def accept(")
    verify = "def verify(*args): return residual(1, 2)"
    (tmp_path / "calls.py").write_text(read("exercise/stubs.py") + verify)
    result = run(tmp_path / "calls.py", "verify", script="exercise")
    assert result.stdout == "3 verify                it calls residual, which is not written yet\n"
    for args, message in (
        (["nowhere.py"], "neither a file nor a step 'nowhere.py'; steps are 1 to 7, or accept,"),
        (["README.md"], "README.md is no Python file"),
        ([tmp_path / "half.py"], "cannot be imported: SyntaxError"),
        (["exercise/stubs.py", "9"], "there is no step '9'; there are 1 to 7, or accept, residual"),
        (["speculative.py", "siblings"], "speculative.py has no function siblings"),
    ):
        result = run(*args, script="exercise")
        assert result.returncode == 2 and message in result.stderr
        assert result.stderr.count("\n") == 1
