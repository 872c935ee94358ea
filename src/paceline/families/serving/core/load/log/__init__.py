"""The raw log of a run: what was sent and received, and what became of every call."""
