"""Ranks that share the sequences of a step."""
