"""Slips that nobody shipped, but that many make: rivals beside those of the gallery."""

from gallery.variant import LOOP, PROPOSE, RESAMPLED, entry

SLIPS = [
    entry("p-minus-q", "p - q in place of q - p, or the rejected guess once more",
      ("residual(p[i], q[i])", "max_fn(p[i] - q[i])")),
    entry("break", "a bonus after a rejection, as with break in place of return",
      (RESAMPLED, f"[{RESAMPLED}, sample(q[-1], rng)]")),
    entry("late-p", "p one row late, and not what the guess was drawn from",
      ("np.array(rows)", "draft_model(x, k_max) if k_max else ()"), of=PROPOSE, step=LOOP),
]  # fmt: skip
