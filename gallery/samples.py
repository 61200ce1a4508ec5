"""How many samples a histogram would need, to show what the sum over all paths shows."""

from math import sqrt

FEW = 100  # for fewer outputs the formula is too rough
ROUNDING = 1e-12
Z_95, Z_80 = 1.645, 0.842  # a standard normal number is below these with .95 and .80
MISSED_ALL = 1.609  # -log(.20): after 1.609 / m outputs, one of probability m was seen with .80


def in_words(distribution, wanted, N):
    """How many texts a histogram would need, in words."""
    n = samples_needed(distribution, wanted)
    n_texts = f"about {round(n, 1 - len(str(int(n)))):,.0f}" if n >= FEW else f"fewer than {FEW}"
    return f"a histogram (N = {N}) would need {n_texts} texts"


def samples_needed(distribution, wanted):
    """About how many outputs a chi-square test needs to see that they don't come from `wanted`.

    It may call a right sampler wrong in 5 of 100 cases, and should find this one in 80.
    After n outputs the statistic, sum (count - n wanted)^2 / (n wanted), has about the mean
    d + s and the variance 2 d + 4 s, where d is the number of possible outputs, less one, and
    s is n sum (distribution - wanted)^2 / wanted. For a right sampler, s is 0. Taking both for
    normal and solving for s gives up to an eighth too little.
    """
    possible = {output: mass for output, mass in wanted.items() if mass > ROUNDING}
    impossible = sum(mass for output, mass in distribution.items() if output not in possible)
    per_output = sum((distribution.get(x, 0) - mass) ** 2 / mass for x, mass in possible.items())
    d = len(possible) - 1
    alarm = Z_95 * sqrt(2 * d)  # above the mean, where a right sampler is in 5 of 100 cases
    # Solve d + s - Z_80 sqrt(2 d + 4 s) = d + alarm for s, which is above alarm.
    s = alarm + 2 * Z_80**2 + Z_80 * sqrt(4 * Z_80**2 + 2 * d + 4 * alarm)
    return 1 / max(per_output / s, impossible / MISSED_ALL)
