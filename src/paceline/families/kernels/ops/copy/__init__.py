"""``copy``: the copy of STREAM."""
