"""Share the work of one product among the cores.

NumPy releases Python's global lock while it multiplies, so plain threads run side by side. BLAS usually uses one thread
for products as small as those of fast/, which leaves the sharing to us. Waking a thread takes 40 to 75 microseconds
(docs/speed.md). In that time, a core reads half a megabyte to two megabytes of weights. So small products stay on the
calling core. In larger ones the calling core, which is awake already, gets the largest share. Which products are worth
sharing depends on the computer, so `bytes_worth_waking` tries it.
"""

import contextlib
import math
import os
import threading
import timeit
from functools import cache
from pathlib import Path
from queue import SimpleQueue

import numpy as np

MAX_CORES = 8  # beyond a few cores, reading gets no faster, and every further one has to be woken
HEAD_START = 0.4  # the calling core gets this share of `bytes_worth_waking()` as extra work, while the others wake up


def in_parallel(function, n, n_bytes):
    """Call function(slice) for slices that make up range(n), on several cores if it is worth the time to wake them.

    Parameters
    ----------
    function : callable
        Works on a slice of the items and returns None. An error that it raises reaches the caller.
    n : int
        Number of items.
    n_bytes : int
        The work of one item, as the number of bytes that a core could read from memory in the same time.
    """
    if n * n_bytes < bytes_worth_waking():
        function(slice(n))
    else:
        share(function, n, int(HEAD_START * bytes_worth_waking() / n_bytes))


def share(function, n, n_ahead):
    """Do the work of `in_parallel` on several cores. The calling core gets about n_ahead items more than the others."""
    n_workers = min(n_cores(), n - n_ahead)  # including the calling core
    # Where the items of each worker end. For 10 items, n_ahead = 2 and 2 workers, `ends` is [6, 10]: the calling core
    # does the items 0 to 5, and the other core does 6 to 9.
    ends = [n_ahead + math.ceil((n - n_ahead) * i / n_workers) for i in range(1, n_workers + 1)]
    results = SimpleQueue()
    for items in map(slice, ends, ends[1:]):
        job_queue().put((function, items, results))
    function(slice(ends[0]))
    for _ in ends[1:]:
        if error := results.get():
            raise error


@cache
def job_queue():
    """Start a thread for each other core, and return the queue from which these threads take work.

    (concurrent.futures does the same, but slows 124M by 5 %.)
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=job_queue.cache_clear)  # a forked process has the queue, but not the threads
    work = SimpleQueue()
    for _ in range(n_cores() - 1):
        threading.Thread(target=help_with, args=(work,), daemon=True).start()
    return work


def help_with(work):
    np.seterr(all="ignore")  # np.errstate does not reach this thread; `GPT2.__call__` checks the logits for overflow
    while True:
        function, items, results = work.get()
        try:
            function(items)
            results.put(None)
        except BaseException as error:
            results.put(error)
        del function, items, results  # they would keep a model's weights in memory until the next job


@cache
def bytes_worth_waking():
    """Work of at least this many bytes is shared (see `in_parallel`).

    Once per process, products of 1.6, 2.4 and 3.5 MB are timed. The result is the first of these sizes for which
    several cores are at least 10 % faster than one. Often they are not, because waking them takes about as long as they
    save. Then the result is 5.3 MB. Most products of a long prompt have more work than that, because each tile counts
    once for each group of rows (see `linear`). In these products, the arithmetic takes longer than the reading, so
    several cores are faster. (If several threads come here first, each of them measures.)
    """
    if n_cores() == 1:
        return math.inf
    # The tiles have 42 MB. A core's own cache holds less, so each tile is read from outside it, as in a real pass.
    # (gemv is tried, whatever kernel the model uses. The other kernel reads about as fast.)
    x, tiles = np.ones((1, 768), dtype=np.float32), np.ones((432, 768, 32), dtype=np.float32)

    def shared(part):
        share(lambda some: np.matmul(x, part[some]), len(part), int(HEAD_START * len(part)))

    def seconds(work, *args):
        return timeit.timeit(lambda: work(*args), number=1)

    for n in 16, 24, 36:  # 1.6, 2.4 and 3.5 MB
        # One core takes a part, and several cores take the next part, which is not in the cache yet. All parts are
        # taken twice.
        parts = 2 * [*tiles.reshape(-1, n, 768, 32)]
        times = [(seconds(np.matmul, x, a), seconds(shared, b)) for a, b in zip(parts[::2], parts[1::2])]
        seconds_alone, seconds_shared = np.median(times, axis=0)
        if seconds_shared < 0.9 * seconds_alone:
            return n * tiles[0].nbytes
    return 54 * tiles[0].nbytes  # 5.3 MB


@cache
def n_cores():
    """How many cores to use: those that this process may use, but not more than MAX_CORES and the limits below."""
    limits = [MAX_CORES, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1]
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        with contextlib.suppress(KeyError, ValueError):
            limits.append(int(os.environ[name].split(",")[0]))  # "4,2" is for nested threads
    for files in ["cpu.max"], ["cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"]:  # of cgroups, version 2 and version 1
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
            # A container's quota: "200000 100000" means two cores, and "max" (a ValueError) no limit.
            quota, period = " ".join(Path("/sys/fs/cgroup", file).read_text() for file in files).split()
            limits.append(math.ceil(int(quota) / int(period)))
    return min(limit for limit in limits if limit > 0)  # (0 and -1 are no limits)
