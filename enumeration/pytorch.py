"""The exact output distribution of code that draws from PyTorch, as it is.

    >>> from enumeration.pytorch import output_distribution
    >>> output_distribution(lambda: torch.multinomial(torch.tensor([0.25, 0.75]), 1))
    {(0,): 0.25, (1,): 0.75}, but runs may have missed 0.0046

PyTorch's dispatcher sees every random operation, whatever it is called, in place or not.
Its numbers are replaced there by those of values.py, which finds the distribution:

- Draws with known weights, such as multinomial, bernoulli, randint or a dropout, are
  forks. Each branch is taken, with its exact probability.
- Others, such as rand, exponential_ or randn, are numbers that PyTorch could have drawn,
  and bisection finds where the outcome changes. What a program does with them, in
  bfloat16 or in Python's floats, is its own business.
- A row of exponential_ should decide one draw, as in argmax(w / e). If it doesn't, a
  column is tried, or each number by itself, or rows of rand.

What is drawn twice from one state of a generator is the same. That is all there is to
seeds, and a distribution is the average over seeds. Python's random is served like
PyTorch, and so are choice, randint, random and uniform of np.random.
"""

import contextlib
import copy
import ctypes
import functools
import random
import statistics
import sys
import threading
from functools import partial
from unittest import mock

import numpy as np
import torch
import torch._dynamo  # the first operation would import it, and that draws from Python's random
from torch.utils._python_dispatch import TorchDispatchMode

from .forks import NotByRng, as_output
from .generator import Valued
from .search import Search, first_found
from .watch import nothing_else_draws

FEW = 64  # a draw from more integers is a number, and no fork
HALVES = torch.float16, torch.bfloat16
DIGITS = {torch.float32: 24, torch.float64: 53, torch.float16: 11, torch.bfloat16: 8}
RACES = 1e-41, 1e30  # in a race, float32 overflows with larger weights, and with smaller ones
N_WORDS = 624  # of a Mersenne twister, which is at their end when it has been seeded
SEED = 0x5EED_0F_7E57  # PyTorch's generator begins with it, and goes on from run to run
LEFTOVERS = torch.Generator()  # fills new memory
EMPTY = (
    "aten::empty", "aten::empty_like", "aten::empty_strided",
    "aten::new_empty", "aten::new_empty_strided",
)  # fmt: skip
LAYOUTS = (  # the axes along which exponential_ and rand have rows of noise, or None
    {"exponential": -1, "rand": None},
    {"exponential": 0, "rand": None},
    {"exponential": None, "rand": None},
    {"exponential": -1, "rand": -1},
)
SERVED = "choice", "multinomial", "permutation", "rand", "randint", "shuffle"
SYNONYMS = "random", "random_sample", "sample", "ranf"  # in np.random
ADVICE = "use torch.multinomial, rand or exponential_"
NOT_ALIKE = "two draws from one state of a generator, which are not alike"
MIDDLE = "a draw that begins within another one, or after one that nobody has seen"


def output_distribution(function, n_checks=4_500, max_runs=200_000, seed=0):
    """The `resolution.Distribution` of function(), which draws from PyTorch.

    Parameters
    ----------
    function : callable
        Without arguments. It returns a tensor, an int, or a list of these.
    n_checks, max_runs, seed
        See `values.output_distribution`. 4,500 random runs give a resolution of .0046.

    Raises
    ------
    NotImplementedError
        If something is drawn that is not computed here.
    NotByThresholds, TooManyRuns
        See refusals.py.
    NotByRng
        If something else draws, see `enumeration.output_distribution`.
    """

    def search(axes, n_runs):
        sources = Sources(axes)
        with nothing_else_draws(sources), sources.replaced():
            by_thresholds = Search(partial(sources.run, function), max_runs, seed, n_runs)
            return by_thresholds.distribution(n_checks)

    return first_found(LAYOUTS, search)


