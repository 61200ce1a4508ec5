"""Every branch of code that draws from PyTorch, as `enumeration` explains it.

    >>> from enumeration.pytorch import output_distribution
    >>> output_distribution(lambda: torch.multinomial(torch.tensor([0.25, 0.75]), 1))
    {(0,): 0.25, (1,): 0.75}

These can be used: torch.multinomial, bernoulli, randint; torch.rand, rand_like and
Tensor.uniform_, whose numbers can only be compared, and looked up by torch.searchsorted;
and `argmax(probs / q.exponential_())`, which is a draw of one token from probs. Any other
random operation of PyTorch raises an error that names it. Python's random.choice and
random.random count, too, and choice, random and uniform of np.random.

After torch.manual_seed, the numbers begin again: the nth draw after each call with the
same seed uses the same number. torch.multinomial then looks it up in the cumulated
probabilities. PyTorch would use one exponential number per token.
"""

import contextlib
import math
import random
from unittest import mock

import numpy as np
import torch
import torch._dynamo  # the first operation would import it, and that draws from Python's random
from torch.utils._python_dispatch import TorchDispatchMode

import enumeration
from enumeration.numpys import Uniform


def output_distribution(function, **options):
    """{output: probability} of function(), which draws from PyTorch."""

    def draw(rng):
        with draws_from(rng):
            return function()

    return enumeration.output_distribution(draw, **options)


@contextlib.contextmanager
def draws_from(rng):
    """Within the `with` statement, PyTorch draws from rng, an `EveryBranch`."""
    draws, searchsorted = Draws(rng), torch.searchsorted

    def rand(*size, **options):
        return draws.numbers(size[0] if len(size) == 1 and not isinstance(size[0], int) else size)

    def uniform_(tensor, low=0, high=1, **options):
        if (low, high) != (0, 1):
            refuse("Tensor.uniform_ with other limits than 0 and 1")
        return draws.numbers(tensor.shape)

    def randint(*limits, size=None, **options):
        *limits, size = limits if size is None else (*limits, size)
        return torch.tensor(np.asarray(rng.integers(*limits, size=tuple(size))))

    def multinomial(probs, num_samples, replacement=False, **options):
        rows = probs.detach().double().reshape(-1, probs.shape[-1]).numpy()
        drawn = [draws.items(row, num_samples, replacement) for row in rows]
        return torch.tensor(np.array(drawn)).reshape(*probs.shape[:-1], num_samples)

    def search(limits, number, **options):
        if type(number) is not Uniform:
            return searchsorted(limits, number, **options)
        return torch.tensor(next((i for i, limit in enumerate(limits.tolist()) if number <= limit), len(limits)))

    def bernoulli(p, **options):
        drawn = [rng.random() < float(a) for a in p.detach().double().reshape(-1)]
        return torch.tensor(drawn, dtype=p.dtype).reshape(p.shape)

    new = {
        torch: dict(
            rand=rand, rand_like=lambda tensor, **_: draws.numbers(tensor.shape), multinomial=multinomial,
            bernoulli=bernoulli, randint=randint, searchsorted=search, manual_seed=draws.begin_again,
        ),
        torch.Tensor: dict(
            multinomial=multinomial, uniform_=uniform_, exponential_=lambda tensor, lambd=1.0, **_: Race(lambd)
        ),
        random: {name: getattr(rng, name) for name in ("choice", "random")},
        np.random: {name: getattr(rng, name) for name in ("choice", "random", "uniform")},
    }  # fmt: skip
    with contextlib.ExitStack() as stack, NothingElseDraws():
        for owner, functions in new.items():
            stack.enter_context(mock.patch.multiple(owner, **functions))
        yield


def refuse(what):
    raise NotImplementedError(f"found {what}, which cannot be enumerated; use torch.multinomial, or compare torch.rand")


