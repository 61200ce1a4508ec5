"""Every branch of code that draws from PyTorch, as `enumeration` explains it.

    >>> from enumeration.pytorch import output_distribution
    >>> output_distribution(lambda: torch.multinomial(torch.tensor([0.25, 0.75]), 1))
    {(0,): 0.25, (1,): 0.75}

PyTorch's dispatcher sees every random operation, whatever it is called, in place or not.
There, each random number gets a value that is its name: a tensor is filled with codes,
floats far outside of any data. Views, copies, gathers and in-place operations then move
names as they move any number. What reads a code is served, or refused by its own name:

- Uniform numbers are compared, shifted, scaled, and looked up by torch.searchsorted.
  Tensor.item() leaves one in a tensor, where it can be compared as well.
- With exponential numbers e, the argmax of w / e is a draw with the weights w. So are the
  argmin of e / w and the argmax of log w - log e. races.py knows what a second race on the
  same numbers does.
- torch.multinomial, bernoulli and randint take every branch.

What is drawn twice from one state of a generator is the same. That is all there is to
seeds, and a distribution is the average over seeds. Python's random.choice and
random.random are served, too, and choice, random and uniform of np.random.

At the end the function runs with real random numbers, and a distribution that these
contradict is refused. Rows of float32 bring rounding errors of about 1e-7.
"""

import contextlib
import hashlib
import itertools
import operator
import random
from functools import partial
from unittest import mock

import numpy as np
import torch
import torch._dynamo  # the first operation would import it, and that draws from Python's random
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from . import NotByRng, check_real_runs
from . import output_distribution as distribution_of
from .numpys import Uniform
from .races import Exponential, LogNoise, Noise, race_of

ADVICE = "use torch.multinomial or compare torch.rand; enumeration/values.py runs what needs values"
FIRST_CODE = 1.5 * 2.0**100
STEP = 2.0**77  # float32 holds FIRST_CODE + i * STEP exactly
N_CODES = 2**22
SMALL = 10_000  # a larger tensor is searched for codes only if one was put there
FLOATS = torch.float32, torch.float64
NUMPY_OF = torch.Tensor.numpy  # the method itself, which is replaced while a function runs
EXITS = "item", "tolist", "numpy", "__array__", "__dlpack__", "data_ptr", "__repr__"
MOVES = (  # operations that put numbers into other places, and compute nothing
    "alias", "as_strided", "cat", "clone", "constant_pad_nd", "copy", "detach", "diagonal",
    "expand", "fill", "flip", "gather", "index", "index_fill", "index_put", "index_select",
    "lift_fresh", "masked_fill", "masked_scatter", "masked_select", "permute", "repeat", "roll",
    "scatter", "select", "select_scatter", "slice", "slice_scatter", "split", "split_with_sizes",
    "squeeze", "stack", "t", "take", "_to_copy", "transpose", "unbind", "unfold", "unsqueeze",
    "_unsafe_view", "view", "where", "zero",
)  # fmt: skip
SHAPES = (  # operations that look at the shape of a tensor, and not at its numbers
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided",
    "full_like", "new_full", "new_ones", "new_zeros", "ones_like", "zeros_like",
)  # fmt: skip


def output_distribution(function, *, real_runs=2_000, **options):
    """{output: probability} of function(), which draws from PyTorch.

    Parameters
    ----------
    function : callable
        Without arguments. It returns a tensor, an int, or a list of these.
    real_runs : int
        How often it runs with real random numbers afterwards.
    options
        max_paths, see `enumeration.output_distribution`.

    Raises
    ------
    NotImplementedError
        If something is done with random numbers that cannot be enumerated.
    Errors of `enumeration.output_distribution`, and PyTorch's own.
    """
    start = torch.default_generator.get_state()
    n_codes = itertools.count()
    n_runs = itertools.count()

    def one_path(rng):
        torch.default_generator.set_state(start)
        with draws_from(rng, n_codes):
            return flat(function())

    def one_real_run():
        torch.default_generator.set_state(start)
        with RealNumbers(next(n_runs)):
            return tuple(flat(function()))

    with generators_restored():
        found = distribution_of(one_path, real_runs=0, **options)
        check_real_runs(found, one_real_run, real_runs)
    return found


def flat(output):
    """A tensor, a number or an array, or a list of these -> a list of numbers."""
    if isinstance(output, torch.Tensor):
        return output.reshape(-1).tolist()
    if isinstance(output, list | tuple):
        return [number for part in output for number in flat(part)]
    return np.ravel(output).tolist()


