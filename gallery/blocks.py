"""Block verification gone wrong."""

from gallery.variant import BLOCK, entry

VARIANTS = [
    entry("block-w", "block verification with w",
      ("< h[i]", "< w[i]"), of=BLOCK,
      seen="vllm-project/vllm-ascend#3794, with products of random numbers"),
    entry("block-left", "block verification from the left",
      ("i = len(drafted)", "i = 0", "i > 0 and not rng.random() < h[i]",
       "i < len(drafted) and rng.random() < h[i + 1]", "i -= 1", "i += 1"),
      of=BLOCK,
      seen="asked for in vllm-project/vllm-ascend#11985"),
    entry("block-residual", "block verification with the residual of q",
      ("w[i] * q[i]", "q[i]"), of=BLOCK,
      seen="vllm-project/vllm-ascend#7807, whose h differs, too"),
]  # fmt: skip
