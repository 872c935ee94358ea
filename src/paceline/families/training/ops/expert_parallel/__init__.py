"""Ranks that share the experts of every layer."""