@contextlib.contextmanager
def generators_restored():
    """Leave the generators of PyTorch, Python and NumPy as they were."""
    of_torch, of_python, of_numpy = torch.get_rng_state(), random.getstate(), np.random.get_state()
    random.seed(0)
    np.random.seed(0)
    try:
        yield
    finally:
        torch.set_rng_state(of_torch)
        random.setstate(of_python)
        np.random.set_state(of_numpy)


@contextlib.contextmanager
def draws_from(rng, n_codes):
    """Within the `with` statement, PyTorch draws from rng, an `EveryBranch`."""
    draws = Draws(rng, n_codes)
    exits = {name: draws.exit(name) for name in EXITS}
    shared = dict(choice=rng.choice, random=rng.random)
    of_torch = mock.patch.multiple(torch.Tensor, **exits)
    of_python = mock.patch.multiple(random, **shared)
    of_numpy = mock.patch.multiple(np.random, uniform=rng.uniform, **shared)
    with of_torch, of_python, of_numpy, draws:
        yield
        draws.check_moved()


# ---- Random operations: the arguments that a draw depends on, and a function that draws ----


def uniform(rng, out, given):
    low = given.get("from", 0.0)
    high = given.get("to", 1.0)
    return (low, high), lambda: [low + (high - low) * rng.random() for _ in range(out.numel())]


def exponential(rng, out, given):
    mean = 1 / given["lambd"]
    return mean, lambda: [Noise(Exponential(), mean) for _ in range(out.numel())]


def bernoulli(rng, out, given):
    p = given.get("p", given["self"])
    if isinstance(p, torch.Tensor):
        p = numbers_in(p)
    p = np.broadcast_to(np.float64(p), out.shape).ravel()
    return p.tobytes(), lambda: [bool(rng.random() < a) for a in p]


def integers(rng, out, given):
    low = given.get("low", given.get("from", 0))
    high = given.get("high", given.get("to", 2**53))
    return (low, high), lambda: [int(rng.integers(low, high)) for _ in range(out.numel())]


def tokens(rng, out, given):
    probs, n, replacement = given["self"], given["num_samples"], given["replacement"]
    rows = numbers_in(probs).reshape(-1, probs.shape[-1])

    def from_row(row):
        drawn = []
        for _ in range(n):
            if not row.any():
                raise NotImplementedError("torch.multinomial of more tokens than are possible")
            drawn.append(int(rng.choice(len(row), p=row / row.sum())))
            if not replacement:
                row[drawn[-1]] = 0
        return drawn

    return (n, replacement, rows.tobytes()), lambda: [from_row(row) for row in rows.copy()]


KINDS = {  # how a random operation is served, and those of its arguments whose numbers it reads
    "rand": (uniform, ()), "rand_like": (uniform, ()), "uniform_": (uniform, ()),
    "exponential_": (exponential, ()), "multinomial": (tokens, ["self"]),
    "bernoulli": (bernoulli, ["self", "p"]), "bernoulli_": (bernoulli, ["p"]),
    "randint": (integers, ()), "randint_like": (integers, ()), "random_": (integers, ()),
}  # fmt: skip


# ---- What reads a code ----


OPERATORS = {
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "add": operator.add, "sub": operator.sub, "rsub": lambda a, b: b - a,
    "mul": operator.mul, "div": operator.truediv, "reciprocal": lambda a: 1 / a,
    "neg": operator.neg, "log": operator.methodcaller("log"),
}  # fmt: skip


