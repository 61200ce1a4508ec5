"""Numbers of docs/questions.md and of "Two requests" in docs/exactness.md.

    python -m audit_programs.questions

All are computed for the pair of gallery/setting.py.
"""

from collections import Counter
from functools import partial
from math import log2

import numpy as np

from enumeration import sum_over_paths, total_variation
from gallery.lossy import typical
from gallery.setting import SETTING, emitted, plain, propose, text_distribution, verify
from gallery.variant import PROPOSE, V

P, Q = SETTING.P, SETTING.Q
OWN = sum_over_paths(partial(plain, setting=SETTING))


def with_lengths(rng):
    """A text of three tokens, -1, and how many of them each round added."""
    x = np.array(SETTING.prompt)
    end, lengths = len(x) + SETTING.N, []
    while len(x) < end:
        found = emitted(x, min(SETTING.K, end - len(x) - 1), rng, SETTING)
        x = np.append(x, found)
        lengths.append(len(found))
    return [*x[len(SETTING.prompt) :].tolist(), -1, *lengths]


def entropy(distribution):
    return -sum(float(share) * log2(share) for share in distribution.values())


def lengths_of_rounds():
    both = sum_over_paths(with_lengths)
    texts, lengths, first = Counter(), Counter(), Counter()
    for output, share in both.items():
        texts[output[:3]] += share
        lengths[output[4:]] += share
        if output[4] == 1:
            first[output[0]] += share
    told = entropy(texts) + entropy(lengths) - entropy(both)
    print(f"lengths of rounds tell {told:.3f} of {entropy(texts):.3f} bits")
    print("first token of a round of one:", {t: float(s / first.total()) for t, s in first.items()})


def one_guess_for_two(rng):
    x = np.array(SETTING.prompt)
    drafted, p = propose(x, SETTING.draft_model, 1, rng)
    q = SETTING.target_model(np.append(x, drafted), 2)
    return [int(verify(drafted, p, q, rng)[0]) for _ in range(2)]


def shared_guess():
    pair = sum_over_paths(one_guess_for_two)
    apart = {(a, b): Q[0][a] * Q[0][b] for a in range(4) for b in range(4)}
    alike = sum(share for (a, b), share in pair.items() if a == b)
    each = [str(sum(share for (a, _), share in pair.items() if a == t)) for t in range(4)]
    print("each", each, "both", total_variation(pair, apart), "alike", alike, Q[0] @ Q[0])


def learnt(ids):
    """The draft's row after it has gone half the way to the target."""
    return (SETTING.draft_model(ids)[-1] + SETTING.target_model(ids)[-1]) / 2


def main():
    lengths_of_rounds()
    shared_guess()
    print("guesses among emitted tokens:", [str(min(p, q) / q) for p, q in zip(P[0], Q[0])])
    found = text_distribution(SETTING, typical(0.09, 0.3))
    print("never written by Medusa's rule:", sum(OWN[ids] for ids in OWN if ids not in found))
    edit = "rows.append(p)", "rows.append(learnt(x[:-1]))"
    learning = V("learning", "", edit, of=PROPOSE)
    learning.propose.__globals__["learnt"] = learnt
    print("p of a draft that has learnt since:", learning.distance)
    experts = 1 - (1 - 8 / 128) ** 5
    print("experts of five positions:", experts / (8 / 128))


if __name__ == "__main__":
    main()
