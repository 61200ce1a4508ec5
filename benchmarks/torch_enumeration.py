"""Every branch of code that draws from PyTorch; enumeration.py explains the method.

    >>> from enumeration import output_distribution
    >>> def draw(rng):
    ...     with torch_draws_from(rng):
    ...         return torch.multinomial(torch.tensor([0.25, 0.75]), 1)
    >>> output_distribution(draw)
    {(0,): 0.25, (1,): 0.75}

These draw from rng: torch.multinomial, torch.bernoulli, torch.randint, torch.rand,
torch.rand_like and Tensor.uniform_, whose numbers can only be compared, torch.searchsorted
for one such number, and `argmax(probs / q.exponential_())`, which is a draw of one token
from probs. Any other random operation of PyTorch raises an error that names it. Python's
random.choice and random.random draw from rng too, and choice, random and uniform of
np.random.

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
from torch.utils._python_dispatch import TorchDispatchMode

from enumeration import Uniform


@contextlib.contextmanager
def torch_draws_from(rng):
    """Within the `with` statement, PyTorch draws from rng, an `EveryBranch`."""
    draws = Draws(rng)

    def rand(*size, **options):
        size = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
        return draws.numbers(tuple(size))

    def rand_like(tensor, **options):
        return draws.numbers(tuple(tensor.shape))

    def uniform_(tensor, low=0, high=1, **options):
        if (low, high) != (0, 1):
            raise NotImplementedError("found Tensor.uniform_ with other limits than 0 and 1")
        return draws.numbers(tuple(tensor.shape))

    def randint(*limits, size=None, **options):
        *limits, size = limits if size is None else (*limits, size)
        return torch.tensor(np.asarray(rng.integers(*limits, size=tuple(size))))

    def multinomial(probs, num_samples, replacement=False, **options):
        rows = probs.detach().double().reshape(-1, probs.shape[-1]).numpy()
        drawn = [draws.items(row, num_samples, replacement) for row in rows]
        return torch.tensor(np.array(drawn)).reshape(*probs.shape[:-1], num_samples)

    def search(limits, number, **options):
        if not isinstance(number, Uniform):
            return searchsorted(limits, number, **options)
        return torch.tensor(next((i for i, limit in enumerate(limits.tolist()) if number <= limit), len(limits)))

    def bernoulli(p, **options):
        drawn = [rng.random() < float(a) for a in p.detach().double().reshape(-1)]
        return torch.tensor(drawn, dtype=p.dtype).reshape(p.shape)

    new = {(torch, "rand"): rand, (torch, "rand_like"): rand_like, (torch, "multinomial"): multinomial}
    new |= {(torch, "bernoulli"): bernoulli, (torch.Tensor, "multinomial"): multinomial}
    new |= {(torch, "randint"): randint, (torch.Tensor, "uniform_"): uniform_, (torch, "searchsorted"): search}
    new |= {(torch, "manual_seed"): draws.begin_again}
    new |= {(random, name): getattr(rng, name) for name in ("choice", "random")}
    new |= {(np.random, name): getattr(rng, name) for name in ("choice", "random", "uniform")}
    new |= {(torch.Tensor, "exponential_"): lambda tensor, lambd=1.0, **options: Race(lambd)}
    searchsorted = torch.searchsorted
    with contextlib.ExitStack() as stack, NothingElseDraws():
        for (owner, name), function in new.items():
            stack.enter_context(mock.patch.object(owner, name, function))
        yield


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
        return Numbers(np.array([self.number() for _ in range(math.prod(shape))], dtype=object).reshape(shape))

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
            raise NotImplementedError(
                f"{function} draws random numbers, and is not supported here; use torch.multinomial or torch.rand"
            )
        return function(*args, **(kwargs or {}))


class Numbers:
    """Stands in for a tensor of uniform random numbers, which can only be compared."""

    def __init__(self, array):
        self.array = np.asarray(array, dtype=object)

    def compare(self, other, below):
        other = other.detach().double().numpy() if isinstance(other, torch.Tensor) else other
        numbers, limits = np.broadcast_arrays(self.array, other)
        found = [u.is_below(a) == below for u, a in zip(numbers.ravel(), limits.ravel(), strict=True)]
        return torch.tensor(found, dtype=torch.bool).reshape(numbers.shape)

    def __lt__(self, other):
        return self.compare(other, True)

    def __gt__(self, other):
        return self.compare(other, False)

    __le__, __ge__ = __lt__, __gt__

    def has_no_value(self, *_):
        raise NotImplementedError("found a random number that is used as a value; a random number can only be compared")

    __bool__ = __eq__ = __ne__ = has_no_value

    def __getitem__(self, index):
        return Numbers(self.array[index])

    def to(self, *args, **options):
        return self

    def __getattr__(self, name):
        if name in ("squeeze", "reshape"):
            return lambda *args: Numbers(getattr(self.array, name)(*args))
        if name in ("item", "shape"):
            return getattr(self.array, name)
        raise NotImplementedError(f"found Tensor.{name} of a random number; a random number can only be compared")

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        """PyTorch calls this for `tensor > numbers`."""
        name = function.__name__.strip("_")
        if len(args) == 2 and isinstance(args[1], Numbers) and name in ("lt", "le", "gt", "ge"):
            return args[1].compare(args[0], name in ("gt", "ge"))
        raise NotImplementedError(f"found torch.{name} of a random number; a random number can only be compared")


class Race:
    """Stands in for the exponential numbers q of `argmax(probs / q)`, a draw from probs."""

    def __init__(self, lambd, probs=None):
        self.probs = probs
        if lambd != 1:
            raise NotImplementedError(
                f"found Tensor.exponential_ with lambd = {lambd}; only lambd = 1 can be enumerated here"
            )

    def argmax(self, dim=None, keepdim=False):
        if self.probs is None or dim not in (-1, self.probs.ndim - 1):
            raise NotImplementedError("exponential random numbers q can only be used in argmax(probs / q, dim=-1)")
        drawn = torch.multinomial(self.probs, 1)  # which draws from rng
        return drawn if keepdim else drawn[..., 0]

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        name = function.__name__.strip("_")
        if name in ("div", "truediv", "true_divide") and isinstance(args[1], Race):
            return Race(1, args[0])
        if name == "argmax":
            return args[0].argmax(*args[1:], **(kwargs or {}))
        raise NotImplementedError(
            f"found torch.{name} of exponential random numbers q; only argmax(probs / q, dim=-1) can be enumerated"
        )
