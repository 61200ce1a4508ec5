"""How far other people's speculative decoding is from its target's own distribution."""
