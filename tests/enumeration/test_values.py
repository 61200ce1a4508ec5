"""enumeration/values.py: distributions computed by hand, and refusals in place of wrong ones."""

import ctypes
import itertools
import math
import random
import re
import shutil
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from support.programs import read, run

import enumeration
from enumeration import parts, search, total_variation
from enumeration.values import Program, output_distribution

P = np.array([[0.2, 0.5, 0.3], [0.1, 0.2, 0.7], [0.2, 0.3, 0.5]])  # the pair of docs/your_models.md
Q = np.array([[0.3, 0.2, 0.5], [0.5, 0.4, 0.1], [0.3, 0.5, 0.2]])
ONE_TOKEN = {(i,): q for i, q in enumerate(Q[0])}
TWO_TOKENS = {(i, j): Q[0, i] * Q[i, j] for i, j in itertools.product(range(3), repeat=2)}
COMPILER = shutil.which("cc")
NODE = shutil.which("node")
RACE = np.array([0.0, 0.2, 0.1, 0.4, 0.3, 0.0])


def token_of(row, u):
    return int(np.searchsorted(np.cumsum(row)[:-1], u, side="right"))


def winner(row, noise):
    return int(np.argmax(row / noise))


RUNS = Counter()


def counted(name):
    RUNS[name] += 1
    return RUNS[name]


# ---- What has thresholds: beside the random programs of test_doors.py ----


def until_it_is_below(limit, draw):
    while (u := draw()) >= limit:
        pass
    return u


def choice_after_a_loop(draw):
    while draw.choice([0.8, 0.2]) == 0:
        pass
    return draw.choice([1, 1])


def bounded_rejection(draw):
    return next((i for i in (draw.below(4) for _ in range(4)) if i < 3), 3)


def uses_what_is_left_of_a_number(draw):
    u = draw()
    i = token_of(P[0], u)
    u = (u - P[0, :i].sum()) / P[0, i]
    return i, token_of(Q[0], u)


def race_in_place(draw):
    noise = draw.exponential(6)
    return np.argmax(np.divide(RACE, noise, out=noise))


def row_before_a_rare_coin(draw):
    noise = draw.exponential(3)
    return winner(P[0] if draw() < 0.01 else P[1], noise)


def rare_winner_before_a_choice(draw):
    tokens, second_noise = draw.exponential(2), draw.exponential(2)
    if winner(np.array([0.99, 0.01]), tokens) == 0:
        return winner(np.array([2, 5]), second_noise)
    return 2 + 2 * draw.choice([1, 1]) + winner(np.array([3, 2]), second_noise)


def one_row_on_either_path(draw):
    """The replacement of a guess, or the token after it."""
    noise = draw.exponential(3)
    token = token_of(P[0], draw())
    if draw() < Q[0, token] / P[0, token]:
        return token, winner(P[0], noise)
    replacement = winner(np.maximum(Q[0] - P[0], 0), noise)
    return replacement, winner(P[0], draw.exponential(3))


def weights_as_a_cache_makes_them(draw):
    draw()
    return draw.choice([0.7 + 1e-9 * (counted("rounding") % 3), 0.3])


def coin(mass):
    return {1: mass, 0: 1 - mass}


PAIRS = {(i, j): Q[0, i] * P[0, j] for i in range(3) for j in range(3)}
RIGHT = {
    "nothing": (lambda draw: 7, {7: 1}),
    "a narrow part": (lambda draw: int(0.5 <= draw() < 0.51), coin(0.01)),
    "very rare": (lambda draw: int(draw() < 1 - 2**-35 or draw() >= 2**-35), coin(1 - 2**-70)),
    "two digits": (lambda draw: int(int(10 * draw()) < int(10 * draw())), coin(0.45)),
    "a logarithm": (lambda draw: int(-math.log(1 - draw())),
                    {k: math.exp(-k) - math.exp(-k - 1) for k in range(37)}),
    "a loop": (lambda draw: int(until_it_is_below(0.9, draw) < 0.6), coin(2 / 3)),
    "a choice after a loop": (choice_after_a_loop, coin(0.5)),
    "a number used twice": (
        uses_what_is_left_of_a_number, {(i, j): p for (j, i), p in PAIRS.items()}),
    "whole numbers": (lambda draw: int(draw.below(10) < 3), coin(0.3)),
    "a whole number": (lambda draw: draw.below(100), dict.fromkeys(range(100), 0.01)),
    "a bounded rejection": (bounded_rejection, dict(enumerate([85 / 256] * 3 + [1 / 256]))),
    "rare five times": (lambda draw: int(max([draw() for _ in range(5)]) < 1e-7), coin(1e-35)),
    "a race in place": (race_in_place, {i: w for i, w in enumerate(RACE) if w}),
    "a row before a rare coin": (
        row_before_a_rare_coin, dict(enumerate(0.01 * P[0] + 0.99 * P[1]))),
    "a rare winner": (
        rare_winner_before_a_choice,
        dict(enumerate([0.99 * 2 / 7, 0.99 * 5 / 7, 0.003, 0.002, 0.003, 0.002]))),
    "one row on either path": (one_row_on_either_path, PAIRS),
    "weights of a cache": (weights_as_a_cache_makes_them, coin(0.3)),
}  # fmt: skip


