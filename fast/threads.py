"""Share the work of one product among the cores, and let one network compute at a time.

NumPy releases Python's global lock while it multiplies, so plain threads run side by
side. But waking one takes 40 to 75 microseconds, in which a core reads half a megabyte
to two megabytes of weights. So small products stay on the calling core, and in larger
ones this core, which is awake already, gets the largest share.
"""

import contextlib
import math
import os
import threading
from functools import cache
from pathlib import Path
from queue import SimpleQueue

import numpy as np

MAX_CORES = 8  # beyond a few cores, reading gets no faster, and every further one has to be woken
WORTH_WAKING = 5_300_000  # bytes of work from which on several cores are usually faster
HEAD_START = 2_100_000  # bytes of work that the calling core does while the others wake up


def in_parallel(function, n, n_bytes):
    """Call function(slice) for slices that make up range(n), on several cores if that is faster.

    An item is as much work as reading n_bytes from memory. An error of any core reaches the caller.
    """
    n_ahead, results = HEAD_START // n_bytes, SimpleQueue()
    if n * n_bytes < WORTH_WAKING or (n_workers := min(helpers()[1] + 1, n - n_ahead)) < 2:
        return function(slice(n))
    # Where each worker's items end: [6, 10] for 10 items, n_ahead = 2 and 2 workers
    ends = [n_ahead + math.ceil((n - n_ahead) * i / n_workers) for i in range(1, n_workers + 1)]
    for items in map(slice, ends, ends[1:]):
        helpers()[0].put((function, items, results))
    function(slice(ends[0]))
    for _ in ends[1:]:
        if error := results.get():
            raise error


@cache
def helpers():
    """A queue of work, and how many threads take work from it: one for each other core, as far as they can be started.

    concurrent.futures does the same, but slows 124M by 5 %.
    """
    work, n_threads = SimpleQueue(), 0
    with contextlib.suppress(RuntimeError):  # no more threads are allowed
        while n_threads < n_cores() - 1:
            threading.Thread(target=help_with, args=(work,), daemon=True).start()
            n_threads += 1
    return work, n_threads


def help_with(work):
    np.seterr(all="ignore")  # np.errstate does not reach this thread; GPT2 checks the logits
    while True:
        function, items, results = work.get()
        try:
            function(items)
            results.put(None)
        except BaseException as error:
            results.put(error)
        del function, items, results  # they would keep a model's weights in memory until the next job


def n_cores():
    """The cores that this process may use, at most MAX_CORES."""
    limits = [MAX_CORES, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1]
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        with contextlib.suppress(KeyError, ValueError):
            limits.append(int(os.environ[name].split(",")[0]))  # "4,2" is for nested threads
    with contextlib.suppress(OSError, ValueError):  # a container's quota: "200000 100000" is two cores, "max" no limit
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        limits.append(math.ceil(int(quota) / int(period)))
    return min(limit for limit in limits if limit > 0)  # 0 and -1 are no limits


lock = threading.Lock()


def alone():
    """A lock: one call of a network at a time."""
    return lock


def after_fork():
    """A forked process has the queue, but not the threads; and another thread may have held the lock."""
    global lock
    lock = threading.Lock()
    helpers.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=after_fork)
