"""What `LabPair` adds to `runs.Pair`: drafts and schedules that stop."""

import numpy as np
import pytest

from lab.pair import load_pair

PROMPT = [5, 6, 7]


def test_the_stop_of_a_schedule_ends_rounds():
    run = load_pair("draft", "target").decode(PROMPT, 40, K=4, schedule="draft-confidence")
    assert {1, 2} <= {*run.n_drafted}


@pytest.mark.parametrize("settings", [{"temperature": 0}, {"temperature": 1, "top_k": 1}], ids=str)
def test_a_lookup_that_finds_nothing_ends_the_round(settings):
    """A sampled row has a token with probability 1 here, even if the lookup found nothing."""
    pair = load_pair("(not needed)", "target", "lookup", **settings)
    lookup = pair.networks[0]
    rounds = []
    pair.decode(PROMPT, 40, K=4, rng=0, on_round=rounds.append)
    text = PROMPT
    for r in rounds:
        for i in range(len(r.drafted) - 1):  # the last one may be no copy
            assert lookup.row(np.append(text, r.drafted[:i])).max() == 1
        text = np.append(text, r.emitted)
    assert {1, 4} <= {len(r.drafted) for r in rounds}
