"""The grader: the project's own functions are exact, and each bug of the gallery is named."""

import re
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from support.programs import printed_by, read

import exercise.__main__ as program
from checkpoint import UserError
from exercise import process
from exercise.grading import compared, graded
from exercise.praise import praise
from exercise.price import EMITS_OTHERS, priced
from exercise.steps import STEPS
from exercise.tables import README
from exercise.tree import tree
from gallery import GALLERY
from gallery.samples import in_words, samples_needed
from gallery.setting import decode, target_rows
from gallery.variant import edited
from lab.trees import top_down
from sampling import sample
from speculative import autoregressive_sampling, max_fn, propose, residual, verify

STEP = {step.function: step for step in STEPS}


def lines_about(step, function):
    """The lines about a function that is wrong."""
    lines, is_exact = graded(STEP[step], function, "")
    assert is_exact is False, lines
    return lines


# ---- Right functions ----


def accept(p, q, token, rng):
    return rng.random() < q[token] / p[token]


def accept_in_its_own_rows(p, q, token, rng):
    q /= p
    return not rng.random() > q[token]


def residual_in_fractions_of_floats(p, q):
    """The residual as Fractions, whose sum is hardly ever 1 exactly."""
    return [Fraction(x) for x in residual(p, q)]


def greedy_draft(pick=np.argmax):
    """A greedy draft that reports its guesses as certain."""

    def draft(x, draft_model, k, rng):
        x, rows = [*x], []
        for _ in range(k):
            row = draft_model(np.array(x))[-1]
            x.append(pick(row))
            rows.append(np.eye(len(row))[x[-1]])
        return [x[len(x) - k :], rows]

    return draft


def last_argmax(row):
    return int(np.flatnonzero(row == row.max())[-1])


def penalised(rows, ids):
    for i, row in enumerate(rows):
        np.multiply.at(row, ids[: len(ids) - len(rows) + 1 + i], 0.5)
        row /= row.sum()
    return rows


def propose_after_x(x, draft_model, k, rng):
    """Guesses by a draft that does not see the guesses before."""
    return propose(x, lambda ids, n_rows=1: draft_model(x), k, rng)


