"""enumeration/pytorch.py: distributions known by hand, and what is refused."""

import itertools
import operator
import random
import re
import threading

import numpy as np
import pytest
from support import read

torch = pytest.importorskip("torch")
from enumeration import NotByRng, total_variation  # noqa: E402
from enumeration import pytorch as door  # noqa: E402
from enumeration.pytorch import output_distribution  # noqa: E402

P = torch.tensor([0.5, 0.2, 0.3])
Q = torch.tensor([0.2, 0.3, 0.5])
FROM_P = {(0,): 0.5, (1,): 0.2, (2,): 0.3}
FROM_Q = {(0,): 0.2, (1,): 0.3, (2,): 0.5}
THIRD = {(1,): 0.3, (0,): 0.7}
BOTH_HALVES = {(1, 1): 0.5, (0, 0): 0.5}
BOTH_THIRD = {(1, 1): 0.3, (0, 0): 0.7}
EACH_ALONE = {(1, 1): 0.1, (1, 0): 0.4, (0, 1): 0.1, (0, 0): 0.4}
TWICE = {(0, 0): 0.5, (1, 1): 0.2, (2, 2): 0.3}


def e(*size, **options):
    return torch.empty(*size or (3,)).exponential_(**options)


def out(function, *args, like):
    function(*args, out=like)
    return like


def item():
    return int(torch.rand(1).item() < 0.3)


def item_in_place():
    """For a float, -= makes a new number, and so do the others."""
    u = torch.rand(1)
    v = u.item()
    lower = operator.isub(v, 0.7)
    for change in operator.iadd, operator.imul, operator.itruediv:
        change(v, 2)
    return [lower < -0.4, v < 0.3, u < 0.3]


def items_of_one_buffer():
    buffer = torch.empty(1)
    items = [buffer.uniform_().item() for _ in range(2)]
    return [item < a for item, a in zip(items, P)]


def in_place(tensor, method, *args, **options):
    getattr(tensor, method)(*args, **options)
    return tensor


def with_one_seed(first, second):
    """Two draws by two generators with the same seed, another one in each run."""
    seeds = itertools.count()

    def draw():
        seed = next(seeds)
        one = first(torch.Generator().manual_seed(seed))
        return [one, second(torch.Generator().manual_seed(seed))]

    return draw


def with_seeds_alike():
    """PyTorch takes 32 bits of a seed."""
    generators = [torch.Generator().manual_seed(7 + high) for high in (0, 2**32)]
    return [torch.rand(1, generator=generator) < 0.3 for generator in generators]


def from_p(generator):
    return torch.multinomial(P, 1, generator=generator)


def after_a_fork():
    with torch.random.fork_rng(devices=[]):
        first = torch.multinomial(P, 1)
    return [first, torch.multinomial(P, 1)]


def with_the_same_state():
    state = torch.get_rng_state()
    first = torch.rand(1) < 0.3
    torch.set_rng_state(state)
    return [first, torch.rand(1) < 0.3]


def seeded_again(seed):
    seed(7)
    first = torch.bernoulli(P[:1])
    seed(7)
    return [first, torch.bernoulli(P[:1])]


