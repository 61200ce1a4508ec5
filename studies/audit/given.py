"""Random numbers for vLLM's V2 kernels: they come from a buffer, whose address is the seed."""

import triton
import triton.language as tl

from studies.audit import harness

NOISE = tl.constexpr(harness.NOISE)
V = tl.constexpr(len(harness.P))


@triton.jit
def number(seed, place, includes_zero: tl.constexpr):
    """In place of `tl_rand32`."""
    return tl.load(seed.to(tl.pointer_type(tl.float32), bitcast=True) + place)


@triton.jit
def noise(seed, place, tokens):
    """In place of `murmur3_uniform32`, of which V2 takes the logarithm."""
    numbers = seed.to(tl.pointer_type(tl.float32), bitcast=True) + NOISE
    return tl.load(numbers + tokens, mask=tokens < V, other=1.0)


@triton.jit
def negative(value):
    """In place of that logarithm, so that the noise is exponential."""
    return -value


@triton.jit
def same_seed(seed, step):
    """In place of `spec_step_seed`, so that the place alone tells numbers apart."""
    return seed
