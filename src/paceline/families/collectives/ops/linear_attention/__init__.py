"""Gated linear attention over a sequence that is split between ranks: a state passes through them."""