DISTRIBUTIONS = {
    "multinomial": (lambda: torch.multinomial(P, 1), FROM_P),
    "without replacement": (lambda: torch.multinomial(P, 3).sort().values, {(0, 1, 2): 1}),
    "with replacement": (lambda: torch.multinomial(P, 2, replacement=True)[1], FROM_P),
    "multinomial, out": (
        lambda: out(torch.multinomial, P, 1, like=torch.zeros(1, dtype=torch.long)), FROM_P),
    "Categorical": (lambda: torch.distributions.Categorical(P).sample(), FROM_P),
    "argmax p / e": (lambda: (P / e()).argmax(-1), FROM_P),
    "e in place": (lambda: (P / in_place(torch.ones(3), "exponential_")).argmax(), FROM_P),
    "a row of e drawn again": (lambda: (P / in_place(e(), "exponential_")).argmax(), FROM_P),
    "lambd": (lambda: (P / e(lambd=2.0)).argmax(), FROM_P),
    "reciprocal": (lambda: (P * e().reciprocal()).argmax(), FROM_P),
    "argmin e / p": (lambda: (e() / P).argmin(), FROM_P),
    "Gumbel": (lambda: (P.log() - e().log()).argmax(), FROM_P),
    "a token masked": (lambda: (P / e()).index_fill(0, torch.tensor([1]), -np.inf).argmax() // 2,
                       {(0,): 0.625, (1,): 0.375}),
    "a weight that is NaN": (lambda: (torch.tensor([0, np.nan, 1]) / e()).argmax(), {(1,): 1}),
    "weights below 0": (lambda: ((Q - P).roll(1) / e()).argmax(), {(0,): 2 / 3, (2,): 1 / 3}),
    "weights of 0": (lambda: ((P - P) / e()).argmax(), {(0,): 1}),
    "two races, one noise": (lambda: (torch.stack([P, P]) / e()).argmax(-1), TWICE),
    "rand": (lambda: torch.rand(1) < 0.3, THIRD),
    "rand, size": (lambda: torch.rand(size=(2,)) < P[:2],
                   EACH_ALONE),
    "uniform_ to 2": (lambda: torch.empty(1).uniform_(0, to=2) < 0.6, THIRD),
    "item": (item, THIRD),
    "item in place": (item_in_place, {(1, 1, 1): 0.3, (0, 0, 0): 0.7}),
    "items of one buffer": (items_of_one_buffer, EACH_ALONE),
    "no number, and a token": (lambda: [*torch.rand(0), torch.multinomial(P, 1)], FROM_P),
    "item in inference mode": (torch.inference_mode(item), THIRD),
    "item looked up": (lambda: torch.searchsorted(P.cumsum(0), torch.rand(1).item()), FROM_P),
    "log": (lambda: torch.log(torch.rand(1)) < np.log(0.3), THIRD),
    "shifted": (lambda: 1 - torch.rand(1, dtype=torch.float64) > 0.7, THIRD),
    "lt, out": (lambda: out(torch.lt, torch.rand(1), 0.3, like=torch.zeros(1) > 0), THIRD),
    "asked twice": (lambda: [(u := torch.rand(1)) < 0.3, u >= 0.3],
                    {(1, 0): 0.3, (0, 1): 0.7}),
    "searchsorted": (lambda: torch.searchsorted(P.cumsum(0), torch.rand(1)), FROM_P),
    "bucketize": (lambda: torch.bucketize(torch.rand(1), P.cumsum(0)), FROM_P),
    "bernoulli": (lambda: torch.bernoulli(P[2:]), THIRD),
    "bernoulli_": (lambda: in_place(torch.zeros(1), "bernoulli_", 0.3), THIRD),
    "bernoulli, out": (lambda: out(torch.bernoulli, p := P[2:].clone(), like=p), THIRD),
    "bernoulli_ of itself": (lambda: in_place(p := P[2:].clone(), "bernoulli_", p), THIRD),
    "randint": (lambda: torch.randint(1, 3, (1,)), {(1,): 0.5, (2,): 0.5}),
    "random_": (lambda: torch.zeros(1).random_(1, 3), {(1,): 0.5, (2,): 0.5}),
    "Python's": (lambda: int(random.random() < 0.3), THIRD),
    "NumPy's": (lambda: int(np.random.choice(3, p=[0.5, 0.2, 0.3])), FROM_P),
    "one seed": (with_one_seed(from_p, from_p), TWICE),
    "seeds alike": (with_seeds_alike, BOTH_THIRD),
    "fork_rng": (after_a_fork, TWICE),
    "set_rng_state": (with_the_same_state, BOTH_THIRD),
    "manual_seed": (lambda: seeded_again(torch.manual_seed), BOTH_HALVES),
    "generators without a seed": (
        lambda: [torch.rand(1, generator=torch.Generator()) < 0.3 for _ in range(2)],
        BOTH_THIRD),
}  # fmt: skip


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_distribution_is_the_one_computed_by_hand(name):
    draw, expected = DISTRIBUTIONS[name]
    assert total_variation(output_distribution(draw, real_runs=100), expected) < 1e-6


def speculative_token(draw_residual, noise=e):
    """One round with one guess, in the style of vLLM: noise in place, and a race for each draw."""
    token = P.clone().div_(noise()).argmax(dim=-1)
    if torch.rand(1) < (Q / P)[token]:
        return token
    return draw_residual((Q - P).clamp(min=0))


def test_a_sampler_with_noise_in_place_is_exact():
    found = output_distribution(lambda: speculative_token(lambda row: row.div_(e()).argmax()))
    assert total_variation(found, FROM_Q) < 1e-6


def test_one_noise_for_two_races_is_as_wrong_as_it_is():
    """The README's bug of vLLM. Four million real draws gave .2001, .2908 and .5091."""

    def draw():
        shared = e()
        return speculative_token(lambda row: (row / shared).argmax(), noise=lambda: shared)

    expected = {(0,): 0.2, (1,): 0.2909, (2,): 0.5091}
    assert total_variation(output_distribution(draw), expected) < 1e-4