LOOP = """
def loop(x, draft_model, target_model, N, K, rng, eos=None):
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
    names = {"np": np, "propose": propose, "verify": verify, "propose_after_x": propose_after_x}
    exec(source, names)
    return names["loop"]


def plain_loop(x, draft_model, target_model, N, K, rng, eos=None):
    return autoregressive_sampling(x, target_model, N, rng)


K_MAX = "min(K, n + N - len(x) - 1)"
CALL = "q = target_model(np.append(x, drafted), len(drafted) + 1)"
ROW_BY_ROW = "q = [target_model(np.append(x, drafted[:i]))[-1] for i in range(k + 1)]"
SEES_A_TOKEN = "propose(x, draft_model", "propose(x, lambda ids: draft_model(ids[-1:])"
SEES_MORE = "propose(x, draft_model", "propose(x, lambda ids: draft_model([1, *ids])"
loop_with_a_call_per_row = loop_with((CALL, f"{ROW_BY_ROW}; q = np.array(q)"))


@pytest.mark.parametrize(
    ("step", "function", "verdict"),
    [
        ("accept", accept, "exact"),
        ("residual", residual, "exact"),
        ("verify", verify, "exact, with 2.71 tokens per round"),
        ("speculative_sampling", loop_with(), "exact, with 2.50 tokens per pass of the target; "
         "1.75 guesses a round, 1.50 of them accepted"),
        ("until_eos", loop_with(), "exact, with 2.50 tokens per pass of the target; "
         "1.75 guesses a round, 1.50 of them accepted"),
        ("propose", greedy_draft(), "exact"),
        ("penalised", penalised, "exact"),
        ("siblings", top_down, "exact, with 2.81 tokens per round"),
    ],
)  # fmt: skip
def test_a_right_answer(step, function, verdict):
    assert graded(STEP[step], function, "") == ([verdict], True)


@pytest.mark.parametrize(
    ("step", "function"),
    [
        ("accept", accept_in_its_own_rows),
        ("residual", residual_in_fractions_of_floats),
        ("verify", lambda drafted, p, q, rng: [sample(q[0], rng)]),
        ("propose", greedy_draft(last_argmax)),
    ],
)
def test_another_right_answer_on_two_tables(step, function):
    check = STEP[step].checks[0]
    assert compared(replace(check, settings=check.settings[:2]), function) == []


@pytest.mark.parametrize(
    ("step", "function", "saved"),
    [
        ("verify", lambda drafted, p, q, rng: [sample(q[0], rng)],
         "1.00 tokens per round (2.71 are possible)"),
        ("speculative_sampling", loop_with((K_MAX, "max(0, min(K, n + N - len(x) - 2))")),
         "1.43 tokens per pass of the target (2.50 are possible); 0.48 guesses a round, "
         "0.43 of them accepted; guess more, up to one less than there are tokens to go"),
        ("speculative_sampling", loop_with((K_MAX, "K"), ("return x", "return x[: n + N]")),
         "2.50 tokens per pass of the target; 2.00 guesses a round, 1.50 of them accepted; "
         "1.75 are enough, because a round adds one more token"),
        ("speculative_sampling", loop_with(("propose(x, d", "propose_after_x(x, d")),
         "1.86 tokens per pass of the target (2.50 are possible); "
         "1.30 guesses a round, 0.86 of them accepted; does the draft see its own guesses?"),
        ("speculative_sampling", loop_with_a_call_per_row,
         "0.91 tokens per pass of the target (2.50 are possible); 1.75 guesses a round, "
         "1.50 of them accepted; it asks the target more than once a round"),
        ("speculative_sampling", loop_with((CALL, f"{CALL}; target_model(np.append(x, drafted))")),
         "1.25 tokens per pass of the target (2.50 are possible); 1.75 guesses a round, "
         "1.50 of them accepted; it asks the target more than once a round"),
        ("speculative_sampling", loop_with(("n = len(x)", "n = len(x); target_model(x)")),
         "1.36 tokens per pass of the target (2.50 are possible); 1.75 guesses a round, "
         "1.50 of them accepted; it asks the target once more than needed"),
        ("speculative_sampling", loop_with(SEES_A_TOKEN), "2.50 tokens per pass of the target"),
        ("speculative_sampling", loop_with(SEES_MORE), "rounds that can't be told apart: ask the "
         "draft for each guess"),
        ("speculative_sampling", plain_loop,
         "1.00 tokens per pass of the target (2.50 are possible)"),
        ("until_eos", plain_loop, "1.00 tokens per pass of the target (2.50 are possible)"),
        ("siblings", lambda node, rng: [sample(node.q, rng)],
         "1.00 tokens per round (2.81 are possible)"),
        ("siblings", edited(top_down, ("node.children", "node.children[:1]")),
         "2.71 tokens per round (2.81 are possible)"),
    ],
)  # fmt: skip
def test_what_a_right_answer_saves(step, function, saved):
    assert praise(STEP[step], function) == f"exact, with {saved}"


# ---- Wrong functions ----


def handed_in(name, variant):
    """A variant of the gallery as a solution of a step."""
    if name in ("speculative_sampling", "until_eos"):

        def loop(x, draft_model, target_model, N, K, rng, eos=None):
            models = {"draft_model": draft_model, "target_model": target_model}
            rng = SimpleNamespace(random=rng.random, choice=rng.choice)  # NumPy's takes no rng.u
            return variant.text(rng, SimpleNamespace(prompt=tuple(x), N=N, K=K, **models))

        return loop
    if name == "penalised":

        def penalise(rows, ids):
            n = len(ids) - len(rows) + 1
            setting = SimpleNamespace(target_model=lambda ids, n_rows: rows)
            return variant.rows(setting, ids[:n], ids[n:])

        return penalise
    return variant.propose if name == "propose" else variant.verify


def fits(name, variant):
    """Whether a variant can be handed in: it has no memory, and no other draft than the step's."""
    if name == "propose":
        return variant.id == "greedy-draft"
    if name == "penalised":
        return variant.id not in ("penalty-rejected", "penalty-first-token")
    if name == "speculative_sampling":
        return variant.decode is decode and variant.rows is target_rows
    return True


BUGS = [
    pytest.param(step, check, variant, id=f"{step.function}-{variant.id}")
    for step in STEPS[2:]
    for check in step.checks
    for _, variant in check.rivals
    if fits(step.function, variant)
]


