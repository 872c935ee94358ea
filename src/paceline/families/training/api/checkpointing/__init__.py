"""Checkpoints: what saves the state of training while it goes on, and atoms for other layouts of ranks."""