class Draws(TorchDispatchMode):
    """Takes the place of PyTorch's random numbers along one path.

    n_codes counts the codes of all paths, so that one of an earlier path is known as such.
    """

    def __init__(self, rng, n_codes):
        super().__init__()
        self.rng = rng
        self.n_codes = n_codes
        self.names = {}  # what each code stands for: Uniform, Noise or LogNoise
        self.drawn = {}  # what was drawn from each state of a generator
        self.held = set()  # addresses of memory with codes
        self.seen = {state_of(torch.default_generator)}  # its states so far

    def refuse(self, what):
        self.rng.refuse(NotImplementedError(f"found {what}, which cannot be enumerated; {ADVICE}"))

    def tried(self, function, *args):
        """function(*args). TypeError, too, becomes NotImplementedError, for PyTorch catches it."""
        try:
            return function(*args)
        except NotImplementedError as error:
            return self.refuse(error)
        except TypeError as error:
            raise NotImplementedError(error) from None

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if torch.is_inference_mode_enabled() and function._can_decompose():
            with self:  # in this mode, PyTorch leaves it to others to take operations apart
                return function.decompose(*args, **(kwargs or {}))
        call = partial(function, *args, **(kwargs or {}))
        given = bound(function, args, kwargs or {})
        name = function._schema.name.removeprefix("aten::")
        if torch.Tag.nondeterministic_seeded in function.tags:
            return self.draw(name, given, call)
        if name in SHAPES:
            return without_leftovers(name, call())
        if not any(self.has_codes(value) for value in tree_leaves(given)):
            return call()
        name = name.rstrip("_")  # in place or not
        if name in MOVES and not given.get("accumulate") and "reduce" not in given:
            return self.hold(call())
        if name in OPERATORS and given.get("alpha", 1) == 1 and not given.get("rounding_mode"):
            return self.elementwise(OPERATORS[name], given, call)
        if name in ("argmax", "argmin"):
            return self.race(name, given, call)
        if name in ("searchsorted", "bucketize"):
            return self.search(given, call)
        if name == "_local_scalar_dense":
            self.refuse("a random number that is used as a value")
        return self.refuse(f"torch.{name} of a random number")

    def draw(self, name, given, call):
        """A random operation. PyTorch checks its arguments first, and moves its generator on."""
        if name not in KINDS:
            self.refuse(f"torch.{name}")
        kind, reads = KINDS[name]
        if any(self.has_codes(given.get(key)) for key in reads):
            self.refuse(f"torch.{name} of a random number")
        generator = given.get("generator")
        if generator is None:
            generator = torch.default_generator
            self.check_moved()
        state = state_of(generator)
        for key in reads:  # before `call`, which may write into the same tensor
            if isinstance(given.get(key), torch.Tensor):
                given[key] = given[key].clone()
        out = call()
        self.seen.add(state_of(torch.default_generator))
        if not out.numel():  # nothing was drawn, so another draw may have this state
            return out
        if kind is tokens and given["self"].dtype not in FLOATS:
            self.refuse(f"torch.multinomial in {given['self'].dtype}")
        if kind is tokens and given["num_samples"] == 1:
            return self.one_token(state, given["self"], out)
        return self.write(out, self.same_or_new(state, kind, out, given))

    def one_token(self, state, probs, out):
        """As PyTorch draws it: the argmax of probs / e."""
        noise = self.same_or_new(state, exponential, probs, {"lambd": 1.0})
        scores = numbers_in(probs).ravel().astype(object) / np.array(noise)
        return self.write(out, self.winners(scores.reshape(probs.shape)))

    def same_or_new(self, state, kind, out, given):
        """What was drawn from this state of a generator, or is drawn now for out."""
        arguments, make = kind(self.rng, out, given)
        what = kind, arguments, layout(out)
        if state not in self.drawn:
            self.drawn[state] = what, self.tried(make)
        known, things = self.drawn[state]
        if known != what:  # they depend on one another, and nobody here knows how
            kinds = f"{known[0].__name__} and {kind.__name__}"
            self.refuse(f"two draws from one state of a generator, not alike ({kinds})")
        return things

    def check_moved(self):
        """PyTorch's own generator must be in a state that it had before, or that a seed gives."""
        seeded = torch.Generator().manual_seed(torch.initial_seed())
        if state_of(torch.default_generator) not in {*self.seen, state_of(seeded)}:
            problem = "PyTorch's generator moved unseen, as another thread moves it"
            self.rng.refuse(NotByRng(f"let rng alone decide: {problem}"))

    # ---- Codes ----

    def has_codes(self, value):
        if not isinstance(value, torch.Tensor) or value.dtype not in FLOATS:
            return False
        if value.numel() > SMALL and value.untyped_storage().data_ptr() not in self.held:
            return False
        return bool(is_code(numbers_in(value)).any())

    def code(self, thing):
        """A float that stands for a random number. A plain number stands for itself."""
        if not is_random(thing):
            return thing
        i = next(self.n_codes) % N_CODES
        self.names[i] = thing
        return FIRST_CODE + i * STEP

    def meaning(self, x):
        """What a float stands for."""
        if not is_code(x):
            return x
        i = int((x - FIRST_CODE) / STEP)
        if i not in self.names:
            problem = "a tensor holds a random number of an earlier run"
            self.rng.refuse(NotByRng(f"let rng alone decide: {problem}"))
        return self.names[i]

    def meanings(self, value):  # tensor or number -> array of the same shape
        if isinstance(value, torch.Tensor):
            value = np.frompyfunc(self.meaning, 1, 1)(numbers_in(value))
        return np.array(value, dtype=object)

    def write(self, out, things):
        """Fill a tensor with numbers, and with codes for what has no value."""
        codes = [self.code(thing) for thing in np.ravel(np.array(things, dtype=object))]
        out.copy_(torch.tensor(codes, dtype=torch.float64).reshape(out.shape))
        return self.hold(out) if any(map(is_random, np.ravel(things))) else out

    def hold(self, result):
        """Note where codes are. What cannot hold them is refused."""
        for out in tree_leaves(result):
            if out.dtype not in FLOATS:
                self.refuse(f"random numbers in {out.dtype}")
            if not out.untyped_storage().resizable():
                self.refuse("random numbers in memory that NumPy shares")
            self.held.add(out.untyped_storage().data_ptr())
        return result

    def exit(self, name):
        """A method of Tensor that leads out of PyTorch: a code would be taken for a number."""
        method = getattr(torch.Tensor, name)

        def leave(tensor, *args, **options):
            if not self.has_codes(tensor):
                return method(tensor, *args, **options)
            if name == "item" and tensor.numel() == 1:
                return tensor.reshape(()).clone().as_subclass(Item)
            return self.refuse(f"Tensor.{name} of a random number")

        return leave

    def elementwise(self, function, given, call):
        """Arithmetic and comparisons of random numbers with plain ones."""
        operands = [self.meanings(given[key]) for key in ("self", "other") if key in given]
        out = call()  # wrong where there are codes
        found = numbers_in(out).astype(object)
        operands = [np.broadcast_to(each, found.shape) for each in operands]
        for i in np.ndindex(found.shape):
            numbers = [each[i] for each in operands]
            if any(map(is_random, numbers)):
                found[i] = self.tried(function, *numbers)
        return self.write(out, found)

    def race(self, name, given, call):
        out = call()
        things, dim = self.meanings(given["self"]), given["dim"]
        things = things.ravel() if dim is None else np.moveaxis(things, dim, -1)
        return self.write(out, self.winners(things if name == "argmax" else -things))

    def winners(self, things):  # [..., n] -> list of indices
        found = []
        for row in things.reshape(-1, things.shape[-1]):
            race = self.tried(race_of, row)
            if not isinstance(race, int):
                race = race.won_by(int(self.rng.choice(len(row), p=race.chances(len(row)))))
            found.append(race)
        return found

    def search(self, given, call):
        """The place of each random number in sorted limits."""
        out = call()
        limits = given.get("sorted_sequence", given.get("boundaries"))
        if limits.ndim != 1 or self.has_codes(limits):
            self.refuse("torch.searchsorted or bucketize in more than one row of plain limits")
        places = []
        for u in self.meanings(given["self"]).ravel():
            places.append(sum(1 for limit in limits.tolist() if self.tried(operator.gt, u, limit)))
        return self.write(out, places)


