"""Draws by a race: the argmin of e / w is a draw with the weights w, if e are exponential.

It's as if token i rang w_i times a minute, and the first to ring wins. A race says something
about its numbers, so a second race on the same ones is not an independent draw. But it can
be computed. Let t win the first race, of weights w with the sum W. The time M at which it
rang is exponential with the rate W, and

    e_t = w_t M,    e_i = w_i M + (a new exponential number) for the others,

for what has not rung yet is as new. In the second race, of weights v, token t rings at
M w_t / v_t, and each other token begins to ring at M w_i / v_i, v_i times a minute.
"""

import math

import numpy as np


class Exponential:
    """A number that is only known by the race that it ran in, if there was one."""

    race = None


class Noise:
    """weight * e ** power, where e is an `Exponential`, and power 1 or -1."""

    def __init__(self, number, weight=1.0, power=1):
        self.number = number
        self.weight = weight
        self.power = power

    @property
    def form(self):
        sign = "-" if self.weight < 0 else ""
        return f"{sign}e / w" if self.power == 1 else f"{sign}w / e"

    @property
    def rate(self):
        return abs(self.weight) ** -self.power

    def scaled(self, weight, power):
        """weight * e ** power, which may be a plain number."""
        if weight == 0 or not math.isfinite(weight):
            return weight
        return Noise(self.number, weight, power)

    def __mul__(self, a):
        return self.scaled(self.weight * plain(a), self.power)

    def __truediv__(self, a):
        return self.scaled(quotient(self.weight, plain(a)), self.power)

    def __rtruediv__(self, a):
        return self.scaled(quotient(plain(a), self.weight), -self.power)

    def __neg__(self):
        return Noise(self.number, -self.weight, self.power)

    def log(self):
        if self.weight < 0:
            raise NotImplementedError("the logarithm of a number below 0")
        return LogNoise(self.number, math.log(self.weight), self.power)

    def refuse(self, *_):
        raise NotImplementedError("exponential noise outside of a race, as the argmax of w / e")

    __rmul__ = __mul__
    __add__ = __radd__ = __sub__ = __rsub__ = __lt__ = __le__ = __gt__ = __ge__ = refuse


class LogNoise:
    """shift + power * log e, where e is an `Exponential`: with power -1, Gumbel's noise."""

    def __init__(self, number, shift, power):
        self.number = number
        self.shift = shift
        self.power = power

    form = "log w / e"

    def __add__(self, a):
        shift = self.shift + plain(a)
        return LogNoise(self.number, shift, self.power) if math.isfinite(shift) else shift

    def __sub__(self, a):
        return self + -plain(a)

    def __rsub__(self, a):
        return -self + a

    def __neg__(self):
        return LogNoise(self.number, -self.shift, -self.power)

    __radd__ = __add__
    __mul__ = __rmul__ = __truediv__ = __rtruediv__ = Noise.refuse
    log = __lt__ = __le__ = __gt__ = __ge__ = Noise.refuse


def plain(a):
    if not isinstance(a, int | float | np.number):
        raise NotImplementedError("two random numbers in one term")
    return float(a)


def quotient(a, b):
    with np.errstate(all="ignore"):
        return float(np.float64(a) / b)


def race_of(row):
    """The argmax of a row -> an index where it is certain, otherwise a `Race`.

    NotImplementedError if it is not known: if numbers of several forms could win.
    """
    noise = {i: x for i, x in enumerate(row) if isinstance(x, Noise | LogNoise)}
    others = np.array([-np.inf if i in noise else plain(x) for i, x in enumerate(row)])
    best = int(others.argmax())  # NaN counts as the largest, as in PyTorch
    if not noise or not others[best] < np.inf:
        return best
    forms = {x.form for x in noise.values()}
    if forms == {"log w / e"} and others[best] == -np.inf:
        return Race(log_rates(noise))
    if "w / e" in forms and forms <= {"w / e", "-w / e", "-e / w"} and others[best] <= 0:
        ahead = {i: x for i, x in noise.items() if x.form == "w / e"}
        return Race(ahead)
    if forms <= {"-w / e", "-e / w"} and others[best] >= 0:
        return best
    if forms == {"-e / w"} and others[best] == -np.inf:
        return Race(noise)
    raise NotImplementedError(f"the largest of {', '.join(sorted(forms))} and other numbers")


def log_rates(noise):
    if any(x.power == 1 for x in noise.values()):
        raise NotImplementedError("the largest of log e")
    top = max(x.shift for x in noise.values())
    return {i: Noise(x.number, math.exp(x.shift - top), -1) for i, x in noise.items()}


class Race:
    """A race of {index: Noise}, whose rates are those of the noise."""

    def __init__(self, noise):
        self.numbers = {i: x.number for i, x in noise.items()}
        self.rates = {i: x.rate for i, x in noise.items() if x.rate > 0}
        if len({*self.numbers.values()}) < len(noise):
            raise NotImplementedError("one random number for two tokens of a race")
        self.first = {x.number.race for x in noise.values()} - {None}
        if len(self.first) > 1 or any(race.first for race in self.first):
            raise NotImplementedError("one noise for three races")

    def won_by(self, i):
        """Note that i has won. Returns i."""
        self.winner = self.numbers[i]
        raced = [*self.numbers.values()]
        for race in self.first:
            raced += race.numbers.values()
        for number in raced:
            number.race = self
        return i

    def chances(self, n):
        """The probability of each of n tokens to win."""
        p = np.zeros(n)
        if not self.first:
            p[[*self.rates]] = [*self.rates.values()]
            return p / p.sum()
        (first,) = self.first
        firsts = {number: first.rates.get(i, 0.0) for i, number in first.numbers.items()}
        total = sum(first.rates.values())
        end = math.inf  # where the winner of the first race rings, in units of M
        starts = {}  # where the others begin to ring
        for i, rate in self.rates.items():
            number = self.numbers[i]
            if number is first.winner:
                end = firsts[number] / rate
                champion = i
            else:
                starts[i] = firsts.get(number, 0.0) / rate
        # Until x M, nobody has rung with probability total / (total + passed).
        passed, ringing = 0.0, []
        order = sorted((start, i) for i, start in starts.items() if start < end)
        for (start, i), stop in zip(order, [start for start, _ in order[1:]] + [end]):
            ringing.append(i)
            speed = sum(self.rates[j] for j in ringing)
            later = passed + speed * (stop - start)
            mass = total / (total + passed) - total / (total + later)
            for j in ringing:
                p[j] += mass * self.rates[j] / speed
            passed = later
        if end < math.inf:
            p[champion] = total / (total + passed)
        return p