@pytest.mark.slow
@pytest.mark.parametrize(("step", "check", "variant"), BUGS)
def test_a_bug_of_the_gallery_is_named_and_its_branches_add_up(step, check, variant):
    headline, *lines = compared(check, handed_in(step.function, variant))
    assert f'the distribution of "{variant.name}"' in headline
    while not lines[0].startswith('after "'):
        lines.pop(0)
    title, *lines = lines
    assert len(lines) <= 21 and max(map(len, lines)) <= 76
    *branches, sums, needed, errors = [cells_of(line, title) for line in lines[:-1]]
    assert abs(sum(branches) - sums).max() < 0.0005 * len(lines)
    assert abs(sums - needed - errors).max() < 0.0015


def cells_of(line, title):
    """The numbers below the names of the tokens, and 0 in empty cells."""
    n = len(re.search(r" {2,}(A.*)", title)[1].split())
    cells = [line[len(title) - 7 * i :][:7] for i in range(n, 0, -1)]
    return np.array([float(cell.strip() or 0) for cell in cells])


TREE = """\
the rows after "A": p .2 .5 .3, q .3 .2 .5
after "A" (N = 2, K = 1)         A      B      C
guess A .2, always accept A   .200
guess B .5
  accept B .4                        .200
  reject B .6
    resample A .3             .090
    resample B .2                    .060
    resample C .5                           .150
guess C .3, always accept C                 .300
sum of all paths              .290   .260   .450
should be                     .300   .200   .500
error                        -.010  +.060  -.050
a histogram (N = 3) would need about 400 texts"""


def test_the_headline_and_the_tree():
    headline, *lines = lines_about("residual", lambda p, q: q)
    name = '"resamples from the target" (ccs96307/fast-llm-inference)'
    assert headline == f"wrong by 0.0924 (N = 3, K = 2): the distribution of {name}"
    assert lines == TREE.splitlines()


RESAMPLED = "sample(residual(p[i], q[i]), rng)"
P_MINUS_Q = "p - q in place of q - p, or the rejected guess once more"
P_IS_LATE = f"{CALL}; p = draft_model(np.append(x, drafted), k) if k else p"
OWN_SEED = "n = len(x)", "n, rng = len(x), np.random.default_rng(0)"


@pytest.mark.parametrize(
    ("step", "function", "words"),
    [
        ("residual", lambda p, q: max_fn(p - q), f"{P_MINUS_Q}.*reject B .6 +.300"),
        ("verify", edited(verify, (RESAMPLED, "token")), f"{P_MINUS_Q}.*accept B .4 "),
        ("verify", lambda drafted, p, q, rng: [*drafted, sample(q[-1], rng)],
         'of "accepts everything" .transformers #28508'),
        ("verify", edited(verify, (RESAMPLED, f"[{RESAMPLED}, sample(q[-1], rng)]")),
         "break in place of return.*reject B: the round emits A A, 2 tokens instead of 1.*"
         "guess B .5, reject B .6, resample A .333 +bonus A .5 +.050"),
        ("speculative_sampling", loop_with(("len(drafted) + 1", "len(drafted)")),
         "asked for 1 of 2 rows: each guess needs one.*guess B .5 +accept B .8 +.400"),
        ("verify", edited(verify, ("drafted[:i]", "drafted[: i + 1]")),
         "reject B: the round emits B A, 2 tokens instead of 1.*accept B .4 .*reject B .6 +.300"),
        ("verify", edited(verify, (f"np.append(drafted[:i], {RESAMPLED})", f"[{RESAMPLED}]")),
         "accept A, reject B: the round emits A, 1 token instead of 2.*"
         "guess C .3, guess C .5, always accept C +reject C .6, resample A .333 +.030"),
        ("siblings", edited(top_down, ("residual(child.p, r)", "residual(child.p, node.q)")),
         "a second guess is drawn from p.*guess A .4 +accept B .4 .*reject B .6 +accept A "),
        ("verify", edited(verify, (f"np.append(drafted[:i], {RESAMPLED})", "[*drafted[:i], 2]",
                           "rng.random() < acceptance(p[i, token], q[i, token])",
                           "rng.choice(2, p=[0.6, 0.4])")), "reject B .6 +.300 +accept B .4 +.200"),
        ("verify", edited(verify, (RESAMPLED, "(q[i].cumsum()[:-1] <= rng.random()).sum()")),
         "accept B .4 +.200 +reject B .6 +resample A .3 +.090"),
        ("propose", GALLERY["greedy-draft"].propose, "guess B +accept B .4 .*reject B .6 "),
        ("accept", lambda p, q, token, rng: rng.random() < (q[token] or q[0]) / p[token],
         "wrong by 0.3469"),
        ("speculative_sampling", loop_with((CALL, P_IS_LATE)), "p one row late"),
        ("speculative_sampling", loop_with(OWN_SEED), "draws the same numbers each time"),
    ],
)  # fmt: skip
def test_a_slip_is_named(step, function, words):
    assert re.search(words, " ".join(lines_about(step, function)))


