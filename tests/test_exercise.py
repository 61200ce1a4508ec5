"""The grader of exercise/: the project's own functions are exact, and each bug of the gallery is named."""

import functools
import re
from types import SimpleNamespace

import numpy as np
import pytest
from support import printed_by, read, run

import exercise.__main__
from exercise.__main__ import LOOPS, STEPS, grade, graded
from lab.gallery import changed, changed_draft, favourite, one_hot
from lab.trees import top_down
from sampling import sample
from speculative import acceptance, autoregressive_sampling, propose, residual, speculative_sampling, verify

STEP = {step.function: step for step in STEPS}


# ---- Right functions ----


def accept(p, q, token, rng):
    return rng.random() < q[token] / p[token]


def penalised(rows, ids):
    for i, row in enumerate(rows):
        np.multiply.at(row, ids[: len(ids) - len(rows) + 1 + i], 0.5)
        row /= row.sum()
    return rows


def accept_that_changes_its_rows(p, q, token, rng):
    ratio = q[token] / p[token]
    p[:], q[:] = 0, 1
    return rng.random() / 2 < ratio / 2


def verify_with_all_residuals_first(drafted, p, q, rng):
    rng, rows = np.random.default_rng(rng), np.maximum(q[:-1] - p, 0)
    for i, token in enumerate(drafted):
        if p[i, token] * rng.random() >= q[i, token]:
            return [*drafted[:i], rng.choice(len(p[i]), p=rows[i] / rows[i].sum())]
    return [*drafted, rng.choice(len(q[-1]), p=q[-1])]


def one_sibling(node, rng):
    for child in node.children[:1]:
        accepted = rng.random() < acceptance(child.p[child.token], node.q[child.token])
        return [child.token if accepted else sample(residual(child.p, node.q), rng)]
    return [sample(node.q, rng)]


def plain_loop(x, draft_model, target_model, n, k, rng, eos=None):
    return autoregressive_sampling(x, target_model, n, rng, eos=eos)


LOOP = """
def speculative_sampling(x, draft_model, target_model, N, K, rng, eos=None):
    n = len(x)
    while len(x) < n + N and (len(x) == n or x[-1] != eos):
        drafted, p = propose(x, draft_model, min(K, n + N - len(x) - 1), rng)
        q = target_model(np.append(x, drafted), len(drafted) + 1)
        x = np.append(x, verify(drafted, p, q, rng))
        if eos in x[n:]:
            x = x[: n + x[n:].tolist().index(eos) + 1]
    return x
"""


def loop_with(*changes):
    """LOOP as a function, with other code in some places."""
    source = functools.reduce(lambda text, change: text.replace(*change), changes, LOOP)
    exec(source, names := {"np": np, "propose": propose, "verify": verify})
    return names["speculative_sampling"]


eager_loop = loop_with(("min(K, n + N - len(x) - 1)", "K"), ("return x", "return x[: n + N]"))
UNUSED = "exact, but it never uses its guesses: 1.00 tokens per "


@pytest.mark.parametrize(
    ("step", "function", "message"),
    [
        ("accept", accept, "exact"),
        ("accept", accept_that_changes_its_rows, "exact"),
        ("residual", residual, "exact"),
        ("verify", verify, "exact, with 2.13 tokens per round"),
        ("verify", verify_with_all_residuals_first, "exact, with 2.13 tokens per round"),
        ("verify", lambda drafted, p, q, rng: verify(drafted[:2], p[:2], q[:3], rng), ".*, with 2.13 tokens per round"),
        ("verify", lambda drafted, p, q, rng: [sample(q[0], rng)], UNUSED + "round; the papers' rule has 2.13"),
        ("speculative_sampling", speculative_sampling, "exact, with 1.81 tokens per pass of the target"),
        ("speculative_sampling", loop_with(), "exact, with 1.81 tokens per pass of the target"),
        ("speculative_sampling", plain_loop, UNUSED + "pass of the target; .*"),
        ("speculative_sampling", eager_loop, "exact, .* but it makes guesses for which the text has no room"),
        ("propose", changed_draft(favourite, one_hot), "exact"),
        ("penalised", penalised, "exact"),
        ("siblings", top_down, "exact, with 1.68 tokens per round"),
        ("siblings", lambda node, rng: [sample(node.q, rng)], UNUSED + "round; .*"),
        ("siblings", one_sibling, UNUSED + "round; .*"),
    ],
)  # fmt: skip
def test_an_exact_function_and_what_it_saves(step, function, message):
    (line,), is_exact = graded(STEP[step], function, "")
    assert is_exact and re.fullmatch(message, line)


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
    return {"verify": variant.verify, "propose": variant.propose}.get(name) or variant.decode.args[0]


