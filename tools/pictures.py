"""Draw docs/tree.svg, a picture of the README: every path to the first token of a round.

    python tools/pictures.py > docs/tree.svg

The example is the README's: a draft with p = (.5, .3, .2), a target with q = (.3, .6, .1), K = 1. (The README's picture
of a round comes from `python main.py --temperature 1 --seed 3 --trace docs/round.svg`.)
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from show.picture import svg, text
from speculative import acceptance, residual

P, Q, TOKENS = np.array([0.5, 0.3, 0.2]), np.array([0.3, 0.6, 0.1]), "ABC"
COLUMNS = 10, 150, 370, 560  # where the root, the drafted tokens, the verdicts and the emitted tokens are


def branches():
    """Yield every path to the first token of a round.

    A path is (drafted token, its probability, verdict, its probability, emitted token, its probability).
    """
    for token in range(3):
        keep = acceptance(P[token], Q[token])
        yield token, P[token], "accepted", keep, token, 1.0
        if keep < 1:
            for other, probability in enumerate(residual(P, Q)):
                if probability > 0:
                    yield token, P[token], "rejected", 1 - keep, other, probability


def tree():
    paths, parts, total = list(branches()), [], np.zeros(3)
    for x, name in zip(COLUMNS, ["", "drafted from p", "min(1, q/p)", "emitted"], strict=True):
        parts.append(text(x, 18, name, "soft"))
    y_of = [50 + 34 * i for i in range(len(paths))]
    middle = sum(y_of) / len(paths)
    parts.append(text(COLUMNS[0], middle + 5, "first token"))
    for token in range(3):
        own = [y_of[i] for i, path in enumerate(paths) if path[0] == token]
        y = sum(own) / len(own)
        parts.append(f'<line x1="90" y1="{middle}" x2="{COLUMNS[1] - 8}" y2="{y}"/>')
        parts.append(text(COLUMNS[1], y + 5, f"{TOKENS[token]}, {P[token]:.1f}", "bold"))
        for y_leaf in own:
            parts.append(f'<line x1="{COLUMNS[1] + 50}" y1="{y}" x2="{COLUMNS[2] - 8}" y2="{y_leaf}"/>')
    for i, (_, p, verdict, keep, emitted, residual_mass) in enumerate(paths):
        mass, y = p * keep * residual_mass, y_of[i] + 5
        total[emitted] += mass
        parts.append(text(COLUMNS[2], y, f"{verdict}, {keep:.1f}"))
        parts.append(f'<line x1="{COLUMNS[2] + 110}" y1="{y - 5}" x2="{COLUMNS[3] - 8}" y2="{y - 5}"/>')
        parts.append(text(COLUMNS[3], y, f"{TOKENS[emitted]}, {mass:.2f}", "bold"))
    assert np.allclose(total, Q)
    sums = "; ".join(f"{TOKENS[i]}: {total[i]:.1f}" for i in range(3))
    parts.append(text(COLUMNS[0], 50 + 34 * len(paths) + 12, f"Sums of the emitted: {sums}. These are q."))
    return svg(660, 50 + 34 * len(paths) + 24, parts)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(tree(), end="")
