"""Ranks that share the positions of every sequence."""
