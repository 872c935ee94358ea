"""The reference engine: a small real language model served with a paged cache, steps planned by a technique."""
