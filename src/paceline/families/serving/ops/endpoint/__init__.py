"""``endpoint``: the same calls go to servers that somebody else runs, one after another."""