@pytest.mark.parametrize(
    "body",
    [
        "rng.random() < ratio",
        "1 - rng.random() <= ratio",
        "rng.random(2)[0] * p[token] < q[token]",
        "rng.choice(2, p=[1 - ratio, ratio]) == 1",
        "rng.integers(10) < 10 * ratio",
    ],
)
def test_the_tree_of_a_right_function_calls_it_accept_whatever_is_drawn(body):
    def accept(p, q, token, rng):
        return eval(body, locals() | {"ratio": min(1, round(q[token] / p[token], 1))})

    check = STEP["accept"].checks[0]
    lines = tree(check, check.sampler(accept), README, is_right=True)
    shown = {" ".join(line.split()) for line in lines}
    assert {"accept B .4 .200", "reject B .6", "guess A .2, always accept A .200"} <= shown


@pytest.mark.parametrize(("d", "published"), [(1, 7.849), (2, 9.635), (10, 16.24), (20, 20.96)])
def test_a_histogram_needs_as_many_texts_as_tables_of_its_power_say(d, published):
    """published is the noncentrality at which a chi-square test of level .05 has power .80."""
    wanted = {(i,): 1 / (d + 1) for i in range(d + 1)}
    distribution = wanted | {(0,): wanted[0,] + 0.01, (1,): wanted[1,] - 0.01}
    effect = 2 * 0.01**2 * (d + 1)
    assert 7 / 8 < samples_needed(distribution, wanted) * effect / published < 1


def test_one_text_that_is_impossible_tells():
    words = in_words({(0,): 0.4995, (1,): 0.4995, (2,): 0.001}, {(0,): 0.5, (1,): 0.5}, N=1)
    assert words == "a histogram (N = 1) would need about 2,000 texts"


