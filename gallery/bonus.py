"""Wrong ways to add a token where all guesses are accepted."""

from gallery.variant import RESAMPLED, entry

VARIANTS = [
    entry("bonus-row-before", "bonus from the row before",
      ("q[-1]", "q[len(drafted) - 1]"),
      seen="AlphaGPU/leetgpu-challenges"),
    entry("argmax-bonus", "argmax as bonus",
      ("sample(q[-1], rng)", "q[-1].argmax()"),
      seen="shreyansh26/Speculative-Decoding"),
    entry("bonus-after-rejection", "bonus after a rejection",
      (RESAMPLED, f"[{RESAMPLED}, sample(q[i + 1], rng)]")),
]  # fmt: skip
