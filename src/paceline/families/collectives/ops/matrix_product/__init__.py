"""A matrix product on a square grid of ranks, each with a block of each matrix."""