@pytest.mark.parametrize(
    ("step", "change", "place"),
    [
        ("speculative_sampling", ("np.append(x, drafted),", "np.append(x, drafted)[-4 - k :],"),
         ""),
        ("speculative_sampling", (K_MAX, "K if len(x) == n else " + K_MAX), "(N = 1, K = 2)"),
        ("speculative_sampling", (K_MAX, "max(1, n + N - len(x) - 1)"), ""),
        ("speculative_sampling", ("n = len(x)", "n, _ = len(x), 1 / (N - 1)"), "(N = 1, K = 2)"),
        ("speculative_sampling", ("len(x) < n + N", "len(x) < n + max(1, N)"), "(N = 0, K = 2)"),
        ("until_eos", ("if eos in x[n:]", "if eos and eos in x[n:]"),
         "A is the eos, and the prompt ends with it"),
        ("until_eos", ("len(x) == n or ", ""), "A is the eos, and the prompt ends with it"),
        ("until_eos", ("n = len(x)", "n = len(x)\n    if eos in x[:-1]: N = 0"),
         "B is the eos, and the prompt begins with it"),
        ("until_eos", ("if eos in x[n:]", "if eos in x[1:]"),
         "A is the eos, and the prompt ends with it"),
        ("until_eos", ("x[n:]", "x[n : n + 2]"), "A is the eos, and the prompt ends with it"),
        ("until_eos", ("len(x) < n + N", "len(x) < n + max(1, N)"), "(N = 0, K = 2)"),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_a_mistake_that_another_prompt_or_size_shows(step, change, place):
    line = lines_about(step, loop_with(change))[0]
    assert place in line


def test_a_mistake_of_a_billionth_is_shown_with_its_digits():
    def accept(p, q, token, rng):
        return rng.random() < q[token] / (p[token] + 1e-7)

    headline, *_, errors, samples = lines_about("accept", accept)
    assert re.match(r"wrong by \de-08", headline)
    assert errors.split() == ["error", "+1e-08", "-4e-08", "+3e-08"]
    assert re.search("about [1-9](,000)+ texts", samples)


# ---- What cannot be graded ----

NUMPYS_OWN = """verify_with(drafted, p, q, np.random)

def verify_with(drafted, p, q, rng):
    for i, token in enumerate(drafted):
        if rng.random() >= q[i, token] / p[i, token]:
            return [*drafted[:i], 0]
    return [*drafted, 0]
"""
ODD = """raise Odd

class Odd(Exception):
    def __str__(self):
        raise ValueError"""


def verdict_on(folder, body, step):
    """What the grader says about a step of a file, which begins in line 3."""
    head = re.search(rf"def {step}\(.*", read("exercise/stubs.py"))[0]
    path = folder / "mine.py"
    path.write_text(f"import numpy as np\n{head}\n    {body}\n")
    exec(compile(path.read_text(), path, "exec"), names := {})
    lines, is_exact = graded(STEP[step], names[step], str(path))
    assert is_exact is False and len(lines) == 1 and "\n" not in lines[0]
    return lines[0]


INSTEAD = "; write rng.random() < a or rng.choice(len(p), p=p)"


@pytest.mark.parametrize(
    ("body", "step", "message"),
    [
        ("pass", "accept", "it returned None; is a return missing?"),
        ("raise NotImplementedError(1)", "accept",
         "line 3, raise NotImplementedError(1): NotImplementedError: 1"),
        ("return 0.5", "accept", "True or False is needed; found 0.5"),
        ("return np.random.random() < 0.5", "accept", "from np.random"),
        (f"return {NUMPYS_OWN}", "verify", "from np.random"),
        ("return np.random.default_rng().random() < 0.5", "accept",
         "asks the operating system for random numbers"),
        ("return float(rng.random()) < 0.5", "accept",
         "line 3, return float(rng.random()) < 0.5: a random number was used as a value" + INSTEAD),
        ("return rng.binomial(1, 0.5) == 1", "accept", "rng.binomial cannot be enumerated"),
        ("return rng.binomial(1, 0.5) == 1", "accept", INSTEAD),
        ("raise SystemExit", "accept", "line 3, raise SystemExit: SystemExit"),
        ("raise KeyboardInterrupt", "accept", "line 3, raise KeyboardInterrupt: KeyboardInterrupt"),
        (ODD, "accept", "line 3, raise Odd: Odd: (an error in its own text)"),
        ("raise ValueError('two\\n lines')", "accept", "ValueError: two lines"),
        ("return rng.integers(10**7) < 5", "accept", "a choice among 10,000,000 items"),
        ("while q > p:\n        pass", "accept", "line 3, while q > p: ValueError: The truth"),
        ("while rng.random() < 1: pass", "accept",
         "line 3, while rng.random() < 1: pass: a loop may go on for ever"),
        ("return 2 * q - p", "residual",
         "the residual must be a distribution, with a sum of 1; found [0.4, -0.1, 0.7]"),
        ("return rows / 2", "penalised",
         "the rows must be a distribution, with a sum of 1; found [[0.15"),
        ("return [0.5, 0.5]", "residual", "the residual must have the shape [3]; found [2]"),
        ("return ['0.5', p, q]", "residual",
         "the residual must be an array; found ['0.5', array(["),
        ("return [7]", "verify", "a list of tokens, whole numbers from 0 to 2; found [7]"),
        ("return []", "verify", "a round with 2 guesses emits 1 to 3 tokens; found"),
        ("return drafted + [2]", "verify",
         "whole numbers from 0 to 2 (+ adds numbers to an array); found [2, 3]"),
        ("return np.append(np.zeros(0), drafted)", "verify",
         "from 0 to 2 (np.append to an empty array gives floats); found [0.0, 0.0]"),
        ("return 0", "verify", "must be a list of tokens, whole numbers from 0 to 2; found 0"),
        ("return drafted[:0] + [2]", "verify",
         "a round with 2 guesses emits 1 to 3 tokens (+ adds numbers to an array); found []"),
        ("return [rng.choice(len(q[0]), p=q[0 if len(drafted) else 1])]", "verify",
         "IndexError: index 1 is out of bounds for axis 0 with size 1, where there are no guesses"),
        ("return [np.searchsorted(np.cumsum([0.3, 0.2, 0.5 - 1e-15]), rng.random())]", "verify",
         "np.cumsum may end just below 1"),
        ("target_model(x, N)", "speculative_sampling", "3 rows need as many tokens; ids has 1"),
        ("return x", "speculative_sampling",
         "the text must have 1 + N = 4 tokens, the prompt first; found 1: [0]"),
        ("return np.ones(4, int)", "speculative_sampling",
         "the prompt first; found 4: [1, 1, 1, 1]"),
        ("return x", "until_eos", "4 tokens, or fewer up to a new C, the prompt first"),
        ("return x[:0]", "propose", "a draft returns the guesses and their rows"),
        ("return np.array([0] * k), np.eye(3)[[0] * k]", "propose",
         'its argmax, B after "A"; found A'),
        ("return rows[-1]", "penalised", "the rows must have the shape [3, 3]; found [3]"),
        ("return [0] * 9", "siblings", "a list of 1 to 2 tokens is needed; found [0, 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_graded_is_said_in_one_line(tmp_path, body, step, message):
    assert message in verdict_on(tmp_path, body, step)


# ---- A process for the file ----

BAD = """
import itertools, os, sys
fork = getattr(os, "fork", int)  # by this name it isn't refused
def accept(p, q, token, rng):
    while True:
        try: p
        except Exception: pass

def residual(p, q):
    os._exit(0)

def verify(drafted, p, q, rng):
    fork()  # the copy must not answer, too
    print("seen")
    sys.stdout.close()

def speculative_sampling(x, draft_model, target_model, N, K, rng):
    return sum(itertools.repeat(0))  # a loop in C
"""
VERDICTS = """\
1 accept                line [567], .*: it did not end within 1 seconds
2 residual              it ended Python, with exit code 0
3 verify                it returned None; is a return missing\\?
4 speculative_sampling  line 18, return sum.*: it did not end within 1 seconds
5 until_eos             not in this file
"""


def test_a_function_that_hangs_or_ends_python_costs_its_own_step(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(process, "LIMIT", 1)
    monkeypatch.setenv("COLUMNS", "120")
    path = tmp_path / "é.py"
    path.write_text(BAD)
    with pytest.raises(SystemExit):
        program.main([str(path)])
    printed = capfd.readouterr()
    assert re.match(VERDICTS, printed.out) and printed.err == "seen\n"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("while True: pass", "line 1, while True: pass: it did not end within 0.2 seconds"),
        (
            "import time; time.sleep(99)",
            "line 1, import time; time.sleep(99): it did not end within 0.2 seconds",
        ),
        ("def accept(", "SyntaxError: '(' was never closed"),
    ],
)
def test_a_file_that_cannot_be_imported(tmp_path, monkeypatch, source, why):
    monkeypatch.setattr(process, "LIMIT", 0.2)
    (tmp_path / "mine.py").write_text(source)
    with pytest.raises(UserError, match=f"mine.py cannot be imported: {re.escape(why)}"):
        program.main([str(tmp_path / "mine.py")])


def test_a_file_that_waits_takes_no_time_of_the_processor(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "LIMIT", 0.5)
    (tmp_path / "mine.py").write_text("import time; time.sleep(1)")
    assert "not in this file" in printed_by(program, tmp_path / "mine.py")


# ---- A rule that is wrong on purpose ----

EXAMPLE = r"(?s)```python\n([^`]*def ears.*?)```.*?```\n(3 ears.*?)```"


def test_what_a_rule_gains_is_what_the_page_says(tmp_path, capsys):
    rule, printed = re.search(EXAMPLE, read("docs/your_engine.md")).groups()
    (tmp_path / "ears.py").write_text(rule)
    with pytest.raises(SystemExit):
        program.main([f"{tmp_path}/ears.py", "--price", "ears"])
    assert capsys.readouterr().out.split() == printed.split()


def test_a_rule_above_the_best_is_told_why():
    assert EMITS_OTHERS in priced(STEP["verify"], GALLERY["continues"].verify, "")[0][-1]


# ---- Files ----


def test_a_file_imports_its_own_neighbours(tmp_path):
    (tmp_path / "sampling.py").write_text("def sample(*args): raise NotImplementedError")
    (tmp_path / "mine.py").write_text("from sampling import sample as accept")
    printed = printed_by(program, tmp_path / "mine.py", "accept")
    assert "it calls sample, which is not written yet" in printed


def test_the_stubs_are_copied_once_and_then_yours(tmp_path, monkeypatch):
    monkeypatch.setattr(program, "MINE", mine := tmp_path / "mine.py")
    assert printed_by(program).count("not written yet") == len(STEPS)
    mine.write_text(f"{mine.read_text()}def verify(*args): return residual(1, 2)")
    line = "3 verify                it calls residual, which is not written yet\n"
    assert printed_by(program, "3") == printed_by(program, "verify") == line