class Draws:
    """The numbers and items that PyTorch draws. With a seed, they come from a list that is read again and again."""

    def __init__(self, rng):
        self.rng, self.lists, self.seed, self.n_read = rng, {}, None, 0

    def begin_again(self, seed):
        self.seed, self.n_read = seed, 0

    def number(self):
        if self.seed is None:
            return self.rng.random()
        known = self.lists.setdefault(self.seed, [])
        if self.n_read == len(known):
            known.append(self.rng.random())
        self.n_read += 1
        return known[self.n_read - 1]

    def numbers(self, shape):
        drawn = np.empty(math.prod(shape), dtype=object)
        for i in range(len(drawn)):
            drawn[i] = self.number()
        return Numbers(drawn.reshape(tuple(shape)))

    def items(self, row, n, replacement):
        drawn, row = [], row.copy()
        for _ in range(n):
            if row.sum() > 0:
                drawn.append(self.item(row / row.sum()))
            else:  # PyTorch, too, goes on with items of probability 0
                drawn.append(next(i for i in range(len(row)) if i not in drawn))
            row[drawn[-1]] *= replacement
        return drawn

    def item(self, row):
        if self.seed is None:
            return int(self.rng.choice(len(row), p=row))
        number, limits = self.number(), np.cumsum(row)
        return next(i for i, limit in enumerate((limits / limits[-1]).tolist()) if number < limit)


class NothingElseDraws(TorchDispatchMode):
    """An error at every operation that PyTorch marks as random."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if torch.Tag.nondeterministic_seeded in function.tags:
            refuse(function)
        return function(*args, **(kwargs or {}))


class Numbers:
    """Stands in for a tensor of uniform random numbers, which can only be compared."""

    def __init__(self, array):
        self.array = np.asarray(array, dtype=object)

    def compare(self, other, below):
        other = other.detach().double().numpy() if isinstance(other, torch.Tensor) else other
        numbers, limits = np.broadcast_arrays(self.array, other)
        found = [bool(u.is_below(a)) == below for u, a in zip(numbers.ravel(), limits.ravel(), strict=True)]
        return torch.tensor(found, dtype=torch.bool).reshape(numbers.shape)

    def __lt__(self, other):
        return self.compare(other, True)

    def __gt__(self, other):
        return self.compare(other, False)

    __le__, __ge__ = __lt__, __gt__

    def has_no_value(self, *_):
        refuse("a random number that is used as a value")

    __bool__ = __eq__ = __ne__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = has_no_value
    __truediv__ = __rtruediv__ = __neg__ = __pow__ = has_no_value

    def __getitem__(self, index):
        return Numbers(self.array[index])

    def to(self, *args, **options):
        return self

    def __getattr__(self, name):
        if name in ("squeeze", "reshape"):
            return lambda *args: Numbers(getattr(self.array, name)(*args))
        return getattr(self.array, name) if name in ("item", "shape") else refuse(f"Tensor.{name} of a random number")

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        """PyTorch calls this for `tensor > numbers`."""
        name = function.__name__.strip("_")
        if len(args) == 2 and isinstance(args[1], Numbers) and name in ("lt", "le", "gt", "ge"):
            return args[1].compare(args[0], name in ("gt", "ge"))
        refuse(f"torch.{name} of a random number")


class Race:
    """Stands in for the exponential numbers q of `argmax(probs / q)`, a draw from probs."""

    def __init__(self, lambd, probs=None):
        self.probs = probs
        if lambd != 1:
            refuse(f"Tensor.exponential_ with lambd = {lambd}")

    def argmax(self, dim=None, keepdim=False):
        if self.probs is None or dim not in (-1, self.probs.ndim - 1):
            refuse("exponential numbers q outside of argmax(probs / q, dim=-1)")
        drawn = torch.multinomial(self.probs, 1)  # which draws from rng
        return drawn if keepdim else drawn[..., 0]

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        name = function.__name__.strip("_")
        if name in ("div", "truediv", "true_divide") and isinstance(args[1], Race):
            return Race(1, args[0])
        if name == "argmax":
            return args[0].argmax(*args[1:], **(kwargs or {}))
        refuse(f"torch.{name} of exponential numbers q")
