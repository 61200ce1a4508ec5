"""enumeration/pytorch.py: distributions known by hand, and what is refused."""

import itertools
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
TWICE = {(0, 0): 0.5, (1, 1): 0.2, (2, 2): 0.3}


def e(*size, **options):
    return torch.empty(*size or (3,)).exponential_(**options)


def written_to_out():
    out = torch.zeros(1) > 0
    torch.lt(torch.rand(1), 0.3, out=out)
    return out


def drawn_again_in_place():
    row = e()
    row.exponential_()
    return (P / row).argmax()


def with_one_seed(first, second):
    """Two draws by two generators with the same seed, another one in each run."""
    seeds = itertools.count()

    def draw():
        seed = next(seeds)
        one = first(torch.Generator().manual_seed(seed))
        return [one, second(torch.Generator().manual_seed(seed))]

    return draw


def from_p(generator):
    return torch.multinomial(P, 1, generator=generator)


def with_the_same_state():
    state = torch.get_rng_state()
    first = torch.rand(1) < 0.3
    torch.set_rng_state(state)
    return [first, torch.rand(1) < 0.3]


def seeded_again():
    torch.manual_seed(7)
    first = torch.bernoulli(P[:1])
    torch.manual_seed(7)
    return [first, torch.bernoulli(P[:1])]


DISTRIBUTIONS = {
    "multinomial": (lambda: torch.multinomial(P, 1), FROM_P),
    "without replacement": (lambda: torch.multinomial(P, 3).sort().values, {(0, 1, 2): 1}),
    "with replacement": (lambda: torch.multinomial(P, 2, replacement=True)[1], FROM_P),
    "argmax p / e": (lambda: (P / e()).argmax(-1), FROM_P),
    "e drawn again in place": (drawn_again_in_place, FROM_P),
    "lambd": (lambda: (P / e(lambd=2.0)).argmax(), FROM_P),
    "reciprocal": (lambda: (P * e().reciprocal()).argmax(), FROM_P),
    "argmin e / p": (lambda: (e() / P).argmin(), FROM_P),
    "Gumbel": (lambda: (P.log() - e().log()).argmax(), FROM_P),
    "a token masked": (lambda: (P / e()).index_fill(0, torch.tensor([1]), -np.inf).argmax() // 2,
                       {(0,): 0.625, (1,): 0.375}),
    "weights below 0": (lambda: ((Q - P).roll(1) / e()).argmax(), {(0,): 2 / 3, (2,): 1 / 3}),
    "weights of 0": (lambda: ((P - P) / e()).argmax(), {(0,): 1}),
    "two races, one noise": (lambda: (torch.stack([P, P]) / e()).argmax(-1), TWICE),
    "rand": (lambda: torch.rand(1) < 0.3, THIRD),
    "rand, size": (lambda: torch.rand(size=(2,)) < P[:2],
                   {(1, 1): 0.1, (1, 0): 0.4, (0, 1): 0.1, (0, 0): 0.4}),
    "uniform_ to 2": (lambda: torch.empty(1).uniform_(0, to=2) < 0.6, THIRD),
    "no number, and a token": (lambda: [*torch.rand(0), torch.multinomial(P, 1)], FROM_P),
    "item in inference mode": (
        torch.inference_mode(lambda: int(torch.rand(1).item() < 0.3)), THIRD),
    "item looked up": (lambda: torch.searchsorted(P.cumsum(0), torch.rand(1).item()), FROM_P),
    "log": (lambda: torch.log(torch.rand(1)) < np.log(0.3), THIRD),
    "shifted": (lambda: 1 - torch.rand(1, dtype=torch.float64) > 0.7, THIRD),
    "lt, out": (written_to_out, THIRD),
    "asked twice": (lambda: [(u := torch.rand(1)) < 0.3, u >= 0.3],
                    {(1, 0): 0.3, (0, 1): 0.7}),
    "bucketize": (lambda: torch.bucketize(torch.rand(1), P.cumsum(0)), FROM_P),
    "bernoulli": (lambda: torch.bernoulli(P[2:]), THIRD),
    "bernoulli_": (lambda: torch.zeros(1).bernoulli_(0.3), THIRD),
    "randint": (lambda: torch.randint(1, 3, (1,)), {(1,): 0.5, (2,): 0.5}),
    "random_": (lambda: torch.zeros(1).random_(1, 3), {(1,): 0.5, (2,): 0.5}),
    "Python's": (lambda: int(random.random() < 0.3), THIRD),
    "NumPy's": (lambda: int(np.random.choice(3, p=[0.5, 0.2, 0.3])), FROM_P),
    "one seed": (with_one_seed(from_p, from_p), TWICE),
    "set_rng_state": (with_the_same_state, BOTH_THIRD),
    "manual_seed": (seeded_again, BOTH_HALVES),
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
    "torch.exp of a random number": caught,
    "torch.add of a random number": lambda: torch.rand(1).add(P, alpha=2),
    "torch.bernoulli of a random number": lambda: torch.bernoulli(torch.rand(1)),
    "used as a value": lambda: float(torch.rand(1)),
    "Tensor.tolist of a random number": lambda: torch.rand(1),
    "Tensor.numpy of a random number": lambda: torch.rand(1).numpy() < 0.3,
    "Tensor.__array__ of a random number": lambda: np.log(torch.rand(1)),
    "Tensor.__repr__ of a random number": lambda: len(str(torch.rand(1))),
    "in memory that NumPy shares": shared_with_numpy,
    "numbers in torch.bfloat16": lambda: torch.rand(1, dtype=torch.bfloat16) < 0.002,
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
