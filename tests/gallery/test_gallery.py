"""Each wrong rule of gallery/ is visible, four look alike, and the exact ones are exact."""

from itertools import pairwise, product

import pytest
from support.programs import read

from enumeration import sum_over_paths
from gallery import EXACT, GALLERY, GROUPS, WRONG, draft_model, target_model

pytestmark = pytest.mark.exact
SLOW = pytest.mark.slow

FIRST = [variants[0] for variants in GROUPS.values()]  # one for each heading of the page
RULES = [
    pytest.param(variant, id=variant.id, marks=[] if variant.exact or variant in FIRST else SLOW)
    for variant in GALLERY.values()
]


@pytest.mark.parametrize("variant", RULES)
def test_a_wrong_rule_is_seen_and_an_exact_one_is_exact(variant):
    assert (variant.distance == 0) == variant.exact


@SLOW
def test_no_two_wrong_rules_have_one_distance_but_those_that_the_page_names():
    wrong = [variant for variant in GALLERY.values() if not variant.exact]
    wrong.sort(key=lambda variant: (variant.distance, variant.id))
    tied = [
        (one.id, other.id) for one, other in pairwise(wrong) if other.distance - one.distance < 1e-9
    ]
    assert tied == [("argmax-replaces", "target-argmax"), ("first-argmax", "first-unchecked")]


@pytest.mark.parametrize("id", ["bonus-after-rejection", "late-grammar"])
def test_round_by_round_is_the_whole_text(id):
    """One of the rules emits two tokens after a rejection, and the other reads all of the text."""
    assert GALLERY[id].distribution() == sum_over_paths(GALLERY[id].text)


def test_a_row_depends_on_all_of_the_text():
    """If it didn't, the gallery would miss rules that damage the beginning of the context."""
    for text in product(range(4), repeat=3):
        for i, token in enumerate(text):
            changed_text = [*text]
            changed_text[i] = (token + 1) % 4
            for model in (draft_model, target_model):
                assert (model(text) != model(changed_text)).any()


def test_the_page_has_each_rule_once():
    page = read("docs/exactness.md").split("\n## Disputes")[0]
    for variant in WRONG + EXACT:
        assert page.count(f"\n| {variant.name} |") + page.count(f"\n**{variant.name}**") == 1
