"""Each wrong rule of lab/gallery/ is visible, no two look alike, and the exact ones are exact."""

from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import pairwise, product

import numpy as np
import pytest
from support import read

from enumeration import sum_over_paths, total_variation
from lab.block import verify_block
from lab.gallery import EXACT, GALLERY, WRONG, draft_model, target_model
from lab.gallery.lossy import cascade
from lab.gallery.variant import edited
from speculative import verify
from studies.audit import hsd


@pytest.mark.parametrize("variant", GALLERY.values(), ids=lambda variant: variant.id)
def test_a_wrong_rule_is_seen_and_an_exact_one_is_exact(variant):
    assert (variant.distance == 0) == variant.exact


def test_no_two_wrong_rules_have_one_distance():
    wrong = [variant for variant in GALLERY.values() if not variant.exact]
    wrong.sort(key=lambda variant: variant.distance)
    for one, other in pairwise(wrong):
        assert other.distance - one.distance > 1e-9, (one.id, other.id)


@pytest.mark.parametrize("id", ["bonus-after-rejection", "late-grammar"])
def test_round_by_round_is_the_whole_text(id):
    """The first emits two tokens after a rejection, and the second looks at all of the text."""
    assert GALLERY[id].distribution() == sum_over_paths(GALLERY[id].text)


def test_an_edit_that_does_not_apply_is_an_error():
    for stale in ("no such text", "token"):  # nowhere, and more than once
        with pytest.raises(ValueError, match=f"verify must contain '{stale}' once"):
            edited(verify, (stale, ""))


def test_a_row_depends_on_all_of_the_text():
    """So the gallery sees rules that damage a part of the context which is not its end."""
    for text in product(range(4), repeat=3):
        for i, token in enumerate(text):
            other = [*text]
            other[i] = (token + 1) % 4
            for model in (draft_model, target_model):
                assert (model(text) != model(other)).any()


def test_the_page_has_each_rule_once():
    page = read("docs/exactness.md").split("<!-- disputes -->")[0]
    for variant in WRONG + EXACT:
        assert page.count(f"\n| {variant.name} |") + page.count(f"\n**{variant.name}**") == 1


def test_a_cascade_is_further_off_the_more_it_tolerates():
    rules = [cascade(Fraction(n, 10)) for n in (3, 5)]
    less, more = (replace(GALLERY["verify"], verify=rule).distance for rule in rules)
    assert 0 < less < more


def test_hsd_is_block_verification_and_its_published_code_is_not_exact():
    for p, q, k in hsd.pairs(1):
        block = hsd.one_round(verify_block, p, q, k)
        assert total_variation(block, hsd.one_round(hsd.hsd, p, q, k)) < 1e-12
        assert hsd.distance(block, q, k) < 1e-12
    # Worked out by hand in studies/audit/README.md
    p = np.tile([2 / 3, 1 / 3], (2, 1))
    q = np.tile([1 / 3, 2 / 3], (2, 1))
    published = hsd.one_round(partial(hsd.hsd, published=True), p, q, 2)
    assert np.allclose(
        [hsd.mean_length(published), hsd.distance(published, q, 2)],
        [21 / 9, 1 / 9],
        rtol=0,
        atol=1e-12,
    )