def fits(name, variant):
    if name == "penalised":  # without a memory, two of them are right
        return variant.name not in ("penalty that keeps rejected guesses", "penalty that counts accepted guesses twice")
    return variant.decode.args if name == "siblings" else name != "propose" or "greedy" in variant.name


BUGS = [
    (step, v) for step in [*STEPS[2:], *LOOPS.values()] for v in step.rivals if not v.exact and fits(step.function, v)
]


@pytest.mark.parametrize(("step", "variant"), BUGS, ids=lambda each: getattr(each, "function", None) or each.name)
def test_a_bug_of_the_gallery_is_named(step, variant):
    lines = grade(step, handed_in(step.function, variant))
    assert f'the law of "{variant.name}"' in lines[0] and lines[1].startswith("after A")


def test_the_table_and_the_first_wrong_number():
    lines = grade(STEP["residual"], lambda p, q: q)
    assert lines[0].startswith(
        'wrong by 0.0600 in the first token, 0.0924 in the text: the law of "draws the replacement from the target"'
    )
    assert lines[1] == "after A, A is emitted with probability 0.29, but q says 0.3"
    numbers = [[float(x) for x in line.split()[-3:]] for line in lines[3:]]
    assert numbers == [[0.2, 0.2, 0.3], [0.09, 0.06, 0.15], [0.29, 0.26, 0.45], [0.3, 0.2, 0.5]]


def right_in_one_pair(p, q):
    """Right for the first pair of tables alone, where no row has a zero."""
    return residual(p, q) if p.all() and q.all() else q


right_for_two_guesses = changed(lambda p, q, i, t: acceptance(p[i][t], q[i][t]) if i < 2 else 1)


@pytest.mark.parametrize(("step", "function"), [("residual", right_in_one_pair), ("verify", right_for_two_guesses)])
def test_a_mistake_that_only_one_table_shows(step, function):
    assert grade(STEP[step], function)[0].startswith("wrong by 0.")


@pytest.mark.parametrize(
    "change",
    [
        ("len(x) == n or ", ""),
        ("np.append(x, drafted),", "np.append(x, drafted)[n - 1 :],"),
        ("if eos in x[n:]", "if eos and eos in x[n:]"),
        ("n + N", "1 + N"),
    ],
)
def test_a_mistake_that_needs_another_prompt_or_rows_that_depend_on_all_of_the_text(change):
    lines, is_exact = graded(STEP["speculative_sampling"], loop_with(change), "")
    assert not is_exact, lines


def test_a_mistake_of_a_billionth_is_shown_with_its_digits():
    lines = grade(STEP["accept"], lambda p, q, token, rng: rng.random() < q[token] / (p[token] + 1e-7))
    assert re.match(r"wrong by \de-08", lines[0])
    assert re.search(r"probability (0\.\d+), but q says (0\.\d+)$", lines[1])[1] != "0.3"


