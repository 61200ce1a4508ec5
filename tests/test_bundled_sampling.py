"""Both loops with the bundled models and NumPy's generator: 15,000 samples of each, whose counts are compared.

test_proof.py has the exact proof. This test runs networks, temperature, top-p and real random numbers, as users do.

The bound on false alarms holds for any number of samples. Suppose that both loops have the same distribution, and look
at all 2n samples together. Then any n of them are equally likely to be those of the first loop. Let t of the 2n samples
be in a set E, A of them from the first loop and B from the second. Then A is hypergeometric with mean t/2, and
Hoeffding's inequality (1963, Theorem 1 and section 6) says that |A - B| >= d has a probability of at most
2 exp(-d^2 / (2 t)). With m sets, the alarm is raised if any |A - B| exceeds sqrt(2 t log(2 m / FALSE_ALARM)). By the
union bound, a false alarm has a probability of at most FALSE_ALARM.

A sample is two tokens. There is a set for every first token, for every second token and for every pair. Two more sets
contain the tokens where q > p, because a wrong residual changes their counts most.
"""

import os
import subprocess
import sys

import numpy as np
import pytest
from support import ROOT, bundled
from test_broken_variants import changed

from encoder import get_encoder
from sampling import sampler
from speculative import autoregressive_sampling, speculative_sampling, verify
from utils import MODELS_DIR

N_SAMPLES = 15_000
FALSE_ALARM = 1e-7


def remember(model):
    """The same model, which computes each row only once."""
    rows = {}

    def recall(ids, n_rows=1):
        key = ids.tobytes(), n_rows
        if key not in rows:
            rows[key] = model(ids, n_rows)
        return rows[key]

    return recall


@pytest.fixture(scope="module", params=[{"temperature": 1}, {"temperature": 0.7, "top_p": 0.9}], ids=str)
def raises_alarm(request):
    """A function of a verify: it compares samples of the two loops, and returns whether there is an alarm."""
    prompt = np.array(get_encoder("target", MODELS_DIR).encode("Then the youngest"))  # the draft is bad at this
    draft, target = (remember(sampler(bundled(name), **request.param)) for name in ("draft", "target"))

    def samples(seed, decode):
        rng = np.random.default_rng(seed)
        return np.array([decode(rng)[len(prompt) :] for _ in range(N_SAMPLES)])

    def liked(pairs):
        """Whether q > p at the first token of each pair, and at its second."""
        after = [(prompt, first) for first in pairs[:, 0]], [(np.append(prompt, a), b) for a, b in pairs]
        return [np.array([target(ids)[-1, x] > draft(ids)[-1, x] for ids, x in column], dtype=int) for column in after]

    plain = samples(1, lambda rng: autoregressive_sampling(prompt, target, 2, rng))

    def compare(verify):
        fast = samples(2, lambda rng: speculative_sampling(prompt, draft, target, 2, 4, rng, verify=verify))
        n = 1 + max(plain.max(), fast.max())
        families = [(pairs[:, 0], pairs[:, 1], pairs @ [n, 1], *liked(pairs)) for pairs in (plain, fast)]
        return alarm(zip(*families, strict=True))

    return compare


def alarm(families):
    """Whether some number occurs much more often in one of the two arrays [n] of a family, one for each loop."""
    counts = [[np.bincount(side, minlength=1 + max(map(max, sides))) for side in sides] for sides in families]
    A, B = np.concatenate(counts, axis=1)
    A, B = A[A + B > 0], B[A + B > 0]  # [m], [m]: the bound allows a choice of sets by A + B
    return bool((np.abs(A - B) > np.sqrt(2 * (A + B) * np.log(2 * len(A) / FALSE_ALARM))).any())


def test_no_alarm(raises_alarm):
    assert not raises_alarm(verify)


def test_alarm_if_the_replacement_is_drawn_from_the_target(raises_alarm):
    assert raises_alarm(changed(replacement=lambda p, q, i, token: q[i]))


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="cannot see the memory in use here")
def test_forty_decodes_take_no_more_memory_than_fifteen():
    """The memory in use goes up and down by 8 %, because Python may free an old cache late. So peaks are compared."""
    code = """
import numpy as np
from pair import load_pair
pair = load_pair("draft", "target", temperature=1.0)
for i in range(40):
    pair.decode([5, 6, 7, i], 12, K=4, rng=np.random.default_rng(i))
    print(open("/proc/self/statm").read().split()[1])
"""
    python = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT, check=True)
    pages = list(map(int, python.stdout.split()))
    assert max(pages[15:]) < 1.05 * max(pages[:15])
