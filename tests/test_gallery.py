"""Each wrong rule of lab/gallery.py is visible, no two look alike, and the exact ones are exact."""

from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from enumeration import total_variation
from lab.block import verify_block
from lab.gallery import GALLERY
from lab.tables import cascade
from studies.audit import hsd


@pytest.mark.parametrize("variant", GALLERY.values(), ids=lambda variant: variant.id)
def test_a_wrong_rule_is_seen_and_an_exact_one_is_exact(variant):
    assert (variant.distance() == 0) == variant.exact


def test_no_two_wrong_rules_have_one_distance():
    distances = {}
    for variant in GALLERY.values():
        distances.setdefault(variant.distance(), []).append(variant.id)
    assert [ids for distance, ids in distances.items() if distance and len(ids) > 1] == []


def test_a_cascade_is_further_off_the_more_it_tolerates():
    variant, (a, b) = GALLERY["verify"], (Fraction(3, 10), Fraction(1, 2))
    assert (
        0
        < variant._replace(verify=cascade(a)).distance()
        < variant._replace(verify=cascade(b)).distance()
    )


def test_hsd_is_block_verification_and_its_published_code_is_not_exact():
    for p, q, k in hsd.pairs(1):
        block = hsd.one_round(verify_block, p, q, k)
        assert (
            total_variation(block, hsd.one_round(hsd.hsd, p, q, k))
            < 1e-12
            > hsd.distance(block, q, k)
        )
    p, q = (
        np.tile([2 / 3, 1 / 3], (2, 1)),
        np.tile([1 / 3, 2 / 3], (2, 1)),
    )  # worked out by hand in studies/audit/README.md
    published = hsd.one_round(partial(hsd.hsd, published=True), p, q, 2)
    assert np.allclose(
        [hsd.mean_length(published), hsd.distance(published, q, 2)],
        [21 / 9, 1 / 9],
        rtol=0,
        atol=1e-12,
    )
