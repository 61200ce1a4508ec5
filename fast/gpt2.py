"""GPT2 with the products and the attention of this folder."""

import numpy as np

import gpt2
from checkpoint import UserError
from fast.attention import KVCache
from fast.product import parts, tile_params
from fast.threads import lock


class GPT2(gpt2.GPT2):
    """`gpt2.GPT2`, but fast: each w is cut into tiles, for which `x @ w` is faster than NumPy's.

    The logits of a position have the same bits whether it is computed alone or beside
    others, so both loops write the same text. Without AVX-512 that holds only for a few
    positions at a time, and a long prompt would break it. So on such a CPU, many positions
    before the last n_rows get a pass of their own, which begins at the start of the text. In
    both loops these positions are the prompt without its last token, so the bits agree.
    """

    def laid_out(self, params):
        return tile_params(params | {"head": {"w": params["wte"].T}})

    def allocate(self):
        """Forget the text, and allocate a new cache."""
        d = self.wpe.shape[1] // self.n_head
        self.kv_cache = [KVCache(self.n_ctx, self.n_head, d) for _ in self.blocks]
        self.reset()

    def first_layers(self, n_layer):
        """A GPT2 of the first n_layer layers, and the same norm and head. It shares weights."""
        if not 1 <= n_layer <= len(self.blocks):
            problem = f"early exit after {n_layer} layers was asked for"
            raise UserError(f"{problem}; choose 1 to {len(self.blocks)}")
        first = object.__new__(GPT2)
        first.__dict__.update(self.__dict__)
        first.blocks = self.blocks[:n_layer]
        first.allocate()
        return first

    def __call__(self, ids, n_rows=1):
        with lock:
            return super().__call__(ids, n_rows)

    def forward(self, ids, n_past, n_rows):
        """The pass of gpt2.py. A long prompt is cut into parts, so that arrays stay small."""
        n_before = len(ids) - n_rows
        logits = []
        for begin, end in parts(n_past, n_before, len(ids)):
            n_wanted = max(0, end - max(begin, n_before))  # the rows of this part
            logits.append(super().forward(ids[:end], begin, n_wanted))
        if len(logits[-1]) == n_rows:  # no need to copy them
            return logits[-1]
        return np.concatenate(logits)