def plain(output):
    """Tensors as lists. A tensor of one number, in a list, counts as the number."""
    if isinstance(output, torch.Tensor):
        return output.tolist()
    if isinstance(output, list | tuple):
        return [number_or_list(entry) for entry in output]
    return output


def number_or_list(entry):
    is_number = isinstance(entry, torch.Tensor) and entry.numel() == 1
    return entry.item() if is_number else plain(entry)


# ---- Random operations ----


class Numbers(TorchDispatchMode):
    """Takes the place of PyTorch's random numbers in one run."""

    @classmethod
    def _should_skip_dynamo(cls):
        return False

    def __init__(self, draw, axes):
        super().__init__()
        self.draw = draw
        self.axes = axes
        self.drawn = {}  # what was drawn from each state of a generator
        self.begin = place_of(torch.get_rng_state())
        self.places = {}  # where draws begin and end, in each block of a generator's numbers

    def refuse(self, operation):
        self.draw.refuse(NotImplementedError(f"found {operation}, which is not computed here"))

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if torch.is_inference_mode_enabled() and function._can_decompose():
            with self:  # in this mode, PyTorch leaves it to others to take operations apart
                return function.decompose(*args, **kwargs)
        if torch.Tag.nondeterministic_seeded in function.tags:
            return self.random_operation(function, args, kwargs)
        if function._schema.name == "aten::resize_":
            n = args[0].numel()
            out = function(*args, **kwargs)
            leave_something(out.view(-1)[n:])
            return out
        out = function(*args, **kwargs)
        if function._schema.name in EMPTY:
            leave_something(out)
        return out

    def random_operation(self, function, args, kwargs):
        """What is drawn here. PyTorch checks its arguments first, and moves its generator on."""
        name = function._schema.name.removeprefix("aten::")
        kind, names = KINDS.get(name, (None, ()))
        arguments = arguments_by_name(function, args, kwargs)
        values = [numbers_in(arguments.get(name)) for name in names]
        generator = arguments.get("generator") or torch.default_generator
        before = generator.get_state()
        out = function(*args, **kwargs)
        after = generator.get_state()
        if kind is None and torch.equal(before, after):
            return out  # such as attention without dropout
        if kind is None:
            self.refuse(f"torch.{name} ({ADVICE})")
        if name == "native_dropout":
            dropped, out = out
        if out.device.type != "cpu":
            self.refuse(f"torch.{name} on {out.device}")
        if kind is tokens and arguments["self"].dtype in HALVES:
            self.refuse(f"torch.multinomial in {arguments['self'].dtype}")
        if not out.numel():
            return out
        start = place_of(before)
        if start not in self.drawn:
            self.follow(start, place_of(after))
        request = kind, layout_of(out), [comparable(argument) for argument in values]
        drawn = self.same_or_new(start, request, partial(kind, self, out, *values))
        out.copy_(torch.as_tensor(np.array(drawn)).reshape(out.shape))
        if name == "native_dropout":
            scale = 1 / (1 - arguments["p"]) if arguments["p"] < 1 else 0.0
            return dropped.copy_(arguments["input"] * out * scale), out
        return out

    def follow(self, start, end):
        """Note where a draw begins and ends. One that overlaps with another one is refused."""
        block, place = start
        next_block, next_place = end
        if place not in self.places.setdefault(block, {place}):
            self.refuse(MIDDLE)
        if next_place not in self.places.get(next_block, [next_place]) and next_block != block:
            self.refuse(MIDDLE)
        self.places.setdefault(next_block, set()).add(next_place)

    def check(self):
        """Refuse a generator that is not where the run began, a draw ended or a seed put it."""
        block, place = now = place_of(torch.get_rng_state())
        if now != self.begin and place not in self.places.get(block, [place]):
            self.refuse(MIDDLE)

    def same_or_new(self, state, request, make):
        """What was drawn from this state of a generator, or is drawn now."""
        if state not in self.drawn:
            self.drawn[state] = request, make()
        known, drawn = self.drawn[state]
        if known != request:  # they depend on one another, and nobody here knows how
            self.refuse(NOT_ALIKE)
        return drawn

    def noise(self, kind, out):
        """Exponential noise for a tensor, row by row, or None if there are no rows to race."""
        axis = self.axes[kind]
        shape = tuple(out.shape) or (1,)
        if axis is None or shape[axis] == 1:
            return None
        dtype = float if out.dtype is torch.float64 else np.float32
        n_rows = out.numel() // shape[axis]
        rows = [self.draw.exponential(shape[axis], dtype) for _ in range(n_rows)]
        other_lengths = [n for i, n in enumerate(shape) if i != axis % len(shape)]
        return np.moveaxis(np.array(rows).reshape(*other_lengths, shape[axis]), -1, axis)


