"""Nothing but rng may decide: other generators are watched, wherever they are kept."""

import contextlib
import gc
import pickle
import random
import sys
import tempfile

import numpy as np

from .forks import NotByRng

# What has a state. A Generator and a RandomState draw from a BitGenerator.
KINDS = np.random.BitGenerator, np.random.SeedSequence, random.Random


@contextlib.contextmanager
def nothing_else_draws(rng):
    """Within the `with` statement, an error where something draws that is not rng.

    A generator without a seed cannot be made, and neither can a RandomState, which begins
    as one. One that has a seed, and was there before, must be as before at the end. One
    that is made from a seed on each path may draw.
    """

    def refuse(*_):
        problem = "the function makes a generator without a seed, or a RandomState"
        rng.refuse(NotByRng(f"{problem}; let rng alone decide"))

    def seed(self, a=None, *args, **options):
        python_seed(self, a, *args, **options)
        if a is None:  # an import may make it, but nobody may use it
            watch.add(self)

    python_seed = random.Random.seed
    watch = Watch()
    watch.look()
    # NumPy, too, takes a seed from random._urandom
    with replaced(random, "_urandom", refuse), replaced(random.Random, "seed", seed):
        try:
            yield watch
        except NotByRng:
            watch.check()  # it says who
            raise
    watch.check()


@contextlib.contextmanager
def replaced(owner, name, new):
    """As mock.patch, which leaves reference cycles, and these keep generators alive."""
    usual = getattr(owner, name)
    setattr(owner, name, new)
    try:
        yield
    finally:
        setattr(owner, name, usual)


class Watch:
    """The generators that are alive, each with its state when it was first seen."""

    last_look = ()  # those found when all objects were last looked at

    def __init__(self):
        self.states = {}

    def add(self, generator):
        self.states.setdefault(id(generator), (generator, state_of(generator)))

    def look(self):
        """Find the generators that have been made since.

        To look at all objects takes a few hundredths of a second. But as long as
        Python's collector counts the last list among the young objects, whatever was
        made later is among them, too.
        """
        young = gc.get_objects(generation=0)
        if sys.version_info < (3, 14):
            young += gc.get_objects(generation=1)  # which no longer is what it was
        if id(Watch.last_look) in map(id, young):
            found = [*Watch.last_look, *generators_among(young)]
        else:
            Watch.last_look = []  # lets go of the generators that nobody else has
            gc.unfreeze()  # get_objects leaves out what is frozen
            Watch.last_look += generators_among(gc.get_objects())
            found = Watch.last_look
        for generator in found:
            self.add(generator)

    def check(self):
        """An error if a generator has drawn."""
        for generator, state in self.states.values():
            if state_of(generator) != state and not names_files(generator):
                problem = f"the function drew from {description(generator)}"
                raise NotByRng(f"{problem}; let rng alone decide")


def generators_among(objects):
    return [thing for thing in objects if issubclass(type(thing), KINDS)]


def state_of(generator):
    if isinstance(generator, random.Random):
        return super(random.Random, generator).getstate()  # a subclass may have no other
    return pickle.dumps(generator.state)


def names_files(generator):
    """Whether it belongs to tempfile. A progress bar of tqdm, too, names a file for its lock."""
    for thing in gc.get_objects():
        is_tempfiles = type(thing) is tempfile._RandomNameSequence
        if is_tempfiles and vars(thing).get("_rng") is generator:
            return True
    return False


def description(generator):
    """A generator in words, with the attribute that holds it if there is one."""
    if generator is np.random.get_bit_generator():
        return "np.random"
    if generator is random._inst:
        return "Python's random"
    name = f"a {type(generator).__name__}"
    for holder in gc.get_referrers(generator):
        if isinstance(holder, np.random.Generator | np.random.RandomState):
            return f"{name}{place_of(holder)}"
    return f"{name}{place_of(generator)}"


def place_of(thing):
    """Where a thing is an attribute, if it is one."""
    for holder in gc.get_referrers(thing):
        attributes = holder if type(holder) is dict else getattr(holder, "__dict__", {})
        for attribute, value in attributes.items():
            if value is thing:
                owner = attributes.get("__name__") or attributes.get("__module__")
                return f" that is {attribute} in {owner or type(holder).__name__}"
    return ""
