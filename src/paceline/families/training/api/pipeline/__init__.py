"""Pipelines: tables of actions, and the executor that follows them."""