def leave_something(out):
    """New memory holds what was there before. Here it is something else in each run."""
    if out.dtype in DIGITS:
        out.exponential_(generator=LEFTOVERS)
    elif not out.dtype.is_floating_point and not out.dtype.is_complex:
        out.random_(2, generator=LEFTOVERS)


def arguments_by_name(function, args, kwargs):
    """The arguments of an operation by their names, with its defaults."""
    names, defaults = signature(function)
    return defaults | dict(zip(names, args)) | kwargs


@functools.cache
def signature(function):
    arguments = function._schema.arguments
    defaults = {}
    for argument in arguments:
        if argument.has_default_value():
            defaults[argument.name] = argument.default_value
    return [argument.name for argument in arguments], defaults


def numbers_in(argument):
    """The numbers of a tensor in an array of its own, because the tensor may be written to."""
    if isinstance(argument, torch.Tensor):
        return argument.detach().to(torch.float64, copy=True).numpy()
    return argument


def comparable(argument):
    return argument.tobytes() if isinstance(argument, np.ndarray) else argument


def layout_of(tensor):
    """What decides which of a generator's numbers goes where."""
    if tensor.is_contiguous():
        return tensor.dtype, tensor.numel()
    return tensor.dtype, tensor.shape, tensor.stride()


def place_of(state):
    """A block of numbers of the Mersenne twister, and a place in it. The seed is left out."""
    state = state.numpy().tobytes()
    return state[24:5016], state[8:24] + state[5016:]


# ---- What they draw: (numbers, tensor, arguments) -> a number for each place of the tensor ----


def uniform(numbers, out, low=0.0, high=1.0):
    """Numbers as PyTorch makes them. In half precision, one that is rounded up to high is low."""
    wide = torch.float64 if out.dtype is torch.float64 else torch.float32
    steps = 2 ** DIGITS[wide]
    noise = numbers.noise("rand", out)
    if noise is None:
        whole = np.array([numbers.draw.below(steps) for _ in range(out.numel())])
    else:
        whole = np.floor(np.exp(-noise.ravel()) * steps).clip(0, steps - 1)
    u = whole / steps
    if (low, high) == (0, 1) and out.dtype not in HALVES:
        return u
    low, high = torch.tensor([low, high], dtype=wide)
    values = torch.tensor(u) * (high - low).double() + low.double()
    low, high, values = (tensor.to(out.dtype) for tensor in (low, high, values))
    return torch.where(values == high, low, values).double().numpy()


def exponential(numbers, out, rate):
    if out.dtype in HALVES:
        numbers.refuse(f"torch.exponential_ in {out.dtype}, where races end in ties")
    noise = numbers.noise("exponential", out)
    if noise is None:
        u = [numbers.draw() for _ in range(out.numel())]
        noise = -np.log1p(-np.array(u))
    return noise.ravel() / rate


def normal(numbers, out, mean=0.0, std=1.0):
    bits = [numbers.draw.below(2**52) for _ in range(out.numel())]
    inverse = statistics.NormalDist().inv_cdf
    values = [inverse((i + 0.5) / 2**52) for i in bits]
    mean, std = (np.broadcast_to(parameter, out.shape).ravel() for parameter in (mean, std))
    return mean + std * values


