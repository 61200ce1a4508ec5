"""What easier tests see of a wrong rule: the first token alone, or one row for all texts."""

from collections import Counter
from dataclasses import replace

from enumeration import total_variation
from gallery import SETTING, WRONG
from gallery.samples import samples_needed
from gallery.variant import texts_of

ROUNDING = 1e-9
QUESTIONS = """\
**Is it enough to test the first token? Or with models that return the same row after any text?**
No. Of the {} wrong rules of [exactness.md](exactness.md), {} have the right first token, though \
the texts of one are wrong by {:.4f}. {} pass with models that have one row each, though one of \
them is wrong by {:.4f} with others. So test whole rounds, with rows that depend on the text.

**How many texts does a test by samples need?**
That depends on the mistake. A chi-square test that finds wrong code in 80 of 100 cases, and calls \
right code wrong in 5, needs more than 400 texts of three tokens for {} of these rules, and about \
{:,.0f} for the one that is hardest to see. Taking every path needs none."""


def first_tokens(texts):
    """The distribution of texts that are cut after the prompt, A, and one token."""
    masses = Counter()
    for ids, mass in texts.items():
        masses[ids[:2]] += mass
    return masses


def distances(variant, setting=SETTING):
    """The distances of its texts, of first tokens, and of texts by models with one row each.

    The distributions of its texts and of the right ones come second.
    """
    one_row = replace(setting, P=setting.P[:1], Q=setting.Q[:1])
    texts, alike = (
        (variant.distribution(s), texts_of(variant.reference, s)) for s in (setting, one_row)
    )
    pairs = texts, map(first_tokens, texts), alike
    return [total_variation(*pair) for pair in pairs], texts


def questions():
    """Two questions of docs/questions.md, with their answers."""
    hidden, needed = ([], []), []
    for variant in WRONG:
        (distance, *easier), texts = distances(variant)
        needed.append(samples_needed(*texts))
        for easier_distance, hidden_distances in zip(easier, hidden):
            if easier_distance < ROUNDING:
                hidden_distances.append(float(distance))
    first, alike = hidden
    numbers = len(WRONG), len(first), max(first), len(alike), max(alike)
    return QUESTIONS.format(*numbers, sum(n > 400 for n in needed), round(max(needed), -3))
