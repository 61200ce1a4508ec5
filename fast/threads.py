"""Share the work of one product among the cores, and let one network compute at a time.

BLAS has threads of its own, which wait in a loop. Beside a busy program they may take
forty times as long, so `load_numpy` leaves BLAS one thread, if NumPy is not loaded yet,
and all sharing is done here, by threads that sleep when they wait.

NumPy releases Python's global lock while it multiplies, so plain threads run side by
side. But waking one takes 40 to 75 microseconds, in which a core reads half a megabyte
to two megabytes of weights. So small products stay on the calling core, and in larger
ones this core, which is awake already, gets the largest share.
"""

import contextlib
import math
import os
import sys
import threading
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue

MAX_CORES = 8  # beyond a few cores, reading gets no faster, and every further one has to be woken
WORTH_WAKING = 5_300_000  # bytes of work from which on several cores are usually faster
HEAD_START = 2_100_000  # bytes of work that the calling core does while the others wake up


def load_numpy():
    """Load NumPy with a BLAS of one thread, and leave the environment as it was.

    False if NumPy is there already.
    """
    if "numpy" in sys.modules:
        return False
    name = "OPENBLAS_NUM_THREADS"
    before = os.environ.get(name)
    os.environ[name] = "1"  # it is read once, as the library is loaded
    import numpy  # noqa: F401

    if before is None:
        del os.environ[name]
    else:
        os.environ[name] = before
    return True


ONE_POOL = load_numpy()  # whether BLAS has one thread, so that its products can be shared here


def in_parallel(function, n, n_bytes):
    """Call function(slice) for slices that make up range(n), on several cores if that is faster.

    An item is as much work as reading n_bytes from memory. An error of any core reaches the caller.
    """
    if n * n_bytes < WORTH_WAKING:
        return function(slice(0, n))
    work, n_helpers = helpers()
    n_ahead = HEAD_START // n_bytes
    n_workers = min(n_helpers + 1, n - n_ahead)
    if n_workers < 2:
        return function(slice(0, n))
    # Where each worker's items end: [6, 10] for 10 items, n_ahead = 2 and 2 workers
    ends = [n_ahead + math.ceil((n - n_ahead) * i / n_workers) for i in range(1, n_workers + 1)]
    results = SimpleQueue()
    for items in map(slice, ends, ends[1:]):
        work.put((function, items, results))
    function(slice(0, ends[0]))
    with contextlib.suppress(Empty):
        while True:  # what no helper has begun yet
            do(*work.get_nowait())
    for _ in ends[1:]:
        if error := results.get():
            raise error


def do(function, items, results):
    try:
        function(items)
        results.put(None)
    except BaseException as error:
        results.put(error)


@cache
def helpers():
    """A queue of work, and how many threads take work from it.

    There is one for each other core, as far as they can be started. concurrent.futures
    does the same, but slows 124M by 5 %.
    """
    work = SimpleQueue()
    n_threads = 0
    with contextlib.suppress(RuntimeError):  # no more threads are allowed
        while n_threads < n_cores() - 1:
            threading.Thread(target=help_with, args=(work,), daemon=True).start()
            n_threads += 1
    return work, n_threads


def help_with(work):
    import numpy as np

    np.seterr(all="ignore")  # np.errstate does not reach this thread; gpt2.py checks the logits
    while True:
        do(*work.get())  # with a name for them, a model's weights would stay until the next job


def n_cores():
    """The cores that this process may use, at most MAX_CORES."""
    if hasattr(os, "sched_getaffinity"):
        n_allowed = len(os.sched_getaffinity(0))
    else:
        n_allowed = os.cpu_count() or 1
    limits = [MAX_CORES, n_allowed]
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        with contextlib.suppress(KeyError, ValueError):
            limits.append(int(os.environ[name].split(",")[0]))  # "4,2" is for nested threads
    # A container's quota: "200000 100000" is two cores, "max" no limit.
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        limits.append(math.ceil(int(quota) / int(period)))
    return min(limit for limit in limits if limit > 0)  # 0 and -1 are no limits


lock = threading.RLock()  # one call of a network at a time


def after_fork():
    """A forked process has the queue, but not the threads."""
    helpers.cache_clear()
    lock.release()


# No fork in the middle of a product, where a BLAS with threads would hang.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lock.acquire,
        after_in_parent=lock.release,
        after_in_child=after_fork,
    )
