"""The paths of `output_distribution` by many processes, or many machines.

    with ProcessPoolExecutor() as executor:
        output_distribution(my_sampler, executor=executor)

Any executor of concurrent.futures will do. The tree of paths is split at its first forks,
each worker takes all paths of a subtree, and the probabilities are added up.
"""

import pickle
from collections import Counter, deque
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from functools import partial

from .forks import TooManyPaths
from .numpys import EveryBranch
from .others import nothing_else_draws

N_SUBTREES = 100


def sum_by_workers(function, max_paths, executor):
    """{output: probability}, and whether there were Fractions.

    Other generators are looked for on the first hundred paths.
    """
    if isinstance(executor, ProcessPoolExecutor):
        check_pickles(function)
    rng = EveryBranch()
    with nothing_else_draws(rng) as watch:
        beginnings = subtrees(function, rng)
        watch.look()  # for generators that were made on the way, and kept
    outputs = Counter()
    n_paths = 0
    is_exact = False
    work = partial(sum_of_subtree, function=function, max_paths=max_paths)
    try:
        for found, n, had_fractions in executor.map(work, beginnings):
            outputs.update(found)
            n_paths += n
            is_exact |= had_fractions
            check_number(n_paths, max_paths, outputs)
    except BrokenExecutor as error:
        advice = 'a script needs if __name__ == "__main__": around what it runs'
        raise RuntimeError(f"a worker ended early; {advice}") from error
    return dict(outputs), is_exact


def check_number(n_paths, max_paths, outputs):
    if n_paths > max_paths:
        raise TooManyPaths(f"more than max_paths = {max_paths:,} paths", sum(outputs.values()))


def subtrees(function, rng):
    """N_SUBTREES beginnings of paths or more, if there are so many. Each path has one of them."""
    beginnings = deque([()])
    whole = []
    while beginnings and len(beginnings) + len(whole) < N_SUBTREES:
        begin = beginnings.popleft()
        rng.path = [*begin]
        rng.run(function)
        if len(rng.path) == len(begin):
            whole.append(begin)
            continue
        branches, _ = rng.path[len(begin)]
        beginnings += [(*begin, (branches, i)) for i in range(len(branches))]
    return [*whole, *beginnings]


def sum_of_subtree(begin, function, max_paths):
    """What a worker does for the paths that begin so: as above, and the number of paths."""
    rng = EveryBranch(begin)
    outputs = rng.run_all(function, max_paths)
    rng.run_again(function)
    return outputs, rng.n_paths, rng.is_exact


def check_pickles(function):
    try:
        pickle.dumps(function)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        advice = "define it with def at the top of a module"
        raise TypeError(f"{function} can't be sent to another process; {advice}") from error
