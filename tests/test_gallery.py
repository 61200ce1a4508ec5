"""Each rule of lab/gallery.py is as wrong as the pages say, none is invisible, and the exact ones are exact."""

from functools import partial

import numpy as np
import pytest
from support import read

from benchmarks import hsd
from enumeration import total_variation
from lab.block import verify_block
from lab.gallery import TREES, VARIANTS, exact_rules, table


@pytest.mark.parametrize("variant", [*VARIANTS, *TREES], ids=lambda variant: variant.name)
def test_a_wrong_rule_is_seen_and_an_exact_one_is_exact(variant):
    distance = variant.distance()
    assert distance < 1e-15 if variant.exact else distance > 0.005


def test_the_pages_have_these_numbers():
    page = read("docs/exactness.md")
    assert table(VARIANTS) in page and exact_rules() in page and table(TREES) in read("docs/trees.md")


def test_hsd_is_block_verification_and_its_published_code_is_not_exact():
    for p, q, k in hsd.pairs(1):
        block = hsd.one_round(verify_block, p, q, k)
        assert total_variation(block, hsd.one_round(hsd.hsd, p, q, k)) < 1e-12 > hsd.distance(block, q, k)
    p, q = np.tile([2 / 3, 1 / 3], (2, 1)), np.tile([1 / 3, 2 / 3], (2, 1))  # worked out by hand in docs/audit.md
    published = hsd.one_round(partial(hsd.hsd, published=True), p, q, 2)
    assert np.allclose([hsd.mean_length(published), hsd.distance(published, q, 2)], [21 / 9, 1 / 9], rtol=0, atol=1e-12)