class Item(torch.Tensor):
    """What Tensor.item() leaves. As with a float, u -= a makes a new number."""

    __iadd__ = torch.Tensor.__add__
    __isub__ = torch.Tensor.__sub__
    __imul__ = torch.Tensor.__mul__
    __itruediv__ = torch.Tensor.__truediv__


def bound(function, args, kwargs):
    """The arguments of an operation by their names, with its defaults."""
    arguments = function._schema.arguments
    given = {a.name: a.default_value for a in arguments if a.has_default_value()}
    given |= {a.name: value for a, value in zip(arguments, args)}
    return given | kwargs


def is_random(thing):
    return type(thing) in (Uniform, Noise, LogNoise)


def is_code(x):
    """Whether a number, or each number of an array, is a code."""
    i = (x - FIRST_CODE) / STEP
    return (i >= 0) & (i < N_CODES) & (i == np.floor(i))


def numbers_in(tensor):
    """The numbers of a tensor, or their codes, in an array of its own."""
    return NUMPY_OF(tensor.detach().to(torch.float64, copy=True))


def state_of(generator):
    state = NUMPY_OF(generator.get_state())
    return state[8:].tobytes()  # without the seed, of which PyTorch uses half the bits


def layout(tensor):
    """What decides which of a generator's numbers goes where."""
    if tensor.is_contiguous():
        return tensor.dtype, tensor.numel()
    return tensor.dtype, tensor.shape, tensor.stride()


def without_leftovers(name, out):
    """New memory must not hold codes of earlier runs."""
    if "empty" in name:
        out.fill_(np.nan if out.dtype.is_floating_point else 0)
    return out


# ---- Real runs ----


class RealNumbers(TorchDispatchMode):
    """PyTorch's numbers, but what a state of a generator gives depends on the run as well."""

    def __init__(self, run):
        super().__init__()
        self.run = run

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in function.tags:
            return function(*args, **kwargs)
        generator = kwargs.get("generator")
        if generator is None:
            generator = torch.default_generator
        seed = hashlib.blake2b(state_of(generator) + b"%d" % self.run, digest_size=8).digest()
        before = generator.get_state()
        generator.manual_seed(int.from_bytes(seed, "little"))
        out = function(*args, **kwargs)
        drawn = out.clone()
        generator.set_state(before)
        function(*args, **kwargs)  # moves the generator on, and may draw into out once more
        return out.copy_(drawn)
