"""Reduce-scatter: every rank ends with its share of the sum over ranks."""
