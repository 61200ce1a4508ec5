"""enumeration/pytorch.py: distributions known by hand, and what would be a wrong number."""

import itertools
import random
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import test_numpy
from support.programs import read

torch = pytest.importorskip("torch")
from enumeration import NotByRng, total_variation  # noqa: E402
from enumeration import pytorch as door  # noqa: E402
from enumeration.pytorch import output_distribution  # noqa: E402
from enumeration.refusals import NotByThresholds, TooManyRuns  # noqa: E402

P = torch.tensor([0.5, 0.2, 0.3])
Q = torch.tensor([0.2, 0.3, 0.5])
FROM_P = {(0,): 0.5, (1,): 0.2, (2,): 0.3}
THIRD = {(1,): 0.3, (0,): 0.7}
BOTH_THIRD = {(1, 1): 0.3, (0, 0): 0.7}
EACH_ALONE = {(1, 1): 0.1, (1, 0): 0.4, (0, 1): 0.1, (0, 0): 0.4}
TWICE = {(0, 0): 0.5, (1, 1): 0.2, (2, 2): 0.3}


def e(*size, **options):
    return torch.empty(*size or (3,)).exponential_(**options)


def in_place(tensor, method, *args, **options):
    getattr(tensor, method)(*args, **options)
    return tensor


def item():
    return torch.rand(1).item() < 0.3


def with_one_seed(first, second):
    """Two draws by two generators with the same seed, another one in each run."""
    seeds = itertools.count()

    def draw():
        seed = next(seeds)
        first_draw = first(torch.Generator().manual_seed(seed))
        return [first_draw, second(torch.Generator().manual_seed(seed))]

    return draw


def from_p(generator):
    return torch.multinomial(P, 1, generator=generator)


def with_the_same_state():
    state = torch.get_rng_state()
    first = torch.rand(1) < 0.3
    torch.set_rng_state(state)
    return [first, torch.rand(1) < 0.3]


SAVED = torch.get_rng_state()


def with_a_state_from_outside():
    first = torch.rand(1) < P[0]
    torch.set_rng_state(SAVED)
    return [first, torch.rand(1) < P[1]]


def seeded_again(seed, draw):
    """Two draws after the same seed. All sources have a seed before, which draws nothing."""
    for source in random, np.random, torch.random:
        getattr(source, "manual_seed", getattr(source, "seed", None))(7)
    first = draw()
    seed(7)
    return [first, draw()]


def in_a_thread(draw):
    drawn = []
    thread = threading.Thread(target=lambda: drawn.append(draw()))
    thread.start()
    thread.join()
    return drawn


def dropout():
    return torch.nn.functional.dropout(torch.ones(2), 0.25)


DISTRIBUTIONS = {
    "two of three": (
        lambda: torch.multinomial(P, 2).sort().values,
        {(0, 1): 0.1 / 0.5 + 0.1 / 0.8, (0, 2): 0.15 / 0.5 + 0.15 / 0.7,
         (1, 2): 0.06 / 0.8 + 0.06 / 0.7}),
    "with replacement": (lambda: torch.multinomial(P, 2, replacement=True)[1], FROM_P),
    "argmax p / e, lambd": (lambda: (P / e(lambd=2.0)).argmax(), FROM_P),
    "a column of noise": (lambda: (P[:, None] / e(3, 2)).argmax(0)[:1], FROM_P),
    "noise by itself": (lambda: e(2) < torch.tensor([0.7, 0.8]).log().neg(),
                        {(0, 0): 0.56, (0, 1): 0.14, (1, 0): 0.24, (1, 1): 0.06}),
    "item": (item, THIRD),
    "bfloat16": (lambda: torch.rand(1).item() < torch.tensor(0.9, dtype=torch.bfloat16),
                 {(1,): 0.896484375, (0,): 0.103515625}),
    "rounding": (lambda: (torch.rand(1) + 2.0**19) - 2.0**19 < 0.3,
                 {(1,): 0.28125, (0,): 0.71875}),
    "normal": (lambda: torch.normal(P[:1], torch.tensor(2.0)) < 1.5,
               {(1,): 0.6914625, (0,): 0.3085375}),
    "bernoulli_": (lambda: in_place(torch.zeros(1), "bernoulli_", 0.3), THIRD),
    "randint": (lambda: torch.randint(1, 3, (1,)), {(1,): 0.5, (2,): 0.5}),
    "randperm": (lambda: torch.randperm(3)[:2],
                 dict.fromkeys(itertools.permutations(range(3), 2), 1 / 6)),
    "dropout in inference mode": (
        torch.inference_mode(lambda: dropout()[0] > 1.3), {(1,): 0.75, (0,): 0.25}),
    "Python's": (lambda: random.choice([1, "stop", "stop", "stop"]),
                 {(1,): 0.25, ("stop",): 0.75}),
    "Python's random": (lambda: [random.random() < a for a in (0.5, 0.2)], EACH_ALONE),
    "NumPy's choice": (lambda: np.random.choice(3, 2, p=[0.5, 0.2, 0.3])[1], FROM_P),
    "NumPy's randint": (lambda: 2 ** np.random.randint(63, 65) > 0, {(1,): 1}),
    "one seed": (with_one_seed(from_p, from_p), TWICE),
    "set_rng_state": (with_the_same_state, BOTH_THIRD),
    "a state from outside": (with_a_state_from_outside, EACH_ALONE),
    "manual_seed": (lambda: seeded_again(torch.manual_seed, item), BOTH_THIRD),
    "random.seed": (
        lambda: seeded_again(random.seed, lambda: random.random() < 0.3), BOTH_THIRD),
    "np.random.seed": (
        lambda: seeded_again(np.random.seed, lambda: np.random.rand() < 0.3), BOTH_THIRD),
    "a thread": (lambda: [*in_a_thread(item), item()],
                 {(1, 1): 0.09, (1, 0): 0.21, (0, 1): 0.21, (0, 0): 0.49}),
}  # fmt: skip


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_distribution_is_the_one_computed_by_hand(name):
    draw, expected = DISTRIBUTIONS[name]
    assert total_variation(output_distribution(draw, n_checks=200), expected) < 1e-6