@pytest.mark.parametrize(
    ("body", "step", "message"),
    [
        ("pass", "accept", "it returned None; is a return missing?"),
        ("if p[token] > 0.4: raise NotImplementedError(1)\n    return True", "accept", "NotImplementedError: 1"),
        ("return 0.5", "accept", "True or False is needed; found 0.5"),
        ("return np.random.random() < q[token] / p[token]", "accept", "let rng alone decide"),
        ("raise SystemExit", "accept", "line 3, raise SystemExit: SystemExit"),
        ("return rng.integers(10**7) < 5", "accept", "accept                a choice among 10,000,000 items"),
        ("return q[token] / 0 < rng.randm()", "accept", "line 3, return q[token] / 0 < rng.randm(): AttributeError"),
        ("while rng.random() < 1: pass", "accept", "a loop may go on for ever"),
        ("while True: p", "accept", "it did not end within 0.3 seconds of computing, near line 3: while True: p; "),
        ("return q - p", "residual", "the residual must be a distribution, with a sum of 1; found [0.1, -0.3, 0.2]"),
        ("return [0.5, 0.5]", "residual", "the residual must have the shape [3]; found [2]"),
        ("pass", "verify", "it returned None; is a return missing?"),
        ("return drafted, 1", "verify", "the round must be an array"),
        ("return [7]", "verify", "the round must be tokens from 0 to 2; found [7]"),
        ("return x", "speculative_sampling", "the text must have 1 + N = 4 tokens"),
        ("return np.ones(4, int)", "speculative_sampling", "the prompt first; found array([1, 1, 1, 1])"),
        ("return rows / 2", "penalised", "the rows must be a distribution, with a sum of 1; found [[0.15"),
        ("return x[:0]", "propose", "a draft returns the guesses and their rows"),
        ("return np.array([0] * k), np.eye(3)[[0] * k]", "propose", "its favourites, [1, 1] here; found [0, 0]"),
        ("return rows[-1]", "penalised", "the rows must have the shape [3, 3]; found [3]"),
        ("return [0] * 9", "siblings", "a list of 1 to 2 tokens is needed; found [0, 0"),
        ("return [7]", "siblings", "the list must be tokens from 0 to 3; found [7]"),
        ("return []", "verify", "a round of 2 guesses emits 1 to 3 tokens; found"),
        ("return 0", "siblings", "a list of 1 to 2 tokens is needed; found 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_graded_is_said_in_one_line(tmp_path, body, step, message):
    stub = re.search(rf"def {step}\(.*", read("exercise/stubs.py"))[0]
    (tmp_path / "mine.py").write_text(f"import numpy as np\n{stub}\n    {body}\n")
    args = [str(tmp_path / "mine.py"), step]
    (tmp_path / "go.py").write_text(f"import exercise.__main__ as grader; grader.LIMIT = 0.3; grader.main({args})")
    result = run(script=str(tmp_path / "go.py"))
    assert result.returncode == 1 and message in result.stdout and result.stdout.count("\n") < 3, result.stderr


# ---- Files ----


def test_a_file_imports_its_own_neighbours(tmp_path):
    (tmp_path / "sampling.py").write_text("def sample(p, rng): return p.argmax()")
    (tmp_path / "mine.py").write_text(read("speculative.py"))
    for file, verdict in ("speculative.py", "exact, with 2.13"), (tmp_path / "mine.py", "wrong by 0."):
        assert f"3 verify                {verdict}" in run(file, "verify", script="exercise").stdout


def test_the_stubs_are_copied_once_and_then_yours(tmp_path, monkeypatch):
    monkeypatch.setattr(exercise.__main__, "MINE", mine := tmp_path / "mine.py")
    assert printed_by(exercise.__main__).count("not written yet") == len(STEPS)
    mine.write_text(mine.read_text().replace("accept(", "accept_later("))
    assert printed_by(exercise.__main__).count("not written yet") == len(STEPS) - 1
    assert "accept_later" in mine.read_text()


def test_odd_files(tmp_path):
    (tmp_path / "half.py").write_text("def accept(")
    (tmp_path / "calls.py").write_text(read("exercise/stubs.py") + "def verify(*args): return residual(1, 2)")
    result = run(tmp_path / "calls.py", "verify", script="exercise")
    assert result.stdout == "3 verify                it calls residual, which is not written yet\n"
    for args, message in (
        (["nowhere.py"], "there is neither a file nor a step 'nowhere.py'; steps are 1 to 7, or accept, residual"),
        (["README.md"], "README.md is no Python file"),
        ([tmp_path / "half.py"], "cannot be imported: SyntaxError"),
        (["exercise/stubs.py", "9"], "there is no step '9'; there are 1 to 7, or accept, residual"),
        (["speculative.py", "siblings"], "speculative.py has no function siblings"),
    ):
        result = run(*args, script="exercise")
        assert result.returncode == 2 and message in result.stderr and result.stderr.count("\n") == 1
