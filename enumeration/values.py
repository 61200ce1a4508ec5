"""The exact output distribution of code that is given its random numbers, from its outputs alone.

Compiled code can't take the numbers without a value that `EveryBranch` hands out. So here
it gets real ones, as many as it asks for, and is watched from outside. If one number goes
from 0 to 1, the outcome stays the same for a while, changes at a threshold, stays the same
again. Take a sampler with p = (1/2, 1/2) and q = (3/4, 1/4). One number, u, draws a guess.
The next one, v, tests it, and a guess of 1 that is rejected becomes a 0:

    v
    1 +-----------+-----------+
      |           |     0     |
    1/2     0     +-----------+     0:  1/2 + 1/2 * 1/2 = 3/4
      |           |     1     |     1:        1/2 * 1/2 = 1/4
    0 +-----------+-----------+
      0          1/2          1  u

To find the edges, take two inputs with different outcomes, and turn one into the other,
number by number. At some number the outcome changes, and bisection tells where, to the
last bit: at u = 1/2. Cut the square there, and go on with both parts, until none shows two
outcomes at its corners or at random points. Then add up the areas:

    distribution = output_distribution(lambda draw: my_compiled_sampler(prompt, draw))
    print(total_variation(distribution, wanted), distribution.resolution)

draw() is the next number in [0, 1), and draw.below(n) a whole number below n. Code that
draws a token by a race, argmax(w / e) or argmin(e / w) or argmax(log(w) + g), gets its
noise from draw.exponential(n) or draw.gumbel(n). A token wins with a probability in
proportion to its w, and the ratio of two weights is the ratio of their e at which the
winner changes. Where the weights are known, draw.choice(weights) is a fork: each branch is
taken, with its exact probability, and numbers are bisected within each of them.

Something as narrow as 0.5 < u < 0.50001 can be missed. That is why thousands of random
inputs come last. If one of them contradicts its part, the search goes on; if they all
agree, little was missed, and `resolution` says how little. It holds for what else decides
as well, such as a clock.

And if the edges are no thresholds? Those of u * v < c are curves. In a row of noise that
draws two tokens, one winner says something about the other. Both are refused by name.
`Program` talks to code in any language.

draws.py has what a run may ask for, parts.py has the parts and what divides them, and
search.py finds where to cut.
"""

import subprocess
import threading

from .forks import as_output
from .search import Search


def output_distribution(function, n_checks=10_000, max_runs=1_000_000, seed=0):
    """The `Distribution` of function(draw), which depends on its numbers alone.

    At the end, n_checks random inputs must agree with it. More of them take longer, and make
    `resolution` smaller. Raises NotByThresholds, or TooManyRuns. A loop in C that asks for
    numbers without end can't be stopped, so it ends the process, with one line.
    """
    return Search(lambda draw: as_output(function(draw)), max_runs, seed).distribution(n_checks)


class Program:
    """A program in any language, as a function for `output_distribution`.

    It runs its sampler again and again. A line "?" that it writes asks for a number, which
    it reads from the next line, and "? 4" asks for a row of exponential noise, 4 numbers
    on a line. Any other line holds the tokens of a run. The program has to flush each line.
    """

    def __init__(self, *command, timeout=10):
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.name = command[0]
        self.timeout = timeout
        self.process = subprocess.Popen(command, **pipes)

    def __call__(self, draw):
        alarm = threading.Timer(self.timeout, self.process.kill)
        alarm.start()
        try:
            return self.one_run(draw)
        finally:
            alarm.cancel()

    def one_run(self, draw):
        for line in self.process.stdout:
            if not line.startswith("?"):
                return [int(token) for token in line.split()]
            size = line[1:].strip()
            numbers = draw.exponential(int(size)) if size else [draw()]
            print(*numbers, file=self.process.stdin, flush=True)
        problem = f"{self.name} has ended, or a run took more than {self.timeout} s"
        raise EOFError(f"{problem}; does it flush its lines, and run its sampler again and again?")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()