def bernoulli(numbers, out, *arguments):
    *_, p = (argument for argument in arguments if argument is not None)
    return [numbers.draw.choice([1 - a, a]) for a in np.broadcast_to(p, out.shape).ravel()]


def dropout(numbers, out, p):
    return bernoulli(numbers, out, 1 - p)


def integers(numbers, out, low, high):
    low = low or 0
    if high is None:
        high = largest(out.dtype) + 1
    if out.dtype in DIGITS and max(-low, high - 1) > largest(out.dtype):
        numbers.refuse(f"torch.randint beyond what {out.dtype} holds exactly")
    return [low + integer(numbers.draw, high - low) for _ in range(out.numel())]


def largest(dtype):
    """The largest integer that random_ draws."""
    if dtype in DIGITS:
        return 2 ** DIGITS[dtype]
    return 1 if dtype is torch.bool else torch.iinfo(dtype).max


def integer(draw, n):
    return draw.choice(np.ones(n)) if n <= FEW else draw.below(n)


def permutation(numbers, out):
    remaining = [*range(out.numel())]
    return [remaining.pop(integer(numbers.draw, len(remaining))) for _ in range(out.numel())]


def tokens(numbers, out, probs, n, replacement):
    least, most = RACES
    if not least < probs.max() < most:
        numbers.refuse(f"torch.multinomial of weights up to {probs.max():.0e}")
    rows = probs.reshape(-1, probs.shape[-1])
    return [drawn_from(row.copy(), n, replacement, numbers) for row in rows]


def drawn_from(row, n, replacement, numbers):
    drawn = []
    for _ in range(n):
        if not row.any():
            numbers.refuse("torch.multinomial of more tokens than are possible")
        drawn.append(numbers.draw.choice(row))
        if not replacement:
            row[drawn[-1]] = 0
    return drawn


KINDS = {  # how a random operation is served, and the arguments that decide what it draws
    "rand": (uniform, ()), "rand_like": (uniform, ()), "uniform_": (uniform, ("from", "to")),
    "exponential_": (exponential, ("lambd",)),
    "randn": (normal, ()), "randn_like": (normal, ()),
    "normal": (normal, ("mean", "std")), "normal_": (normal, ("mean", "std")),
    "multinomial": (tokens, ("self", "num_samples", "replacement")),
    "bernoulli": (bernoulli, ("self", "p")), "bernoulli_": (bernoulli, ("p",)),
    "randint": (integers, ("low", "high")), "randint_like": (integers, ("low", "high")),
    "random_": (integers, ("from", "to")), "randperm": (permutation, ()),
    "native_dropout": (dropout, ("p",)),
}  # fmt: skip


# ---- Python's random and np.random ----


class Sources:
    """All that draws while a function runs."""

    def __init__(self, axes):
        self.axes = axes
        self.numbers = None  # those of the current run
        self.of_numpy = OfNumpy()

    def run(self, function, draw):
        """The output of function() in one run."""
        self.numbers = numbers = Numbers(draw, self.axes)
        for generator in self.of_numpy, random._inst:
            generator.begin(numbers)
        with numbers:
            output = as_output(plain(function()))
        for generator in numbers, self.of_numpy, random._inst:
            generator.check()
        return output

    def refuse(self, error):
        self.numbers.draw.refuse(error)

    @contextlib.contextmanager
    def replaced(self):
        """Within the `with` statement, draws of Python, NumPy and threads are served as well."""
        run = threading.Thread.run

        def run_with_numbers(thread):
            with self.numbers:
                run(thread)

        with (
            settings_restored(),
            mock.patch.object(threading.Thread, "run", run_with_numbers),
            mock.patch.multiple(np.random, **self.of_numpy.functions()),
            of_python(),
        ):
            yield


