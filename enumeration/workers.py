"""The paths of `output_distribution` by many processes, or many machines.

    with ProcessPoolExecutor() as executor:
        output_distribution(my_sampler, executor=executor)

Any executor of concurrent.futures will do. The first paths leave others at their forks. Each
worker takes all paths that begin like one of them, and the probabilities are added up.
"""

import pickle
from collections import Counter, deque
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import nullcontext
from functools import partial

from .forks import TooManyPaths, in_floats
from .generator import EveryBranch
from .uniforms import NeedsValues
from .watch import nothing_else_draws

N_SUBTREES = 100


def sum_by_workers(function, max_paths, executor):
    """{output: probability}, and whether there were Fractions.

    The first paths are taken here, and other generators are looked for on them. Processes
    look for them on their own paths.
    """
    rng = EveryBranch()
    outputs = Counter()
    todo = deque([()])
    with nothing_else_draws(rng) as watch:
        while todo and len(todo) < N_SUBTREES:
            rng.check_numbers(max_paths)
            todo += rng.add(function, todo.popleft(), outputs)
        watch.look()  # for generators that were made on the way, and kept
        rng.run_again(function)
    n_paths = rng.n_paths
    is_exact = rng.is_exact
    watched = nullcontext  # for threads, which share a process
    if isinstance(executor, ProcessPoolExecutor):
        check_pickles(function)
        watched = nothing_else_draws
    work = partial(sum_of_subtree, function=function, max_paths=max_paths, watched=watched)
    try:
        for part, n, had_fractions in executor.map(work, todo):
            outputs.update(part)
            n_paths += n
            is_exact |= had_fractions
            if n_paths > max_paths:
                problem = f"more than max_paths = {max_paths:,} paths"
                raise TooManyPaths(problem, sum(outputs.values()))
    except NeedsValues as error:
        error.n_runs += n_paths
        raise
    except BrokenExecutor as error:
        advice = 'a script needs if __name__ == "__main__": around what it runs'
        raise RuntimeError(f"a worker ended early; {advice}") from error
    return outputs if is_exact else in_floats(outputs), is_exact


def sum_of_subtree(begin, function, max_paths, watched):
    """{output: probability} of the paths that begin so, their number, and if it had Fractions."""
    rng = EveryBranch()
    with watched(rng):
        outputs = rng.run_all(function, max_paths, begin)
        rng.run_again(function)
    return outputs, rng.n_paths, rng.is_exact


def check_pickles(function):
    """TypeError if a function cannot be sent to another process."""
    try:
        pickle.dumps(function)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        advice = "define it with def at the top of a module"
        raise TypeError(f"{function} can't be sent to another process; {advice}") from error