def difference(distribution, expected):
    expected = {tuple(np.ravel(outcome)): p for outcome, p in expected.items()}
    return total_variation(distribution, expected)


@pytest.mark.parametrize("name", RIGHT)
def test_the_distribution_is_the_one_computed_by_hand(name):
    function, expected = RIGHT[name]
    distribution = output_distribution(function, n_checks=500)
    assert len(distribution) == len(expected)
    assert difference(distribution, expected) < (1e-8 if "cache" in name else 1e-15)


@pytest.mark.parametrize("limit", [0.3, 0.7, 2**-53, 3 * 2**-53, 1 - 2**-53])
def test_a_threshold_is_found_to_the_last_bit(limit):
    distribution = output_distribution(lambda draw: int(draw() < limit), n_checks=100)
    assert distribution[1,] * 2**53 == math.ceil(limit * 2**53)


def test_forks_are_exact_and_tried_on_random_inputs():
    def rare_three_times(draw):
        return [draw.choice([1 - 1e-9, 1e-9]) for _ in range(3)]

    distribution = output_distribution(rare_three_times)
    assert distribution[1, 1, 1] == pytest.approx(1e-27)
    assert distribution.resolution == math.log(1e9) / 10_000


SLOW = "very rare", "a rare winner", "a row before a rare coin", "one row on either path", "a loop"
HARD = "a whole number", "a bounded rejection", "rare five times"


