"""``toy``: every rank ends with the buffer of the rank before it."""