def in_a_thread():
    drawn = []
    thread = threading.Thread(target=lambda: drawn.append(int(torch.multinomial(P, 1))))
    thread.start()
    thread.join()
    return drawn


def shared_with_numpy():
    numbers = np.zeros(1, np.float32)
    torch.from_numpy(numbers).uniform_()
    return numbers < 0.3


def caught():
    try:
        return torch.rand(1).exp() < 2
    except NotImplementedError:
        return 0


REFUSED = {
    "torch.randn": lambda: torch.randn(1),
    "torch.randperm": lambda: torch.randperm(3),
    "torch.exp of a random number": caught,
    "torch.add of a random number": lambda: torch.rand(1).add(P, alpha=2),
    "torch.topk of a random number": lambda: torch.topk(P / e(), 1).indices,
    "torch.clamp of a random number": lambda: torch.rand(1).clamp(min=1e-9) < 0.3,
    "torch.bernoulli of a random number": lambda: torch.bernoulli(torch.rand(1)),
    "used as a value": lambda: float(torch.rand(1)),
    "Tensor.tolist of a random number": lambda: torch.rand(1),
    "Tensor.numpy of a random number": lambda: torch.rand(1).numpy() < 0.3,
    "Tensor.__array__ of a random number": lambda: np.log(torch.rand(1)),
    "Tensor.__repr__ of a random number": lambda: len(str(torch.rand(1))),
    "in memory that NumPy shares": shared_with_numpy,
    "numbers in torch.bfloat16": lambda: torch.rand(1, dtype=torch.bfloat16) < 0.002,
    "numbers in torch.float16": lambda: torch.rand(1).half() < 0.002,
    "torch.multinomial in torch.bfloat16": lambda: torch.multinomial(P.bfloat16(), 1),
    "torch.multinomial of more tokens": lambda: torch.multinomial(torch.eye(3)[0], 2),
    "outside of a race": lambda: (P / (e() + 1e-10)).argmax(),
    "one noise for three races": lambda: (torch.stack([P, Q, P]) / e()).argmax(-1),
    "one random number for two tokens": lambda: (P / e(1)).argmax(),
    "not alike (uniform and exponential)": with_one_seed(
        lambda g: torch.rand(3, generator=g) < P, from_p),
    "combined with another one": lambda: torch.rand(1) < torch.rand(1),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_enumerated_is_named(what):
    with pytest.raises((NotImplementedError, TypeError), match=re.escape(what)):
        output_distribution(REFUSED[what])


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.multinomial(torch.tensor([0.0, np.nan, 1.0]), 1),
        lambda: torch.multinomial(torch.zeros(3), 1),
        lambda: torch.multinomial(torch.tensor([1, 2]), 1),
        lambda: torch.multinomial(P[None, None], 1),
        lambda: torch.bernoulli(torch.tensor([1.2])),
        lambda: torch.rand(-1),
    ],
)
def test_errors_of_pytorch_stay_its_errors(draw):
    with pytest.raises(RuntimeError) as real:
        draw()
    with pytest.raises(RuntimeError, match=re.escape(str(real.value))):
        output_distribution(draw)


def test_what_another_thread_draws_is_noticed():
    with pytest.raises(NotByRng, match="moved unseen"):
        output_distribution(in_a_thread)


def test_a_number_of_an_earlier_run_is_noticed():
    row = P.clone()
    with pytest.raises(NotByRng, match="of an earlier run"):
        output_distribution(lambda: row.div_(e()).argmax())


def test_real_runs_contradict_a_wrong_distribution(monkeypatch):
    def lower_half(rng, out, given):
        return (), lambda: [rng.random() / 2 for _ in range(out.numel())]

    monkeypatch.setitem(door.KINDS, "rand", (lower_half, ()))
    with pytest.raises(RuntimeError, match="real runs gave"):
        output_distribution(lambda: torch.rand(1) < 0.4)
    assert output_distribution(lambda: torch.rand(1) < 0.4, real_runs=0)[(True,)] == 0.8


def test_generators_are_left_as_they_were():
    def states():
        return [
            torch.get_rng_state().tolist(),
            random.getstate(),
            np.random.get_state()[1].tolist(),
        ]

    expected = states()
    output_distribution(lambda: [torch.rand(1) < 0.3, random.random() < 0.3])
    assert states() == expected


def test_the_sampler_of_the_page(capsys):
    page = read("docs/your_models.md")
    block, output = re.search(
        r"```python\n([^`]*enumeration\.pytorch.*?)```\n\n```text\n(.*?)```", page, re.DOTALL
    ).groups()
    exec(block, {})
    assert capsys.readouterr().out == output
