"""Pipelines: tables of actions, what they would take, and the executor that follows them."""
