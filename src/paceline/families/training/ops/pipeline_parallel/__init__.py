"""Ranks that share the layers of a model."""