# ---- The numbers ----


class Given:
    """A draw with given numbers."""

    def __init__(self, numbers):
        self.numbers = iter(numbers)

    def below(self, n):
        return next(self.numbers)


@pytest.mark.parametrize("ends", [(0.0, 1.0), (-1.0, 3.0), (0.1, 0.7), (100.0, 100.5)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_uniform_numbers_are_those_of_pytorch(dtype, ends):
    n = 20_000
    bits = torch.rand(n, generator=torch.Generator().manual_seed(1)) * 2**24
    real = torch.empty(n, dtype=dtype).uniform_(*ends, generator=torch.Generator().manual_seed(1))
    numbers = door.Numbers(Given(bits.int().tolist()), {"rand": None})
    assert (door.uniform(numbers, real, *ends) == real.double().numpy()).all()


# ---- np.random ----

CALLS = test_numpy.CALLS | {"randint": test_numpy.CALLS["integers"]}
OPTIONS = {
    "permutation": ("x",),
    "choice": ("a", "size", "p", "replace"),
    "multinomial": ("n", "pvals", "size"),
    "randint": ("low", "high", "size", "dtype"),
    "uniform": ("low", "high", "size"),
}


class Functions:
    """The functions of np.random behind the door, where an EveryBranch draws."""

    def __init__(self, rng):
        def choice(weights):
            return rng.choice(len(weights), p=weights / np.sum(weights))

        draw = SimpleNamespace(choice=choice, below=rng.choice, refuse=rng.refuse)
        numbers = SimpleNamespace(draw=draw, same_or_new=lambda state, what, make: make())
        of_numpy = door.OfNumpy()
        of_numpy.begin(numbers)
        of_numpy.number = rng.number
        vars(self).update(of_numpy.functions())


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("name", OPTIONS)
def test_a_function_of_np_random_does_what_it_does_without_the_door(name):
    options = {option: CALLS[name][option] for option in OPTIONS[name]}
    test_numpy.compare_calls(name, options, np.random.RandomState(0), Functions)


# ---- What would be a wrong number ----


def shared(draw):
    noise = e()
    return draw(noise)


def states():
    """A state of a generator, and the one after a number."""
    generator = torch.Generator().manual_seed(4)
    yield generator.get_state()
    torch.rand(1, generator=generator)
    yield generator.get_state()


BEFORE, AFTER = states()


def from_the_middle():
    """Two draws, where the second one is the second number of the first."""
    generator = torch.Generator()
    generator.set_state(BEFORE)
    two_numbers = torch.rand(2, generator=generator)
    generator.set_state(AFTER)
    return [two_numbers[1] < 0.5, torch.rand(1, generator=generator) < 0.5]


def caught():
    try:
        return torch.poisson(P[:1])
    except NotImplementedError:
        return 0


def in_a_pool():
    """A token, or 9 where a thread that is older than the run has drawn."""
    token = torch.multinomial(P, 1)
    return 9 if POOL.submit(torch.rand, 1).result() < 0.002 else token


ROW = P.clone()
COUNTER, GENERATOR = itertools.count(), np.random.default_rng(0)
PYTHONS, NUMPYS, POOL = random.random, np.random.rand, ThreadPoolExecutor(1)
POOL.submit(int).result()
EARLIER = "by a name that was given before"
TWO_DRAWS = "one noise decides two draws, which is not computed here"
REFUSED = {
    "two races": (lambda: shared(lambda n: [(P / n).argmax(), (Q / n).argmax()]), TWO_DRAWS),
    "the number itself": (lambda: torch.rand(1), "the slightest change of a number"),
    "a number of an earlier run": (lambda: ROW.div_(e()).argmax(), "something else decides"),
    "memory that nobody wrote": (lambda: torch.empty(1) < 0.7, "memory that was never written"),
    "memory behind the end": (lambda: torch.zeros(1).resize_(10**5)[-1] < 0.7, "never written"),
    "not alike": (with_one_seed(lambda g: torch.rand(3, generator=g) < P, from_p), "not alike"),
    "the middle": (from_the_middle, "begins within another one"),
    "torch.poisson": (caught, "found torch.poisson"),
    "half precision": (lambda: torch.multinomial(P.bfloat16(), 1), "multinomial in torch.bfloat16"),
    "noise in half precision": (lambda: P.half() / e(3).half().exponential_(), "where races end"),
    "large weights": (lambda: torch.multinomial(P * 1e37, 1), "of weights up to 5e[+]36"),
    "large integers": (lambda: torch.randint(300, (), dtype=torch.bfloat16) % 2, "beyond what tor"),
    "too many tokens": (lambda: torch.multinomial(torch.eye(3)[0], 2), "than are possible"),
    "np.random.normal": (lambda: np.random.normal() < 0, "found np.random.normal"),
    "another name for random": (
        lambda: PYTHONS() < 0.002 or torch.multinomial(P, 1), f"draws from random {EARLIER}"),
    "another name for np.random": (
        lambda: NUMPYS() < 0.002 or torch.multinomial(P, 1), f"draws from np.random {EARLIER}"),
    "a hidden generator of np.random": (
        lambda: np.random.mtrand._rand.random_sample() < 0.002 or item(), EARLIER),
    "another generator": (lambda: GENERATOR.random() < 0.002 or item(), "draws from a PCG64"),
    "a thread of a pool": (in_a_pool, "after one that nobody has seen"),
    "a counter": (lambda: next(COUNTER) % 500 == 0 or torch.multinomial(P, 1), "else decides"),
    "a seed of the system": (lambda: torch.seed() % 100 == 0 or item(), "something else decides"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:to - 1 is out of bounds")
@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_a_wrong_number_is_refused_by_name(name):
    draw, message = REFUSED[name]
    errors = NotImplementedError, NotByRng, NotByThresholds, TooManyRuns
    with pytest.raises(errors, match=message) as error:
        output_distribution(draw)
    assert "\n" not in str(error.value)


def test_generators_are_left_as_they_were():
    def states():
        of_numpy = np.random.get_state()[1].tolist()
        return torch.get_rng_state().tolist(), random.getstate(), of_numpy, type(random._inst)

    expected = states()
    output_distribution(lambda: [item(), random.random() < 0.3, np.random.rand() < 0.3], n_checks=1)
    assert states() == expected


# ---- Whole programs ----


def random_gpt2(seed, n_layer):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(seed)
    no_ids = dict(bos_token_id=None, eos_token_id=None, pad_token_id=0)
    sizes = dict(vocab_size=3, n_positions=8, n_embd=8, n_head=2, initializer_range=0.5)
    config = transformers.GPT2Config(n_layer=n_layer, **sizes, **no_ids)
    return transformers.GPT2LMHeadModel(config).eval()


@pytest.mark.slow
def test_generate_of_transformers_is_as_it_is_with_an_assistant():
    """`generate` has its default attention, and the same seed in each run."""
    target, draft = random_gpt2(0, 2), random_gpt2(1, 1)
    set_seed = pytest.importorskip("transformers").set_seed
    ids = torch.tensor([[0, 1]])
    fixed = dict(do_sample=True, max_new_tokens=2, top_k=0, pad_token_id=0)
    fixed |= dict(attention_mask=torch.ones_like(ids), assistant_confidence_threshold=0.0)
    fixed |= dict(num_assistant_tokens=2, num_assistant_tokens_schedule="constant")

    def generate(**options):
        set_seed(1)
        return target.generate(ids, **fixed, **options)[0, 2:]

    alone = output_distribution(generate, n_checks=100)
    assert len(alone) == 9
    assisted = output_distribution(lambda: generate(assistant_model=draft), n_checks=100)
    assert total_variation(assisted, alone) < 1e-6


def test_the_sampler_of_the_page(capsys):
    page = read("docs/your_models.md")
    block, output = re.search(
        r"```python\n([^`]*enumeration\.pytorch.*?)```\n\n```text\n(.*?)```", page, re.DOTALL
    ).groups()
    exec(block, {})
    assert capsys.readouterr().out == output