@pytest.mark.parametrize(
    "name", [*HARD, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_the_seed_of_the_search_does_not_matter(name):
    function, expected = RIGHT[name]
    for seed in range(5):
        distribution = output_distribution(function, n_checks=1000, seed=seed)
        assert difference(distribution, expected) < 1e-12


@pytest.mark.parametrize(
    "race",
    [
        lambda draw: np.argmax(np.float32(Q[0]) / np.float32(draw.exponential(3))),
        lambda draw: np.argmax(np.log(np.float32(Q[0])) + np.float32(draw.gumbel(3))),
    ],
)
def test_float32_races_are_right_up_to_float32(race):
    distribution = output_distribution(race, n_checks=2000)
    assert 0 < total_variation(distribution, ONE_TOKEN) < 1e-7


def test_a_race_that_is_close_is_no_evidence(monkeypatch):
    def rounded(draw):
        return np.argmax(np.round(np.log(Q[0]) + draw.gumbel(3), 1))

    monkeypatch.setattr(parts, "CLOSE", 0.2)
    distribution = output_distribution(rounded, n_checks=2000)
    assert total_variation(distribution, ONE_TOKEN) < 0.05
    assert distribution.resolution == pytest.approx(math.log(1e9) / 2000 + 0.2)


# ---- What is refused ----

SEVERAL = "several numbers at once"
NOISE = "one noise decides two draws"
STATE = "same numbers gave"


def one_row(use):
    return lambda draw: use(draw.exponential(3), draw)


def normal(draw):
    radius = math.sqrt(-2 * math.log(1 - draw()))
    return radius * math.cos(2 * math.pi * draw())


def row_around_another(draw):
    first, second = draw.exponential(2), draw.exponential(2)
    token = winner(P[winner(Q[0, :2], first), :2], second)
    return token, winner(Q[token, 1:], first)


def forgets(draw):
    while True:
        draw()


def repeats(draw):
    """A loop whose paths multiply."""
    while True:
        token = draw.choice(P[0])
        if draw.choice([1, 1]):
            return token


def draws_again(draw):
    """A guess that stays in a list of the caller."""
    RUNS["last"], last = int(draw() < 0.5), RUNS["last"]
    return last


REFUSED = {
    "u < v": (lambda draw: int(draw() < draw()), SEVERAL),
    "Box-Muller, rarely": (lambda draw: int(normal(draw) < 1) if draw() < 0.02 else 2, SEVERAL),
    "number against noise": (one_row(lambda e, draw: draw() < e[0] / sum(e)), f"{SEVERAL}|{NOISE}"),
    "one row, two draws": (one_row(lambda e, draw: [winner(P[0], e), winner(Q[0], e)]), NOISE),
    "a row around another": (row_around_another, NOISE),
    "random, rarely": (lambda draw: int(draw() < 0.5) + 2 * (random.random() < 0.01), STATE),
    "random, rarely, beside forks": (
        lambda draw: 9 if random.random() < 0.002 else draw.choice([2, 5, 3]), STATE),
    "the number before": (draws_again, STATE),
    "weights that are numbers": (
        lambda draw: draw.choice([u := draw(), 1 - u + 1e-9]), "slightest change of a number"),
    "repeats": (repeats, "paths of a loop multiply"),
    "a million": (lambda draw: int(1e6 * draw()), "slightest change of a number"),
    "the last bit": (lambda draw: int(2**53 * draw()) % 2, "slightest change of a number"),
    "the tenth bit": (lambda draw: int(2**43 * draw()) % 2, "20,000 runs are not enough"),
    "without end": (forgets, "^a run asked for more than 1,000 numbers"),
    "NaN": (lambda draw: [np.nan] if draw() < 0.3 else [0], "an output is an int .* found nan"),
    "a number": (lambda draw: draw(), "slightest change of a number"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_distribution_by_thresholds_is_refused_by_name(name):
    RUNS.clear()
    random.seed(1)
    function, message = REFUSED[name]
    with pytest.raises((RuntimeError, TypeError, ValueError), match=message) as error:
        output_distribution(function, n_checks=2000, max_runs=20_000)
    assert "\n" not in str(error.value)


def narrow(draw):
    return int(0.5 <= draw() < 0.50001)


def test_the_resolution_says_how_much_may_have_been_missed():
    distribution = output_distribution(narrow, n_checks=1000)
    assert distribution == {(0,): 1}
    assert 1e-5 < distribution.resolution == math.log(1e9) / 1000
    assert distribution | {(1,): 0} == {(0,): 1, (1,): 0}


@pytest.mark.parametrize("n_checks", [0, 20])
def test_where_nothing_is_known_nothing_is_compared(n_checks):
    distribution = output_distribution(narrow, n_checks=n_checks)
    for copied in distribution, distribution.copy(), distribution | {}, {} | distribution:
        with pytest.raises(AssertionError, match="nothing is known; take a larger n_checks"):
            enumeration.assert_same_distribution(copied, {(0,): 1})


def test_random_inputs_find_what_the_search_has_missed(monkeypatch):
    """With two points a part, the search alone is wrong. The inputs at the end correct it."""
    monkeypatch.setattr(search, "N_POINTS", 2)
    distributions = [
        output_distribution(lambda draw: int(0.3 <= draw() < 0.302), n_checks=n) for n in (0, 2000)
    ]
    assert distributions[0] == {(0,): 1} and distributions[1] == pytest.approx(
        {(0,): 0.998, (1,): 0.002}
    )
    assert (
        math.log(2e9) / 2000 <= distributions[1].resolution < 0.02
    )  # the inputs came at least twice


def test_a_caller_who_demands_less_is_told_how_many_random_inputs_would_do():
    distribution = output_distribution(lambda draw: token_of(Q[0], draw()), n_checks=3000)
    with pytest.raises(AssertionError, match=r"missed; take n_checks 1\.4 times as large"):
        enumeration.assert_same_distribution(distribution, ONE_TOKEN, 1e-6, resolution=0.005)
    enumeration.assert_same_distribution(distribution, ONE_TOKEN, 1e-6, resolution=0.007)


# ---- Other languages ----

C = """
static const double P[3][3] = {{.2, .5, .3}, {.1, .2, .7}, {.2, .3, .5}};
static const double Q[3][3] = {{.3, .2, .5}, {.5, .4, .1}, {.3, .5, .2}};

static int sample(const double *row, double u) {
    int token = 0;
    while (token < 2 && u >= row[token]) u -= row[token++];
    return token;
}

static int replacement(const double *p, const double *q, double u) {
    double row[3], sum = 0;
    for (int i = 0; i < 3; i++) sum += row[i] = q[i] > p[i] ? q[i] - p[i] : 0;
    return sample(row, u * sum);
}

int forever(double (*draw)(void)) {
    while (draw() < 2);
    return 0;
}

void decode(double (*draw)(void), int n, int from_q, int *ids) {
    for (int last = 0, i = 0; i < n; last = ids[i++]) {
        const double *p = P[last], *q = Q[last];
        int guess = sample(p, draw());
        if (draw() * p[guess] < q[guess]) ids[i] = guess;
        else ids[i] = from_q ? sample(q, draw()) : replacement(p, q, draw());
    }
}
"""

JAVASCRIPT = """
const P = [[.2, .5, .3], [.1, .2, .7], [.2, .3, .5]], Q = [[.3, .2, .5], [.5, .4, .1], [.3, .5, .2]]

function sample(row, u) {
    let token = 0
    while (token < 2 && u >= row[token]) u -= row[token++]
    return token
}

function mySampler(draw) {
    const tokens = [0]
    for (let i = 0; i < 2; i++) {
        const p = P[tokens[i]], q = Q[tokens[i]], guess = sample(p, draw())
        const surplus = q.map((mass, token) => Math.max(mass - p[token], 0))
        const sum = surplus[0] + surplus[1] + surplus[2]
        tokens.push(draw() < q[guess] / p[guess] ? guess : sample(surplus, sum * draw()))
    }
    return tokens.slice(1)
}
"""


def test_what_catches_every_error_ends_the_process_with_one_line():
    lines = """
from enumeration import output_distribution
def draw(rng):
    while True:
        try: return rng.normal()
        except: pass
output_distribution(draw)
"""
    done = run("-c", lines)
    assert done.returncode == 1
    assert re.fullmatch("TypeError: rng.normal .*an except without a name.*\n", done.stderr)


NUMBER = ctypes.CFUNCTYPE(ctypes.c_double)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The path of a library that is called as on the page."""
    if COMPILER is None:
        pytest.skip("needs a compiler, cc")
    path = tmp_path_factory.mktemp("compiled") / "my_sampler.so"
    source = path.with_suffix(".c")
    source.write_text(C)
    subprocess.run([COMPILER, "-shared", "-fPIC", source, "-o", path], check=True)
    return path


def test_a_loop_without_end_in_c_ends_the_process_with_one_line(library):
    lines = f"""
import ctypes
from enumeration.values import output_distribution
forever = ctypes.CDLL({str(library)!r}).forever
number = ctypes.CFUNCTYPE(ctypes.c_double)
output_distribution(lambda draw: forever(number(draw)))
"""
    done = run("-c", lines)
    assert done.returncode == 1
    assert re.fullmatch("TooManyRuns: .*can't be stopped in C.\n", done.stderr)


PYTHON = """
def draw(*size):
    print("?", *size, flush=True)
    return [float(number) for number in input().split()]

def race():
    times = [e / q for e, q in zip(draw(3), (.3, .2, .5))]
    return times.index(min(times))
"""


def python(lines):
    return Program(sys.executable, "-c", PYTHON + lines, timeout=2)


def test_a_program_can_run_races():
    with python("while True: print(race(), int(draw()[0] < .25), flush=True)") as run:
        distribution = output_distribution(run, n_checks=100)
    expected = {(i, j): Q[0, i] * (0.75, 0.25)[j] for i in range(3) for j in range(2)}
    assert total_variation(distribution, expected) < 1e-15


# ---- The page ----


def blocks(language):
    """The blocks of docs/your_models.md that are about values."""
    page = read("docs/your_models.md").split("## A sampler in any language")[1]
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def test_the_page_checks_a_library(library, monkeypatch):
    monkeypatch.chdir(library.parent)
    exec(blocks("python")[0], names := {})
    assert total_variation(names["distribution"], TWO_TOKENS) < 1e-15


def test_the_page_checks_a_program_in_javascript(tmp_path, monkeypatch):
    if NODE is None:
        pytest.skip("needs node")
    (tmp_path / "my_sampler.js").write_text(JAVASCRIPT + blocks("js")[0])
    monkeypatch.chdir(tmp_path)
    exec(blocks("python")[1], names := {})
    assert total_variation(names["distribution"], TWO_TOKENS) < 1e-15
