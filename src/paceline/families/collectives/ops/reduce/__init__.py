"""Reduce: the root ends with the sum over ranks."""
