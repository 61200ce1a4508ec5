"""Two packages of PyPI and a check of tightwad: one commit runs them, and the next has their rows.

python -m studies.audit --only rotalabs-accel --write
"""

import math
from functools import cache, partial

from studies.audit import wheels
from studies.audit.harness import K, P, Rounds, by_rule, definitions, drawn, imported

try:
    import torch
except ImportError:  # a test wants to read the names only
    torch = None


@cache
def round_of(one_round, state):
    return drawn(partial(one_round, (state,)))


class ByState(Rounds):
    """Rounds of `by_rule`, whose rows depend on the sum of the tokens: four of them are all."""

    def round_after(self, ids):
        return round_of(self.one_round, sum(ids) % len(P))


def rounds(name, verify):
    return ByState(*by_rule(name, verify))


def rotalabs(folder):
    part = "rotalabs_accel/speculative/sampling.py"
    path = wheels.unpacked(folder, "rotalabs-accel", "1.1.1", [part])
    names = {"torch": torch, "F": torch.nn.functional}
    check = definitions(path / part, "rejection_sample", **names).rejection_sample

    def verify(drafted, p, q):
        emitted = []
        for i, token in enumerate(drafted):
            kept, token = check(q[i, token], p[i, token], token, q[i].log())
            emitted.append(token)
            if not kept:
                return emitted
        return [*emitted, torch.multinomial(q[-1], 1)]

    yield rounds(f"rejection_sample, K = {K}, our bonus", verify)


def flashspec(folder):
    path = wheels.unpacked(folder, "flashspec", "0.3.1", ["flashspec"])
    code = imported(path, "flashspec.sampling.rejection")

    def verify(step, drafted, p, q):
        n, token = step(drafted[None], p, q)[0]
        return [*drafted[:n], token]

    def ratios(drafted, p, q):
        return code.rejection_step(drafted, p.log()[None], q.log()[None])

    def one_hot(drafted, p, q):
        return code.rejection_step_onehot(drafted, q.log()[None])

    yield rounds(f"rejection_step, K = {K}", partial(verify, ratios))
    yield rounds(f"rejection_step_onehot, K = {K}, drawn drafts", partial(verify, one_hot))


def tightwad(path):
    """The check gets what it asks for: the target's top token at each position."""
    code = imported(path, "tightwad.speculation")

    def of_target(row, token=None):
        top = int(row.argmax())
        found = code.TargetLogprob(top, math.log(row[top]))
        if token is not None:
            found.draft_token_logprob = math.log(row[token])
        return found

    def verify(drafted, p, q):
        drafted = drafted.tolist()
        guesses = [code.DraftToken(token, math.log(p[i, token])) for i, token in enumerate(drafted)]
        rows = [of_target(*each) for each in zip(q, [*drafted, None])]
        found = code.verify_stochastic(guesses, rows)
        last = found.bonus_token or found.resample_token
        return [token.token_id for token in [*found.accepted_tokens, last]]

    yield rounds(f"verify_stochastic, K = {K}", verify)


WHEELS = {"rotalabs-accel": ("1.1.1", rotalabs), "flashspec": ("0.3.1", flashspec)}
CLONES = {"youngharold/tightwad": ("02be90a", tightwad)}