@contextlib.contextmanager
def settings_restored():
    """Leave the generators of PyTorch, Python and NumPy as they were."""
    of_torch, of_python, of_numpy = torch.get_rng_state(), random.getstate(), np.random.get_state()
    n_threads = torch.get_num_threads()
    torch.default_generator.manual_seed(SEED)
    torch.set_num_threads(1)  # because several would wait for one another, over small tensors
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)
        torch.set_rng_state(of_torch)
        random.setstate(of_python)
        np.random.set_state(of_numpy)


class Followed:
    """A Mersenne twister whose numbers are those of a run. It's noticed if it draws its own."""

    def begin(self, numbers):
        self.numbers, self.draw = numbers, numbers.draw
        self.known_states = {self.state()}

    def check(self):
        """Its state. NotByRng unless a draw that was served, or a seed, has left it so."""
        state = self.state()
        if state not in self.known_states and not self.is_seeded(state):
            problem = f"the function draws from {self.name} by a name that was given before"
            self.refuse(NotByRng(f"{problem}, or sets its state; call {self.name}'s functions"))
        return state

    def once(self, request, make):
        state = self.check()
        self.move_on()
        self.known_states.add(self.state())
        return self.numbers.same_or_new(state, request, make)

    def refuse(self, error):
        self.draw.refuse(error)


class OfPython(Followed, random.Random):
    """Python's own generator, while its numbers are those of a run."""

    name = "random"

    def state(self):
        return self.getstate()[1]

    def is_seeded(self, state):
        return state[-1] == N_WORDS

    def move_on(self):
        super().random()

    def random(self):
        return self.once("random", self.draw)

    def getrandbits(self, k):
        return self._randbelow(2**k)

    def _randbelow(self, n):
        return self.once(n, lambda: integer(self.draw, n))


@contextlib.contextmanager
def of_python():
    """Serve Python's generator. Methods that are made of others follow, whatever their names."""
    generator = random._inst
    generator.__class__ = OfPython
    names = "random", "getrandbits"
    try:
        with mock.patch.multiple(random, **{name: getattr(generator, name) for name in names}):
            yield
    finally:
        generator.__class__ = random.Random


class OfNumpy(Followed, Valued):
    """np.random, while its numbers are those of a run."""

    name = "np.random"

    def state(self):
        address = np.random.get_bit_generator().ctypes.state_address
        return ctypes.string_at(address, 4 * (N_WORDS + 1))  # get_state takes longer

    def is_seeded(self, state):
        return state[-4:] == N_WORDS.to_bytes(4, sys.byteorder)

    def move_on(self):
        np.random.mtrand._rand.random_sample()

    def functions(self):
        """{name: function} in place of the functions of np.random."""
        generator = np.random.mtrand._rand
        names = [name for name in vars(np.random) if hasattr(generator, name) and name[0] != "_"]
        refused = {name: partial(self.refuse_function, name) for name in names}
        for name in "seed", "get_state", "set_state":
            del refused[name]
        methods = {name: getattr(self, name) for name in SERVED} | {"uniform": self.between}
        methods |= dict.fromkeys(SYNONYMS, self.random)
        return refused | {name: partial(self.serve, name, methods[name]) for name in methods}

    def serve(self, name, method, *args, **options):
        """NumPy's own function comes first, for its errors. It takes less than a Generator."""
        generator = np.random.RandomState(np.random.PCG64(0))
        getattr(generator, name, generator.random)(*map(copy.copy, args), **options)
        return method(*args, **options)

    def refuse_function(self, name, *_, **__):
        self.numbers.refuse(f"np.random.{name} (use choice or random)")

    def one_of(self, n):
        return self.once(n, lambda: integer(self.draw, n))

    def rand(self, *size):
        return self.random(size or None)

    def randint(self, low, high=None, size=None, dtype=int):
        return self.integers(low, high, size, dtype)
