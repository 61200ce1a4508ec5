"""With real models: 20,000 continuations of two tokens from each of the two loops, and one test on all their counts.

The exact proof is in test_speculative.py; here is the whole of what a user runs, network, sampler and NumPy's own
generator. The models are pure functions, so each prefix's row is computed once and remembered.

The test is a rigorous one, and needs no tables. If the two loops have one distribution, the 2n pairs are exchangeable:
given them all, any n of them are as likely as any others to be those of the first loop. So of the t pairs that lie in
a set E (chosen beforehand, or by looking at the 2n pairs together) the first loop has a hypergeometric number A of mean
t/2, the second has B = t - A, and Hoeffding's inequality (1963, Theorem 1; by his section 6 it holds for sampling
without replacement) bounds P(|A - B| >= d) = P(|A - t/2| >= d/2) by 2 exp(-d^2 / (2 t)). With m sets, alarm is raised
if any |A - B| exceeds sqrt(2 t log(2 m / FALSE_ALARM)): by the union bound it is false with probability FALSE_ALARM at
most. The sets are every first token, every second, every pair that occurs, and the tokens that the target likes better
than the draft does, where a wrong residual shows most. That the alarm is worth something is tested too.
"""

import os
import subprocess
import sys

import numpy as np
import pytest

from gpt2 import GPT2
from speculative import acceptance, autoregressive_sampling, sample, sampler, speculative_sampling, verify
from utils import load_encoder_hparams_and_params

PROMPT = "Once upon a time there was a"
N_PAIRS = 20_000
FALSE_ALARM = 1e-7  # of one comparison; of the four that could raise one here, below 1e-6
NUCLEUS = {"temperature": 0.7, "top_p": 0.9}


def bundled():
    """The trained pair, and a prompt: target network, draft network, ids."""
    encoder, hparams, params = load_encoder_hparams_and_params("target")
    _, draft_hparams, draft_params = load_encoder_hparams_and_params("draft")
    return GPT2(params, hparams), GPT2(draft_params, draft_hparams), encoder.encode(PROMPT)


def synthetic(n_vocab=300):
    """Logits of the last token, spread like those of words; the draft's are the target's with some noise."""
    rng = np.random.default_rng(0)
    target_table = 2 * rng.normal(size=(n_vocab, n_vocab))
    draft_table = target_table + rng.normal(size=(n_vocab, n_vocab))
    return lambda ids, n_rows=1: target_table[ids[-n_rows:]], lambda ids, n_rows=1: draft_table[ids[-n_rows:]], [1, 2]


def remember(model):
    rows = {}

    def recall(ids, n_rows=1):
        key = ids.tobytes(), n_rows
        if key not in rows:
            rows[key] = model(ids, n_rows)
        return rows[key]

    return recall


@pytest.fixture(scope="module", params=[synthetic, bundled])
def networks(request):
    return request.param()


@pytest.fixture(scope="module", params=[{}, NUCLEUS], ids=["T=1", "T=0.7, top-p 0.9"])
def compared(request, networks):
    """The models, n pairs decoded autoregressively, and the function that draws n more with a given verify."""
    *pair, prompt = networks
    target, draft = (remember(sampler(network, **request.param)) for network in pair)
    prompt = np.array(prompt)

    def pairs(seed, decode):
        rng = np.random.default_rng(seed)
        return np.array([decode(rng)[len(prompt) :] for _ in range(N_PAIRS)])

    plain = pairs(1, lambda rng: autoregressive_sampling(prompt, target, 2, rng))
    return lambda verify: alarm(
        plain,
        pairs(2, lambda rng: speculative_sampling(prompt, draft, target, 2, 4, rng, verify=verify)),
        liked_by_the_target(prompt, draft, target),
    )


def liked_by_the_target(prompt, draft, target):
    """Tells of pairs [n, 2] whether q > p at their first token, and at their second."""

    def after(ids):
        return target(ids)[-1] > draft(ids)[-1]

    def liked(pairs):
        return after(prompt)[pairs[:, 0]], np.array([after(np.append(prompt, x))[y] for x, y in pairs])

    return liked


def alarm(a, b, liked):
    """Whether pairs a [n, 2] and b [n, 2] tell of two distributions, see the top of this file."""
    n_vocab = 1 + max(a.max(), b.max())
    families = [  # each: the number of the set that a pair lies in, for a and b; the sets of a family are disjoint
        (a[:, 0], b[:, 0]),
        (a[:, 1], b[:, 1]),
        (a @ [n_vocab, 1], b @ [n_vocab, 1]),
        *((of_a.astype(int), of_b.astype(int)) for of_a, of_b in zip(liked(a), liked(b), strict=True)),
    ]
    counts = [np.stack([np.bincount(s, minlength=1 + max(x.max() for x in sets)) for s in sets]) for sets in families]
    A, B = np.concatenate(counts, axis=1)
    A, B = A[A + B > 0], B[A + B > 0]  # which sets occur is seen from all 2n pairs together: [m], [m]
    return bool((np.abs(A - B) > np.sqrt(2 * (A + B) * np.log(2 * len(A) / FALSE_ALARM))).any())


def target_instead_of_residual(drafted, p, q, rng):
    for i, token in enumerate(drafted):
        if not rng.random() < acceptance(q[i, token], p[i, token]):
            return np.append(drafted[:i], sample(q[i], rng))
    return np.append(drafted, sample(q[-1], rng))


def test_no_alarm(compared):
    assert not compared(verify)


def test_alarm_when_the_correction_is_drawn_from_the_target(compared):
    assert compared(target_instead_of_residual)


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="cannot see here how much memory a process has")
def test_a_hundred_decodes_take_no_more_memory_than_ten():
    code = """
import numpy as np
from test_bundled_sampling import bundled
from speculative import autoregressive_sampling, sampler, speculative_sampling
target, draft, ids = bundled()
models = sampler(draft), sampler(target)
for i in range(1, 101):
    speculative_sampling(ids, *models, 12, 4, np.random.default_rng(i))
    autoregressive_sampling(ids, models[1], 4, np.random.default_rng(i))
    if i in (10, 100):
        print(open("/proc/self/statm").read().split()[1])
"""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    python = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, env=env, check=True)
    after_ten, after_hundred = map(int, python.stdout.split())  # pages that are in memory
    assert after_hundred < 1.05 * after_ten
