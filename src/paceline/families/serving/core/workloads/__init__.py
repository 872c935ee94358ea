"""Calls of a point, free of torch: drawn from a seed, or from other people's traces and conversations."""
