"""The exact distance between the output of other people's speculative decoding and the target's own output."""
