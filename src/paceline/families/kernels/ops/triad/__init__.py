"""``triad``: the triad of STREAM."""
