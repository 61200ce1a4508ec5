"""Nothing but rng may decide: what draws from elsewhere is refused, or noticed afterwards."""

import contextlib
import functools
import gc
import os
import pickle
import random
import subprocess
import sys
import tempfile
import threading
from multiprocessing.process import BaseProcess

import numpy as np

from .forks import NotByRng
from .refusals import NotByThresholds

# The types that have a state. A Generator and a RandomState draw from a BitGenerator.
KINDS = np.random.BitGenerator, np.random.SeedSequence, random.Random
WITHOUT_SEED = (
    "the function asks the operating system for random numbers, as secrets, uuid4, torch.compile "
    "and generators without a seed do"
)
PROCESS = "the function starts a process, and what that draws is not seen"


class AnyTwister(type):
    """isinstance(x, OfRandomState) is true for any MT19937.

    While that class is in the place of np.random's own, np.random.get_state asks this of the
    generator that was made before.
    """

    def __instancecheck__(cls, instance):
        return isinstance(instance, np.random.MT19937)


@contextlib.contextmanager
def nothing_else_draws(rng):
    """Raise NotByRng if something other than rng draws within the `with` statement.

    Only what rng.run calls is watched. It may not ask the operating system for random numbers
    or for a seed. A generator that existed before has to have the same state at the end. One
    that is made from a seed on each path may draw.

    A clock isn't noticed, nor a generator in C, such as libc's rand, nor what a daemon thread
    asks the operating system. Their effect is, where a path ends in another output when it is
    run again.
    """

    def check_who_asks(problem=WITHOUT_SEED):
        if is_called_by(type(rng).run):
            rng.refuse(NotByRng(f"{problem}; let rng alone decide"))

    def refused(function, *problem):
        def asked(*args, **options):
            check_who_asks(*problem)
            return function(*args, **options)

        return asked

    def seed(self, a=None, version=2):
        if a is None:
            check_who_asks()
        python_seed(self, a, version)

    class OfRandomState(np.random.MT19937, metaclass=AnyTwister):
        """A RandomState makes it without a seed, then seeds it or not, and asks for its capsule."""

        seed = None

        def __init__(self):
            super().__init__(0)

        def _legacy_seeding(self, seed):
            self.seed = seed
            super()._legacy_seeding(seed)

        @property
        def capsule(self):
            if self.seed is None:
                check_who_asks()
            return super().capsule

    python_seed = random.Random.seed
    urandom = os.urandom
    replacements = [
        (os, "urandom", refused(urandom)),
        (random, "_urandom", refused(urandom)),  # NumPy takes its seeds from here, too
        (random, "seed", functools.partial(seed, random._inst)),
        (random.Random, "seed", seed),
        # Names of files decide nothing. A progress bar of tqdm needs one for its lock.
        (tempfile._RandomNameSequence, "__next__", lambda self: urandom(4).hex()),
        (np.random.mtrand, "_MT19937", OfRandomState),
        (BaseProcess, "start", refused(BaseProcess.start, PROCESS)),
        (subprocess.Popen, "__init__", refused(subprocess.Popen.__init__, PROCESS)),
        (os, "system", refused(os.system, PROCESS)),
    ]
    if hasattr(os, "getrandom"):
        replacements.append((os, "getrandom", refused(os.getrandom)))
    if hasattr(os, "fork"):
        replacements.append((os, "fork", refused(os.fork, PROCESS)))
    watch = Watch()
    with replaced(replacements):
        try:
            yield watch
        except (NotByRng, NotByThresholds):
            watch.check()  # its error names the generator
            raise
    watch.check()


def is_called_by(run):
    """Whether a run calls this, or another thread meanwhile that's not in the background."""
    if threading.current_thread().daemon:
        return is_below(run, sys._getframe())
    return any(is_below(run, frame) for frame in sys._current_frames().values())


def is_below(run, frame):
    """Whether a run is among the callers of a frame, without an import in between."""
    while frame is not None and "importlib" not in frame.f_code.co_filename:
        if frame.f_code is run.__code__:
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def replaced(replacements):
    """Replace each (owner, name, new) within the `with` statement."""
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in replacements]
    try:
        for owner, name, new in replacements:
            setattr(owner, name, new)
        yield
    finally:
        for owner, name, old in originals:
            setattr(owner, name, old)


class Watch:
    """The generators that are alive, each with its state when it was first seen."""

    def __init__(self):
        self.states = {}
        self.look()

    def look(self):
        """Look at all objects, which takes a few hundredths of a second."""
        gc.unfreeze()  # get_objects leaves out what is frozen
        objects = gc.get_objects()
        kinds = {kind for kind in {*map(type, objects)} if issubclass(kind, KINDS)}
        generators = [generator for generator in objects if type(generator) in kinds]
        if "torch" in sys.modules:
            generators.append(sys.modules["torch"].default_generator)
        for generator in generators:
            if id(generator) not in self.states:
                self.states[id(generator)] = generator, state_of(generator)

    def check(self):
        """NotByRng if the state of a generator has changed."""
        for generator, state in self.states.values():
            if state_of(generator) != state:
                problem = f"the function draws from {description(generator)}, or seeds it"
                raise NotByRng(f"{problem}; let rng alone decide")


def state_of(generator):
    """The state of a generator, as something that can be compared."""
    if isinstance(generator, random.Random):
        return super(random.Random, generator).getstate()  # a subclass may have no other
    if hasattr(generator, "get_state"):
        return generator.get_state().tolist()
    return pickle.dumps(generator.state)


def description(generator):
    """What a message calls a generator."""
    if generator is np.random.get_bit_generator():
        return "np.random"
    if generator is random._inst:
        return "Python's random"
    if hasattr(generator, "get_state"):
        return "PyTorch's generator"
    return f"a {type(generator).__name__}"
