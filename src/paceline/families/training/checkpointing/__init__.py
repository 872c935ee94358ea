"""Checkpoints: what saves the state of training while it goes on, and what comes back from disk."""
