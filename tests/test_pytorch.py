"""enumeration/pytorch.py, where PyTorch is installed: laws known by hand, a sampler of a page, and what is refused."""

import random
import re

import numpy as np
import pytest
from support import read

torch = pytest.importorskip("torch")
from enumeration.pytorch import output_distribution  # noqa: E402

P = torch.tensor([0.125, 0.5, 0.0, 0.375], dtype=torch.float64)
ONE = {(i,): p for i, p in enumerate(P.tolist()) if p}
QUARTER = {(1,): 0.25, (0,): 0.75}


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (lambda: torch.multinomial(P, 1), ONE),
        (lambda: P[None].multinomial(1)[0], ONE),
        (lambda: torch.multinomial(P, 3).sort().values, {(0, 1, 3): 1}),
        (lambda: torch.argmax(P / torch.empty_like(P).exponential_(), dim=-1), ONE),
        (lambda: (P / torch.empty_like(P).exponential_(1)).argmax(dim=-1), ONE),
        (lambda: (torch.rand(1) < 0.25).int(), QUARTER),
        (lambda: (torch.tensor(0.25) > torch.rand(1)).int(), QUARTER),
        (lambda: (torch.rand_like(P)[:1] <= 0.25).int(), QUARTER),
        (lambda: (torch.empty(1).uniform_() >= 0.75).int(), QUARTER),
        (lambda: torch.searchsorted(P.cumsum(0), torch.rand(1).item()), ONE),
        (lambda: torch.bernoulli(torch.tensor([0.25])).int(), QUARTER),
        (lambda: torch.randint(1, 3, (1,)), {(1,): 0.5, (2,): 0.5}),
        (lambda: int(random.random() < 0.25), QUARTER),
        (lambda: int(np.random.choice(4, p=P.numpy())), ONE),
        (lambda: [torch.manual_seed(0) and 0, *torch.multinomial(P, 1), torch.manual_seed(0) and 0,
                  *torch.multinomial(P, 1)], {(0, i, 0, i): p for (i,), p in ONE.items()}),
    ],
)  # fmt: skip
def test_the_distribution_is_the_one_computed_by_hand(draw, expected):
    found = output_distribution(lambda: [0 if x is None else x for x in np.ravel(draw())])
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.randn(1), lambda: torch.randperm(3), lambda: torch.rand(1) + 1, lambda: bool(torch.rand(1)),
        lambda: torch.log(torch.rand(1)), lambda: torch.rand(1).mean(), lambda: torch.empty(1).exponential_(2.0),
        lambda: torch.empty(1).uniform_(1, 2), lambda: torch.empty(3).exponential_().argmax(),
    ],
)  # fmt: skip
def test_what_cannot_be_enumerated_is_named(draw):
    with pytest.raises(NotImplementedError, match=r"which cannot be enumerated; use torch\.multinomial, or compare"):
        output_distribution(draw)


def test_the_sampler_of_the_page(capsys):
    page = read("docs/your_models.md")
    block, output = re.search(
        r"```python\n([^`]*enumeration\.pytorch.*?)```\n\n```text\n(.*?)```", page, re.DOTALL
    ).groups()
    exec(block, {})
    assert capsys.readouterr().out == output
