"""Other people's code, unchanged: the check of whatever release of transformers is installed."""

from functools import partial

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from transformers.generation import utils  # noqa: E402

import gallery  # noqa: E402
from enumeration import total_variation  # noqa: E402
from enumeration.pytorch import output_distribution  # noqa: E402

torch.set_num_threads(1)

P = torch.tensor(gallery.P.astype(float))
Q = torch.tensor(gallery.Q.astype(float))
PROMPT = [0]
CHECK = utils._speculative_sampling  # if it has gone, find its heir, and mend docs/audit.md


def drawn(rows, ids):
    """ids with one token more. Which row it comes from depends on all of them."""
    return [*ids, torch.multinomial(rows[sum(ids) % 4], 1).item()]


def by_the_target():
    return drawn(Q, drawn(Q, PROMPT))


def with_a_guess(**options):
    """A guess of the draft, what the check makes of it, and the target alone: two tokens in all."""
    ids = drawn(P, PROMPT)
    p = P[PROMPT[-1]].log()[None, None]
    q = Q[[PROMPT[-1], sum(ids) % 4]].log()[None]
    new, _ = CHECK(torch.tensor([ids]), p, 1, q, **options)
    ids = [*PROMPT, *new[0].tolist()]
    return ids if len(ids) == 3 else drawn(Q, ids)


def distance(**options):
    distribution = partial(output_distribution, n_checks=1000)
    return total_variation(
        distribution(partial(with_a_guess, **options)), distribution(by_the_target)
    )


def test_the_check_of_transformers_is_exact():
    assert distance() < 1e-6


def test_an_ensemble_of_draft_and_target_is_not():
    assert distance(assistant_ensemble_weight=0.9) == pytest.approx(0.05, abs=1e-6)
