"""Every branch of code that draws from PyTorch; enumeration.py explains the method.

    >>> from enumeration import output_distribution
    >>> def draw(rng):
    ...     with torch_draws_from(rng):
    ...         return torch.multinomial(torch.tensor([0.25, 0.75]), 1)
    >>> output_distribution(draw)
    {(0,): 0.25, (1,): 0.75}

These draw from rng: torch.multinomial, torch.bernoulli, torch.rand and torch.rand_like,
whose numbers can only be compared, and `argmax(probs / q.exponential_())`, which is a
draw of one token from probs. Any other random operation raises an error that names it.
"""

import contextlib
from unittest import mock

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode


@contextlib.contextmanager
def torch_draws_from(rng):
    """Within the `with` statement, PyTorch draws from rng, an `EveryBranch`."""

    def rand(*size, **options):
        size = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
        return Numbers(rng.random(tuple(size)))

    def rand_like(tensor, **options):
        return Numbers(rng.random(tuple(tensor.shape)))

    def multinomial(probs, num_samples, replacement=False, **options):
        if num_samples > 1 and not replacement:
            raise NotImplementedError(
                "torch.multinomial of several items without replacement cannot be enumerated; draw the items one by one"
            )
        rows = probs.detach().double().reshape(-1, probs.shape[-1])
        rows = (rows / rows.sum(dim=-1, keepdim=True)).numpy()
        drawn = [rng.choice(len(row), size=num_samples, p=row) for row in rows]
        return torch.tensor(np.array(drawn)).reshape(*probs.shape[:-1], num_samples)

    def bernoulli(p, **options):
        drawn = [rng.random() < float(a) for a in p.detach().double().reshape(-1)]
        return torch.tensor(drawn, dtype=p.dtype).reshape(p.shape)

    new = {(torch, "rand"): rand, (torch, "rand_like"): rand_like, (torch, "multinomial"): multinomial}
    new |= {(torch, "bernoulli"): bernoulli, (torch.Tensor, "multinomial"): multinomial}
    new |= {(torch.Tensor, "exponential_"): lambda tensor, lambd=1.0, **options: Race(lambd)}
    with contextlib.ExitStack() as stack, NothingElseDraws():
        for (owner, name), function in new.items():
            stack.enter_context(mock.patch.object(owner, name, function))
        yield


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
